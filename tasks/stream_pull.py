"""stream-pull: find a medium, pin its version, tell its kind from its bytes, read its header."""

from prefect import task

from blocks.access_open import access_for, normalise_uri
from blocks.media_store import MediaStore
from tasks.children import run_decode_child
from tasks.policy import RETRIES, once_a_run, sealed
from tasks.records.base import digest_of
from tasks.records.media import MediaKind, MediaProbe, MediaRef, PulledMedia
from tasks.records.specs import MediaRequest

_PROBE_TIMEOUT_S = 120.0


@task(name="stream-pull", **RETRIES, **once_a_run("stream-pull"))
@sealed
def stream_pull(request: MediaRequest, store: MediaStore) -> PulledMedia:
    """Pin the medium's version and read its header by ranged reads."""
    uri = normalise_uri(request.uri)
    access = access_for(uri, store.access())
    stat = access.stat(uri)
    found = run_decode_child("probe", access, stat, request.decode, timeout_s=_PROBE_TIMEOUT_S)
    media = MediaRef(
        uri=uri,
        etag=stat.etag,
        version_id=stat.version_id,
        size_bytes=stat.size_bytes,
        last_modified_ns=stat.last_modified_ns,
        kind=MediaKind(found["kind"]),
        case_id=request.case_id,
        media_id=digest_of(uri, stat.etag, stat.version_id, stat.size_bytes),
    )
    return PulledMedia(media=media, probe=MediaProbe.model_validate(found["probe"]))
