"""How every task is run: which failures are retried, and under which key a result is kept."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.tasks import exponential_backoff

from tasks.records.errors import ScopeFlowError, TransientError, unexpected_words

P = ParamSpec("P")
R = TypeVar("R")


def is_transient(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Tell Prefect whether another try may help."""
    return isinstance(state.result(raise_on_failure=False), TransientError)


def sealed(work: Callable[P, R]) -> Callable[P, R]:
    """Keep the text of foreign errors inside a task: Prefect logs it, and it may quote the medium."""

    @functools.wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return work(*args, **kwargs)
        except ScopeFlowError:
            raise
        except Exception as error:
            raise ScopeFlowError(unexpected_words(error)) from None

    return run


RETRIES: dict[str, Any] = {
    "retries": 3,
    "retry_delay_seconds": exponential_backoff(2),
    "retry_jitter_factor": 0.5,
    "retry_condition_fn": is_transient,
}
"""At most three more tries, after about 2, 4 and 8 seconds, for transient faults only."""

PERSISTED: dict[str, Any] = {"persist_result": True, "result_serializer": "json"}
"""Results are small JSON records on the store; arrays never are."""


def cached_as(stage: str, digest: Callable[[dict[str, Any]], tuple[str, str]]) -> dict[str, Any]:
    """Return the task options that keep a result under ``results/<stage>/<media id>/<digest>``.

    Prefect's own policies include the run's id or hash only the thin wrapper; this key holds exactly what determines
    the content, so that running twice is harmless and a re-run does only what is left.

    Args:
        stage: task name.
        digest: from the task's parameters to (media id, digest of everything else that matters).
    """

    def key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
        media_id, rest = digest(parameters)
        return f"results/{stage}/{media_id}/{rest}"

    return {"cache_key_fn": key, **PERSISTED}


def once_a_run(stage: str) -> dict[str, Any]:
    """Return the task options that keep a result under ``results/<stage>/<flow run id>``.

    A retry of the same run goes on with the version it pinned; a new run looks again, since objects change.
    """

    def key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
        return f"results/{stage}/{context.task_run.flow_run_id}"

    return {"cache_key_fn": key, **PERSISTED}
