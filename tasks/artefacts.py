"""What a stage left on the store, and whether it is still there when its result comes from an earlier run."""

from blocks.access import StoreAccess
from tasks.records.base import Record
from tasks.records.keyframes import KeyframeSet
from tasks.records.pooling import PoolAccount
from tasks.records.signals import SignalsRef


def artefacts_of(result: object) -> set[str]:
    """Return the URIs of everything that a stage's result points to."""
    found: list[str | None] = []
    if isinstance(result, SignalsRef):
        found = [result.uri]
    elif isinstance(result, KeyframeSet):
        found = [result.sheet_uri, *(keyframe.image_uri for keyframe in result.keyframes)]
    elif isinstance(result, PoolAccount):
        found = [uri for frame in result.frames for uri in (frame.image_uri, frame.plan_uri, frame.overlay_uri)]
    return {uri for uri in found if uri is not None}


def something_is_gone(result: Record, store: StoreAccess) -> bool:
    """Tell whether a result points to something that was deleted since; one listing a folder, not a request a file."""
    wanted = artefacts_of(result)
    folders = {uri.rpartition("/")[0] for uri in wanted}
    prefixes = [folder.removeprefix(store.root_uri).lstrip("/") + "/" for folder in folders]
    return bool(wanted - {found.uri for prefix in prefixes for found in store.list_objects(prefix)})
