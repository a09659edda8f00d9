"""A folder as a store: results under a root, media anywhere on this machine."""

import hashlib
import os
import shutil
import stat as modes
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from blocks.access import HIDDEN_PREFIX, LocalConfig, ObjectStat, check_key, label_of
from blocks.access_local_errors import translated
from tasks.records.errors import (
    BudgetExceeded,
    ConfigurationError,
    MediaChanged,
    MediaNotFound,
    UnsupportedMedia,
)

COPY_BYTES = 1 << 20
STALE_AFTER_S = 3600.0


def file_uri(path: str | Path) -> str:
    """Return the ``file://`` URI of an absolute path; every byte outside ASCII, and space # ? %, is quoted."""
    return "file://" + quote_from_bytes(os.fsencode(path))


def path_of(uri: str) -> Path:
    """Return the path of a ``file://`` URI.

    Errors: ``ConfigurationError`` for another scheme, another host, or a relative path.
    """
    rest = uri.removeprefix("file://")
    host, _, _ = rest.partition("/")
    if not uri.startswith("file://") or host not in ("", "localhost") or not rest.removeprefix(host).startswith("/"):
        raise ConfigurationError(f"{label_of(uri)}: a local address has the form file:///absolute/path")
    raw = unquote_to_bytes(rest.removeprefix(host))
    if b"\0" in raw:
        raise ConfigurationError(f"{label_of(uri)}: a path cannot contain a NUL character")
    return Path(os.fsdecode(raw))


def etag_of(status: os.stat_result) -> str:
    """Return the entity tag of a local file: a digest of its inode, size and modification time."""
    return hashlib.sha256(f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}".encode()).hexdigest()[:32]


