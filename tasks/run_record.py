"""The record of one run: stages run in order, their results, their times and what failed, until a report is made."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from prefect import Task
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_UI_URL

from blocks.media_store import MediaStore
from blocks.progress import report
from tasks.artefacts import something_is_gone
from tasks.provenance import provenance_of
from tasks.records.errors import ScopeFlowError, TransientError, unexpected_words
from tasks.records.report import MediaReport, Provenance, StageFailure, StageTiming
from tasks.records.specs import MediaRequest

T = TypeVar("T")


class StageStopped(Exception):
    """Raised inside a run when a stage failed and those after it can't go on; the failure is already recorded."""


class RunRecord:
    """Collects what one run of ``analyze_media`` finds.

    Args:
        request: what was asked.
        store: where results are written; task results are kept on it too.
        refresh: run every stage again whatever is cached.
    """

    def __init__(self, request: MediaRequest, store: MediaStore, *, refresh: bool = False) -> None:
        self._request = request
        self._store = store
        self._refresh = refresh
        self._found: dict[str, Any] = {}
        self._timings: list[StageTiming] = []
        self._failures: list[StageFailure] = []

    def stage(self, work: Task[..., T], *arguments: Any) -> T:
        """Run one stage and return its result.

        Raises:
            StageStopped: it failed; the failure is in the report.
        """
        report(work.name, 0, None, "")
        began = time.monotonic()
        prepared = self._prepared(work)
        state = prepared(*arguments, self._store, return_state=True)
        if state.name == "Cached" and something_is_gone(state.result(), self._store.access()):
            state = prepared.with_options(refresh_cache=True)(*arguments, self._store, return_state=True)
        self._note_time(work.name, began, [state])
        value: T = self._value(work.name, state)
        return value

    def mapped_stage(self, work: Task[..., T], arguments: list[tuple[Any, ...]]) -> list[T]:
        """Run one stage for several inputs, as many at a time as the flow's task runner allows; keep what succeeds.

        Raises:
            StageStopped: all failed.
        """
        report(work.name, 0, None, "")
        began = time.monotonic()
        prepared = self._prepared(work)
        futures = [prepared.submit(*each, self._store) for each in arguments]
        states: list[State[T]] = []
        for future in futures:
            future.wait()
            states.append(future.state)
        self._note_time(work.name, began, states)
        values: list[T] = []
        for state in states:
            with contextlib.suppress(StageStopped):
                values.append(self._value(work.name, state))
        if not values:
            raise StageStopped
        return values

    def attempt(self, stage: str, work: Callable[..., T], *arguments: Any) -> T:
        """Call a plain function on behalf of a stage.

        Raises:
            StageStopped: it raised a ``ScopeFlowError``, which is in the report now.
        """
        try:
            value: T = work(*arguments)
        except ScopeFlowError as error:
            self.fail(stage, error)
            raise StageStopped from None
        return value

    def found(self, **parts: Any) -> None:
        """Keep parts of the report by their field names."""
        self._found.update(parts)

    def fail(self, stage: str, error: BaseException) -> None:
        """Record a failure; foreign errors are named by their class alone, since their text may quote the medium."""
        known = isinstance(error, ScopeFlowError)
        self._failures.append(
            StageFailure(
                stage=stage,
                cause=type(error).__name__,
                message=error.message if isinstance(error, ScopeFlowError) else unexpected_words(error),
                retryable=isinstance(error, TransientError) or not known,
            )
        )

    @contextlib.contextmanager
    def until_a_stage_stops(self) -> Iterator[None]:
        """Leave the ``with`` block quietly when a stage fails."""
        with contextlib.suppress(StageStopped):
            yield

    def report(self) -> MediaReport:
        """Return the report of everything found so far."""
        return MediaReport(
            outcome=self._outcome(),
            request=self._request,
            timings=tuple(self._timings),
            failures=tuple(self._failures),
            provenance=_provenance(self._request),
            **self._found,
        )

    def of_this_run(self, published: MediaReport) -> MediaReport:
        """Return a published report with this run's times and identity; the stored one keeps those it was made with."""
        return published.model_copy(update={"timings": tuple(self._timings), "provenance": _provenance(self._request)})

    def _note_time(self, stage: str, began: float, states: list[State[T]]) -> None:
        fresh = [state for state in states if state.name != "Cached"]
        peaks = [getattr(state.result(), "peak_rss_bytes", 0) for state in fresh if state.is_completed()]
        self._timings.append(
            StageTiming(
                stage=stage,
                seconds=time.monotonic() - began,
                from_cache=not fresh,
                peak_rss_bytes=max(peaks, default=0) or None,
            )
        )

    def _prepared(self, work: Task[..., T]) -> Any:
        return work.with_options(result_storage=self._store, refresh_cache=self._refresh)

    def _value(self, stage: str, state: State[T]) -> T:
        if state.is_completed():
            value: T = state.result()
            return value
        error = state.result(raise_on_failure=False)
        self.fail(stage, error if isinstance(error, BaseException) else RuntimeError(state.name))
        raise StageStopped

    def _outcome(self) -> Literal["complete", "partial", "failed"]:
        answer, signals = self._found.get("answer"), self._found.get("signals")
        unpublished = any(failure.stage == "publish" for failure in self._failures)
        if answer is None or unpublished:
            return "failed"
        damaged = signals is not None and signals.is_damaged
        if self._failures or damaged or answer.outcome != "complete":
            return "partial"
        return "complete"


def _provenance(request: MediaRequest) -> Provenance:
    context = FlowRunContext.get()
    run_id = str(context.flow_run.id) if context and context.flow_run else None
    ui: Callable[[], str | None] = PREFECT_UI_URL.value
    address = ui()
    url = f"{address}/runs/flow-run/{run_id}" if address and run_id else None
    return provenance_of(request, flow_run_id=run_id, flow_run_url=url)
