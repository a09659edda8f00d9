"""Turn a report into one self-contained HTML file that an analyst can read, print and pass on.

The page fetches nothing: styles are inline, pictures are data: URIs, there are no scripts, and a content security
policy in the page holds it to that. Model text and messages are untrusted and are escaped. The medium's address never
appears, since file names carry patient names; its ``media_id`` stands for it.
"""

import base64
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from tasks.algorithms import wording as words
from tasks.algorithms.report_timeline import timeline_of
from tasks.records.keyframes import Keyframe, KeyframeReason
from tasks.records.pooling import PooledFrame
from tasks.records.report import MediaReport, StageFailure

SHOWN_KEYFRAMES = 48
MAX_PICTURE_BYTES = 32_000_000

_OUTCOMES = {
    "complete": ("Complete", "Every stage finished."),
    "partial": ("Partial", "Part of the medium or of the answer is missing; the rest stands as it was measured."),
    "failed": ("Failed", "There is no answer."),
}
_KINDS = {
    "video": "Video",
    "dicom": "DICOM pictures",
    "dicom_video": "DICOM video",
    "tiff": "TIFF pictures",
    "image": "Still picture",
}


def render_report(report: MediaReport, pictures: Mapping[str, bytes]) -> str:
    """Render a report as one HTML file.

    Args:
        report: complete, partial or failed.
        pictures: WebP, PNG or JPEG bytes by their URI, as ``pictures_wanted`` lists them; a missing one leaves a
            note in its place. Meant to be small: pictures beyond 32 MB together are left out.

    Returns:
        The file's text, to be written as UTF-8.
    """
    answer = report.answer
    frames = _frames(report, pictures)
    shown, listed = _gallery(frames)
    return _template().render(
        outcome=report.outcome,
        outcome_word=_OUTCOMES[report.outcome][0],
        outcome_line=_OUTCOMES[report.outcome][1],
        written=report.provenance.created_at[:16].replace("T", " ") + " UTC",
        notice=report.notice,
        model_notice=words.plain_text(answer.model_notice) if answer and answer.model_notice else None,
        heading=_KINDS[report.media.kind.value] if report.media else "Medium",
        media_id=report.media.media_id if report.media else None,
        case_id=report.request.case_id,
        question=words.plain_text(report.request.prompt.prompt),
        facts=_facts(report),
        answer=_answer(report),
        timeline=timeline_of(report),
        reasons=_reasons(report),
        frames=shown,
        frames_left_out=listed,
        has_overlays=any(frame["overlay"] for frame in shown),
        capped=bool(report.keyframes and report.keyframes.capped),
        stages=_stages(report),
        failures=[_failure(failure) for failure in report.failures],
        warnings=[words.plain_text(text) for text in _warnings(report)],
        gaps=[words.gap_words(gap) for gap in (report.signals.gaps if report.signals else ())],
        frame_counts=_frame_counts(report),
        tokens=_tokens(report),
        timings=_timings(report),
        seconds_total=words.human_seconds(sum(timing.seconds for timing in report.timings)),
        peak_memory=_peak_memory(report),
        provenance=_provenance(report),
        run_url=_web_address(report.provenance.flow_run_url),
        specs=report.request.model_dump_json(exclude={"uri"}, indent=2),
    )


