"""The knobs of a run. Each spec carries the version of the algorithm it steers, so that digests change with it."""

from typing import Literal

from pydantic import Field, model_validator

from tasks.records.base import Record


class DecodeSpec(Record):
    """How a medium is decoded and scored, and the limits a hostile file runs into."""

    algorithm_version: Literal[1] = 1
    analysis_width_px: int = Field(default=240, ge=64, le=960, title="Analysis width (px)")
    quiet_stride: int = Field(
        default=5, ge=1, le=60, title="Quiet stride", description="Score each n-th frame while nothing moves"
    )
    max_seconds: float = Field(default=3600.0, gt=0, title="Deadline (s)", description="Wall time of the decode child")
    max_frames: int = Field(default=2_000_000, ge=1, title="Frame limit")
    max_pixels_per_frame: int = Field(default=200_000_000, ge=1, title="Pixel limit per frame")
    max_child_rss_bytes: int = Field(default=3_000_000_000, ge=100_000_000, title="Memory limit of the decode child")

    @property
    def scoring(self) -> tuple[int, int, int]:
        """What determines the signals table; the rest are limits, and what was decoded within others is as good."""
        return self.algorithm_version, self.analysis_width_px, self.quiet_stride


class SelectionSpec(Record):
    """Which frames are kept."""

    algorithm_version: Literal[1] = 1
    ssim_tile_min_threshold: float = Field(default=0.70, gt=0, lt=1, title="Tile SSIM that counts as change")
    ssim_mean_threshold: float = Field(default=0.80, gt=0, lt=1, title="Mean SSIM that counts as change")
    burst_flow_rms_px: float = Field(
        default=1.0, gt=0, title="Burst threshold (px a frame)", description="Sparse-flow RMS that starts a burst"
    )
    max_gap_s: float = Field(default=30.0, gt=0, title="Longest stretch without a keyframe (s)")
    max_keep_fraction: float = Field(default=0.05, gt=0, le=1, title="Largest share of frames kept")
    max_keyframes: int = Field(default=256, ge=1, title="Largest number of keyframes")
    sharpness_window_frames: int = Field(default=5, ge=0, title="Frames searched for the sharpest neighbour")
    min_entropy_bits: float = Field(default=1.0, ge=0, title="Frames flatter than this are never kept (black, blank)")


class PoolSpec(Record):
    """How vision tokens are pooled."""

    algorithm_version: Literal[1] = 1
    mode: Literal["threshold", "off"] = Field(default="threshold", title="Mode")
    operator: Literal["mean"] = "mean"
    block_tokens: Literal[2, 4, 8] = Field(default=4, title="Block edge (tokens)")
    threshold: float = Field(
        default=3.0,
        ge=0,
        title="Flatness threshold (grey levels)",
        description="A block is pooled when every token's gradient, less the noise floor, stays under this",
    )


class PromptSpec(Record):
    """What the model is asked, and how much it may answer."""

    algorithm_version: Literal[1] = 1
    prompt: str = Field(
        default="Describe the instruments and events in each frame.", min_length=1, max_length=20_000, title="Question"
    )
    max_output_tokens: int = Field(default=256, ge=1, le=32_768, title="Longest answer (tokens)")
    max_segment_tokens: int = Field(
        default=4096, ge=64, title="Largest segment (tokens)", description="A long medium is asked in segments"
    )
    max_segment_frames: int = Field(default=4, ge=1, title="Most frames in a segment")
    max_tokens_total: int | None = Field(default=None, ge=1, title="Stop before spending more prompt tokens than this")
    prefill_chunk_tokens: int = Field(default=1024, ge=16, title="Prefill chunk (tokens)")
    timeout_s: float = Field(default=600.0, gt=0, title="Deadline of one segment (s)")


class MediaRequest(Record):
    """One medium to analyse, and how."""

    uri: str = Field(title="Medium", description="s3://bucket/key, file:///path or a plain path", min_length=1)
    case_id: str | None = Field(default=None, title="Case", description="A pseudonym; never a patient identifier")
    media_store: str = Field(default="default", title="Store block", description="Where results are written")
    model_folder: str | None = Field(
        default=None,
        title="Model",
        description="Folder of a Qwen2-VL checkpoint on this machine; empty: the demo model",
    )
    decode: DecodeSpec = Field(default_factory=DecodeSpec, title="Decoding")
    selection: SelectionSpec = Field(default_factory=SelectionSpec, title="Keyframes")
    pooling: PoolSpec = Field(default_factory=PoolSpec, title="Patch pooling")
    prompt: PromptSpec = Field(default_factory=PromptSpec, title="Question")

    @model_validator(mode="after")
    def _no_blank_uri(self) -> "MediaRequest":
        if not self.uri.strip():
            raise ValueError("uri is blank; give s3://bucket/key or a path")
        return self
