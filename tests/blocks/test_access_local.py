"""The local store and what a file system can do to it."""

import errno
import os
import stat as modes
from pathlib import Path

import pytest

from blocks.access import LocalConfig, ObjectStat
from blocks.access_local import LocalAccess, file_uri, path_of
from blocks.access_local_errors import translated
from blocks.access_open import access_for
from tasks.records.errors import ConfigurationError, MediaChanged, MediaNotFound, StoreUnavailable, UnsupportedMedia


@pytest.fixture
def access(tmp_path: Path) -> LocalAccess:
    return LocalAccess(LocalConfig(root=str(tmp_path / "store")))


@pytest.mark.timeout(20)
def test_pipes_and_devices_are_refused_without_waiting(access: LocalAccess, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        pinned = ObjectStat(uri=file_uri(path), etag="x", size_bytes=1, last_modified_ns=0)
        for act in (access.stat, access.read_bytes):
            with pytest.raises(UnsupportedMedia, match="not a regular file"):
                act(file_uri(path))
        with pytest.raises(UnsupportedMedia, match="not a regular file"):
            access.open_pinned(pinned)
        assert not access.exists(file_uri(path))


def test_a_file_that_fails_at_opening_is_closed(
    access: LocalAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = access.stat(access.write_bytes("a.bin", b"x"))

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "as the kernel says it")

    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("os.fstat", fail)
    with pytest.raises(StoreUnavailable) as caught:
        access.open_pinned(pinned)
    monkeypatch.undo()
    assert set(os.listdir("/proc/self/fd")) == before
    assert caught.tb is not None  # it holds the file object, whose end would close the descriptor too


def test_the_whole_machine_as_a_store() -> None:
    access = LocalAccess(LocalConfig(root="/"), read_only=True)
    assert path_of(access.root_uri) == Path("/")
    assert access.uri_of("a b/c.bin") == "file:///a%20b/c.bin"
    assert access_for("file:///a.bin", access) is access


def test_links_are_followed_and_loops_end(access: LocalAccess, tmp_path: Path) -> None:
    access.write_bytes("a/x.bin", b"x")
    root = tmp_path / "store"
    (root / "a" / "up").symlink_to(root)
    (root / "b").symlink_to(tmp_path / "far")
    (root / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "y.bin").write_bytes(b"y")
    listed = [stat.uri for stat in access.list_objects("")]
    assert listed == [access.uri_of("a/x.bin"), access.uri_of("b/y.bin")]
    (root / "link.bin").symlink_to(root / "a" / "x.bin")
    pinned = access.stat(access.uri_of("link.bin"))
    with access.open_pinned(pinned) as file:
        assert file.read() == b"x"
        (root / "link.bin").unlink()
        (root / "link.bin").symlink_to(tmp_path / "far" / "y.bin")
        with pytest.raises(MediaChanged):
            file.read(1)
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(ConfigurationError, match="symbolic links"):
        access.stat(access.uri_of("loop"))


def test_a_file_and_a_folder_of_one_name_are_told_apart(access: LocalAccess) -> None:
    access.write_bytes("a/b", b"x")
    for key in ("a/b/c", "a"):
        with pytest.raises(ConfigurationError, match="exclude each other"):
            access.write_bytes(key, b"x")
    assert [stat.uri for stat in access.list_objects("")] == [access.uri_of("a/b")]


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_or_failing_disk_is_named_and_leaves_nothing(
    access: LocalAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    access.write_bytes("a.bin", b"old")

    def fail(*_: object) -> None:
        raise OSError(number, "as the kernel says it", "/Doe^John")

    source = tmp_path / "source"
    source.write_bytes(b"x")
    monkeypatch.setattr(*(("os.fsync", fail) if call == "fsync" else ("blocks.access_local.shutil.copyfileobj", fail)))
    words = "EIO" if number == errno.EIO else "disk is full"
    with pytest.raises(StoreUnavailable, match=words) as caught:
        access.write_file("a.bin", source)
    assert "Doe^" not in str(caught.value)
    monkeypatch.undo()
    assert os.listdir(tmp_path / "store") == ["a.bin"]
    assert access.read_bytes(access.uri_of("a.bin")) == b"old"


def test_a_disk_that_is_really_full() -> None:
    with pytest.raises(OSError, match="No space") as caught, open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")
    assert isinstance(translated(caught.value, "file:///x", writing=True), StoreUnavailable)


@pytest.mark.parametrize(
    ("number", "writing", "kind", "words"),
    [
        (errno.EACCES, False, ConfigurationError, "read it"),
        (errno.EPERM, True, ConfigurationError, "write there"),
        (errno.EROFS, True, ConfigurationError, "read-only"),
        (errno.ENAMETOOLONG, False, ConfigurationError, "too long"),
        (errno.ENOENT, False, MediaNotFound, "no such file"),
        (errno.ENOTDIR, False, MediaNotFound, "no such file"),
        (errno.EISDIR, False, UnsupportedMedia, "is a directory"),
        (errno.ESTALE, False, StoreUnavailable, "ESTALE"),
    ],
)
def test_system_errors_have_their_class_and_say_what_to_do(number: int, writing: bool, kind: type, words: str) -> None:
    found = translated(OSError(number, "text", "/Doe^John"), "file:///Doe^John", writing=writing)
    assert type(found) is kind
    assert words in found.message
    assert "Doe^" not in found.message


def test_written_files_follow_the_umask(access: LocalAccess, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        access.write_bytes("a.bin", b"x")
    finally:
        os.umask(before)
    assert modes.S_IMODE((tmp_path / "store" / "a.bin").stat().st_mode) == 0o640


def test_a_root_must_be_named() -> None:
    for root in ("", "a\0b"):
        with pytest.raises(ConfigurationError, match="root folder"):
            LocalAccess(LocalConfig(root=root))


def test_an_absent_root_is_an_empty_store_until_the_first_write(access: LocalAccess) -> None:
    assert list(access.list_objects("")) == []
    assert not access.exists(access.uri_of("a"))
    access.delete(access.uri_of("a"))
    access.write_bytes("a", b"x")
    assert len(list(access.list_objects(""))) == 1