def pictures_wanted(report: MediaReport) -> tuple[str, ...]:
    """Return the URIs of the pictures that a report's page shows, spread over the medium when there are many.

    At most 48 keyframes, each with its overlay where there is one.
    """
    keyframes = report.keyframes.keyframes if report.keyframes else ()
    overlays = {frame.frame_index: frame.overlay_uri for frame in report.pooling.frames} if report.pooling else {}
    step = max(1, -(-len(keyframes) // SHOWN_KEYFRAMES))
    wanted: list[str | None] = []
    for frame in keyframes[::step]:
        wanted += [frame.image_uri, overlays.get(frame.frame_index)]
    return tuple(uri for uri in wanted if uri)


@cache
def _template() -> Template:
    loader = PackageLoader("tasks.algorithms", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.jinja")


def _web_address(url: str | None) -> str | None:
    return url if url and urlsplit(url).scheme in ("http", "https") else None


def _facts(report: MediaReport) -> list[tuple[str, str]]:
    media, probe, signals = report.media, report.probe, report.signals
    facts: list[tuple[str, str]] = []
    if probe:
        facts.append(("Picture size", f"{probe.width_px} × {probe.height_px} px"))
        duration = signals.duration_ns if signals and signals.duration_ns is not None else probe.duration_ns_from_header
        if duration is not None:
            facts.append(("Length", words.human_duration(duration)))
        container = "/".join(probe.container.split(",")[:2])  # FFmpeg names every alias of a container
        facts.append(("Format", ", ".join(part for part in (container, probe.codec) if part)))
    if media:
        facts.append(("File size", words.human_bytes(media.size_bytes)))
    if report.keyframes:
        facts.append(("Keyframes", words.human_count(len(report.keyframes.keyframes))))
    if report.answer:
        facts.append(("Model", f"{report.answer.model} ({report.answer.endpoint})"))
    return facts


def _answer(report: MediaReport) -> dict[str, Any] | None:
    answer = report.answer
    if answer is None:
        return None
    labels = {frame.frame_index: frame for frame in report.keyframes.keyframes} if report.keyframes else {}
    segments: list[dict[str, Any]] = []
    for segment in answer.segments:
        frames = [labels[index] for index in segment.frame_indices if index in labels]
        segments.append(
            {
                "number": segment.segment_index + 1,
                "span": _segment_span(segment.start_ns, segment.end_ns, frames),
                "text": words.plain_text(segment.text).strip(),
                "note": words.ANSWER_WORDS[segment.outcome],
                "frames": [
                    {
                        "index": frame.frame_index,
                        "label": words.frame_label(frame),
                        "ordinal": ordinal if frame.pts_ns is None and len(answer.segments) > 1 else None,
                        "reason": frame.reason.value,
                    }
                    for ordinal, frame in enumerate(frames, start=1)
                ],
                "prompt_tokens": words.human_count(segment.prompt_tokens),
                "output_tokens": words.human_count(segment.output_tokens),
                "seconds": words.human_seconds(segment.latency_ms / 1000),
            }
        )
    told_by_segments = len(segments) > 0 and answer.summary_method != "model"
    return {
        "text": None if told_by_segments else words.plain_text(answer.text).strip(),
        "segments": segments,
        "how": words.SUMMARY_WORDS[answer.summary_method],
        "note": words.ANSWER_WORDS[answer.outcome],
        "has_ordinals": any(frame["ordinal"] for segment in segments for frame in segment["frames"]),
    }


def _segment_span(start_ns: int | None, end_ns: int | None, frames: list[Keyframe]) -> str:
    if start_ns is not None or end_ns is not None:
        return words.human_span(start_ns, end_ns)
    if not frames:
        return ""
    first, last = words.frame_label(frames[0]), words.frame_label(frames[-1])
    return first.capitalize() if first == last else f"{first} to {last}".capitalize()


def _reasons(report: MediaReport) -> list[dict[str, Any]]:
    kept = [frame.reason for frame in report.keyframes.keyframes] if report.keyframes else []
    return [
        {
            "name": reason.value,
            "words": words.REASON_WORDS[reason],
            "detail": words.REASON_DETAIL[reason],
            "count": kept.count(reason),
        }
        for reason in KeyframeReason
        if reason in kept
    ]


def _frames(report: MediaReport, pictures: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return a row a keyframe, with the data: URIs of its pictures as long as the file stays small."""
    pooled = {frame.frame_index: frame for frame in report.pooling.frames} if report.pooling else {}
    rows = _frame_rows(report, pooled)
    budget = MAX_PICTURE_BYTES
    for row, frame in zip(rows, report.keyframes.keyframes if report.keyframes else (), strict=True):
        mine = pooled.get(frame.frame_index)
        for place, uri in (("picture", frame.image_uri), ("overlay", mine.overlay_uri if mine else None)):
            data = pictures.get(uri, b"") if uri else b""
            if len(data) <= budget and (address := _data_uri(data)):
                row[place] = address
                budget -= len(data)
    return rows


def _gallery(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split keyframes into those shown and those listed: up to 48 each has a place, of more those with a picture."""
    if len(rows) <= SHOWN_KEYFRAMES:
        return rows, []
    shown = [row for row in rows if row["picture"]]
    return shown, [row for row in rows if not row["picture"]]


def _frame_rows(report: MediaReport, pooled: Mapping[int, PooledFrame]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, frame in enumerate(report.keyframes.keyframes if report.keyframes else (), start=1):
        mine = pooled.get(frame.frame_index)
        saved = words.saved_percent(mine.native_tokens, mine.pooled_tokens) if mine else 0.0
        rows.append(
            {
                "number": number,
                "index": frame.frame_index,
                "label": words.frame_label(frame),
                "place": f"No. {number}"
                + (f", {words.frame_number(frame.frame_index)}" if frame.pts_ns is not None else ""),
                "reason": frame.reason.value,
                "reason_words": words.REASON_WORDS[frame.reason],
                "reason_detail": words.REASON_DETAIL[frame.reason],
                "score": f"{frame.score:.2f}",
                "sharpness": f"{frame.sharpness:,.0f}" if frame.sharpness >= 10 else f"{frame.sharpness:.2f}",
                "native": words.human_count(mine.native_tokens) if mine else None,
                "pooled": words.human_count(mine.pooled_tokens) if mine else None,
                "saved": words.human_percent(saved) if saved else None,
                "picture": None,
                "overlay": None,
            }
        )
    return rows


def _data_uri(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "webp"
    elif data[:8] == b"\x89PNG\r\n\x1a\n":
        kind = "png"
    elif data[:3] == b"\xff\xd8\xff":
        kind = "jpeg"
    else:
        return None
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _stages(report: MediaReport) -> list[dict[str, str]]:
    """Tell for each of the seven stages whether it finished, failed or was not reached."""
    failed = {failure.stage for failure in report.failures}
    finished = {timing.stage for timing in report.timings}
    rows = []
    for stage, plain in words.STAGE_WORDS.items():
        state = "failed" if stage in failed else "done" if stage in finished else "not reached"
        if stage == "publish" and state == "not reached":
            state = "done"  # this page is what it wrote
        rows.append({"name": stage, "words": plain, "state": state})
    return rows


def _failure(failure: StageFailure) -> dict[str, Any]:
    explanation = words.explain(failure.cause)
    return {
        "stage": failure.stage,
        "stage_words": words.stage_words(failure.stage),
        "cause": failure.cause,
        "what": explanation.what,
        "advice": explanation.advice,
        "message": words.plain_text(failure.message),
        "retryable": failure.retryable,
    }


def _warnings(report: MediaReport) -> list[str]:
    texts = [*report.warnings, *(report.signals.warnings if report.signals else ())]
    return list(dict.fromkeys(texts))


def _frame_counts(report: MediaReport) -> list[tuple[str, str, bool]]:
    """Return rows of (what, count, whether it is bad news)."""
    signals = report.signals
    if signals is None:
        return []
    missing = signals.frames_declared is not None and signals.frames_delivered < signals.frames_declared
    declared = "not stated" if signals.frames_declared is None else words.human_count(signals.frames_declared)
    return [
        ("Declared by the header", declared, False),
        ("Delivered by the decoder", words.human_count(signals.frames_delivered), missing),
        ("Damaged", words.human_count(signals.frames_corrupt), signals.frames_corrupt > 0),
        ("Scored for change", words.human_count(signals.frames_scored), False),
        ("Kept as keyframes", words.human_count(len(report.keyframes.keyframes) if report.keyframes else None), False),
    ]


def _tokens(report: MediaReport) -> dict[str, str] | None:
    pooling, answer = report.pooling, report.answer
    if pooling is None and answer is None:
        return None
    found: dict[str, str] = {}
    if pooling:
        saved = words.saved_percent(pooling.native_tokens, pooling.pooled_tokens)
        found |= {
            "native": words.human_count(pooling.native_tokens),
            "pooled": words.human_count(pooling.pooled_tokens),
            "saved": words.human_percent(saved),
            "share": f"{max(0.0, 100.0 - saved):.2f}",
        }
    if answer:
        found["prompt"] = words.human_count(sum(segment.prompt_tokens for segment in answer.segments))
        found["output"] = words.human_count(sum(segment.output_tokens for segment in answer.segments))
    return found


def _timings(report: MediaReport) -> list[dict[str, Any]]:
    longest = max((timing.seconds for timing in report.timings), default=0.0)
    return [
        {
            "stage": timing.stage,
            "words": words.stage_words(timing.stage),
            "seconds": words.human_seconds(timing.seconds),
            "percent": f"{100 * timing.seconds / longest if longest else 0:.2f}",
            "from_cache": timing.from_cache,
        }
        for timing in report.timings
    ]


def _peak_memory(report: MediaReport) -> str | None:
    peaks = {timing.stage: timing.peak_rss_bytes for timing in report.timings if timing.peak_rss_bytes}
    if report.signals and report.signals.peak_rss_bytes:
        peaks["decode"] = max(peaks.get("decode") or 0, report.signals.peak_rss_bytes)
    if not peaks:
        return None
    stage = max(peaks, key=lambda name: peaks[name] or 0)
    return f"{words.human_bytes(peaks[stage])} in {stage}"


def _provenance(report: MediaReport) -> list[tuple[str, str]]:
    made, media, answer = report.provenance, report.media, report.answer
    code = made.scopeflow_version
    rows = [("ScopeFlow", code), ("Request digest", made.request_digest)]
    if media:
        rows += [("Medium", media.media_id), ("Entity tag", media.etag)]
        rows += [("Version", media.version_id)] if media.version_id else []
    if report.signals:
        rows.append(("Decoder", report.signals.decoder))
    if answer:
        rows += [("Model", answer.model), ("Model revision", answer.model_revision), ("Endpoint", answer.endpoint)]
    if made.flow_run_id:
        rows.append(("Flow run", made.flow_run_id))
    return [*rows, ("Written at", made.created_at)]
