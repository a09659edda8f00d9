"""select-keyframes: choose the frames worth showing, from the signals table alone."""

import io
from typing import Any

from prefect import task

from blocks.media_store import MediaStore
from tasks.policy import RETRIES, cached_as, sealed
from tasks.records.base import digest_of
from tasks.records.keyframes import KeyframeSet
from tasks.records.media import PulledMedia
from tasks.records.signals import SignalsRef
from tasks.records.specs import SelectionSpec

_MAX_TABLE_BYTES = 512 << 20


def _digest(parameters: dict[str, Any]) -> tuple[str, str]:
    return parameters["pulled"].media.media_id, digest_of(parameters["signals"].uri, parameters["spec"])


@task(name="select-keyframes", **RETRIES, **cached_as("select-keyframes", _digest))
@sealed
def select_keyframes(pulled: PulledMedia, signals: SignalsRef, spec: SelectionSpec, store: MediaStore) -> KeyframeSet:
    """Choose keyframes; another spec re-uses the decoded table."""
    import pandas as pd

    from tasks.algorithms import keyframes

    access = store.access()
    table = pd.read_parquet(io.BytesIO(access.read_bytes(signals.uri, max_bytes=_MAX_TABLE_BYTES)))
    chosen = keyframes.select_keyframes(table, spec, media_id=pulled.media.media_id, kind=pulled.media.kind)
    folder = f"keyframes/{pulled.media.media_id}/{digest_of(signals.uri, spec)}"
    access.write_bytes(f"{folder}/set.json", chosen.model_dump_json().encode(), content_type="application/json")
    return chosen
