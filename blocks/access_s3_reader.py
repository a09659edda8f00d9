"""Seekable reading over ranged requests, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable
from io import SEEK_CUR, SEEK_END, SEEK_SET, RawIOBase
from typing import Any

CACHE_BYTES = 16 << 20
READ_AHEAD_BYTES = 4 << 20


class BlockReader(RawIOBase):
    """A raw file over ``fetch(start, length)``.

    Blocks are kept, least recently used last, up to 16 MiB. A miss fetches one block; misses that follow one another
    fetch twice as much each time, up to 4 MiB in one request. Not to be shared between threads.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size_bytes: int, *, block_bytes: int = 1 << 20) -> None:
        """Make a reader.

        Args:
            fetch: returns exactly ``length`` bytes from ``start``, or raises.
            size_bytes: the object's size; nothing past it is asked for.
            block_bytes: granularity of requests, 4 KiB to 4 MiB.
        """
        super().__init__()
        if not 4096 <= block_bytes <= READ_AHEAD_BYTES:
            raise ValueError(f"block_bytes must lie between 4096 and {READ_AHEAD_BYTES}, got {block_bytes}")
        self._fetch = fetch
        self._size = size_bytes
        self._block_bytes = block_bytes
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._capacity = CACHE_BYTES // block_bytes
        self._most_ahead = READ_AHEAD_BYTES // block_bytes
        self._ahead = 1
        self._expected_miss = 0
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the byte offset of the next read."""
        self._require_open()
        return self._position

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Move to a byte offset; past the end is allowed, before the start is a ``ValueError``."""
        self._require_open()
        if whence not in (SEEK_SET, SEEK_CUR, SEEK_END):
            raise ValueError(f"unknown {whence = }")
        target = offset + {SEEK_SET: 0, SEEK_CUR: self._position, SEEK_END: self._size}[whence]
        if target < 0:
            raise ValueError(f"seek before the start: {target}")
        self._position = target
        return target

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the object goes; after an error the position is what it was."""
        self._require_open()
        view = memoryview(buffer).cast("B")
        position, filled = self._position, 0
        while filled < len(view) and position < self._size:
            index, offset = divmod(position, self._block_bytes)
            block = self._block(index)
            count = min(len(block) - offset, len(view) - filled)
            view[filled : filled + count] = memoryview(block)[offset : offset + count]
            filled += count
            position += count
        self._position = position
        return filled

    def close(self) -> None:
        """Drop what is cached; twice is harmless."""
        if not self.closed:
            self._blocks.clear()
        super().close()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _block(self, index: int) -> bytes:
        if index in self._blocks:
            self._blocks.move_to_end(index)
            return self._blocks[index]
        self._ahead = min(self._ahead * 2, self._most_ahead) if index and index == self._expected_miss else 1
        last = (self._size - 1) // self._block_bytes
        count = 1
        while count < self._ahead and index + count <= last and index + count not in self._blocks:
            count += 1
        while self._blocks and len(self._blocks) + count > self._capacity:
            self._blocks.popitem(last=False)
        start = index * self._block_bytes
        data = memoryview(self._fetch(start, min(count * self._block_bytes, self._size - start)))
        for step in range(count):
            self._blocks[index + step] = bytes(data[step * self._block_bytes : (step + 1) * self._block_bytes])
        self._expected_miss = index + count
        return self._blocks[index]
