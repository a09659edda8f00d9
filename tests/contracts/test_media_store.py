"""What every store must do, on a folder, on rclone and on a Ceph RADOS Gateway."""

import hashlib
import io
import json
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from blocks.access import revealed
from blocks.access_local import LocalAccess
from tasks.records.errors import (
    BudgetExceeded,
    ConfigurationError,
    MediaChanged,
    MediaNotFound,
)
from tests.contracts.stores import Backend, CephBackend, LocalBackend, child

MIB = 1 << 20
ODD_KEYS = [
    "病例 001+ü/视频 #1?&=.mp4",
    "a b+c%20d.txt",
    "e\u0301 is not \u00e9",
    "\u00e9",
    "q'uote\"s<&>.xml",
    "...",
    ".hidden",
    "~*:;,@!$()[]{}|\\^`.bin",
    " lead",
    "x" * 255,
    "/".join(["y" * 90] * 9),
]


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_random_ranges_are_the_bytes_of_the_object(backend: Backend) -> None:
    data = noise(9 * MIB + 12345)
    draw = random.Random(7)
    with backend.access.open_pinned(backend.put("a.bin", data), block_bytes=256 << 10) as file:
        for _ in range(40):
            start, length = draw.randrange(len(data) + 10), draw.choice([0, 1, 7, 4096, 300_000, 2 * MIB])
            assert file.seek(start) == start
            assert file.read(length) == data[start : start + length]
        assert file.seek(-100, io.SEEK_END) == len(data) - 100
        assert file.read() == data[-100:]
        assert file.read(10) == b""
        file.seek(5)
        assert file.seek(3, io.SEEK_CUR) == file.tell() == 8
        with pytest.raises(ValueError, match="seek"):
            file.seek(-1)
        assert file.tell() == 8
        assert file.readable()
        assert file.seekable()
        assert not file.writable()
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_a_whole_read_through_a_buffer_is_the_object(backend: Backend) -> None:
    data = noise(5 * MIB + 1)
    with io.BufferedReader(backend.access.open_pinned(backend.put("a.bin", data))) as file:
        assert file.read() == data


def test_an_empty_object_is_read_and_its_replacement_noticed(backend: Backend) -> None:
    stat = backend.put("empty", b"")
    assert stat.size_bytes == 0
    assert backend.access.read_bytes(stat.uri) == b""
    with backend.access.open_pinned(stat) as file:
        assert file.read(10) == b""
    backend.overwrite(stat.uri, b"now more")
    with pytest.raises(MediaChanged):
        backend.access.open_pinned(stat)


def test_small_objects_are_read_whole_within_a_limit(backend: Backend) -> None:
    stat = backend.put("a.bin", b"x" * 1000)
    assert backend.access.read_bytes(stat.uri, max_bytes=1000) == b"x" * 1000
    with pytest.raises(BudgetExceeded, match="999"):
        backend.access.read_bytes(stat.uri, max_bytes=999)


