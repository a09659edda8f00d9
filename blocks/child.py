"""Child processes that decode media and run models, killed group and all on their deadline.

A native call in a thread can't be stopped by a timeout, and a hostile file can take a process down. So decoders and
models run in a child: one JSON line in, one JSON line out, progress lines between. The child ends when its parent does:
its standard input is a lifeline whose end it watches.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import psutil

from tasks.records.errors import BudgetExceeded, EndpointTimeout, ScopeFlowError, TransientError, error_from_name

Json = dict[str, Any]
Progress = Callable[[Json], None]

_POLL_S = 0.25


class ChildWorker:
    """A child process that answers calls one after the other; a failed or overdue call ends it, the next starts anew.

    Args:
        timeout_error: raised when a call outlives its deadline.
        crash_error: raised when the child dies.
    """

    def __init__(
        self,
        *,
        timeout_error: type[ScopeFlowError] = EndpointTimeout,
        crash_error: type[ScopeFlowError] = ScopeFlowError,
    ) -> None:
        self._timeout_error = timeout_error
        self._crash_error = crash_error
        self._process: subprocess.Popen[bytes] | None = None
        self._results_fd = -1
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(
        self,
        target: str,
        request: Json,
        *,
        timeout_s: float,
        max_rss_bytes: int | None = None,
        on_progress: Progress | None = None,
    ) -> Json:
        """Run ``module:function(request, emit)`` in the child and return its answer.

        The answer gains ``peak_rss_bytes``, the child's high-water mark.

        Args:
            target: ``module:function``.
            request: JSON-able; travels through a pipe, so secrets in it never stand in a process list.
            timeout_s: wall seconds until the child's process group is killed.
            max_rss_bytes: resident memory at which it is killed.
            on_progress: called in this thread with each progress line.

        Raises:
            ScopeFlowError: the child's own error, or ``timeout_error``, ``crash_error``, ``BudgetExceeded``.
        """
        process = self._running()
        assert process.stdin is not None
        deadline = time.monotonic() + timeout_s
        try:
            process.stdin.write(json.dumps({"target": target, "request": request}).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._crashed(process) from None
        try:
            while True:
                message = self._next_message(process, deadline, timeout_s, max_rss_bytes)
                if "progress" in message:
                    if on_progress is not None:
                        on_progress(message["progress"])
                elif "error" in message:
                    raise self._error(message["error"])
                else:
                    answer: Json = message["result"]
                    answer["peak_rss_bytes"] = message["peak_rss_bytes"]
                    return answer
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill the child's process group and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        process.wait()
        os.close(self._results_fd)
        self._buffer.clear()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        read_fd, write_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "blocks.child_main", str(write_fd)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(write_fd,),
                start_new_session=True,
            )
        finally:
            os.close(write_fd)
        os.set_blocking(read_fd, False)
        self._results_fd = read_fd
        return self._process

    def _next_message(
        self, process: subprocess.Popen[bytes], deadline: float, timeout_s: float, max_rss_bytes: int | None
    ) -> Json:
        with selectors.DefaultSelector() as selector:
            selector.register(self._results_fd, selectors.EVENT_READ)
            while True:
                end = self._buffer.find(b"\n")
                if end >= 0:
                    line = bytes(self._buffer[:end])
                    del self._buffer[: end + 1]
                    parsed: Json = json.loads(line)
                    return parsed
                if time.monotonic() > deadline:
                    raise self._timeout_error(f"no result within {timeout_s:g} s; the work was stopped")
                if max_rss_bytes is not None and (used := tree_rss_bytes(process.pid)) > max_rss_bytes:
                    raise BudgetExceeded(
                        f"the work took {used / 1e6:.0f} MB of memory, over the limit of {max_rss_bytes / 1e6:.0f} MB"
                    )
                if selector.select(timeout=_POLL_S):
                    chunk = os.read(self._results_fd, 1 << 16)
                    if not chunk:
                        raise self._crashed(process)
                    self._buffer += chunk

    def _error(self, error: Json) -> ScopeFlowError:
        return error_from_name(error["cause"], error["message"])

    def _crashed(self, process: subprocess.Popen[bytes]) -> ScopeFlowError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        code = process.returncode
        if code in (-signal.SIGKILL, -signal.SIGTERM):
            return TransientError(
                f"the working process was killed from outside ({signal.Signals(-code).name}); "
                "for want of memory, most often"
            )
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return self._crash_error(f"the working process died ({how})")


def run_child(
    target: str,
    request: Json,
    *,
    timeout_s: float,
    max_rss_bytes: int | None = None,
    on_progress: Progress | None = None,
    timeout_error: type[ScopeFlowError] = EndpointTimeout,
    crash_error: type[ScopeFlowError] = ScopeFlowError,
) -> Json:
    """Run one ``module:function`` in a child of its own; see ``ChildWorker.call``."""
    with ChildWorker(timeout_error=timeout_error, crash_error=crash_error) as worker:
        return worker.call(target, request, timeout_s=timeout_s, max_rss_bytes=max_rss_bytes, on_progress=on_progress)


def tree_rss_bytes(pid: int) -> int:
    """Return the resident memory of a process and all its descendants; 0 when it is gone."""
    total = 0
    with contextlib.suppress(psutil.Error):
        leader = psutil.Process(pid)
        for process in (leader, *leader.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total
