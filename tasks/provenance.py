"""Where a report comes from; no Prefect here, so that a command can refuse a medium without waiting for it."""

from datetime import UTC, datetime
from importlib.metadata import version

from tasks.records.base import digest_of
from tasks.records.report import Provenance
from tasks.records.specs import MediaRequest


def request_digest(request: MediaRequest) -> str:
    """Return the digest of what was asked, whatever store it is written to."""
    return digest_of(request.model_copy(update={"media_store": ""}))


def provenance_of(
    request: MediaRequest, *, flow_run_id: str | None = None, flow_run_url: str | None = None
) -> Provenance:
    """Return the provenance of a report made now."""
    return Provenance(
        scopeflow_version=version("scopeflow"),
        request_digest=request_digest(request),
        flow_run_id=flow_run_id,
        flow_run_url=flow_run_url,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