class LocalAccess:
    """A folder as a store.

    Errors: those of ``StoreAccess``; a full disk is ``StoreUnavailable``, missing rights are ``ConfigurationError``.
    """

    def __init__(self, config: LocalConfig, *, read_only: bool = False) -> None:
        if not config.root or "\0" in config.root:
            raise ConfigurationError("A local store needs a root folder; name one in its block or with --store")
        self.config = config
        self.root = Path(os.path.abspath(os.path.expanduser(config.root)))
        self.root_uri = file_uri(self.root)
        self._read_only = read_only
        self._swept: set[Path] = set()

    def uri_of(self, key: str) -> str:
        """Return the URI of a key under the root."""
        return file_uri(self.root / check_key(key))

    def stat(self, uri: str) -> ObjectStat:
        """Return what stands at ``uri`` now."""
        try:
            status = os.stat(path_of(uri))
        except OSError as error:
            raise translated(error, uri) from None
        _require_regular(status, uri)
        return _object_stat(uri, status)

    def exists(self, uri: str) -> bool:
        """Tell whether a regular file stands at ``uri``."""
        try:
            self.stat(uri)
        except (MediaNotFound, UnsupportedMedia):
            return False
        return True

    def open_pinned(self, stat: ObjectStat, *, block_bytes: int = 1 << 20) -> RawIOBase:
        """Open the pinned file; ``block_bytes`` is not used, the system's page cache does the work."""
        return _PinnedFile(stat)

    def read_bytes(self, uri: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Read a whole small file; larger than ``max_bytes`` raises ``BudgetExceeded``."""
        try:
            with open(path_of(uri), "rb", buffering=0, opener=_open_without_waiting) as file:
                _require_regular(os.fstat(file.fileno()), uri)
                chunks: list[bytes] = []
                left = max_bytes + 1
                while left and (chunk := file.read(min(left, 8 << 20))):
                    chunks.append(chunk)
                    left -= len(chunk)
        except OSError as error:
            raise translated(error, uri) from None
        if not left:
            raise BudgetExceeded(f"{label_of(uri)}: larger than the {max_bytes} bytes allowed here")
        return b"".join(chunks)

    def write_bytes(self, key: str, data: bytes, *, content_type: str = "application/octet-stream") -> str:
        """Write a file atomically and return its URI; ``content_type`` is not kept."""
        return self._write(key, lambda file: file.write(data))

    def write_file(self, key: str, path: Path, *, content_type: str = "application/octet-stream") -> str:
        """Copy a local file into the store atomically and return its URI; ``content_type`` is not kept."""

        try:
            source = open(path, "rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise translated(error, file_uri(os.path.abspath(path))) from None
        with source:
            return self._write(key, lambda target: shutil.copyfileobj(source, target, COPY_BYTES))

    def list_objects(self, prefix: str) -> Iterator[ObjectStat]:
        """List files whose key starts with ``prefix`` in byte order of the keys; one folder's names are held at a time.

        Errors: ``ConfigurationError`` for a folder that cannot be read, or a prefix that leaves the root.
        """
        if prefix.startswith("/") or ".." in prefix.split("/"):
            raise ConfigurationError("A prefix may not start with '/' or contain '..'")
        folder = prefix.rpartition("/")[0]
        yield from self._walk(self.root / folder, f"{folder}/" if folder else "", prefix, frozenset())

    def delete(self, uri: str) -> None:
        """Delete a file under the root; an absent one is no error, one outside is a ``ConfigurationError``."""
        self._require_writable()
        path = path_of(uri)
        if not Path(os.path.abspath(path)).is_relative_to(self.root):
            raise ConfigurationError(f"{label_of(uri)}: outside the store's root; only what lies under it is deleted")
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise translated(error, uri) from None

    def _require_writable(self) -> None:
        if self._read_only:
            raise ConfigurationError("This local access only reads; write through the store that holds the results")

    def _write(self, key: str, fill: Callable[[IO[bytes]], object]) -> str:
        self._require_writable()
        uri = self.uri_of(key)
        target = self.root / key
        temporary = target.parent / f"{HIDDEN_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._sweep_once(target.parent)
            try:
                with open(temporary, "xb") as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            _sync_folder(target.parent)
        except OSError as error:
            raise translated(error, uri, writing=True) from None
        return uri

    def _sweep_once(self, folder: Path) -> None:
        """Remove what killed writers left in a folder, once per folder in the life of this object."""
        if folder in self._swept:
            return
        self._swept.add(folder)
        oldest = time.time() - STALE_AFTER_S
        for entry in os.scandir(folder):
            if entry.name.startswith(HIDDEN_PREFIX):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry.path)

    def _walk(self, folder: Path, base: str, prefix: str, above: frozenset[tuple[int, int]]) -> Iterator[ObjectStat]:
        """Yield a folder's files and subfolders so that whole keys come out in byte order."""
        try:
            here = os.stat(folder)
            if (here.st_dev, here.st_ino) in above:  # a link back up
                return
            entries = [
                (os.fsencode(entry.name) + (b"/" if entry.is_dir() else b""), entry) for entry in os.scandir(folder)
            ]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise translated(error, file_uri(folder)) from None
        for _, entry in sorted(entries, key=lambda pair: pair[0]):
            key = base + entry.name
            if entry.name.startswith(HIDDEN_PREFIX):
                continue
            if entry.is_dir():
                if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                    yield from self._walk(folder / entry.name, f"{key}/", prefix, above | {(here.st_dev, here.st_ino)})
            elif key.startswith(prefix):
                with suppress(OSError):  # gone since, or a dangling link
                    status = entry.stat()
                    if modes.S_ISREG(status.st_mode):
                        yield _object_stat(file_uri(folder / entry.name), status)


class _PinnedFile(RawIOBase):
    """A local file held to its pinned state: checked at open and again around every read."""

    def __init__(self, stat: ObjectStat) -> None:
        super().__init__()
        self._stat = stat
        self._path = path_of(stat.uri)
        self._fd = -1
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        try:
            self._fd = _open_without_waiting(self._path, os.O_RDONLY)
            _require_regular(os.fstat(self._fd), self._stat.uri)
        except (FileNotFoundError, NotADirectoryError):
            raise MediaChanged(f"{label_of(self._stat.uri)}: gone since it was pinned") from None
        except OSError as error:
            raise translated(error, self._stat.uri) from None
        self._check()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.seek(0, os.SEEK_CUR)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a byte offset; before the start is a ``ValueError``."""
        self._require_open()
        try:
            return os.lseek(self._fd, offset, whence)
        except OSError:
            raise ValueError(f"seek to {offset = }, {whence = }") from None

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the file goes; after an error the position is what it was."""
        start, filled = self.tell(), 0
        view = memoryview(buffer).cast("B")
        try:
            while filled < len(view) and (count := os.preadv(self._fd, [view[filled:]], start + filled)):
                filled += count
        except OSError as error:
            raise translated(error, self._stat.uri) from None
        self._check()
        os.lseek(self._fd, start + filled, os.SEEK_SET)
        return filled

    def close(self) -> None:
        """Close the file; twice is harmless."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)
        super().close()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def _check(self) -> None:
        """Compare the open file, then what its path names now, with the pinned tag."""
        try:
            tags = {etag_of(os.fstat(self._fd)), etag_of(os.stat(self._path))}
        except (FileNotFoundError, NotADirectoryError):
            tags = set()
        except OSError as error:
            raise translated(error, self._stat.uri) from None
        if tags != {self._stat.etag}:
            raise MediaChanged(
                f"{label_of(self._stat.uri)}: changed or gone since it was pinned; run again to read it anew"
            )


def _object_stat(uri: str, status: os.stat_result) -> ObjectStat:
    return ObjectStat(uri=uri, etag=etag_of(status), size_bytes=status.st_size, last_modified_ns=status.st_mtime_ns)


def _open_without_waiting(path: str | Path, flags: int) -> int:
    """Open without blocking: a pipe without a writer would hold the reader for ever."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _require_regular(status: os.stat_result, uri: str) -> None:
    if modes.S_ISDIR(status.st_mode):
        raise UnsupportedMedia(f"{label_of(uri)}: is a directory; name the files in it")
    if not modes.S_ISREG(status.st_mode):
        raise UnsupportedMedia(f"{label_of(uri)}: is not a regular file (a pipe, socket or device)")


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; some network file systems cannot, and need not."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
