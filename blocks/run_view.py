"""What a run shows while it goes and when it ends: progress, tables, pictures and text in the Prefect UI."""

import base64
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.context import TaskRunContext
from prefect.logging import get_logger

from blocks.progress import report
from tasks.algorithms.pictures import Pixels, thumbnail, webp_bytes

_UPDATE_EVERY_S = 1.0
_IMAGE_MAX_BYTES = 100_000
_BLIND_RUNS: set[UUID] = set()


class StageProgress:
    """Progress of one task: told to listeners at once, shown as an artifact at most once a second."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._artifact: UUID | None = None
        self._shown_at = 0.0
        self._last: tuple[int, int | None, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._last is not None:
            done, _, unit = self._last
            report(self._stage, done, done, unit)
            self._update(100.0)

    def show(self, progress: dict[str, Any]) -> None:
        """Show one progress line: ``done``, ``total`` (None when unknown) and ``unit``."""
        done, total, unit = progress["done"], progress.get("total"), progress.get("unit", "")
        self._last = (done, total, unit)
        report(self._stage, done, total, unit)
        if time.monotonic() - self._shown_at >= _UPDATE_EVERY_S:
            self._shown_at = time.monotonic()
            self._update(min(99.0, 100.0 * done / total) if total else 0.0)

    def _update(self, percent: float) -> None:
        if self._artifact is None:
            key, description = f"{self._stage}-progress", f"Progress of {self._stage}"
            self._artifact = _show(lambda: create_progress_artifact(progress=percent, key=key, description=description))
        else:
            artifact = self._artifact
            _show(lambda: update_progress_artifact(artifact_id=artifact, progress=percent))


def table_artifact(key: str, rows: list[dict[str, Any]], *, description: str) -> None:
    """Show a table in the run's artifacts."""
    _show(lambda: create_table_artifact(table=rows, key=key, description=description))


def markdown_artifact(key: str, text: str, *, description: str) -> None:
    """Show a text in the run's artifacts."""
    _show(lambda: create_markdown_artifact(markdown=text, key=key, description=description))


def image_artifact(key: str, rgb: Pixels, *, description: str) -> None:
    """Show a picture in the run's artifacts, inside the artifact itself, so that no address need be reachable.

    The picture is made smaller until it takes at most 100 kB.
    """
    for side, quality in ((1280, 75), (1280, 50), (960, 50), (640, 40), (480, 30)):
        encoded = webp_bytes(thumbnail(rgb, side), quality=quality)
        if len(encoded) <= _IMAGE_MAX_BYTES:
            break
    address = "data:image/webp;base64," + base64.b64encode(encoded).decode("ascii")
    _show(lambda: create_image_artifact(image_url=address, key=key, description=description))


def _show(create: Callable[[], Any]) -> Any:
    """Run a call that shows something; outside a run there is nothing to show it in, and it never fails a stage.

    Each try on a server that is gone costs a minute of retries, so after one nothing more of that run is shown.
    """
    context = TaskRunContext.get()
    if context is None or context.task_run.flow_run_id in _BLIND_RUNS:
        return None
    try:
        return create()
    except Exception as error:  # whatever it is, the medium's work goes on
        if context.task_run.flow_run_id is not None:
            _BLIND_RUNS.add(context.task_run.flow_run_id)
        get_logger("scopeflow").warning("The run's artifacts are no longer shown (%s)", type(error).__name__)
        return None
