"""A Prefect server of our own: started for a demo or a stack, ended with it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from blocks.lifeline import require_free_port, running
from tasks.records.errors import ConfigurationError, StoreUnavailable

QUIET_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    # One row a transaction costs the server 80 ms CPU a task run and leaves the UI a minute behind.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
"""No telemetry, no advertisements, batched history."""

_START_TIMEOUT_S = 240.0
_ANSWER_TIMEOUT_S = 5.0


@contextlib.contextmanager
def prefect_server(home: Path, *, port: int) -> Iterator[str]:
    """Run a Prefect server with its UI and yield its API address; its database stays in ``home``.

    Args:
        home: folder of the database and the log, kept from run to run.
        port: of the loopback address, on which it listens.

    Raises:
        ConfigurationError: the port is in use, or the server ended at once.
        StoreUnavailable: it does not answer in time.
    """
    require_free_port(port)
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    api = f"http://127.0.0.1:{port}/api"
    environment = {**os.environ, **QUIET_SETTINGS, "PREFECT_HOME": str(home), "PREFECT_UI_API_URL": api}
    environment.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("ab") as output, running(command, environment=environment, output=output) as process:
        _wait_until_it_answers(process, api, log)
        yield api


@contextlib.contextmanager
def lost_server_named() -> Iterator[None]:
    """Turn the HTTP errors of a Prefect server that went away in mid-run into one that says what to do.

    Raises:
        StoreUnavailable: the server does not answer; what was finished lies on the store.
    """
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        raise StoreUnavailable(
            f"the Prefect server went away ({type(error).__name__}); finished stages are kept, run the same again"
        ) from None


def answers(api: str, *, timeout_s: float) -> bool:
    """Tell whether something answers at a server's address; refusal for want of a key is an answer.

    Args:
        api: an http or https address; anything else does not answer.
        timeout_s: longest wait for a connection, and for bytes.
    """
    import httpx  # takes a third of a second

    if urlsplit(api).scheme not in ("http", "https"):
        return False
    try:
        return httpx.get(f"{api.rstrip('/')}/health", timeout=timeout_s).status_code < 500
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return False


def _wait_until_it_answers(process: "subprocess.Popen[bytes]", api: str, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ConfigurationError(f"the Prefect server ended with code {process.returncode}; its log is {log}")
        if answers(api, timeout_s=_ANSWER_TIMEOUT_S):
            return
        time.sleep(0.3)
    raise StoreUnavailable(f"the Prefect server did not answer within {_START_TIMEOUT_S:g} s; its log is {log}")
