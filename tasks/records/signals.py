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
    """A stretch of the medium that could not be decoded."""

    start_ns: int
    end_ns: int
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
