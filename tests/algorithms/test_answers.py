"""One text from many answers, and what it may not hide."""

from typing import Literal

import pytest

from tasks.algorithms.answers import answer_outcome, timeline_text, unmatched_times
from tasks.records.inference import InferenceResult

SegmentOutcome = Literal["complete", "truncated", "refused"]


def result(index: int, text: str = "1.0 s: grasper.", outcome: SegmentOutcome = "complete") -> InferenceResult:
    return InferenceResult(
        request_id=str(index),
        segment_index=index,
        outcome=outcome,
        text=text,
        prompt_tokens=10,
        output_tokens=5,
        latency_ms=1.0,
        model="m",
        model_revision="1",
        endpoint="embedded",
    )


def test_answers_follow_in_order_and_incomplete_ones_are_marked() -> None:
    text = timeline_text([result(0), result(1, "2.0 s: scis", "truncated"), result(2, "", "refused")])
    assert text.splitlines() == [
        "1.0 s: grasper.",
        "2.0 s: scis [cut off: the answer reached its limit of 5 tokens]",
        "[segment 3: the model gave no answer]",
    ]


@pytest.mark.parametrize(
    ("outcomes", "asked", "expected"),
    [
        (["complete", "complete"], 2, "complete"),
        (["complete"], 2, "partial"),
        (["truncated"], 1, "truncated"),
        (["refused", "refused"], 2, "refused"),
        (["complete", "truncated"], 2, "partial"),
    ],
)
def test_the_worst_segment_decides(outcomes: list[SegmentOutcome], asked: int, expected: str) -> None:
    results = [result(index, outcome=outcome) for index, outcome in enumerate(outcomes)]
    assert answer_outcome(results, segments_asked=asked) == expected


def test_times_that_no_frame_has_are_found() -> None:
    frames = [0, 4_640_000_000, 12_280_000_000, None]
    assert unmatched_times("0.0 s: x.\n4.6 s: y.\n12.3 seconds: z.", frames) == ()
    assert unmatched_times("4.6 s: y.\n46.0 s: y.\n46.0 s: z, 81.1 s.", frames) == ("46.0", "81.1")
    assert unmatched_times("frame 1: nothing for 3 s", [None]) == ()
