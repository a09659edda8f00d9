"""Whether a container says that it goes on where the file ends; two small reads, nothing is walked through."""

import io
from typing import BinaryIO

_EBML = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"
_HEAD_BYTES = 4096


def is_cut_short(stream: io.RawIOBase | BinaryIO) -> bool:
    """Tell whether a Matroska, WebM or AVI file is shorter than it says; False where it doesn't say.

    Args:
        stream: seekable; left where it was.
    """
    at = stream.tell()
    try:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        head = bytearray()
        while len(head) < _HEAD_BYTES and (block := stream.read(_HEAD_BYTES - len(head))):
            head += block
        promised = _matroska_end(bytes(head)) if head[:4] == _EBML else _avi_end(bytes(head))
        return promised is not None and size < promised
    finally:
        stream.seek(at)


def _avi_end(head: bytes) -> int | None:
    """Return where the first RIFF chunk ends at the least; an interrupted recorder leaves 0 there."""
    if head[:4] != b"RIFF" or head[8:11] != b"AVI":
        return None
    length = int.from_bytes(head[4:8], "little")
    return length or None  # some writers count the eight bytes before it, others don't


def _matroska_end(head: bytes) -> int | None:
    """Return where the segment ends; a live one has no length."""
    at = 0
    while at + 5 <= len(head):
        found = head[at : at + 4]
        start, length = _vint(head, at + (4 if found in (_EBML, _SEGMENT) else 1))
        if length is None:
            return None
        if found == _SEGMENT:
            return start + length
        at = start + length
    return None


def _vint(head: bytes, at: int) -> tuple[int, int | None]:
    """Return where an EBML length ends, and the length; None where it is unknown or damaged."""
    width = 9 - head[at].bit_length() if at < len(head) and head[at] else 0
    if width == 0 or at + width > len(head):
        return at, None
    value = int.from_bytes(head[at : at + width], "big") & ((1 << 7 * width) - 1)
    return at + width, None if value == (1 << 7 * width) - 1 else value
