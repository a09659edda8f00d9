"""The signals table: one row per delivered frame, written by ``decode`` and read by ``select-keyframes``."""

from pydantic import Field

from tasks.records.base import Record

SIGNAL_COLUMNS = {
    "frame_index": "int64",
    "pts_ns": "int64",  # -1: the medium has no time
    "ssim_mean": "float32",  # to the last reference frame; NaN where not scored
    "ssim_tile_min": "float32",
    "flow_rms_px": "float32",  # px a frame at analysis width; NaN where not measured
    "entropy_bits": "float32",
    "sharpness": "float32",  # variance of the Laplacian at analysis width
    "is_corrupt": "bool",
    "scored": "bool",
}


class Gap(Record):
    """A stretch of the medium that could not be decoded, in time or, where the medium has no times, in frames.

    In time it lies between the good frames around it; in frames it names the first and the last one concerned.
    """

    start_ns: int | None = None
    end_ns: int | None = None
    start_frame: int | None = Field(default=None, description="Counted from 0; only where the medium has no times")
    end_frame: int | None = None
    cause: str


class SignalsRef(Record):
    """Where the signals table lies, and how decoding went."""

    uri: str
    frames_declared: int | None = Field(default=None, description="What the header promised; None when it does not say")
    frames_delivered: int = Field(ge=0)
    frames_corrupt: int = Field(ge=0)
    frames_scored: int = Field(ge=0)
    duration_ns: int | None = Field(default=None, description="From decoded timestamps; None for stills")
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()
    decode_seconds: float = Field(ge=0)
    peak_rss_bytes: int = Field(default=0, ge=0, description="Of the decode child")
    decoder: str = Field(description="Which decoder ran, with its version")

    @property
    def is_damaged(self) -> bool:
        """Tell whether any part of the medium is missing or could not be decoded."""
        return bool(self.gaps) or self.frames_corrupt > 0
