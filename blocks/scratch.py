"""Scratch folders for pictures and tables on their way to the store; those of killed processes are swept."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

_NAME = re.compile(r"scopeflow-(\d+)-")


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder that is removed afterwards, by the next run if this process is killed."""
    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"scopeflow-{os.getpid()}-") as folder:
        yield Path(folder)


def _sweep() -> None:
    for left in Path(tempfile.gettempdir()).glob("scopeflow-*-*"):
        named = _NAME.match(left.name)
        if named and not psutil.pid_exists(int(named[1])):
            shutil.rmtree(left, ignore_errors=True)
