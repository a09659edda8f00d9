"""stream-pull: find a medium, pin its version, tell its kind from its bytes, read its header."""

from prefect import task

from blocks.access import revealed
from blocks.access_open import access_for, normalise_uri
from blocks.child import run_child
from blocks.media_store import MediaStore
from tasks.policy import PERSISTED, RETRIES
from tasks.records.base import digest_of
from tasks.records.errors import BudgetExceeded, CorruptMedia
from tasks.records.media import MediaKind, MediaProbe, MediaRef, PulledMedia
from tasks.records.specs import MediaRequest

_PROBE_TIMEOUT_S = 120.0


@task(name="stream-pull", **RETRIES, **PERSISTED)
def stream_pull(request: MediaRequest, store: MediaStore) -> PulledMedia:
    """Pin the medium's version and read its header by ranged reads; never cached, since objects change."""
    uri = normalise_uri(request.uri)
    access = access_for(uri, store.access())
    stat = access.stat(uri)
    found = run_child(
        "blocks.decode_child:probe",
        {
            "access": revealed(access.config),
            "stat": stat.model_dump(mode="json"),
            "decode": request.decode.model_dump(mode="json"),
        },
        timeout_s=min(request.decode.max_seconds, _PROBE_TIMEOUT_S),
        max_rss_bytes=request.decode.max_child_rss_bytes,
        timeout_error=BudgetExceeded,
        crash_error=CorruptMedia,
    )
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
