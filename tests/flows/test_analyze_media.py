"""The main job on real parts: a Prefect server, an S3 server, a real decoder and a real model."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from blocks.access import S3Config, StoreAccess
from tasks.algorithms.clips import ClipScript, events_of
from tasks.records.report import MediaReport
from tasks.records.specs import DecodeSpec, MediaRequest, PoolSpec, PromptSpec, SelectionSpec

STAGES = ["stream-pull", "decode", "select-keyframes", "extract-keyframes", "pool-patches", "infer", "publish"]


@pytest.fixture
def s3_store(rclone_server: S3Config, prefect_server: str, request: pytest.FixtureRequest) -> Any:
    """A fresh prefix on a real S3 server."""
    from blocks.media_store import S3MediaStore

    prefix = f"run-{abs(hash(request.node.nodeid)):x}"
    return S3MediaStore(**rclone_server.model_copy(update={"prefix": prefix}).model_dump(exclude={"kind"}))


@pytest.fixture
def local_store(tmp_path: Path, prefect_server: str) -> Any:
    from blocks.media_store import LocalMediaStore

    return LocalMediaStore(root=str(tmp_path / "store"))


def analyse(medium: str | Path, store: Any, **knobs: Any) -> MediaReport:
    from flows.analyze_media import run_analysis

    return run_analysis(MediaRequest(uri=str(medium), **knobs), store)


def of_any_run(report: MediaReport) -> dict[str, Any]:
    """Return what is the same in a run, in its repetition and on the store."""
    return report.model_dump(exclude={"timings", "provenance"})


def cached(report: MediaReport) -> dict[str, bool]:
    return {timing.stage: timing.from_cache for timing in report.timings}


def test_one_medium_from_s3_to_a_report_on_s3(s3_store: Any, clip: Path, clip_script: ClipScript) -> None:
    access: StoreAccess = s3_store.access()
    uri = access.write_file("incoming/clip.mp4", clip)
    report = analyse(uri, s3_store, case_id="case-7")

    assert report.outcome == "complete", report.failures
    assert [timing.stage for timing in report.timings] == STAGES
    assert report.signals is not None
    assert report.signals.frames_delivered == round(clip_script.seconds * clip_script.fps)
    assert report.keyframes is not None
    times = [k.pts_ns for k in report.keyframes.keyframes]
    for event in events_of(clip_script):
        assert any(t is not None and event.start_ns - 1e9 <= t <= event.end_ns + 1e9 for t in times), event
    assert report.keyframes.keyframes[0].score == 1
    assert all(0 <= k.score <= 1 for k in report.keyframes.keyframes)
    assert report.pooling is not None
    assert report.pooling.pooled_tokens < report.pooling.native_tokens
    assert report.answer is not None
    assert report.answer.text
    assert all(step <= PromptSpec().prefill_chunk_tokens for s in report.answer.segments for step in s.prefill_steps)
    assert "rendered" in (report.answer.model_notice or "")
    assert report.provenance.flow_run_url is not None

    # Everything lies on the store, and the report there is the report returned.
    assert report.report_json_uri is not None
    assert report.report_html_uri is not None
    assert of_any_run(MediaReport.model_validate_json(access.read_bytes(report.report_json_uri))) == of_any_run(report)
    page = access.read_bytes(report.report_html_uri).decode()
    assert "ot for clinical use" in page
    assert report.keyframes.sheet_uri is not None
    for stored in (report.signals.uri, report.keyframes.sheet_uri, report.pooling.frames[0].plan_uri):
        assert access.exists(stored)
    rows = [pd.read_parquet(io.BytesIO(access.read_bytes(o.uri))) for o in access.list_objects("index/")]
    assert [(row.outcome[0], row.case_id[0]) for row in rows] == [("complete", "case-7")]

    # A second run decodes nothing and publishes nothing new.
    before = {o.uri: o.last_modified_ns for o in access.list_objects("") if "/results/stream-pull" not in o.uri}
    again = analyse(uri, s3_store, case_id="case-7")
    assert of_any_run(again) == of_any_run(report)
    assert cached(again) == {stage: stage not in ("stream-pull", "publish") for stage in STAGES}
    assert again.provenance.flow_run_id != report.provenance.flow_run_id
    after = {o.uri: o.last_modified_ns for o in access.list_objects("")}
    changed = [u for u, t in before.items() if after[u] != t]
    assert changed == [], "a finished request writes nothing again"


def test_other_knobs_reuse_what_comes_before(local_store: Any, clip: Path) -> None:
    first = analyse(clip, local_store)
    assert first.outcome == "complete", first.failures
    prompt = analyse(clip, local_store, prompt=PromptSpec(prompt="What is visible?"))
    assert cached(prompt) == {stage: stage not in ("stream-pull", "infer", "publish") for stage in STAGES}
    pooled = analyse(clip, local_store, pooling=PoolSpec(mode="off"))
    assert cached(pooled)["extract-keyframes"]
    assert not cached(pooled)["pool-patches"]
    assert pooled.pooling is not None
    assert pooled.pooling.pooled_tokens == pooled.pooling.native_tokens
    chosen = analyse(clip, local_store, selection=SelectionSpec(max_keyframes=2))
    assert cached(chosen)["decode"]
    assert chosen.keyframes is not None
    assert len(chosen.keyframes.keyframes) <= 2
    decoded = analyse(clip, local_store, decode=DecodeSpec(quiet_stride=1))
    assert not cached(decoded)["decode"]


KILLER = """
import os, signal, sys
from blocks.progress import listen
from blocks.media_store import LocalMediaStore
from flows.analyze_media import run_analysis
from tasks.records.specs import MediaRequest

