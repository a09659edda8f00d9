"""Which Prefect server a command talks to, and how quiet Prefect is about it."""

import os
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

API_TIMEOUT_S = 5.0
_START_TIMEOUT_S = "180"


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


def answers(api: str, *, timeout_s: float = API_TIMEOUT_S) -> bool:
    """Tell whether something answers at a Prefect API's address; refusal for want of a key is an answer."""
    if urlsplit(api).scheme not in ("http", "https"):
        return False
    try:
        with urllib.request.urlopen(f"{api.rstrip('/')}/health", timeout=timeout_s):  # noqa: S310
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError):
        return False


def without_secrets(address: str) -> str:
    """Return an address without user name, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def prepare_prefect(*, debug: bool) -> str:
    """Set Prefect up for one command, before it is imported, and return a line that says which server is used.

    A configured server is used. Without one Prefect starts a temporary server beside this process, whose state stays in
    PREFECT_HOME from run to run.

    Raises:
        ConfigurationError: the configured server does not answer within five seconds.
    """
    from tasks.records.errors import ConfigurationError

    configured = configured_api()
    if configured:
        address, where = configured
        if not answers(address):
            raise ConfigurationError(
                f"No Prefect server answers at {without_secrets(address)} (from {where}) within {API_TIMEOUT_S:g} s. "
                "Start it (`make stack`, or `prefect server start`), correct the address, or unset it to run without "
                "a server (`env -u PREFECT_API_URL scopeflow …`, `prefect profile use ephemeral`)"
            )
        line = f"Prefect: {without_secrets(address)} (from {where})"
    else:
        os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "true"
        line = f"Prefect: a temporary server, started with this command (up to a minute); state in {prefect_home()}"
    from blocks.prefect_server import QUIET_SETTINGS

    quiet = {
        **QUIET_SETTINGS,
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": _START_TIMEOUT_S,
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        # Log records still reach the server, and so the run's page; only the terminal stays calm.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "DEBUG" if debug else "CRITICAL",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    return line
