"""Whether a server answers, and what our own one does with a port that is taken."""

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blocks.lifeline import free_port
from blocks.prefect_server import answers, prefect_server
from tasks.records.errors import ConfigurationError


@contextmanager
def answering(code: int) -> Iterator[str]:
    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/api/health" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}/api"
        server.shutdown()


@pytest.mark.parametrize(("code", "expected"), [(200, True), (401, True), (403, True), (500, False), (503, False)])
def test_refusal_is_an_answer_and_a_broken_server_is_none(code: int, expected: bool) -> None:
    with answering(code) as place:
        for address in (f"http://{place}", f"http://{place}/", f"http://me:sesame@{place}"):
            assert answers(address, timeout_s=5) is expected


def test_what_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not answers(f"http://127.0.0.1:{silent.getsockname()[1]}/api", timeout_s=0.3)
    for address in (
        f"http://127.0.0.1:{free_port()}/api",
        "ftp://x/api",
        "http://:99999999/api",
        "http://\0/",
        "",
        "x",
    ):
        assert not answers(address, timeout_s=2), address


def test_a_foreign_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    with answering(200) as place:
        port = int(place.partition(":")[2].partition("/")[0])
        with (
            pytest.raises(ConfigurationError, match=f"port {port} is in use"),
            prefect_server(tmp_path / "p", port=port),
        ):
            pass
    assert not list(tmp_path.iterdir())
