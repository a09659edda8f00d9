"""Progress of long work: stages report, listeners show. A command line, a Prefect artifact or nobody may listen."""

import contextlib
from collections.abc import Callable, Iterator

Listener = Callable[[str, int, int | None, str], None]

_listeners: list[Listener] = []


def report(stage: str, done: int, total: int | None, unit: str) -> None:
    """Tell every listener how far a stage is.

    Args:
        stage: task name.
        done: units finished.
        total: units in all; None when unknown.
        unit: what is counted, in the plural.
    """
    for listener in tuple(_listeners):
        listener(stage, done, total, unit)


@contextlib.contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Call ``listener(stage, done, total, unit)`` for all progress inside the ``with`` block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
