"""Lay a medium's keyframes, segments and gaps out along its time, in percent of the drawing's width."""

from dataclasses import dataclass

from tasks.algorithms.wording import REASON_WORDS, frame_label, frame_number, human_span
from tasks.records.keyframes import Keyframe
from tasks.records.report import MediaReport

S_NS = 1_000_000_000
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 36000, 86400)
_MOST_LABELS = 9
_ROOM_FOR_END_PERCENT = 84.0


@dataclass(frozen=True)
class Tick:
    """One keyframe on the line."""

    percent: float
    reason: str
    frame_index: int
    label: str


@dataclass(frozen=True)
class Band:
    """One stretch: a segment that was asked about, or a gap."""

    start_percent: float
    width_percent: float
    number: int
    label: str


@dataclass(frozen=True)
class Mark:
    """One label under the line."""

    percent: float
    label: str
    minor: bool


@dataclass(frozen=True)
class Timeline:
    """Everything that the drawing shows, in percent of its width."""

    unit: str
    end_label: str
    ticks: tuple[Tick, ...]
    segments: tuple[Band, ...]
    gaps: tuple[Band, ...]
    marks: tuple[Mark, ...]


def timeline_of(report: MediaReport) -> Timeline | None:
    """Lay a report out along its time, or along its frame numbers where the medium has no time.

    Returns:
        None when there is nothing to lay out: no keyframes, or a single still.
    """
    keyframes = report.keyframes.keyframes if report.keyframes else ()
    if not keyframes:
        return None
    if any(frame.pts_ns is None for frame in keyframes):
        return _along_frames(report, keyframes)
    gaps = _timed_gaps(report)
    segments = report.answer.segments if report.answer else ()
    last_ns = max(
        [frame.pts_ns or 0 for frame in keyframes]
        + [end_ns for _, end_ns in gaps]
        + [_duration_ns(report)]
        + [segment.end_ns or 0 for segment in segments]
    )
    if last_ns <= 0:
        return None
    step_ns = _step_ns(last_ns)
    times = range(0, last_ns + 1, step_ns)
    marks = [
        Mark(percent=_percent(at, last_ns), label=_axis_label(at, step_ns), minor=bool(place % 2))
        for place, at in enumerate(times)
    ]
    if marks[-1].percent < 100:
        if len(marks) > 1 and marks[-1].percent > _ROOM_FOR_END_PERCENT:
            marks.pop()
        marks.append(Mark(percent=100.0, label=_axis_label(last_ns, step_ns), minor=False))
    return Timeline(
        unit="time",
        end_label=_axis_label(last_ns, step_ns),
        ticks=tuple(_tick(frame, _percent(frame.pts_ns or 0, last_ns)) for frame in keyframes),
        segments=tuple(
            _band(segment.start_ns, segment.end_ns or segment.start_ns, last_ns, segment.segment_index + 1)
            for segment in segments
            if segment.start_ns is not None
        ),
        gaps=tuple(_band(start_ns, end_ns, last_ns, number) for number, (start_ns, end_ns) in enumerate(gaps, 1)),
        marks=tuple(marks),
    )


def _along_frames(report: MediaReport, keyframes: tuple[Keyframe, ...]) -> Timeline | None:
    delivered = report.signals.frames_delivered if report.signals else 0
    last = max(max(frame.frame_index for frame in keyframes), delivered - 1)
    if last < 1:
        return None
    numbers = sorted({0, last // 4, last // 2, 3 * last // 4, last})
    return Timeline(
        unit="frame",
        end_label=frame_number(last),
        ticks=tuple(_tick(frame, _percent(frame.frame_index, last)) for frame in keyframes),
        segments=(),
        gaps=(),
        marks=tuple(
            Mark(percent=_percent(at, last), label=str(at + 1), minor=bool(place % 2))
            for place, at in enumerate(numbers)
        ),
    )


def _timed_gaps(report: MediaReport) -> list[tuple[int, int]]:
    gaps = report.signals.gaps if report.signals else ()
    return [(gap.start_ns, gap.end_ns) for gap in gaps if gap.start_ns is not None and gap.end_ns is not None]


def _duration_ns(report: MediaReport) -> int:
    decoded = report.signals.duration_ns if report.signals else None
    declared = report.probe.duration_ns_from_header if report.probe else None
    return decoded if decoded is not None else declared or 0


def _tick(frame: Keyframe, percent: float) -> Tick:
    label = f"{frame_label(frame)}: {REASON_WORDS[frame.reason]}"
    return Tick(percent=percent, reason=frame.reason.value, frame_index=frame.frame_index, label=label)


def _band(start_ns: int, end_ns: int | None, last_ns: int, number: int) -> Band:
    end = start_ns if end_ns is None else end_ns
    start = _percent(start_ns, last_ns)
    width = max(0.4, _percent(end, last_ns) - start)
    return Band(start, min(width, 100.0 - min(start, 99.6)), number, human_span(start_ns, end))


def _percent(value: int, last: int) -> float:
    return round(100.0 * min(max(value, 0), last) / last, 3)


def _step_ns(last_ns: int) -> int:
    for step in _STEPS_S:
        if last_ns / (step * S_NS) <= _MOST_LABELS:
            return round(step * S_NS)
    return -(-last_ns // _MOST_LABELS)


def _axis_label(at_ns: int, step_ns: int) -> str:
    if step_ns < S_NS:
        return f"{at_ns / S_NS:.1f} s"
    minutes, seconds = divmod(at_ns // S_NS, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
