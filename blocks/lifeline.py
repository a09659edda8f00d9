"""Servers that we start end with us, whatever ends us."""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.records.errors import ConfigurationError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec only async-signal-safe work is safe
_TERM_GRACE_S = 10.0


def die_with_parent() -> None:
    """Ask the kernel, in a child just before exec, to end it when its parent does (prctl(2), PR_SET_PDEATHSIG).

    The signal comes when the *thread* that forked ends, so fork from the main thread.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end_group(process: "subprocess.Popen[Any]") -> None:
    """End a process that leads its own group: SIGTERM first, SIGKILL after ten seconds."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_TERM_GRACE_S)
            break
    with contextlib.suppress(ProcessLookupError):  # what the leader left behind
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def running(
    command: list[str], *, environment: dict[str, str], output: object, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process group of its own, killed at the end of the context or when its parent dies.

    Args:
        command: program and arguments.
        environment: the whole environment.
        output: a binary file for both of its streams.
        cwd: working folder.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,  # type: ignore[call-overload]
        stderr=subprocess.STDOUT,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,
    )
    try:
        yield process
    finally:
        end_group(process)


def free_port() -> int:
    """Return a TCP port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Tell whether a server of ours could listen on this TCP port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: past connections hold no port
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def require_free_port(port: int) -> None:
    """Go on only if nothing else listens on a port, since its answers would be taken for those of our own server.

    Errors: ``ConfigurationError`` that says what to do.
    """
    if not port_is_free(port):
        raise ConfigurationError(
            f"port {port} is in use; end what listens there (`ss -ltnp` names it), or use another port"
        )
