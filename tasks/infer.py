"""infer: ask the model about one segment."""

from typing import Any

from prefect import task

from blocks.embedded_vlm import EmbeddedVlm
from blocks.media_store import MediaStore
from blocks.run_view import StageProgress
from tasks.policy import RETRIES, cached_as, sealed
from tasks.records.inference import InferenceRequest, InferenceResult


def _digest(parameters: dict[str, Any]) -> tuple[str, str]:
    request: InferenceRequest = parameters["request"]
    return request.media_id, request.request_id


@task(name="infer", task_run_name="infer-segment-{request.segment_index}", **RETRIES, **cached_as("infer", _digest))
@sealed
def infer(request: InferenceRequest, engine: EmbeddedVlm, store: MediaStore) -> InferenceResult:
    """Ask one question about one segment, prefilled in chunks, under a deadline."""
    with StageProgress("infer") as progress:
        unit = f"answer tokens, segment {request.segment_index + 1}"
        result = engine.answer(request, store.config(), on_progress=lambda told: progress.show({**told, "unit": unit}))
    store.access().write_bytes(
        f"answers/{request.media_id}/{request.request_id}.json",
        result.model_dump_json().encode(),
        content_type="application/json",
    )
    return result
