"""Servers that we start end with us, whatever ends us."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
from typing import Any

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


def free_port() -> int:
    """Return a TCP port of the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
