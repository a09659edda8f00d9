"""What every store must do when things go wrong, and as the place of Prefect's results."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from prefect.results import ResultStore
from prefect.serializers import JSONSerializer

from tasks.records.errors import ConfigurationError, MediaNotFound, StoreUnavailable, UnsupportedMedia
from tests.contracts.stores import FAULTY_SECRET, Backend, CephBackend, RcloneBackend, S3Backend

MIB = 1 << 20


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def test_absent_objects_and_folders_have_their_own_errors(backend: Backend) -> None:
    access = backend.access
    backend.put("Doe^John/a.bin", b"x")
    for act in (access.stat, access.read_bytes):
        with pytest.raises(MediaNotFound, match="no such") as caught:
            act(access.uri_of("Doe^Jane.mp4"))
        assert "Doe^" not in str(caught.value)
    with pytest.raises(UnsupportedMedia, match=r"is a (folder|directory)") as refused:
        access.stat(access.uri_of("Doe^John"))
    assert "Doe^" not in str(refused.value)
    assert not access.exists(access.uri_of("Doe^John"))


def test_a_missing_bucket_is_named(remote: S3Backend, tmp_path: Path) -> None:
    access = remote.with_settings(bucket="not-made", prefix="")
    uri = "s3://not-made/Doe^John.mp4"
    (tmp_path / "a").write_bytes(bytes(17 * MIB))
    for act in (
        lambda: access.stat(uri),
        lambda: access.exists(uri),
        lambda: access.read_bytes(uri),
        lambda: access.write_bytes("a", b"x"),
        lambda: access.write_file("a", tmp_path / "a"),
        lambda: list(access.list_objects("")),
        lambda: access.delete(uri),
    ):
        with pytest.raises(ConfigurationError, match="s3://not-made: the endpoint has no such bucket") as caught:
            act()
        assert "Doe^" not in str(caught.value)


def test_wrong_credentials_are_a_matter_of_configuration(remote: S3Backend) -> None:
    stat = remote.put("Doe^John.bin", b"x")
    for update in ({"secret_access_key": FAULTY_SECRET}, {"access_key_id": "UNKNOWNKEY0001"}):
        access = remote.with_settings(**update)
        for act in (
            lambda access=access: access.stat(stat.uri),
            lambda access=access: access.read_bytes(stat.uri),
            lambda access=access: access.open_pinned(stat).read(1),
            lambda access=access: access.write_bytes("b", b"x"),
            lambda access=access: list(access.list_objects("")),
        ):
            with pytest.raises(ConfigurationError, match="key and secret") as caught:
                act()
            assert "Doe^" not in str(caught.value)
            assert "not-the-secret" not in str(caught.value)


def test_a_store_that_goes_away_and_comes_back(remote: RcloneBackend | CephBackend) -> None:
    data = noise(4 * MIB)
    stat = remote.put("a.bin", data)
    access = remote.with_settings(max_attempts=2, connect_timeout_s=2, read_timeout_s=5)
    with access.open_pinned(stat) as file:
        assert file.read(10) == data[:10]
        with remote.away():
            for act in (
                lambda: access.stat(stat.uri),
                lambda: access.read_bytes(stat.uri),
                lambda: access.write_bytes("b.bin", b"x"),
                lambda: list(access.list_objects("")),
                lambda: (file.seek(3 * MIB), file.read(10)),
            ):
                with pytest.raises(StoreUnavailable, match="does not answer"):
                    act()
        assert file.read() == data[3 * MIB :]
    assert access.read_bytes(stat.uri) == data
    assert not access.exists(access.uri_of("b.bin"))


def test_a_silent_store_is_given_up_in_time(ceph: CephBackend) -> None:
    stat = ceph.put("a.bin", b"x")
    access = ceph.with_settings(max_attempts=2, read_timeout_s=0.5)
    with ceph.silent():
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            access.stat(stat.uri)
        assert time.monotonic() - began < 10
    assert access.stat(stat.uri) == stat


# --- Prefect's results -----------------------------------------------------------------------------------------------


def test_prefect_results_make_the_round_trip(backend: Backend) -> None:
    block = backend.block
    with pytest.raises(FileNotFoundError):
        block.read_path("results/none.json")
    uri = block.write_path("results/a.json", b"{}")
    assert block.read_path("results/a.json") == b"{}"
    assert backend.access.read_bytes(uri) == b"{}"
    store = ResultStore(result_storage=block, serializer=JSONSerializer(), cache_result_in_memory=False)
    assert not store.exists("results/b.json")
    store.write({"answer": 42}, key="results/b.json")
    assert store.exists("results/b.json")
    assert store.read("results/b.json").result == {"answer": 42}


async def _asynchronously(backend: Backend) -> None:
    block = backend.block
    with pytest.raises(FileNotFoundError):
        await block.aread_path("results/none.json")
    store = ResultStore(result_storage=block, serializer=JSONSerializer(), cache_result_in_memory=False)
    assert not await store.aexists("results/c.json")
    await store.awrite({"answer": 43}, key="results/c.json")
    assert (await store.aread("results/c.json")).result == {"answer": 43}
    # From async code Prefect's sync store still means it.
    assert store.read("results/c.json").result == {"answer": 43}


def test_prefect_results_make_the_round_trip_asynchronously(backend: Backend) -> None:
    asyncio.run(_asynchronously(backend))
