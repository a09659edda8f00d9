"""S3 access where the server or the line misbehaves, and the reader's blocks."""

import http.server
import io
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from blocks.access import ObjectStat, S3Config
from blocks.access_open import access_for, open_access
from blocks.access_s3 import S3Access
from blocks.access_s3_errors import translated
from blocks.access_s3_reader import CACHE_BYTES, READ_AHEAD_BYTES, BlockReader
from blocks.lifeline import free_port
from tasks.records.errors import ConfigurationError, MediaChanged, MediaNotFound, StoreUnavailable
from tests.servers.flaky_proxy import flaky_proxy

MIB = 1 << 20


@given(
    size=st.integers(0, 70_000),
    steps=st.lists(
        st.tuples(st.sampled_from(["set", "cur", "end", "read"]), st.integers(-20_000, 80_000)), max_size=30
    ),
)
def test_a_block_reader_is_a_file(size: int, steps: list[tuple[str, int]]) -> None:
    data = random.Random(size).randbytes(size)
    plain = io.BytesIO(data)
    with BlockReader(lambda start, length: data[start : start + length], size, block_bytes=4096) as file:
        for name, number in steps:
            if name == "read":
                assert file.read(abs(number)) == plain.read(abs(number))
                continue
            base = {"set": 0, "cur": plain.tell(), "end": size}[name]
            whence = {"set": io.SEEK_SET, "cur": io.SEEK_CUR, "end": io.SEEK_END}[name]
            if base + number < 0:
                with pytest.raises(ValueError, match="before the start"):
                    file.seek(number, whence)
            else:
                assert file.seek(number, whence) == plain.seek(number, whence)
        assert file.tell() == plain.tell()
        assert file.read() == plain.read()


