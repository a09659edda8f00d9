"""Which Prefect server a command talks to, and how quiet Prefect is about it."""

import contextlib
import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from flows.cli_common import say

API_TIMEOUT_S = 5.0
_FLUSH_TIMEOUT_S = 5.0


def prefect_home() -> Path:
    """Return the folder in which Prefect keeps its profiles and a temporary server its state."""
    return Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()


def configured_api() -> tuple[str, str] | None:
    """Return the configured Prefect API's address and where it is configured; None when it is not.

    Reads the environment and the active profile without importing Prefect.
    """
    if address := os.environ.get("PREFECT_API_URL"):
        return address, "PREFECT_API_URL"
    path = Path(os.environ.get("PREFECT_PROFILES_PATH") or prefect_home() / "profiles.toml").expanduser()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    active = os.environ.get("PREFECT_PROFILE") or found.get("active")
    profile: Any = found.get("profiles", {}).get(active, {})
    address = profile.get("PREFECT_API_URL") if isinstance(profile, dict) else None
    return (str(address), f"Prefect profile {active!r}") if address else None


def without_secrets(address: str) -> str:
    """Return an address without user name, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@contextlib.contextmanager
def prefect_api(*, debug: bool) -> Iterator[None]:
    """Have a Prefect server for one command, before Prefect is imported, and say which.

    A configured server is used. Without one a temporary server of our own is started, in a process group of its own so
    that Ctrl-C ends the run first and the server after it; its state stays in PREFECT_HOME from run to run.

    Raises:
        ConfigurationError: the configured server does not answer in five seconds, or the temporary one ends at once.
        StoreUnavailable: the temporary server does not start in time.
    """
    from blocks.lifeline import free_port
    from blocks.prefect_server import QUIET_SETTINGS, answers, prefect_server
    from tasks.records.errors import ConfigurationError

    # Log records still reach the server, and so the run's page; only the terminal stays calm.
    quiet = {**QUIET_SETTINGS, "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "DEBUG" if debug else "CRITICAL"}
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    configured = configured_api()
    if configured:
        address, where = configured
        if not answers(address, timeout_s=API_TIMEOUT_S):
            raise ConfigurationError(
                f"No Prefect server answers at {without_secrets(address)} (from {where}) within {API_TIMEOUT_S:g} s. "
                "Start it (`make stack`, or `prefect server start`), correct the address, or unset it to run without "
                "a server (`env -u PREFECT_API_URL scopeflow …`, `prefect profile use ephemeral`)"
            )
        say(f"Prefect: {without_secrets(address)} (from {where})")
        yield
        return
    home = prefect_home()
    say(f"Prefect: starting a temporary server, which takes up to a minute; its state is kept in {home}")
    with prefect_server(home, port=free_port()) as api:
        # No UI address: links to a server that ends with this command would be dead by the time they are read.
        ours = {"PREFECT_API_URL": api, "PREFECT_UI_URL": ""}
        os.environ.update(ours)
        try:
            yield
        finally:
            _send_what_is_queued()
            for name in ours:
                os.environ.pop(name, None)


def _send_what_is_queued() -> None:
    """Let Prefect send its last log lines and events before the temporary server ends."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogHandler

    with contextlib.suppress(Exception):  # history is a courtesy; the report is written
        APILogHandler().flush()
        EventsWorker.drain_all(timeout=_FLUSH_TIMEOUT_S)
