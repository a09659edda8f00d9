"""decode: one streaming pass over the medium, a row of signals a frame."""

from typing import Any

from prefect import task

from blocks.media_store import MediaStore
from blocks.run_view import StageProgress
from blocks.scratch import scratch_folder
from tasks.children import run_on_medium
from tasks.policy import RETRIES, cached_as, sealed
from tasks.records.base import digest_of
from tasks.records.media import PulledMedia
from tasks.records.signals import SignalsRef
from tasks.records.specs import DecodeSpec


def _digest(parameters: dict[str, Any]) -> tuple[str, str]:
    return parameters["pulled"].media.media_id, digest_of(*parameters["spec"].scoring)


@task(name="decode", **RETRIES, **cached_as("decode", _digest))
@sealed
def decode(pulled: PulledMedia, spec: DecodeSpec, store: MediaStore) -> SignalsRef:
    """Score every frame worth scoring, in a child process with a deadline and a memory limit."""
    with scratch_folder() as folder, StageProgress("decode") as progress:
        table = folder / "signals.parquet"
        found = run_on_medium("decode", pulled, spec, store, on_progress=progress.show, table_path=str(table))
        key = f"signals/{pulled.media.media_id}/{digest_of(*spec.scoring)}.parquet"
        uri = store.access().write_file(key, table, content_type="application/vnd.apache.parquet")
    return SignalsRef(uri=uri, **found)
