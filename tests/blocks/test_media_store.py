"""The store blocks on a real Prefect server: saved, loaded by name, and holding a flow's results."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from prefect import flow, task
from prefect.blocks.core import Block
from prefect.client.orchestration import get_client
from pydantic import SecretStr

from blocks.access import S3Config
from blocks.media_store import STORE_KINDS, LocalMediaStore, MediaStore, S3MediaStore
from tasks.records.errors import ConfigurationError

CALLS: list[int] = []


def test_fields_are_labelled_and_secrets_are_secret() -> None:
    for kind in STORE_KINDS:
        schema = kind.model_json_schema()
        for name, field in schema["properties"].items():
            assert field.get("title"), name
            assert field.get("description"), name
    assert S3MediaStore._to_block_schema().fields["secret_fields"] == ["secret_access_key"]
    slugs = [kind.get_block_type_slug() for kind in STORE_KINDS]
    assert slugs == ["scopeflow-s3-store", "scopeflow-local-store"]
    store = S3MediaStore(bucket="b", access_key_id="k", secret_access_key=SecretStr("hush"))
    assert "hush" not in repr(store)
    assert store.config().secret_access_key == store.secret_access_key


def test_the_collections_entry_point_names_this_module() -> None:
    from importlib.metadata import entry_points

    (ours,) = [point for point in entry_points(group="prefect.collections") if point.name == "scopeflow"]
    assert ours.value == "blocks.media_store"
    assert set(STORE_KINDS) <= {value for value in vars(ours.load()).values() if Block.is_block_class(value)}


def test_child_processes_open_stores_without_prefect() -> None:
    code = (
        "import sys, blocks.access_open, blocks.access_local, blocks.access_s3\n"
        "assert 'prefect' not in sys.modules and 's3fs' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    local = "import sys, blocks.access_open\nassert 'boto3' not in sys.modules and 'botocore' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", local], check=True, timeout=60)


@pytest.fixture(params=["local", "s3"])
def saved(
    request: pytest.FixtureRequest, prefect_server: str, rclone_server: S3Config, tmp_path: Path
) -> tuple[str, MediaStore]:
    name = f"results-{request.param}"
    store: MediaStore
    if request.param == "local":
        store = LocalMediaStore(root=str(tmp_path))
    else:
        fields = {key: value for key, value in rclone_server if key != "kind"}
        store = S3MediaStore(**{**fields, "prefix": "block"})
    store.save(name, overwrite=True, _sync=True)  # type: ignore[call-arg]
    return name, store


def test_a_saved_store_is_loaded_by_its_name(saved: tuple[str, MediaStore]) -> None:
    name, store = saved
    for spelling in (name, f"{store.get_block_type_slug()}/{name}"):
        loaded = MediaStore.named(spelling)
        assert type(loaded) is type(store)
        assert loaded.config() == store.config()
    assert MediaStore.find("nowhere") is None
    assert MediaStore.find(f"no-such-kind/{name}") is None
    with pytest.raises(ConfigurationError, match="No store block is named 'nowhere'"):
        MediaStore.named("nowhere")


def test_a_flow_keeps_its_results_in_the_store_and_uses_them_again(saved: tuple[str, MediaStore]) -> None:
    name, _ = saved
    store = MediaStore.named(name)

    @task(
        persist_result=True,
        result_serializer="json",
        cache_key_fn=lambda _, parameters: f"cached/double-{parameters['number']}",
    )
    def double(number: int) -> int:
        CALLS.append(number)
        return 2 * number

    @flow(result_storage=store, persist_result=True, result_serializer="json")
    def twice(number: int) -> int:
        return double(number) + double(number)

    CALLS.clear()
    assert twice(4) == 16
    assert twice(4) == 16
    assert CALLS == [4]
    # The cache key is the object's key, so other machines find it too.
    access = store.access()
    assert access.exists(access.uri_of("cached/double-4"))


def test_the_blocks_are_registered_by_prefects_command(prefect_server: str) -> None:
    command = [sys.executable, "-m", "prefect", "block", "register", "-m", "blocks.media_store"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    for kind in STORE_KINDS:
        assert kind.get_block_type_name() in done.stdout


def test_flow_code_is_not_kept_in_a_store(tmp_path: Path) -> None:
    store = LocalMediaStore(root=str(tmp_path))
    for act in (store.get_directory, store.put_directory):
        with pytest.raises(ConfigurationError, match="not flow code"):
            asyncio.run(act())


def test_no_answer_from_prefect_is_named() -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    unreachable = {PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(unreachable), pytest.raises(ConfigurationError, match="PREFECT_API_URL"):
        MediaStore.named("any")


def test_children_find_the_same_prefect_server(prefect_server: str) -> None:
    code = "from prefect.client.orchestration import get_client as c; print(c(sync_client=True).api_url)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip().rstrip("/") == prefect_server
    assert str(get_client(sync_client=True).api_url).rstrip("/") == prefect_server
