"""Frames of any medium, one at a time and in bounded memory: the contract and what its implementations share.

One file per kind stands in ``blocks/frame_sources``. All read from an open binary stream, never from a path, and word
their errors to follow a name (``<pseudonym>: is cut off``): they hold no path and nothing from the file's own text.
"""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from tasks.records.errors import BudgetExceeded, CorruptMedia
from tasks.records.media import MediaKind, MediaProbe
from tasks.records.signals import Gap
from tasks.records.specs import DecodeSpec

ByteImage = npt.NDArray[np.uint8]

NO_TIME = -1
MAX_GAPS = 500
MAX_WARNINGS = 50
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class DecodedFrame:
    """One delivered frame.

    Attributes:
        frame_index: counted over delivered frames from 0, damaged ones included.
        pts_ns: the container's own presentation time, which may be negative; -1 (``NO_TIME``) where there is none.
        is_corrupt: the decoder says that the picture is damaged; it is never scored or kept.
        read_luma: gives the picture's luma, (H, W) uint8 as stored (not turned upright, pixels not made square). It
            costs nothing until it is called, so that frames that are not scored stay cheap.
    """

    frame_index: int
    pts_ns: int
    is_corrupt: bool
    read_luma: Callable[[], ByteImage]

    @property
    def luma(self) -> ByteImage:
        """Return (H, W) uint8 luma at full resolution."""
        return self.read_luma()


@dataclass(frozen=True)
class FrameTarget:
    """A frame to extract. ``pts_ns`` must match exactly where the medium has times; None where it has none."""

    frame_index: int
    pts_ns: int | None = None


class FrameSource(Protocol):
    """One opened medium.

    ``frames`` may be walked once; ``gaps``, ``warnings`` and ``frames_declared`` are complete once it has ended.
    Errors: ``CorruptMedia`` (nothing, or less than half of it, can be decoded), ``UnsupportedMedia``,
    ``BudgetExceeded``, and whatever the stream raises (``MediaChanged``, ``StoreUnavailable``).
    """

    decoder: str
    frames_declared: int | None
    gaps: list[Gap]
    warnings: list[str]

    def probe(self) -> MediaProbe:
        """Return what the header says; decodes nothing."""
        ...

    def frames(self) -> Iterator[DecodedFrame]:
        """Yield every frame in presentation order."""
        ...

    def extract(self, targets: Sequence[FrameTarget]) -> Iterator[tuple[int, ByteImage]]:
        """Yield (frame_index, (H, W, 3) uint8 RGB), upright and with square pixels, for ascending targets."""
        ...

    def close(self) -> None:
        """Free the decoder; the stream stays open."""
        ...


@dataclass
class Limits:
    """What a hostile file runs into; every message names the setting to raise."""

    max_frames: int
    max_pixels_per_frame: int
    max_seconds: float
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, spec: DecodeSpec) -> "Limits":
        """Take the limits of a spec; the clock starts now."""
        return cls(spec.max_frames, spec.max_pixels_per_frame, spec.max_seconds)

    def check_frames(self, count: int) -> None:
        """Raise ``BudgetExceeded`` when ``count`` frames are too many; checks the clock as well."""
        if count > self.max_frames:
            raise BudgetExceeded(
                f"has more than {self.max_frames:,} frames; raise max_frames of the decode settings to read on"
            )
        if time.monotonic() - self.started > self.max_seconds:
            raise BudgetExceeded(
                f"took longer than {self.max_seconds:g} s to decode ({count:,} frames so far); "
                "raise max_seconds of the decode settings"
            )

    def check_pixels(self, width_px: int, height_px: int) -> None:
        """Raise ``BudgetExceeded`` when one frame has too many pixels."""
        if width_px * height_px > self.max_pixels_per_frame:
            raise BudgetExceeded(
                f"has a frame of {width_px:,} x {height_px:,} pixels, more than the limit of "
                f"{self.max_pixels_per_frame:,}; raise max_pixels_per_frame of the decode settings"
            )


