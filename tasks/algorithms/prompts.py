"""Prompts: the stamp before each frame, and how a medium is cut into segments that fit."""

from collections.abc import Sequence
from typing import Any

from tasks.records.inference import SegmentFrame

NS_PER_S = 1_000_000_000


def stamp_text(pts_ns: int | None, ordinal: int) -> str:
    """Return the text that stands before a frame: its time, or its number where the medium has no time.

    Args:
        pts_ns: presentation time; None for stills.
        ordinal: place of the frame in its segment, from 1.
    """
    if pts_ns is None:
        return f"<frame {ordinal}>"
    return f"<{pts_ns / NS_PER_S:.1f} seconds>"


def chat_messages(frames: Sequence[SegmentFrame], question: str) -> list[dict[str, Any]]:
    """Return the one user message of a segment in the chat format of OpenAI-compatible models."""
    content: list[dict[str, Any]] = []
    for ordinal, frame in enumerate(frames, start=1):
        content.append({"type": "text", "text": stamp_text(frame.pts_ns, ordinal)})
        content.append({"type": "image"})
    content.append({"type": "text", "text": question})
    return [{"role": "user", "content": content}]


def cut_segments(frames: Sequence[SegmentFrame], *, max_tokens: int, max_frames: int) -> list[tuple[SegmentFrame, ...]]:
    """Cut frames, in order, into segments of at most ``max_tokens`` vision tokens and ``max_frames`` frames.

    A frame that is larger than ``max_tokens`` by itself makes a segment of its own, so that nothing is left out.
    """
    segments: list[tuple[SegmentFrame, ...]] = []
    current: list[SegmentFrame] = []
    for frame in frames:
        tokens = sum(member.tokens for member in current) + frame.tokens
        if current and (len(current) == max_frames or tokens > max_tokens):
            segments.append(tuple(current))
            current = []
        current.append(frame)
    if current:
        segments.append(tuple(current))
    return segments
