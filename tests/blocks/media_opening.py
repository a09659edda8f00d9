"""Opening made media the way the pipeline does: from a raw stream with short reads, under limits."""

import io
from typing import Any

import numpy as np

from blocks.frame_source import DecodedFrame, FrameSource, FrameTarget, Limits, open_source
from tasks.algorithms.sniff import HEAD_BYTES, sniff_kind
from tasks.records.errors import MediaChanged, ScopeFlowError
from tests.blocks.media_makers import numbered

LIMITS = {"max_frames": 10_000, "max_pixels_per_frame": 10_000_000, "max_seconds": 60.0}
GREY = np.stack([numbered(n)[:, :, 0] for n in range(12)])
RGB = np.stack([numbered(n) for n in range(12)])


class Trickle(io.RawIOBase):
    """A raw stream as a store gives it: short reads, and nothing to reach around it."""

    def __init__(self, data: bytes, most: int = 4000) -> None:
        super().__init__()
        self._inner = io.BytesIO(data)
        self._most = most
        self.fail_after: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: Any) -> int:
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                raise MediaChanged("file://…(00000000): changed since the run began")
        data = self._inner.read(min(len(buffer), self._most))
        buffer[: len(data)] = data
        return len(data)


def opened(data: bytes, **limits: Any) -> FrameSource:
    kind = sniff_kind(data[:HEAD_BYTES], len(data))
    return open_source(kind, Trickle(data), Limits(**{**LIMITS, **limits}))


def decoded(data: bytes, **limits: Any) -> list[DecodedFrame]:
    return list(opened(data, **limits).frames())


def outcome(data: bytes) -> list[DecodedFrame] | ScopeFlowError:
    try:
        return decoded(data)
    except ScopeFlowError as error:
        return error


def target_of(frame: DecodedFrame) -> FrameTarget:
    return FrameTarget(frame.frame_index, frame.pts_ns if frame.pts_ns != -1 else None)
