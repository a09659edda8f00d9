"""Stamps, messages and segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.algorithms.prompts import chat_messages, cut_segments, stamp_text
from tasks.records.inference import SegmentFrame


def frame(index: int, tokens: int = 10, pts_ns: int | None = 0) -> SegmentFrame:
    return SegmentFrame(image_uri="i", plan_uri="p", frame_index=index, pts_ns=pts_ns, tokens=tokens)


@pytest.mark.parametrize(
    ("pts_ns", "ordinal", "text"),
    [(12_340_000_000, 3, "<12.3 seconds>"), (0, 1, "<0.0 seconds>"), (None, 2, "<frame 2>")],
)
def test_stamp(pts_ns: int | None, ordinal: int, text: str) -> None:
    assert stamp_text(pts_ns, ordinal) == text


def test_each_picture_follows_its_own_stamp_and_the_question_comes_last() -> None:
    content = chat_messages([frame(0, pts_ns=0), frame(9, pts_ns=2_000_000_000)], "What?")[0]["content"]
    assert [part.get("text", part["type"]) for part in content] == [
        "<0.0 seconds>",
        "image",
        "<2.0 seconds>",
        "image",
        "What?",
    ]


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=40),
    st.integers(1, 400),
    st.integers(1, 8),
)
def test_segments_keep_every_frame_in_order_and_within_bounds(
    tokens: list[int], max_tokens: int, max_frames: int
) -> None:
    frames = [frame(index, count) for index, count in enumerate(tokens)]
    segments = cut_segments(frames, max_tokens=max_tokens, max_frames=max_frames)
    assert [f for segment in segments for f in segment] == frames
    for segment in segments:
        assert 1 <= len(segment) <= max_frames
        assert len(segment) == 1 or sum(f.tokens for f in segment) <= max_tokens
