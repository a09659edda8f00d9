"""Top-level boxes of an ISO base media file, to say why one can't be opened."""

import io
from typing import BinaryIO

_MOST_BOXES = 1000


def top_level_boxes(stream: io.RawIOBase | BinaryIO) -> list[bytes]:
    """Return the types of the top-level boxes in order; empty for any other kind of file.

    Args:
        stream: seekable; left anywhere.
    """
    size = stream.seek(0, io.SEEK_END)
    boxes: list[bytes] = []
    at = 0
    while at + 8 <= size and len(boxes) < _MOST_BOXES:
        stream.seek(at)
        header = stream.read(16) or b""
        length, kind = int.from_bytes(header[:4], "big"), header[4:8]
        if not kind.isalnum():
            break
        boxes.append(kind)
        if length == 1:
            length = int.from_bytes(header[8:16], "big")
        if length < 8:  # 0: to the end of the file
            break
        at += length
    return boxes if boxes and boxes[0] in (b"ftyp", b"styp", b"moov", b"mdat", b"free", b"wide", b"skip") else []
