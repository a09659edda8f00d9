"""Inference: what the model is sent and what it answered."""

from typing import Literal

from pydantic import Field

from tasks.records.base import Record


class SegmentFrame(Record):
    """One picture of a segment; the plan at ``plan_uri`` says how its tokens are pooled."""

    image_uri: str
    plan_uri: str
    frame_index: int
    pts_ns: int | None
    tokens: int = Field(ge=1, description="Vision tokens after pooling")


class InferenceRequest(Record):
    """One question about one segment of a medium."""

    request_id: str = Field(description="Digest of what determines the answer: pictures, plans, question, limit, model")
    media_id: str
    segment_index: int = Field(ge=0)
    frames: tuple[SegmentFrame, ...] = Field(min_length=1)
    prompt: str
    max_output_tokens: int
    prefill_chunk_tokens: int
    timeout_s: float


class InferenceResult(Record):
    """One answer, with what it took."""

    request_id: str
    segment_index: int
    outcome: Literal["complete", "truncated", "refused"]
    text: str
    start_ns: int | None = None
    end_ns: int | None = None
    frame_indices: tuple[int, ...] = ()
    prompt_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    latency_ms: float = Field(ge=0)
    peak_rss_bytes: int = Field(default=0, ge=0, description="Of the model's process")
    prefill_steps: tuple[int, ...] = Field(default=(), description="Context tokens of each prefill step")
    model: str
    model_revision: str
    endpoint: str


class Answer(Record):
    """Outcome of ``infer``: every segment's answer and one text for the whole medium."""

    segments: tuple[InferenceResult, ...]
    text: str
    summary_method: Literal["single", "timeline", "model"]
    outcome: Literal["complete", "truncated", "refused", "partial"]
    model: str
    model_revision: str
    model_notice: str | None = Field(default=None, description="What the model's card says a reader must know")
    endpoint: str