READ_LARGE = """
import json, random, resource, sys
from pathlib import Path
from blocks.access import config_from
from blocks.access_open import open_access

access = open_access(config_from(json.loads(sys.stdin.read())))
small = access.write_bytes("small.bin", bytes(3 << 20))
access.read_bytes(small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
stat = access.stat(access.write_file("large.bin", Path(sys.argv[1])))
total = 0
with access.open_pinned(stat) as file:
    while chunk := file.read(1 << 16):
        total += len(chunk)
    draw = random.Random(3)
    for _ in range(30):
        start = draw.randrange(stat.size_bytes - 100)
        file.seek(start)
        assert len(file.read(100)) == 100
assert total == stat.size_bytes, total
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
def test_200_mb_are_written_and_read_in_bounded_memory(backend: Backend, tmp_path: Path) -> None:
    block, path = noise(4 * MIB), tmp_path / "large.bin"
    with path.open("wb") as file:
        for number in range(48):
            file.write(number.to_bytes(8, "big") + block)
    process = child(READ_LARGE, str(path))
    out, _ = process.communicate(json.dumps(revealed(backend.config)), timeout=120)
    assert process.returncode == 0
    assert int(out) < 80 * MIB  # a part of 16 MiB with its copies, then 16 MiB of blocks and a fetch of 4
    backend.access.delete(backend.access.uri_of("large.bin"))


# --- pinned versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replacement", [b"z" * 4 * MIB, b"z" * 100, b"z" * 5 * MIB], ids=["same-size", "less", "more"])
def test_a_replaced_object_is_noticed_before_and_during_reads(backend: Backend, replacement: bytes) -> None:
    stat = backend.put("a.bin", noise(4 * MIB))
    with backend.access.open_pinned(stat, block_bytes=1 << 18) as file:
        assert file.read(10) == noise(4 * MIB)[:10]
        backend.overwrite(stat.uri, replacement)
        file.seek(3 * MIB)
        with pytest.raises(MediaChanged, match=r"…\("):
            file.read(10)
        assert file.tell() == 3 * MIB
    with pytest.raises(MediaChanged), backend.access.open_pinned(stat) as file:
        file.read(10)


def test_a_deleted_object_is_noticed(backend: Backend) -> None:
    stat = backend.put("a.bin", noise(2 * MIB))
    with backend.access.open_pinned(stat, block_bytes=1 << 18) as file:
        file.read(10)
        backend.remove(stat.uri)
        file.seek(MIB)
        with pytest.raises(MediaChanged):
            file.read(10)
    with pytest.raises(MediaChanged), backend.access.open_pinned(stat) as file:
        file.read(10)


def test_a_stat_without_a_time_is_held_to_its_tag(backend: Backend) -> None:
    stat = backend.put("a.bin", b"x" * 100).model_copy(update={"last_modified_ns": 0})
    with backend.access.open_pinned(stat) as file:
        assert file.read(3) == b"xxx"
    with pytest.raises(MediaChanged), backend.access.open_pinned(stat.model_copy(update={"etag": "0" * 32})) as file:
        file.read(3)


def test_a_bucket_with_versions_still_gives_the_pinned_one(ceph: CephBackend) -> None:
    bucket = "versioned"
    ceph.raw.create_bucket(Bucket=bucket)
    ceph.raw.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    access = ceph.with_settings(bucket=bucket)
    data = noise(2 * MIB)
    stat = access.stat(access.write_bytes("a.bin", data))
    assert stat.version_id
    ceph.overwrite(stat.uri, b"y" * 2 * MIB)
    assert access.stat(stat.uri).version_id != stat.version_id
    with access.open_pinned(stat) as file:
        assert file.read() == data
    ceph.raw.delete_object(Bucket=bucket, Key=stat.uri.partition(f"{bucket}/")[2], VersionId=stat.version_id)
    with pytest.raises(MediaChanged), access.open_pinned(stat) as file:
        file.read(1)


def test_a_local_file_that_grows_or_is_swapped_under_a_read_is_noticed(local: LocalBackend) -> None:
    for change in ("append", "rename"):
        stat = local.put("a.bin", b"x" * 1000)
        path = Path(local.config.root) / "a.bin"
        with local.access.open_pinned(stat) as file:
            assert file.read(10) == b"x" * 10
            if change == "append":
                with path.open("ab") as more:
                    more.write(b"y")
            else:
                path.with_name("b.bin").write_bytes(b"x" * 1000)
                path.with_name("b.bin").rename(path)
            with pytest.raises(MediaChanged):
                file.read(10)


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 16 * MIB, 40_000_000])
def test_a_file_is_written_in_parts(backend: Backend, tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(noise(size))
    stat = backend.access.stat(backend.access.write_file("deep/er/a.bin", path, content_type="video/mp4"))
    assert stat.size_bytes == size
    digest = hashlib.sha256(backend.access.read_bytes(stat.uri)).digest()
    assert digest == hashlib.sha256(noise(size)).digest()


def test_a_file_that_is_not_there_is_not_written(backend: Backend, tmp_path: Path) -> None:
    with pytest.raises((MediaNotFound, ConfigurationError)) as caught:
        backend.access.write_file("a.bin", tmp_path / "Doe^John.mp4")
    assert "Doe^" not in str(caught.value)
    assert not backend.access.exists(backend.access.uri_of("a.bin"))


WRITE_FROM_PIPE = """
import json, sys
from pathlib import Path
from blocks.access import config_from
from blocks.access_open import open_access

config = json.loads(sys.stdin.readline())
print("ready", flush=True)
open_access(config_from(config)).write_file("a.bin", Path(sys.argv[1]))
"""


@pytest.mark.parametrize("old", [None, b"old content"], ids=["absent", "present"])
def test_a_writer_killed_in_the_middle_leaves_what_was_there(
    backend: Backend, tmp_path: Path, old: bytes | None
) -> None:
    uri = backend.access.uri_of("a.bin")
    if old is not None:
        backend.put("a.bin", old)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with child(WRITE_FROM_PIPE, str(pipe)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(revealed(backend.config)) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        with pipe.open("wb") as source:
            source.write(noise(20 * MIB))  # more than a part; the pipe is full until the child has read nearly all
            source.flush()
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    if old is None:
        assert not backend.access.exists(uri)
        assert list(backend.access.list_objects("")) == []
    else:
        assert backend.access.read_bytes(uri) == old
        assert [stat.uri for stat in backend.access.list_objects("")] == [uri]
    assert backend.put("a.bin", b"new").size_bytes == 3


WRITE_OVER_AND_OVER = """
import json, sys
from blocks.access import config_from
from blocks.access_open import open_access

