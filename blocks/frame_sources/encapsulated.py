"""Fragments of encapsulated DICOM pixel data (PS3.5 A.4): which bytes make up which frame, or one long bitstream."""

import bisect
import io
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

_ITEM = b"\xfe\xff\x00\xe0"
_SEQUENCE_END = b"\xfe\xff\xdd\xe0"
_CODESTREAM_STARTS = (b"\xff\xd8\xff", b"\xff\x4f\xff\x51", b"\x00\x00\x00\x0cjP")
_END_OF_IMAGE = b"\xff\xd9"


@dataclass(frozen=True)
class Fragments:
    """Where the fragments lie in the stream.

    Attributes:
        starts: of each fragment's bytes.
        lengths: of each fragment; the last may be cut short.
        basic_offsets: of each frame's first item, counted from the first item after the table; may be empty.
        is_complete: False when the stream ends inside a fragment or before the closing delimiter.
        has_short_end: True when the last fragment is cut short.
    """

    starts: Sequence[int]
    lengths: Sequence[int]
    basic_offsets: tuple[int, ...]
    is_complete: bool
    has_short_end: bool


def walk_fragments(stream: BinaryIO, start: int, end: int) -> Fragments:
    """Find all fragments by their item headers, without reading them.

    Args:
        stream: seekable.
        start: where the value of the pixel data element begins.
        end: where the stream, or the element, ends.
    """
    starts, lengths = array("Q"), array("Q")
    offsets: tuple[int, ...] = ()
    is_complete = has_short_end = False
    at, is_first = start, True
    while at + 8 <= end:
        stream.seek(at)
        header = stream.read(8)
        if header[:4] != _ITEM:
            is_complete = header[:4] == _SEQUENCE_END
            break
        length = int.from_bytes(header[4:8], "little")
        at += 8
        present = min(length, end - at)
        if is_first:
            table = stream.read(present)
            offsets = tuple(int.from_bytes(table[i : i + 4], "little") for i in range(0, len(table) - 3, 4))
            is_first = False
        else:
            starts.append(at)
            lengths.append(present)
        if present < length:
            has_short_end = True
            break
        at += length
    return Fragments(starts, lengths, offsets, is_complete, has_short_end)


def frame_fragments(
    stream: BinaryIO, fragments: Fragments, count: int, extended_offsets: Sequence[int] = ()
) -> list[range]:
    """Return the fragments of each frame that is there in full, in order; at most ``count`` frames.

    In turn: the extended or basic offset table if every entry is a fragment's beginning, one frame, one fragment a
    frame, else a frame begins where a JPEG family codestream does and the fragment before ends one.

    Args:
        stream: holds the fragments.
        fragments: from ``walk_fragments``.
        count: NumberOfFrames.
        extended_offsets: of (7FE0,0001), as numbers.
    """
    total = len(fragments.starts)
    if total == 0:
        return []
    begins = _by_table(fragments, extended_offsets) or _by_table(fragments, fragments.basic_offsets)
    if begins is None:
        if count == 1:
            begins = [0]
        elif total == count:
            begins = list(range(total))
        else:
            begins = _by_codestream(stream, fragments)
    ends = [*begins[1:], total]
    frames = [range(first, last) for first, last in zip(begins, ends, strict=True)]
    if fragments.has_short_end:
        frames = frames[:-1]
    return frames[:count]


def read_fragments(stream: BinaryIO, fragments: Fragments, which: range) -> bytes:
    """Return the bytes of some fragments, joined."""
    parts = []
    for index in which:
        stream.seek(fragments.starts[index])
        parts.append(stream.read(fragments.lengths[index]))
    return b"".join(parts)


def _by_table(fragments: Fragments, offsets: Sequence[int]) -> list[int] | None:
    if len(offsets) == 0 or offsets[0] != 0:
        return None
    first_item = fragments.starts[0] - 8
    item_of = {start - 8 - first_item: index for index, start in enumerate(fragments.starts)}
    # A file that was cut off has fewer fragments than its table names.
    begins = [item_of[offset] for offset in offsets if offset in item_of]
    lost = [offset for offset in offsets if offset not in item_of and offset <= max(item_of)]
    return None if lost or begins != sorted(set(begins)) else begins


def _by_codestream(stream: BinaryIO, fragments: Fragments) -> list[int]:
    begins = [0]
    for index in range(1, len(fragments.starts)):
        stream.seek(fragments.starts[index])
        if not stream.read(8).startswith(_CODESTREAM_STARTS):
            continue
        tail_start = max(fragments.starts[index - 1], fragments.starts[index] - 8 - 10)
        stream.seek(tail_start)
        if _END_OF_IMAGE in stream.read(10):
            begins.append(index)
    return begins


class FragmentStream(io.RawIOBase):
    """All fragments as one seekable read-only stream, read piece by piece."""

    def __init__(self, stream: BinaryIO, fragments: Fragments) -> None:
        super().__init__()
        self._stream = stream
        self._fragments = fragments
        self._ends = array("Q")
        total = 0
        for length in fragments.lengths:
            total += length
            self._ends.append(total)
        self._size = total
        self._at = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be seeked."""
        return True

    def tell(self) -> int:
        """Return the position in the joined bytes."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position in the joined bytes."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: "memoryview[int] | bytearray") -> int:  # type: ignore[override]
        """Read up to the end of one fragment."""
        if self._at >= self._size:
            return 0
        index = bisect.bisect_right(self._ends, self._at)
        within = self._at - (self._ends[index] - self._fragments.lengths[index])
        length = min(len(buffer), self._fragments.lengths[index] - within)
        self._stream.seek(self._fragments.starts[index] + within)
        data = self._stream.read(length)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