class FrameLog:
    """Counts what a source delivers, and turns damaged stretches into gaps and a verdict."""

    def __init__(self) -> None:
        self.gaps: list[Gap] = []
        self.warnings: list[str] = []
        self.delivered = 0
        self.corrupt = 0
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._last_good_ns: int | None = None
        self._last_good: int | None = None
        self._end_ns: int | None = None
        self._end: int | None = None
        self._open_cause: str | None = None

    def note_frame(self, pts_ns: int, is_corrupt: bool) -> None:
        """Count one delivered frame; a good one closes an open gap."""
        index = self.delivered
        self.delivered += 1
        if pts_ns != NO_TIME:
            self._first_ns = pts_ns if self._first_ns is None else self._first_ns
            self._last_ns = pts_ns
        if is_corrupt:
            self.corrupt += 1
            self._open_cause = self._open_cause or "damaged frames"
            return
        self._close_gap(index - 1, self._last_ns)
        self._last_good, self._last_good_ns = index, self._last_ns

    @property
    def span_ns(self) -> int:
        """Return the time from the first delivered frame to the last; 0 while there are none."""
        return 0 if self._last_ns is None or self._first_ns is None else self._last_ns - self._first_ns

    def note_loss(self, cause: str) -> None:
        """Open a gap: something between the last frame and the next could not be decoded."""
        self._open_cause = self._open_cause or cause

    def warn(self, text: str) -> None:
        """Add a warning once, up to ``MAX_WARNINGS``."""
        if text not in self.warnings and len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)

    def cut_off(self, text: str, *, frames: int | None = None, length_ns: int | None = None) -> None:
        """Note, just before ``finish``, that the end of the medium is missing.

        Args:
            text: the warning.
            frames: how many there should be, where that is known.
            length_ns: from the first frame to the end, where that is known.
        """
        self.warn(text)
        self._open_cause = "the file is cut off"
        self._end = max(self.delivered, (frames or 0) - 1)
        if self._first_ns is not None and length_ns is not None:
            self._end_ns = self._first_ns + length_ns

    def finish(self, promised: str, *, packets: int = 0) -> None:
        """Close the last gap and raise ``CorruptMedia`` if nothing, or less than half, was good.

        Args:
            promised: what the header promised, for the message ("30 frames").
            packets: how many pieces of picture data there were, whatever became of them.
        """
        if self.delivered:
            ends_ns = [ns for ns in (self._last_ns, self._end_ns) if ns is not None]
            self._close_gap(self._end if self._end is not None else self.delivered - 1, max(ends_ns, default=None))
        if self.delivered == 0 and packets:
            raise CorruptMedia(
                f"no frame could be decoded from {packets} packets: the file is damaged all over or encrypted"
            )
        if self.delivered == 0:
            raise CorruptMedia(f"no frame could be decoded (its header promised {promised})")
        if self.corrupt == self.delivered:
            raise CorruptMedia("every frame is damaged or the file is encrypted")
        if 2 * self.corrupt > self.delivered:
            raise CorruptMedia(
                f"{self.corrupt} of {self.delivered} frames are damaged: the file is damaged all over or encrypted"
            )
        if self.corrupt:
            self.warn(f"{self.corrupt} of {self.delivered} frames are damaged and were left out")

    def _close_gap(self, last: int, end_ns: int | None) -> None:
        """Close the open gap, if any: ``last`` is its last frame, ``end_ns`` where the picture is good again."""
        if self._open_cause is None:
            return
        if end_ns is not None:
            starts_ns = [ns for ns in (self._last_good_ns, self._first_ns) if ns is not None]
            gap = Gap(start_ns=min(starts_ns[0], end_ns), end_ns=end_ns, cause=self._open_cause)
        else:
            first = self._last_good + 1 if self._last_good is not None else 0
            # Nothing was delivered in between: what is lost lay between two good frames.
            first, last = (first, last) if first <= last else (max(0, first - 1), first)
            gap = Gap(start_frame=first, end_frame=last, cause=self._open_cause)
        self._open_cause = None
        if len(self.gaps) < MAX_GAPS:
            self.gaps.append(gap)
        else:  # a file damaged all over: the last gap swallows the rest
            ends = {"end_ns": gap.end_ns, "end_frame": gap.end_frame, "cause": "many damaged stretches"}
            self.gaps[-1] = self.gaps[-1].model_copy(update=ends)


def open_source(kind: MediaKind, stream: io.RawIOBase | BinaryIO, limits: Limits) -> FrameSource:
    """Open a medium of a known kind.

    Args:
        kind: from ``sniff_kind``.
        stream: seekable, positioned anywhere; the caller closes it.
        limits: hostile files run into them.
    """
    if kind is MediaKind.VIDEO:
        from blocks.frame_sources.video import VideoSource

        return VideoSource(stream, limits)
    buffered = as_buffered(stream)
    if kind is MediaKind.DICOM:
        from blocks.frame_sources.dicom import DicomSource

        return DicomSource(buffered, limits)
    if kind is MediaKind.DICOM_VIDEO:
        from blocks.frame_sources.dicom_video import open_dicom_video

        return open_dicom_video(buffered, limits)
    if kind is MediaKind.TIFF:
        from blocks.frame_sources.tiff import TiffSource

        return TiffSource(buffered, limits)
    from blocks.frame_sources.image import ImageSource

    return ImageSource(buffered, limits)


def as_buffered(stream: io.RawIOBase | BinaryIO) -> BinaryIO:
    """Return a stream whose ``read(n)`` gives n bytes unless the file ends; raw streams may give fewer."""
    if isinstance(stream, io.RawIOBase):
        return io.BufferedReader(stream, buffer_size=_BLOCK_BYTES)
    return stream
