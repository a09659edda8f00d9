"""The stores under test, and what happens behind their backs."""

import os
import shutil
import signal
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from blocks.access import AccessConfig, LocalConfig, ObjectStat, S3Config, StoreAccess
from blocks.access_local import path_of
from blocks.access_open import open_access
from blocks.media_store import LocalMediaStore, MediaStore, S3MediaStore
from tests.servers.ceph_rgw import CephServer, make_client
from tests.servers.rclone import RcloneServer


class Backend(ABC):
    """One store with an empty root of its own."""

    config: AccessConfig
    block: MediaStore

    @property
    def access(self) -> StoreAccess:
        return open_access(self.config)

    def put(self, key: str, data: bytes) -> ObjectStat:
        """Write through the store and return what then stands there."""
        access = self.access
        return access.stat(access.write_bytes(key, data))

    @abstractmethod
    def overwrite(self, uri: str, data: bytes) -> None:
        """Replace an object as a stranger would."""

    @abstractmethod
    def remove(self, uri: str) -> None:
        """Delete an object as a stranger would."""


class LocalBackend(Backend):
    def __init__(self, root: Path) -> None:
        self.config: LocalConfig = LocalConfig(root=str(root))
        self.block = LocalMediaStore(root=str(root))

    def overwrite(self, uri: str, data: bytes) -> None:
        path_of(uri).write_bytes(data)

    def remove(self, uri: str) -> None:
        path_of(uri).unlink()


class S3Backend(Backend):
    def __init__(self, config: S3Config) -> None:
        self.config: S3Config = config.model_copy(update={"prefix": f"test-{uuid.uuid4().hex[:12]}"})
        assert config.secret_access_key is not None
        self.block = S3MediaStore(**{k: v for k, v in self.config if k != "kind"})
        self.raw: Any = make_client(config)

    def with_settings(self, **update: Any) -> StoreAccess:
        return open_access(self.config.model_copy(update=update))

    def overwrite(self, uri: str, data: bytes) -> None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        self.raw.put_object(Bucket=bucket, Key=key, Body=data)

    def remove(self, uri: str) -> None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        self.raw.delete_object(Bucket=bucket, Key=key)


class RcloneBackend(S3Backend):
    def __init__(self, pair: tuple[RcloneServer, S3Config]) -> None:
        super().__init__(pair[1])
        self.server = pair[0]

    @contextmanager
    def away(self) -> Iterator[None]:
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


class CephBackend(S3Backend):
    def __init__(self, server: CephServer) -> None:
        super().__init__(server.config)
        self.server = server

    @contextmanager
    def away(self) -> Iterator[None]:
        self.server.stop_gateway()
        try:
            yield
        finally:
            self.server.start_gateway()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Keep the gateway's connections open without an answer."""
        assert self.server.gateway is not None
        os.kill(self.server.gateway.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.server.gateway.pid, signal.SIGCONT)


FAULTY_SECRET = SecretStr("not-the-secret-of-this-key")


def make_backend(kind: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Yield a backend of a kind; what it wrote is removed at the end where it would fill the machine."""
    if kind == "local":
        root = request.getfixturevalue("tmp_path") / "store"
        yield LocalBackend(root)
        shutil.rmtree(root, ignore_errors=True)
    elif kind == "rclone":
        pair = request.getfixturevalue("rclone_control")
        backend = RcloneBackend(pair)
        yield backend
        shutil.rmtree(pair[0].folder / backend.config.bucket / backend.config.prefix, ignore_errors=True)
    else:
        yield CephBackend(request.getfixturevalue("ceph_control"))


def child(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start Python code in a child that reads its configuration from standard input."""
    return subprocess.Popen(  # its errors show in the test's own
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