def test_reading_on_fetches_more_at_a_time_and_jumping_does_not() -> None:
    asked: list[tuple[int, int]] = []

    def fetch(start: int, length: int) -> bytes:
        asked.append((start // MIB, length // MIB))
        return bytes(length)

    with BlockReader(fetch, 100 * MIB) as file:
        while file.tell() < 20 * MIB:
            file.read(100_000)
        assert asked == [(0, 1), (1, 2), (3, 4), (7, 4), (11, 4), (15, 4), (19, 4)]
        asked.clear()
        for block in (50, 70, 60, 51):
            file.seek(block * MIB + 5)
            file.read(10)
        assert asked == [(50, 1), (70, 1), (60, 1), (51, 1)]
        file.seek(50 * MIB)
        file.read(MIB)
        assert len(asked) == 4  # still kept
        assert max(length for _, length in asked) * MIB <= READ_AHEAD_BYTES


def test_a_block_reader_keeps_no_more_than_its_cache() -> None:
    with BlockReader(lambda _, length: bytes(length), 1 << 40) as file:
        draw = random.Random(1)
        for _ in range(60):
            file.seek(draw.randrange(1 << 40))
            file.read(3 * MIB)
            assert sum(len(block) for block in file._blocks.values()) <= CACHE_BYTES


@pytest.mark.parametrize("block_bytes", [0, 1000, 8 * MIB])
def test_senseless_blocks_are_refused(block_bytes: int) -> None:
    with pytest.raises(ValueError, match="block_bytes"):
        BlockReader(lambda _, length: bytes(length), 10, block_bytes=block_bytes)


def test_answers_that_break_off_are_asked_for_again(rclone_server: S3Config) -> None:
    data = random.Random(2).randbytes(3 * MIB)
    direct = open_access(rclone_server.model_copy(update={"prefix": "flaky"}))
    stat = direct.stat(direct.write_bytes("a.bin", data))
    port = int(str(rclone_server.endpoint_url).rpartition(":")[2])
    with flaky_proxy(port) as (proxy_port, faults):
        update = {"endpoint_url": f"http://127.0.0.1:{proxy_port}", "max_attempts": 3, "prefix": "flaky"}
        access = S3Access(rclone_server.model_copy(update=update))
        faults.cut_after_bytes, faults.cuts_left = 200_000, 2
        with access.open_pinned(stat) as file:
            assert file.read() == data
        assert faults.cuts_made == 2
        faults.cuts_left = 2
        assert access.read_bytes(stat.uri) == data
        faults.cuts_left = 100
        with access.open_pinned(stat) as file, pytest.raises(StoreUnavailable, match="breaks off"):
            file.read(10)
        with pytest.raises(StoreUnavailable, match="breaks off"):
            access.read_bytes(stat.uri)


class _WholeAnswers(http.server.BaseHTTPRequestHandler):
    """Answers every GET with the whole object, whatever range was asked for; some servers do."""

    content = random.Random(3).randbytes(3 * MIB)
    status = 200

    def do_HEAD(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("ETag", '"abc"')
        self.send_header("Last-Modified", "Mon, 30 Nov 2026 13:12:25 GMT")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        try:
            self.wfile.write(self.content if self.status == 200 else b"")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def whole_answers() -> Iterator[S3Access]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _WholeAnswers)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    secret = SecretStr("s")
    endpoint = f"http://127.0.0.1:{server.server_port}"
    yield S3Access(
        S3Config(bucket="b", endpoint_url=endpoint, access_key_id="k", secret_access_key=secret, max_attempts=2)
    )
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_ignores_ranges_is_still_read_right(whole_answers: S3Access) -> None:
    stat = whole_answers.stat("s3://b/a")
    with whole_answers.open_pinned(stat) as file:
        file.seek(2 * MIB + 17)
        assert file.read(1000) == _WholeAnswers.content[2 * MIB + 17 :][:1000]
        file.seek(0)
        assert file.read(1000) == _WholeAnswers.content[:1000]
    larger = stat.model_copy(update={"size_bytes": 4 * MIB})
    with whole_answers.open_pinned(larger) as file, pytest.raises(MediaChanged):
        file.read(1)


@pytest.mark.parametrize("status", [500, 503, 429])
def test_server_errors_are_transient(whole_answers: S3Access, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = whole_answers.stat("s3://b/a")
    monkeypatch.setattr(_WholeAnswers, "status", status)
    monkeypatch.setattr(_WholeAnswers, "content", b"")
    with pytest.raises(StoreUnavailable, match=str(status)):
        whole_answers.stat("s3://b/a")
    with whole_answers.open_pinned(stat) as file, pytest.raises(StoreUnavailable):
        file.read(1)


def _answer(status: int, code: str) -> ClientError:
    # As a RADOS Gateway answers: no Message.
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (_answer(404, "NoSuchKey"), MediaNotFound, "no such object"),
        (_answer(404, "NoSuchBucket"), ConfigurationError, "s3://b: the endpoint has no such bucket"),
        (_answer(403, "SignatureDoesNotMatch"), ConfigurationError, "key and secret"),
        (_answer(403, "RequestTimeTooSkewed"), ConfigurationError, "clock"),
        (_answer(400, "ExpiredToken"), ConfigurationError, "key and secret"),
        (_answer(301, "PermanentRedirect"), ConfigurationError, "region"),
        (_answer(400, "AuthorizationHeaderMalformed"), ConfigurationError, "region"),
        (_answer(400, "RequestTimeout"), StoreUnavailable, "again"),
        (_answer(503, "SlowDown"), StoreUnavailable, "503"),
        (_answer(400, "EntityTooLarge"), ConfigurationError, "EntityTooLarge"),
        (NoCredentialsError(), ConfigurationError, "AWS_ACCESS_KEY_ID"),
        (ValueError("Invalid endpoint: x"), ConfigurationError, "endpoint"),
    ],
)
def test_client_errors_have_their_class_and_say_what_to_do(error: Exception, kind: type, words: str) -> None:
    found = translated(error, "s3://b/Doe^John.mp4")
    assert type(found) is kind
    assert words in found.message
    assert "Doe^" not in found.message


def test_credentials_and_endpoint_come_from_the_environment(
    rclone_server: S3Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from blocks.access import LocalConfig

    written = open_access(rclone_server).write_bytes("env/a.bin", b"x")
    results = open_access(LocalConfig(root=str(tmp_path)))
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(rclone_server.endpoint_url))
    with pytest.raises(ConfigurationError, match="no usable S3 credentials"):
        access_for(written, results).read_bytes(written)
    assert rclone_server.access_key_id is not None
    assert rclone_server.secret_access_key is not None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", rclone_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", rclone_server.secret_access_key.get_secret_value())
    assert access_for(written, results).read_bytes(written) == b"x"


def test_an_endpoint_that_is_not_there_and_one_that_is_no_address() -> None:
    stat = ObjectStat(uri="s3://b/a", etag="x", size_bytes=1, last_modified_ns=0)
    config = S3Config(bucket="b", access_key_id="k", secret_access_key=SecretStr("s"), max_attempts=1)
    gone = open_access(config.model_copy(update={"endpoint_url": f"http://127.0.0.1:{free_port()}"}))
    with pytest.raises(StoreUnavailable, match="does not answer"):
        gone.open_pinned(stat).read(1)
    for endpoint in ("nonsense", "http://", "ftp://host"):
        with pytest.raises((ConfigurationError, StoreUnavailable), match=r"endpoint|answer"):
            open_access(config.model_copy(update={"endpoint_url": endpoint})).stat("s3://b/a")
