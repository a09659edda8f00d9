"""Answers: one text from the answers of many segments, with their times kept."""

from collections.abc import Sequence
from typing import Literal

from tasks.records.inference import InferenceResult

Outcome = Literal["complete", "truncated", "refused", "partial"]


def timeline_text(segments: Sequence[InferenceResult]) -> str:
    """Join the segments' answers in order; a truncated or refused one is marked as such."""
    lines: list[str] = []
    for segment in segments:
        text = segment.text.strip()
        if segment.outcome == "refused":
            lines.append(f"[segment {segment.segment_index + 1}: the model gave no answer]")
        elif segment.outcome == "truncated":
            lines.append(f"{text} [cut off: the answer reached its limit of {segment.output_tokens} tokens]")
        else:
            lines.append(text)
    return "\n".join(lines)


def answer_outcome(segments: Sequence[InferenceResult], *, segments_asked: int) -> Outcome:
    """Return how complete an answer is; the worst segment decides."""
    if len(segments) < segments_asked:
        return "partial"
    outcomes = {segment.outcome for segment in segments}
    if outcomes == {"complete"}:
        return "complete"
    if len(outcomes) == 1:
        return outcomes.pop()
    return "partial"
