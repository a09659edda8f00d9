"""Answers: one text from the answers of many segments, with their times kept."""

import re
from collections.abc import Sequence
from typing import Literal

from tasks.algorithms.prompts import stamp_text
from tasks.records.inference import InferenceResult

_TIME_IN_TEXT = re.compile(r"\b(\d+\.\d) s(?:econds?)?\b")
_TIME_IN_STAMP = re.compile(r"<(\d+\.\d) seconds>")

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


def unmatched_times(text: str, frame_times_ns: Sequence[int | None]) -> tuple[str, ...]:
    """Return the times, in seconds as written, that an answer speaks of and no frame it was shown has.

    Args:
        text: the model's answer; only times written as in the stamps ("12.3 s", "12.3 seconds") are looked at.
        frame_times_ns: of the frames in its prompt.
    """
    stamps = (_TIME_IN_STAMP.match(stamp_text(pts_ns, 1)) for pts_ns in frame_times_ns)
    shown = {stamp[1] for stamp in stamps if stamp}
    return tuple(dict.fromkeys(time for time in _TIME_IN_TEXT.findall(text) if time not in shown))
