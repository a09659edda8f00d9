"""The stores that every contract test runs on."""

from collections.abc import Iterator

import pytest

from tests.contracts.stores import Backend, make_backend


@pytest.fixture(params=["local", "rclone", "ceph"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Yield each store in turn."""
    yield from make_backend(request.param, request)


@pytest.fixture(params=["rclone", "ceph"])
def remote(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Yield each S3 store in turn."""
    yield from make_backend(request.param, request)


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Yield the local store."""
    yield from make_backend("local", request)


@pytest.fixture
def ceph(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Yield the Ceph store."""
    yield from make_backend("ceph", request)
