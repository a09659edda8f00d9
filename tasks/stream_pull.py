"""stream-pull: find a medium, pin its version, tell its kind from its bytes, read its header."""

from prefect import task

from blocks.access_open import access_for, normalise_uri
from blocks.media_store import MediaStore
from tasks.children import PROBE_TIMEOUT_S, media_ref, run_decode_child
from tasks.policy import RETRIES, once_a_run, sealed
from tasks.records.media import MediaKind, MediaProbe, PulledMedia
from tasks.records.specs import MediaRequest


@task(name="stream-pull", **RETRIES, **once_a_run("stream-pull"))
@sealed
def stream_pull(request: MediaRequest, store: MediaStore) -> PulledMedia:
    """Pin the medium's version and read its header by ranged reads."""
    uri = normalise_uri(request.uri)
    access = access_for(uri, store.access())
    stat = access.stat(uri)
    found = run_decode_child("probe", access, stat, request.decode, timeout_s=PROBE_TIMEOUT_S)
    media = media_ref(uri, stat, MediaKind(found["kind"]), request.case_id)
    return PulledMedia(media=media, probe=MediaProbe.model_validate(found["probe"]))
