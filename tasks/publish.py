"""publish: write the report, complete or not at all."""

import io
from typing import Any

from prefect import task
from pydantic import ValidationError

from blocks.access import StoreAccess
from blocks.media_store import MediaStore
from blocks.run_view import markdown_artifact
from tasks.algorithms.pictures import read_picture, thumbnail, webp_bytes
from tasks.algorithms.report_html import pictures_wanted, render_report
from tasks.policy import RETRIES, once_a_run, sealed
from tasks.records.errors import MediaNotFound
from tasks.records.report import MediaReport

_THUMB_PX = 480
_MAX_PICTURE_BYTES = 512 << 20


@task(name="publish", **RETRIES, **once_a_run("publish"))
@sealed
def publish(report: MediaReport, store: MediaStore) -> MediaReport:
    """Write the page first and ``report.json`` last, so that a reader finds a whole report or none.

    A report that stands there already and says the same is left as it is. What is looked at is the store itself, not a
    cached result: between two equal runs another one may have written something else.
    """
    access = store.access()
    media_id = report.media.media_id if report.media else "unread"
    folder = f"reports/{media_id}/{report.provenance.request_digest}"
    published = report.model_copy(
        update={
            "report_html_uri": access.uri_of(f"{folder}/report.html"),
            "report_json_uri": access.uri_of(f"{folder}/report.json"),
        }
    )
    text = report.answer.text if report.answer else "\n".join(failure.message for failure in report.failures)
    markdown_artifact(
        "answer", f"## Answer ({report.outcome})\n\n{_as_lines(text)}\n\n_{report.notice}_", description="Answer"
    )
    before = _published_before(published, access)
    if before is not None:
        return before
    page = render_report(published, _pictures(published, access))
    access.write_bytes(f"{folder}/report.html", page.encode(), content_type="text/html; charset=utf-8")
    access.write_bytes(
        f"index/{media_id}-{report.provenance.request_digest}.parquet",
        _index_row(published),
        content_type="application/vnd.apache.parquet",
    )
    access.write_bytes(
        f"{folder}/report.json", published.model_dump_json(indent=2).encode(), content_type="application/json"
    )
    return published


def _published_before(report: MediaReport, access: StoreAccess) -> MediaReport | None:
    """Return the report that stands where this one would, if it says the same and the same version made it."""
    assert report.report_json_uri is not None
    assert report.report_html_uri is not None
    try:
        before = MediaReport.model_validate_json(access.read_bytes(report.report_json_uri))
    except (MediaNotFound, ValidationError):
        return None
    same = _findings(before) == _findings(report) and access.exists(report.report_html_uri)
    return before if same and before.provenance.scopeflow_version == report.provenance.scopeflow_version else None


def _findings(report: MediaReport) -> dict[str, Any]:
    return report.model_dump(exclude={"timings", "provenance"})


def _as_lines(text: str) -> str:
    """Keep the model's line breaks and none of its markup; its text is not trusted."""
    return "\n".join("    " + line for line in text.splitlines())


def _pictures(report: MediaReport, access: StoreAccess) -> dict[str, bytes]:
    """Return small WebP pictures of the page's keyframes and their overlays, by URI."""
    return {uri: _small(access.read_bytes(uri, max_bytes=_MAX_PICTURE_BYTES)) for uri in pictures_wanted(report)}


def _small(encoded: bytes) -> bytes:
    return webp_bytes(thumbnail(read_picture(encoded), _THUMB_PX), quality=70)


def _index_row(report: MediaReport) -> bytes:
    """Return a one-row Parquet file; reading ``index/`` as one data set lists every report."""
    import pandas as pd

    row = {
        "media_id": report.media.media_id if report.media else None,
        "case_id": report.request.case_id,
        "request_digest": report.provenance.request_digest,
        "outcome": report.outcome,
        "kind": report.media.kind.value if report.media else None,
        "frames_delivered": report.signals.frames_delivered if report.signals else None,
        "keyframes": len(report.keyframes.keyframes) if report.keyframes else None,
        "native_tokens": report.pooling.native_tokens if report.pooling else None,
        "pooled_tokens": report.pooling.pooled_tokens if report.pooling else None,
        "model": report.answer.model if report.answer else None,
        "failed_stage": report.failures[0].stage if report.failures else None,
        "cause": report.failures[0].cause if report.failures else None,
        "created_at": report.provenance.created_at,
        "report_json_uri": report.report_json_uri,
    }
    target = io.BytesIO()
    pd.DataFrame([row]).to_parquet(target, index=False)
    return target.getvalue()
