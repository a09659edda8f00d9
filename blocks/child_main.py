"""The inside of a child process: answer JSON-line calls until the parent goes."""

import importlib
import json
import os
import queue
import re
import signal
import sys
import threading
from typing import Any

from tasks.records.errors import BudgetExceeded, ScopeFlowError, unexpected_words


def main() -> None:
    """Answer calls from standard input on the file descriptor given as the only argument."""
    results = os.fdopen(int(sys.argv[1]), "w", buffering=1, encoding="utf-8")
    calls: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_watch_lifeline, args=(calls,), daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        results.write(json.dumps(message) + "\n")

    while True:
        call = calls.get()
        try:
            module, function = call["target"].split(":")
            answer = getattr(importlib.import_module(module), function)(
                call["request"], lambda progress: send({"progress": progress})
            )
            send({"result": answer, "peak_rss_bytes": peak_rss_bytes()})
        except ScopeFlowError as error:
            send({"error": {"cause": type(error).__name__, "message": error.message}})
        except MemoryError:
            send({"error": {"cause": BudgetExceeded.__name__, "message": "the work ran out of memory"}})
        except Exception as error:
            send({"error": {"cause": ScopeFlowError.__name__, "message": unexpected_words(error)}})


def peak_rss_bytes() -> int:
    """Return this process's resident high-water mark in bytes.

    ``ru_maxrss`` would count the parent's memory at the fork too; ``VmHWM`` starts afresh at exec.
    """
    with open("/proc/self/status", encoding="ascii") as status:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
    return int(found.group(1)) * 1024 if found else 0


def _watch_lifeline(calls: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        calls.put(json.loads(line))
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
