"""What decode children are told: the store, the pinned version and the limits."""

from typing import Any

from blocks.access import ObjectStat, revealed
from blocks.access_open import access_for
from blocks.media_store import MediaStore
from tasks.records.media import PulledMedia
from tasks.records.specs import DecodeSpec


def media_request(pulled: PulledMedia, spec: DecodeSpec, store: MediaStore) -> dict[str, Any]:
    """Return the part of a decode child's request that names the pinned medium, and how to reach it."""
    media = pulled.media
    stat = ObjectStat(
        uri=media.uri,
        etag=media.etag,
        version_id=media.version_id,
        size_bytes=media.size_bytes,
        last_modified_ns=media.last_modified_ns,
    )
    return {
        "access": revealed(access_for(media.uri, store.access()).config),
        "stat": stat.model_dump(mode="json"),
        "kind": media.kind.value,
        "decode": spec.model_dump(mode="json"),
    }
