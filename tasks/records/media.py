"""Media: what was asked for, what was found, and what its header says."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tasks.records.base import Record


class MediaKind(StrEnum):
    """How a medium is decoded; told from its bytes, never from its suffix."""

    VIDEO = "video"
    DICOM = "dicom"
    DICOM_VIDEO = "dicom_video"
    TIFF = "tiff"
    IMAGE = "image"


class MediaRef(Record):
    """One pinned version of one medium. Later reads are held to ``etag``."""

    uri: str = Field(description="s3://bucket/key or file:///path")
    etag: str = Field(description="Entity tag of the pinned version; for local files inode, size and mtime")
    version_id: str | None = None
    size_bytes: int = Field(ge=0)
    last_modified_ns: int = Field(default=0, description="0: unknown, never compared")
    kind: MediaKind
    case_id: str | None = Field(default=None, description="Pseudonym; never a patient identifier")
    media_id: str = Field(description="Digest of uri and etag; stands for the medium in keys, logs and messages")


class MediaProbe(Record):
    """Facts about a medium; each says whether it comes from the header or from decoding."""

    container: str = Field(description="Container or file format, as the reader names it")
    codec: str | None = Field(default=None, description="Codec or DICOM transfer syntax UID")
    width_px: int = Field(ge=0)
    height_px: int = Field(ge=0)
    frame_count_from_header: int | None = Field(default=None, ge=0, description="None when the header does not say")
    duration_ns_from_header: int | None = None
    average_fps_from_header: float | None = None
    sample_aspect_ratio: tuple[int, int] = (1, 1)
    pixel_format: str | None = None
    bits_stored: int | None = None
    photometric_interpretation: str | None = None
    has_audio: bool = False


class PulledMedia(Record):
    """Outcome of ``stream-pull``: the pinned medium and what its header says."""

    media: MediaRef
    probe: MediaProbe


@dataclass(frozen=True)
class FrameBatch:
    """Decoded frames in presentation order; never a task result.

    Attributes:
        frame_index: (N,) int64, strictly increasing, counted over delivered frames from 0.
        pts_ns: (N,) int64, presentation time from the container's time base; -1 where the medium has no time.
        pixels: (N, H, W, C) uint8 or uint16, C 1 or 3 (RGB), upright and with square pixels.
    """

    frame_index: npt.NDArray[np.int64]
    pts_ns: npt.NDArray[np.int64]
    pixels: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

    def __post_init__(self) -> None:
        count = len(self.frame_index)
        if self.pixels.ndim != 4 or self.pixels.shape[3] not in (1, 3):
            raise ValueError(f"pixels must be (N, H, W, 1 or 3), got {self.pixels.shape = }")
        if self.pixels.dtype not in (np.uint8, np.uint16):
            raise ValueError(f"pixels must be uint8 or uint16, got {self.pixels.dtype = }")
        if not (self.pixels.shape[0] == len(self.pts_ns) == count):
            raise ValueError(f"lengths differ: {count = }, {len(self.pts_ns) = }, {self.pixels.shape[0] = }")
        if count > 1 and not bool(np.all(np.diff(self.frame_index) > 0)):
            raise ValueError("frame_index must increase strictly")
