"""What a person reads at the end of an analysis: outcome, answer with times, account, and where things lie."""

import textwrap
from typing import Any

from flows.cli_common import place_of
from tasks.algorithms import wording as words
from tasks.provenance import provenance_of
from tasks.records.report import MediaReport, StageFailure
from tasks.records.specs import MediaRequest

_WIDTH = 100
_OUTCOMES = {"complete": "✓ complete", "partial": "! partial", "failed": "✗ failed"}


def entry_of(medium: str, report: MediaReport) -> dict[str, Any]:
    """Return the machine-readable entry of one medium; paths are plain where the store is a folder."""
    return {
        "medium": medium,
        "outcome": report.outcome,
        "report_html": place_of(report.report_html_uri),
        "report_json": place_of(report.report_json_uri),
        "contact_sheet": place_of(report.keyframes.sheet_uri) if report.keyframes else None,
        "error": None,
        "report": report.model_dump(mode="json"),
    }


def failed_entry(request: MediaRequest, error: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a medium that never came to a run; its report says why and is not published."""
    failure = StageFailure(
        stage="stream-pull", cause=error["cause"], message=error["message"], retryable=error["unexpected"]
    )
    report = MediaReport(outcome="failed", request=request, failures=(failure,), provenance=provenance_of(request))
    return {**entry_of(request.uri, report), "error": error}


def summary(medium: str, report: MediaReport) -> str:
    """Return a medium's outcome for reading; model text is stripped of terminal controls."""
    lines = [f"{medium}: {_OUTCOMES[report.outcome]}", ""]
    for failure in report.failures:
        explanation = words.explain(failure.cause)
        lines += _item("Failed in", f"{failure.stage}: {explanation.what}")
        lines += _item("Message", words.plain_text(failure.message))
        lines += _item("What to do", explanation.advice)
        lines.append("")
    lines += _answer(report)
    lines += _account(report)
    for gap in report.signals.gaps if report.signals else ():
        lines += _item("Gap", words.gap_words(gap))
    for warning in report.warnings:
        lines += _item("Warning", words.plain_text(warning))
    places = {
        "Report": place_of(report.report_html_uri),
        "Data": place_of(report.report_json_uri),
        "Sheet": place_of(report.keyframes.sheet_uri) if report.keyframes else None,
        "Run": report.provenance.flow_run_url,
    }
    for name, place in places.items():
        if place:
            lines.append(f"  {name:<11}{place}")
    return "\n".join([*lines, "", f"  {report.notice}"])


def _answer(report: MediaReport) -> list[str]:
    answer = report.answer
    if answer is None:
        return []
    lines: list[str] = []
    if answer.summary_method == "model" or not answer.segments:
        lines += _item("Answer", words.plain_text(answer.text).strip() or "(no text)")
    for segment in answer.segments:
        when = words.human_span(segment.start_ns, segment.end_ns)
        note = words.ANSWER_WORDS[segment.outcome]
        text = words.plain_text(segment.text).strip() or "(no text)"
        lines.append(f"  {when}" if when != words.UNKNOWN else "  Answer")
        for part in text.splitlines():
            lines += textwrap.wrap(part, _WIDTH, initial_indent="    ", subsequent_indent="    ") or [""]
        if note:
            lines += textwrap.wrap(f"[{note}]", _WIDTH, initial_indent="    ", subsequent_indent="    ")
    if answer.outcome == "partial":
        lines.append(f"    [{words.ANSWER_WORDS['partial']}]")
    if answer.model_notice:
        lines += _item("Model", f"{answer.model}. {words.plain_text(answer.model_notice)}")
    return [*lines, ""]


def _account(report: MediaReport) -> list[str]:
    lines: list[str] = []
    signals, keyframes, pooling, answer = report.signals, report.keyframes, report.pooling, report.answer
    if signals:
        damaged = f", {words.human_count(signals.frames_corrupt)} damaged" if signals.frames_corrupt else ""
        kept = f", {words.counted(len(keyframes.keyframes), 'keyframe')}" if keyframes else ""
        kept += " (a limit kept fewer than the footage asked for)" if keyframes and keyframes.capped else ""
        scored = words.human_count(signals.frames_scored)
        lines += _item(
            "Frames", f"{words.human_count(signals.frames_delivered)} delivered{damaged}, {scored} scored{kept}"
        )
    parts: list[str] = []
    if pooling:
        saved = words.human_percent(words.saved_percent(pooling.native_tokens, pooling.pooled_tokens))
        native, pooled = words.human_count(pooling.native_tokens), words.human_count(pooling.pooled_tokens)
        parts.append(f"{native} native → {pooled} pooled ({saved} saved)")
    if answer:
        asked = words.human_count(sum(segment.prompt_tokens for segment in answer.segments))
        told = words.human_count(sum(segment.output_tokens for segment in answer.segments))
        parts.append(f"prompt {asked}, answer {told}")
    if parts:
        lines += _item("Tokens", "; ".join(parts))
    if report.timings:
        total = words.human_seconds(sum(timing.seconds for timing in report.timings))
        each = ", ".join(
            f"{timing.stage} {'kept' if timing.from_cache else words.human_seconds(timing.seconds)}"
            for timing in report.timings
        )
        lines += _item("Time", f"{total}: {each}")
    return lines


def _item(name: str, text: str) -> list[str]:
    parts = text.splitlines() or [""]
    lines = textwrap.wrap(parts[0], _WIDTH, initial_indent=f"  {name:<11}", subsequent_indent=" " * 13)
    for part in parts[1:]:
        lines += textwrap.wrap(part, _WIDTH, initial_indent=" " * 13, subsequent_indent=" " * 13)
    return lines
