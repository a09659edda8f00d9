"""`make stack`: it takes no foreign server for its own, and ends when told to, also while its servers start."""

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from blocks.access import S3Config
from blocks.lifeline import free_port
from deployments import stack
from tasks.records.errors import StoreUnavailable
from tests.command_line import ROOT
from tests.real_parts import require
from tests.servers import rclone

PROGRAM = """
import sys
from deployments import stack
stack._S3_PORT, stack._UI_PORT = int(sys.argv[1]), int(sys.argv[2])
sys.exit(stack.main())
"""


@pytest.fixture
def stranger() -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a server that answers everything, and the paths that it was asked for."""
    asked: list[str] = []

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], asked
        server.shutdown()


def start(folder: Path, s3_port: int, ui_port: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(s3_port), str(ui_port)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("which", ["s3", "prefect"])
def test_a_foreign_server_is_not_taken_for_ours(which: str, stranger: tuple[int, list[str]], tmp_path: Path) -> None:
    require(not rclone.missing(), rclone.missing())
    taken, asked = stranger
    ports = (taken, free_port()) if which == "s3" else (free_port(), taken)
    process = start(tmp_path, *ports)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"port {taken} is in use; end what listens there" in err
    assert "Traceback" not in err
    assert out == ""
    assert not asked


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_quietly_while_its_servers_start(sign: signal.Signals, tmp_path: Path) -> None:
    require(not rclone.missing(), rclone.missing())
    process = start(tmp_path, free_port(), free_port())
    try:
        log = tmp_path / stack.STATE / "prefect" / "server.log"
        deadline = time.monotonic() + 60
        while not log.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(sign)
        out, err = process.communicate(timeout=30)  # two servers, each with ten seconds to end
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "", "")


def test_a_store_block_that_is_not_saved_is_told_with_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stack, "STATE", tmp_path)
    monkeypatch.setattr(stack, "_SAVE_STORE", "raise SystemExit('no such field')")
    s3 = S3Config(bucket="b", endpoint_url="http://x", access_key_id="k", secret_access_key=SecretStr("s"))
    with pytest.raises(StoreUnavailable, match=r"store-block\.log"):
        stack._save_store_block("http://127.0.0.1:9/api", s3)
    assert "no such field" in (tmp_path / "store-block.log").read_text()
