"""A real Ceph RADOS Gateway on one machine: monitor, manager, an OSD in memory, gateway. It forgets all at its end."""

import http.client
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from blocks.access import S3Config
from blocks.lifeline import free_port, running

PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "radosgw", "radosgw-admin", "monmaptool")
ACCESS_KEY, SECRET_KEY = "SCOPEFLOWTESTKEY", "scopeflow-test-secret"
BUCKET = "scopeflow"
MEMORY_BYTES = 2 << 30

CONFIG = """
[global]
fsid = {fsid}
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd crush chooseleaf type = 0
mon host = v1:127.0.0.1:{mon_port}
mon allow pool size one = true
mon max pg per osd = 500
mon warn on pool no redundancy = false
public addr = 127.0.0.1
ms bind msgr2 = false
run dir = {folder}
log file = {folder}/$name.log
pid file = {folder}/$name.pid
admin socket = {folder}/$name.asok
[mon.0]
mon data = {folder}/mon
mon addr = 127.0.0.1:{mon_port}
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = {memory}
osd class load list = *
osd class default list = *
[mgr.0]
mgr data = {folder}/mgr
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{rgw_port}
rgw dns name = localhost
rgw enable usage log = false
"""


def missing() -> str:
    """Say what is not installed; empty where everything is."""
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if not absent:
        return ""
    packages = "ceph-mon ceph-mgr ceph-osd ceph-common radosgw"
    return f"Ceph is not installed ({', '.join(absent)}): apt-get install --no-install-recommends {packages}"


@dataclass
class CephServer:
    """A running cluster; the gateway alone can be stopped and started again, and keeps its objects."""

    folder: Path
    port: int
    config: S3Config
    _gateway: ExitStack = field(default_factory=ExitStack)
    gateway: subprocess.Popen[bytes] | None = None

    def start_gateway(self, timeout_s: float = 180.0) -> None:
        """Start the gateway and wait until its port answers."""
        gateway = self._gateway.enter_context(_daemon(self.folder, "radosgw", "--id", "rgw", "-f"))
        _until(lambda: _answers(self.port), timeout_s, "radosgw does not answer", self.folder, gateway)
        self.gateway = gateway

    def stop_gateway(self) -> None:
        """End the gateway; the objects stay in the OSD."""
        self._gateway.close()
        self.gateway = None


@contextmanager
def ceph_rgw(folder: Path) -> Iterator[CephServer]:
    """Run a cluster in ``folder`` and yield it with one bucket made."""
    mon_port, rgw_port, fsid, osd_uuid = free_port(), free_port(), uuid.uuid4(), uuid.uuid4()
    for name in ("mon", "osd", "mgr"):
        (folder / name).mkdir(parents=True)
    text = CONFIG.format(fsid=fsid, mon_port=mon_port, rgw_port=rgw_port, folder=folder, memory=MEMORY_BYTES)
    (folder / "ceph.conf").write_text(text)
    monitors = str(folder / "monmap")
    _run(folder, "monmaptool", "--create", "--fsid", str(fsid), "--add", "0", f"v1:127.0.0.1:{mon_port}", monitors)
    _run(folder, "ceph-mon", "--id", "0", "--mkfs", "--fsid", str(fsid), "--monmap", monitors, "--keyring", "/dev/null")
    config = S3Config(
        bucket=BUCKET,
        endpoint_url=f"http://127.0.0.1:{rgw_port}",
        access_key_id=ACCESS_KEY,
        secret_access_key=SecretStr(SECRET_KEY),
    )
    server = CephServer(folder, rgw_port, config)
    with ExitStack() as stack:
        monitor = stack.enter_context(_daemon(folder, "ceph-mon", "--id", "0", "-f"))
        # Commands wait for a monitor for ever, also for one that has ended.
        _until(lambda: _listens(mon_port), 60, "ceph-mon does not listen", folder, monitor)
        _run(folder, "ceph", "osd", "new", str(osd_uuid), "0")
        _run(folder, "ceph", "osd", "crush", "add", "osd.0", "1", "root=default")
        _run(folder, "ceph-osd", "--id", "0", "--mkjournal", "--mkfs", "--osd-uuid", str(osd_uuid))
        stack.enter_context(_daemon(folder, "ceph-osd", "--id", "0", "-f"))
        stack.enter_context(_daemon(folder, "ceph-mgr", "--id", "0", "-f"))
        stack.callback(server.stop_gateway)
        server.start_gateway()
        user = ("--uid=scopeflow", "--display-name=ScopeFlow", f"--access-key={ACCESS_KEY}", f"--secret={SECRET_KEY}")
        _run(folder, "radosgw-admin", "--id", "rgw", "user", "create", *user)
        _until(lambda: _make_bucket(config), 120, "no bucket could be made", folder)
        yield server


@cache
def make_client(config: S3Config) -> Any:
    """Return a plain client for what tests do behind a store's back."""
    assert config.secret_access_key is not None
    return boto3.session.Session().client(
        "s3",
        endpoint_url=config.endpoint_url,
        region_name=config.region,
        aws_access_key_id=config.access_key_id,
        aws_secret_access_key=config.secret_access_key.get_secret_value(),
        config=Config(
            signature_version="s3v4",
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
            connect_timeout=5,
            read_timeout=60,
        ),
    )


def _make_bucket(config: S3Config) -> bool:
    try:
        make_client(config).create_bucket(Bucket=config.bucket)
    except (BotoCoreError, ClientError):
        return False
    return True


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "CEPH_CONF": str(folder / "ceph.conf")}


def _run(folder: Path, *command: str, timeout_s: float = 180.0) -> None:
    done = subprocess.run(
        command, env=_environment(folder), cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ended with {done.returncode}: {done.stderr.strip()[-500:]}")


@contextmanager
def _daemon(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with (
        (folder / f"{command[0]}.out").open("ab") as output,
        running(list(command), environment=_environment(folder), output=output, cwd=folder) as process,
    ):
        yield process


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except OSError:
        return False
    return True


def _until(
    done: Callable[[], bool],
    timeout_s: float,
    complaint: str,
    folder: Path,
    process: "subprocess.Popen[bytes] | None" = None,
) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{complaint}: it ended with {process.returncode}; its logs are in {folder}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint} after {timeout_s:g} s; its logs are in {folder}")
        time.sleep(0.2)