access = open_access(config_from(json.loads(sys.stdin.readline())))
while True:
    for byte in (b"a", b"b"):
        access.write_bytes("a.bin", byte * (8 << 20))
        print(byte, flush=True)
"""


def test_a_writer_killed_at_any_time_leaves_one_whole_content(backend: Backend) -> None:
    uri = backend.access.uri_of("a.bin")
    draw = random.Random(5)
    for _ in range(3):
        with child(WRITE_OVER_AND_OVER) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(revealed(backend.config)) + "\n")
            process.stdin.flush()
            process.stdout.readline()
            time.sleep(draw.uniform(0, 0.25))
            process.kill()
        for _ in range(2):
            data = backend.access.read_bytes(uri)
            assert data in (b"a" * 8 * MIB, b"b" * 8 * MIB)
            time.sleep(0.1)


def test_what_a_killed_local_writer_left_is_swept_by_a_later_write(local: LocalBackend) -> None:
    local.put("d/a.bin", b"x")
    left = Path(local.config.root) / "d" / ".scopeflow-tmp-123-abc"
    left.write_bytes(b"half")
    LocalAccess(local.config).write_bytes("d/b.bin", b"x")
    assert left.exists()  # young: its writer may be alive
    os.utime(left, (0, 0))
    LocalAccess(local.config).write_bytes("d/b.bin", b"y")
    assert not left.exists()


# --- keys and lists --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_are_kept_as_they_are(backend: Backend, key: str) -> None:
    access = backend.access
    stat = backend.put(key, key.encode())
    assert stat.uri == access.uri_of(key)
    assert access.exists(stat.uri)
    assert access.read_bytes(stat.uri) == key.encode()
    with access.open_pinned(stat) as file:
        assert file.read() == key.encode()
    listed = list(access.list_objects(key))
    assert [item.uri for item in listed] == [stat.uri]
    assert listed[0].etag == stat.etag
    access.delete(stat.uri)
    assert not access.exists(stat.uri)


@pytest.mark.slow
def test_more_than_a_page_of_keys_is_listed_in_order(backend: Backend) -> None:
    access = backend.access
    keys = [f"p/{number * 7919 % 1100:04d}" for number in range(1100)]
    keys += ["p.txt", "p/a b", "p/a/b", "p/a.txt", "p/a0", "p/Z", "p/é", "p/中", "p0", "q"]
    with ThreadPoolExecutor(8) as pool:
        uris = dict(zip(keys, pool.map(lambda key: access.write_bytes(key, b"x"), keys), strict=True))
    listed = [stat.uri for stat in access.list_objects("p/")]
    wanted = sorted((key for key in keys if key.startswith("p/")), key=str.encode)
    assert listed == [uris[key] for key in wanted]
    assert [stat.uri for stat in access.list_objects("p")] == [
        uris[key] for key in sorted(keys, key=str.encode) if key.startswith("p")
    ]
    assert [stat.uri for stat in access.list_objects("p/10")] == [uris[f"p/{number}"] for number in range(1000, 1100)]
    assert list(access.list_objects("nothing/here")) == []
    some = next(iter(access.list_objects("q")))
    assert some == access.stat(uris["q"])


@pytest.mark.parametrize("key", ["../out", "/abs", "a/../../b", "", "a//b"])
def test_keys_never_leave_the_root(backend: Backend, key: str) -> None:
    with pytest.raises(ConfigurationError):
        backend.access.uri_of(key)
    with pytest.raises(ConfigurationError):
        backend.access.write_bytes(key, b"x")


def test_only_what_lies_under_the_root_is_deleted(backend: Backend) -> None:
    access = backend.access
    stat = backend.put("a", b"x")
    access.delete(stat.uri)
    access.delete(stat.uri)
    access.delete(access.uri_of("never/was"))
    assert not access.exists(stat.uri)
    with pytest.raises(ConfigurationError, match="outside"):
        access.delete(access.root_uri.rpartition("/")[0] + "/other")
    with pytest.raises(ConfigurationError):
        list(access.list_objects("../"))