def kill(stage, done, total, unit):
    if stage == sys.argv[3] and (done > 0 or stage not in ("decode", "extract-keyframes", "pool-patches")):
        os.kill(os.getpid(), signal.SIGKILL)

with listen(kill):
    run_analysis(MediaRequest(uri=sys.argv[1]), LocalMediaStore(root=sys.argv[2]))
"""


def test_after_sigkill_in_any_stage_the_next_run_repeats_only_what_is_unfinished(
    local_store: Any, clip: Path, tmp_path: Path
) -> None:
    store_root = tmp_path / "store"
    for position, stage in enumerate(STAGES):
        killed = subprocess.run(
            [sys.executable, "-c", KILLER, str(clip), str(store_root), stage],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=200,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
        assert not list(store_root.glob("reports/*/*/report.json")), f"nothing may look done after a kill in {stage}"
        done = {path.parent.parent.name for path in store_root.glob("results/*/*/*")}
        assert done == {s for s in STAGES[:position] if s != "stream-pull"}
    report = analyse(clip, local_store)
    assert report.outcome == "complete"
    assert cached(report) == {stage: stage not in ("stream-pull", "publish") for stage in STAGES}
    assert not [p for p in store_root.rglob("*") if p.is_file() and ".scopeflow-tmp-" in p.name]


def test_a_medium_that_changes_while_it_is_read_fails_and_says_so(local_store: Any, clip: Path, tmp_path: Path) -> None:
    from blocks.progress import listen

    medium = tmp_path / "clip.mp4"
    medium.write_bytes(clip.read_bytes())

    def overwrite(stage: str, done: int, total: int | None, unit: str) -> None:
        if stage == "select-keyframes":
            os.utime(medium, ns=(1, 1))

    with listen(overwrite):
        report = analyse(medium, local_store)
    assert report.outcome == "failed"
    assert [(f.stage, f.cause) for f in report.failures] == [("extract-keyframes", "MediaChanged")]
    assert report.signals is not None, "what was found before stays in the report"


def test_the_report_on_the_store_is_the_one_last_told(local_store: Any, clip: Path) -> None:
    first = analyse(clip, local_store)
    request = MediaRequest(uri=str(clip))
    access = local_store.access()
    stored = first.report_json_uri or ""
    # Another run of the same request wrote something else in between, as one with a fault would.
    other = first.model_copy(update={"outcome": "failed"})
    access.write_bytes(stored.removeprefix(access.root_uri).lstrip("/"), other.model_dump_json().encode())
    again = analyse(request.uri, local_store)
    assert again.outcome == "complete"
    assert MediaReport.model_validate_json(access.read_bytes(stored)).outcome == "complete"


def test_what_was_deleted_from_the_store_is_made_again(local_store: Any, clip: Path, tmp_path: Path) -> None:
    first = analyse(clip, local_store)
    assert first.outcome == "complete", first.failures
    for folder in ("signals", "keyframes", "pooling"):
        shutil.rmtree(tmp_path / "store" / folder)
    again = analyse(clip, local_store, prompt=PromptSpec(prompt="What is visible?"))
    assert again.outcome == "complete", again.failures
    assert not cached(again)["decode"]
    assert cached(again)["select-keyframes"], "its result is the record itself"
    assert not cached(again)["extract-keyframes"]
    assert not cached(again)["pool-patches"]


def test_another_deadline_asks_nothing_again(local_store: Any, clip: Path) -> None:
    assert analyse(clip, local_store).outcome == "complete"
    again = analyse(clip, local_store, prompt=PromptSpec(timeout_s=999, max_tokens_total=10**6))
    assert cached(again)["infer"]
    assert cached(analyse(clip, local_store, decode=DecodeSpec(max_seconds=999)))["decode"]


def test_a_budget_stops_the_run_before_anything_is_spent(local_store: Any, clip: Path) -> None:
    report = analyse(clip, local_store, prompt=PromptSpec(max_tokens_total=10))
    assert report.outcome == "failed"
    assert [(f.stage, f.cause) for f in report.failures] == [("infer", "BudgetExceeded")]
    assert report.answer is None


def test_no_name_of_a_file_leaves_the_store(
    local_store: Any, clip: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    medium = tmp_path / "DOE^JOHN 1970-01-01.mp4"
    medium.write_bytes(clip.read_bytes())
    report = analyse(medium, local_store)
    broken = tmp_path / "DOE^JANE.mp4"
    broken.write_bytes(clip.read_bytes()[:3000])
    failed = analyse(broken, local_store)
    assert (report.outcome, failed.outcome) == ("complete", "failed")
    printed = capfd.readouterr()
    places = [printed.out, printed.err, *(f.message for f in failed.failures)]
    for path in (tmp_path / "store").rglob("*"):
        places.append(str(path))
        if path.suffix == ".html":
            places.append(path.read_text())
    assert not [place[:200] for place in places if "DOE^" in place.replace("%5E", "^").upper()]


def test_the_command_prints_json_alone_and_exits_with_the_outcome(
    prefect_server: str, clip: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "notes.mp4"
    bad.write_text("not a video at all\n" * 20)
    ran = subprocess.run(
        [sys.executable, "-m", "flows.cli", "analyze", str(bad), str(clip), "--store", str(tmp_path / "s"), "--json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 1, "one bad medium makes the command fail"
    reports = [entry["report"] for entry in json.loads(ran.stdout)["reports"]]
    assert [report["outcome"] for report in reports] == ["failed", "complete"], "and never stops the others"
    assert b"Traceback" not in ran.stderr
