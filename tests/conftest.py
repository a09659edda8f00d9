"""Isolation of every test from the machine, and real servers for those that ask."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocks.access import S3Config
from tests.real_parts import require
from tests.servers import ceph_rgw, rclone
from tests.servers.ceph_rgw import CephServer
from tests.servers.rclone import RcloneServer

ISOLATION = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}


def _isolate() -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(ISOLATION)


# Prefect reads its settings when it is first imported, which test modules do while pytest collects them.
_HOME = tempfile.mkdtemp(prefix="scopeflow-tests-")
_isolate()
for _name in [name for name in os.environ if name.startswith("PREFECT_") and name not in ISOLATION]:
    del os.environ[_name]
os.environ["PREFECT_HOME"] = _HOME


def pytest_unconfigure() -> None:
    """Remove Prefect's home."""
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def isolated_environment() -> Iterator[None]:
    """Give each test the environment of a bare machine, and take back what it sets."""
    before = dict(os.environ)
    _isolate()
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def rclone_control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RcloneServer, S3Config]]:
    """Yield the embedded S3 server with its handle, to stop and start it."""
    require(not rclone.missing(), rclone.missing())
    with rclone.rclone_server(tmp_path_factory.mktemp("rclone") / "data") as pair:
        yield pair


@pytest.fixture(scope="session")
def rclone_server(rclone_control: tuple[RcloneServer, S3Config]) -> S3Config:
    """Return how to reach the embedded S3 server."""
    return rclone_control[1]


@pytest.fixture(scope="session")
def ceph_control() -> Iterator[CephServer]:
    """Yield a Ceph RADOS Gateway with its handle, to stop, pause and start it."""
    require(not ceph_rgw.missing(), ceph_rgw.missing())
    # A short path: the names of its sockets may have 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="ceph-", ignore_cleanup_errors=True) as folder,
        ceph_rgw.ceph_rgw(Path(folder)) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def ceph_server(ceph_control: CephServer) -> S3Config:
    """Return how to reach the Ceph RADOS Gateway."""
    return ceph_control.config


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the API address of a real Prefect server, set for this process and for children until the session ends."""
    from tests.servers.prefect_api import prefect_api

    with prefect_api(tmp_path_factory.mktemp("prefect-server")) as api:
        yield api
