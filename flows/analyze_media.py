"""Analyse one medium: from its address to a published report."""

from typing import Any

from prefect import flow, runtime
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from blocks.embedded_vlm import shared_engine
from blocks.media_store import MediaStore
from blocks.prefect_server import lost_server_named
from tasks.decode import decode
from tasks.extract_keyframes import extract_keyframes
from tasks.infer import infer
from tasks.pool_patches import pool_patches
from tasks.provenance import request_digest
from tasks.publish import publish
from tasks.records.base import digest_of
from tasks.records.errors import ScopeFlowError
from tasks.records.report import MediaReport
from tasks.records.specs import MediaRequest
from tasks.run_record import RunRecord
from tasks.segments import combine, inference_requests, time_warnings
from tasks.select_keyframes import select_keyframes
from tasks.stream_pull import stream_pull

_RUNNER: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=2)  # segments asked at a time


def _run_name() -> str:
    request = MediaRequest.model_validate(runtime.flow_run.parameters["request"])
    return f"media-{request_digest(request)[:8]}"


@flow(
    name="analyze-media",
    flow_run_name=_run_name,
    task_runner=_RUNNER,
    persist_result=False,
)
def analyze_media(request: MediaRequest, refresh: bool = False) -> State[MediaReport]:
    """Describe one medium and publish a report of it, complete, partial or failed.

    A failure in a stage ends in a report that names it, never in a lost run. The run's state is Failed when the report
    is, and carries the report either way.

    Args:
        request: the medium and the knobs of every stage.
        refresh: run every stage again whatever is cached.
    """
    store = MediaStore.named(request.media_store)
    record = RunRecord(request, store, refresh=refresh)
    with record.until_a_stage_stops():
        engine = record.attempt("infer", shared_engine, request.model_folder)
        pulled = record.stage(stream_pull, request)
        record.found(media=pulled.media, probe=pulled.probe)
        signals = record.stage(decode, pulled, request.decode)
        record.found(signals=signals, warnings=signals.warnings)
        chosen = record.stage(select_keyframes, pulled, signals, request.selection)
        record.found(keyframes=chosen)
        chosen = record.stage(extract_keyframes, pulled, chosen, request.decode)
        record.found(keyframes=chosen)
        pooled = record.stage(pool_patches, chosen, request.pooling, engine.card)
        record.found(pooling=pooled)
        questions = record.attempt("infer", inference_requests, chosen, pooled, request.prompt, engine.card)
        results = record.mapped_stage(infer, [(question, engine) for question in questions])
        record.found(answer=combine(results, segments_asked=len(questions), notice=engine.card.notice))
        record.found(warnings=signals.warnings + time_warnings(questions, results))
    return _final_state(_published(record))


def run_analysis(request: MediaRequest, store: MediaStore, *, refresh: bool = False) -> MediaReport:
    """Run ``analyze_media`` in this process and return its report, whatever its outcome.

    Args:
        request: ``media_store`` in it is replaced by ``store``, which is saved as a block first.
        store: where results are written.
        refresh: run every stage again whatever is cached.
    """
    with lost_server_named():
        named = request.model_copy(update={"media_store": _saved_name(store)})
        state: State[Any] = analyze_media(named, refresh=refresh, return_state=True)
    report = state.result(raise_on_failure=False)
    if isinstance(report, MediaReport):
        return report
    raise report if isinstance(report, BaseException) else ScopeFlowError(f"the run ended as {state.name}")


def _saved_name(store: MediaStore) -> str:
    """Save a store that has no name yet, so that Prefect can read task results back through it."""
    if store._block_document_name is None:
        config = store.config()
        store.save(f"scopeflow-{digest_of(config.model_dump_json())}", overwrite=True)
    assert store._block_document_name is not None
    return store._block_document_name


def _published(record: RunRecord) -> MediaReport:
    report = record.report()
    with record.until_a_stage_stops():
        return record.of_this_run(record.stage(publish, report))
    return record.report()


def _final_state(report: MediaReport) -> State[MediaReport]:
    if report.outcome == "failed":
        return Failed(message="; ".join(f"{f.stage}: {f.message}" for f in report.failures), data=report)
    name = "Completed" if report.outcome == "complete" else "Partial"
    return Completed(name=name, message=f"{report.outcome} report", data=report)
