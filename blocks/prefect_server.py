"""A Prefect server of our own: started for a demo or a stack, ended with it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from blocks.lifeline import die_with_parent, end_group
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


@contextlib.contextmanager
def prefect_server(home: Path, *, port: int, host: str = "127.0.0.1", outlive: bool = False) -> Iterator[str]:
    """Run a Prefect server with its UI and yield its API address; its database stays in ``home``.

    Args:
        home: folder of the database and the log, kept from run to run.
        port: on which it listens.
        host: address it listens on; loopback unless told otherwise.
        outlive: leave it running at the end of the ``with`` block.

    Raises:
        ConfigurationError: it ended at once (a port in use, most often).
        StoreUnavailable: it does not answer in time.
    """
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    api = f"http://{host}:{port}/api"
    environment = {**os.environ, **QUIET_SETTINGS, "PREFECT_HOME": str(home), "PREFECT_UI_API_URL": api}
    environment.pop("PREFECT_API_URL", None)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", host, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=None if outlive else die_with_parent,
        )
    try:
        _wait_until_it_answers(process, api, log)
        yield api
    finally:
        if not outlive:
            end_group(process)


def _wait_until_it_answers(process: "subprocess.Popen[bytes]", api: str, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ConfigurationError(f"the Prefect server ended with code {process.returncode}; its log is {log}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{api}/health", timeout=5).status_code == httpx.codes.OK:
                return
        time.sleep(0.3)
    end_group(process)
    raise StoreUnavailable(f"the Prefect server did not answer within {_START_TIMEOUT_S:g} s; its log is {log}")
