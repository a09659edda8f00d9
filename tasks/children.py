"""Decode children: told the store, the pinned version and the limits; their errors gain the medium's pseudonym."""

from typing import TYPE_CHECKING, Any

from blocks.access import ObjectStat, StoreAccess, label_of, revealed
from blocks.access_open import access_for
from blocks.child import Json, Progress, run_child
from tasks.records.base import digest_of
from tasks.records.errors import BudgetExceeded, CorruptMedia, ScopeFlowError
from tasks.records.media import MediaKind, MediaRef, PulledMedia
from tasks.records.specs import DecodeSpec

if TYPE_CHECKING:  # the command line runs these functions without Prefect
    from blocks.media_store import MediaStore

PROBE_TIMEOUT_S = 120.0


def media_ref(uri: str, stat: ObjectStat, kind: MediaKind, case_id: str | None = None) -> MediaRef:
    """Return the reference to one pinned version of a medium.

    Args:
        uri: as ``normalise_uri`` returns it.
        stat: what stood there when it was pinned.
        kind: as told from its bytes.
        case_id: a pseudonym.
    """
    return MediaRef(
        uri=uri,
        etag=stat.etag,
        version_id=stat.version_id,
        size_bytes=stat.size_bytes,
        last_modified_ns=stat.last_modified_ns,
        kind=kind,
        case_id=case_id,
        media_id=digest_of(uri, stat.etag, stat.version_id, stat.size_bytes),
    )


def stat_of(media: MediaRef) -> ObjectStat:
    """Return what stood at a medium's address when it was pinned; the way back from ``media_ref``."""
    return ObjectStat(
        uri=media.uri,
        etag=media.etag,
        version_id=media.version_id,
        size_bytes=media.size_bytes,
        last_modified_ns=media.last_modified_ns,
    )


def run_decode_child(
    function: str,
    access: StoreAccess,
    stat: ObjectStat,
    spec: DecodeSpec,
    *,
    timeout_s: float | None = None,
    on_progress: Progress | None = None,
    **more: Any,
) -> Json:
    """Run one function of ``blocks.decode_child`` on a pinned object, under the limits of ``spec``.

    Args:
        function: ``probe``, ``decode`` or ``extract``.
        timeout_s: a deadline shorter than that of ``spec``.
        more: further parts of the request.

    Raises:
        ScopeFlowError: the child's own, its message led by the medium's pseudonym; ``BudgetExceeded`` past a limit;
            ``CorruptMedia`` when the decoder itself dies of the medium.
    """
    try:
        return run_child(
            f"blocks.decode_child:{function}",
            {
                "access": revealed(access.config),
                "stat": stat.model_dump(mode="json"),
                "decode": spec.model_dump(mode="json"),
                **more,
            },
            timeout_s=min(spec.max_seconds, timeout_s or spec.max_seconds),
            max_rss_bytes=spec.max_child_rss_bytes,
            on_progress=on_progress,
            timeout_error=BudgetExceeded,
            crash_error=CorruptMedia,
        )
    except ScopeFlowError as error:
        label = label_of(stat.uri)
        if error.message.startswith(label):
            raise
        raise type(error)(f"{label}: {error.message}") from None


def run_on_medium(
    function: str,
    pulled: PulledMedia,
    spec: DecodeSpec,
    store: "MediaStore",
    *,
    on_progress: Progress | None = None,
    **more: Any,
) -> Json:
    """Run one function of ``blocks.decode_child`` on the version of a medium that was pinned when the run began."""
    media = pulled.media
    access = access_for(media.uri, store.access())
    return run_decode_child(
        function, access, stat_of(media), spec, on_progress=on_progress, kind=media.kind.value, **more
    )
