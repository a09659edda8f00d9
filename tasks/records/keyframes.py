"""Keyframes: which frames stand for the medium, and why."""

from enum import StrEnum

from pydantic import Field

from tasks.records.base import Record
from tasks.records.specs import SelectionSpec


class KeyframeReason(StrEnum):
    """Why a frame was kept."""

    FIRST = "first"
    CHANGE = "change"
    BURST = "burst"
    MAX_GAP = "max_gap"
    STILL = "still"


class Keyframe(Record):
    """One kept frame."""

    frame_index: int = Field(ge=0)
    pts_ns: int | None = Field(description="None for stills")
    score: float = Field(ge=0, le=1, description="1 - tile-minimum SSIM to the keyframe before; 1 for the first")
    reason: KeyframeReason
    sharpness: float
    entropy_bits: float = 0.0
    image_uri: str | None = Field(default=None, description="Set once the frame has been extracted")
    width_px: int | None = None
    height_px: int | None = None


class KeyframeSet(Record):
    """The kept frames of one medium in time order."""

    media_id: str
    spec: SelectionSpec
    keyframes: tuple[Keyframe, ...] = Field(min_length=1)
    frames_considered: int = Field(ge=1)
    capped: bool = Field(default=False, description="True when a cap kept fewer frames than the footage asked for")
    sheet_uri: str | None = Field(default=None, description="Contact sheet, once extracted")
