"""Progress of an analysis on standard error: bars on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from flows.cli_common import say
from tasks.algorithms.wording import STAGE_WORDS, counted, human_count, stage_words

_LINE_EVERY_S = 10.0


def progress_view() -> "Bars | Lines":
    """Return the view that fits standard error."""
    return Bars() if sys.stderr.isatty() else Lines()


class Lines:
    """One line when a stage starts, and one each ten seconds while it lasts."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._told_at = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, stage: str, done: int, total: int | None, unit: str) -> None:
        """Take one report of progress."""
        with self._lock:
            now = time.monotonic()
            if stage not in self._seen:
                self._seen.add(stage)
                say(f"  {_place(stage)} {stage_words(stage)}")
                self._told_at = now
            elif done and now - self._told_at >= _LINE_EVERY_S:
                say(f"        {_amount(done, total, unit)}")
                self._told_at = now


class Bars:
    """A bar for each stage."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}", markup=False, style="dim"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=5,
        )
        self._tasks: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._tasks = {
            stage: self._progress.add_task(words, start=False, total=None, note="", visible=False)
            for stage, words in STAGE_WORDS.items()
        }
        self._progress.start()
        self._begin(next(iter(STAGE_WORDS)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, stage: str, done: int, total: int | None, unit: str) -> None:
        """Take one report of progress; whatever comes before a stage that goes is finished."""
        with self._lock:
            if stage in self._tasks:
                self._begin(stage)
                self._progress.update(
                    self._tasks[stage], completed=done, total=total, note=_amount(done, total, unit) if done else ""
                )

    def _begin(self, stage: str) -> None:
        for earlier, task in self._tasks.items():
            if earlier == stage:
                break
            self._progress.update(task, visible=True, total=1, completed=1)
            self._progress.stop_task(task)
        if not self._progress.tasks[self._tasks[stage]].started:
            self._progress.update(self._tasks[stage], visible=True)
            self._progress.start_task(self._tasks[stage])


def _place(stage: str) -> str:
    stages = list(STAGE_WORDS)
    return f"[{stages.index(stage) + 1}/{len(stages)}]" if stage in stages else "[-/-]"


def _amount(done: int, total: int | None, unit: str) -> str:
    if total:
        return f"{human_count(done)} of {human_count(total)} {unit}".rstrip()
    return counted(done, unit.removesuffix("s")) if unit else human_count(done)
