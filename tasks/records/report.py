"""The report: one medium's answer with everything a reader needs to trust or doubt it."""

from typing import Literal

from pydantic import Field

from tasks.records.base import Record
from tasks.records.inference import Answer
from tasks.records.keyframes import KeyframeSet
from tasks.records.media import MediaProbe, MediaRef
from tasks.records.pooling import PoolAccount
from tasks.records.signals import SignalsRef
from tasks.records.specs import MediaRequest

NOT_FOR_CLINICAL_USE = "Research output. Not for clinical use: a qualified person must check every statement."


class StageFailure(Record):
    """What failed, where, and whether another try may help."""

    stage: str = Field(description="Task name as it stands in the Prefect UI")
    cause: str = Field(description="Class of the error, from records/errors.py")
    message: str
    retryable: bool


class StageTiming(Record):
    """Wall seconds of one stage in this run."""

    stage: str
    seconds: float = Field(ge=0)
    from_cache: bool = Field(default=False, description="Taken from an earlier run")
    peak_rss_bytes: int | None = None


class Provenance(Record):
    """Which code, specs and machine made the report."""

    scopeflow_version: str
    request_digest: str
    flow_run_id: str | None = None
    flow_run_url: str | None = None
    created_at: str = Field(description="ISO 8601, UTC")


class MediaReport(Record):
    """One medium's answer, its evidence, its cost and its failures."""

    outcome: Literal["complete", "partial", "failed"]
    request: MediaRequest
    media: MediaRef | None = None
    probe: MediaProbe | None = None
    signals: SignalsRef | None = None
    keyframes: KeyframeSet | None = None
    pooling: PoolAccount | None = None
    answer: Answer | None = None
    timings: tuple[StageTiming, ...] = ()
    failures: tuple[StageFailure, ...] = ()
    warnings: tuple[str, ...] = ()
    provenance: Provenance
    notice: str = NOT_FOR_CLINICAL_USE
    report_json_uri: str | None = None
    report_html_uri: str | None = None
