"""Words and numbers as a reader sees them; the report and the command line share them."""

import math
import re
from dataclasses import dataclass

from tasks.records.keyframes import Keyframe, KeyframeReason
from tasks.records.signals import Gap

UNKNOWN = "–"

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Explanation:
    """What went wrong in plain words, and what a reader can do about it."""

    what: str
    advice: str


REASON_WORDS: dict[KeyframeReason, str] = {
    KeyframeReason.FIRST: "Opening frame",
    KeyframeReason.CHANGE: "The picture changed",
    KeyframeReason.BURST: "Fast movement",
    KeyframeReason.MAX_GAP: "Nothing new for a while",
    KeyframeReason.STILL: "Still picture",
}

REASON_DETAIL: dict[KeyframeReason, str] = {
    KeyframeReason.FIRST: "The first usable frame always stands for the beginning.",
    KeyframeReason.CHANGE: "Some part of the picture no longer resembled the keyframe before.",
    KeyframeReason.BURST: "Movement was strong here, so frames were taken more densely.",
    KeyframeReason.MAX_GAP: "Little had changed, but the longest stretch without a keyframe was over.",
    KeyframeReason.STILL: "A picture without time stands for itself.",
}

STAGE_WORDS: dict[str, str] = {
    "stream-pull": "Find and pin the medium",
    "decode": "Decode and score frames",
    "select-keyframes": "Choose keyframes",
    "extract-keyframes": "Take keyframe pictures",
    "pool-patches": "Pool vision tokens",
    "infer": "Ask the model",
    "publish": "Write the report",
}

SUMMARY_WORDS: dict[str, str] = {
    "single": "The model saw every keyframe in one go.",
    "timeline": "The medium was asked in segments; their answers stand here in order of time.",
    "model": "The medium was asked in segments; the model then summarised its own answers.",
}

ANSWER_WORDS: dict[str, str] = {
    "complete": "",
    "truncated": "The answer was cut off at the token limit. Raise “Longest answer (tokens)” (--max-output-tokens).",
    "refused": "The model declined to answer. Rephrase the question, or ask another model.",
    "partial": "Some segments have no answer, or only part of one.",
}

_EXPLANATIONS: dict[str, Explanation] = {
    "StoreUnavailable": Explanation(
        "The store that holds the medium or takes the results did not answer.",
        "Run the same command again in a few minutes: finished stages are not repeated. If it keeps failing, check "
        "the store's address and the network with `scopeflow doctor`.",
    ),
    "EndpointBusy": Explanation(
        "The model server had more requests than it could take.",
        "Run it again later: finished stages are not repeated. For many media, lower the number of runs at a time.",
    ),
    "EndpointTimeout": Explanation(
        "The model, or a helper process, needed longer than its deadline.",
        "Run it again. If it happens each time, ask smaller segments (fewer keyframes, stronger pooling) or raise the "
        "deadline.",
    ),
    "UnsupportedMedia": Explanation(
        "This is not a kind of file that ScopeFlow reads, or there is nothing in it to look at.",
        "Give a video (MP4, MKV, MOV, AVI, WebM), a DICOM file with pictures, a TIFF, PNG or JPEG. The kind is told "
        "from the content; renaming the file changes nothing.",
    ),
    "CorruptMedia": Explanation(
        "The file is of a known kind, but damaged, cut short, empty or encrypted.",
        "Fetch it again from its source and compare the sizes. If the source is damaged too, re-export it from the "
        "recorder or archive.",
    ),
    "MediaNotFound": Explanation(
        "There is nothing at the given address.",
        "Check the spelling and that the upload has finished; for a store, check the bucket and the key.",
    ),
    "MediaChanged": Explanation(
        "The medium was replaced or removed while it was being read. Answers about a mixture would be worthless.",
        "Wait until the upload is final, then run it again; the new version is analysed from the beginning.",
    ),
    "IdentifiersPresent": Explanation(
        "Patient identifiers were found where none may be, so the run stopped.",
        "De-identify the medium and give a pseudonym as the case, then run it again.",
    ),
    "BudgetExceeded": Explanation(
        "The medium needs more frames, bytes, pixels, seconds or tokens than the limits of this run allow.",
        "Choose fewer keyframes or stronger pooling, or raise the limit named in the message, knowing what it costs.",
    ),
    "ConfigurationError": Explanation(
        "A setting, a credential or a block is missing or wrong.",
        "Correct what the message names. `scopeflow doctor` lists what is set up and what is missing.",
    ),
    "TransientError": Explanation(
        "A fault that may clear by itself.", "Run the same command again: finished stages are not repeated."
    ),
    "PermanentError": Explanation(
        "This input cannot be processed as it is.", "Read the message: the same input will fail again unchanged."
    ),
}

_UNEXPECTED = Explanation(
    "Something happened that ScopeFlow did not expect.",
    "Run it again. If it happens again, report it together with the stage, the cause and the message shown here.",
)


def explain(cause: str) -> Explanation:
    """Return what an error class means and what to do; an unknown class gets a general explanation."""
    return _EXPLANATIONS.get(cause, _UNEXPECTED)


def plain_text(text: str) -> str:
    """Drop control characters, terminal escapes and direction overrides, which could show what is not there."""
    return _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def stage_words(stage: str) -> str:
    """Return a stage's name in plain words; an unknown stage keeps its own name."""
    return STAGE_WORDS.get(stage, stage)


def human_time(pts_ns: int | None) -> str:
    """Format a presentation time as h:mm:ss.mmm, rounded to the millisecond; None gives a dash."""
    if pts_ns is None:
        return UNKNOWN
    sign = "-" if pts_ns < 0 else ""
    total_ms = (abs(pts_ns) + 500_000) // 1_000_000
    seconds, milliseconds = divmod(total_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}:{minutes:02d}:{seconds:02d}.{milliseconds:03d}"


def human_span(start_ns: int | None, end_ns: int | None) -> str:
    """Format a stretch of time as ``start to end``; one time alone when they are equal or one is missing."""
    if start_ns is None and end_ns is None:
        return UNKNOWN
    if start_ns is None or end_ns is None or start_ns == end_ns:
        return human_time(start_ns if start_ns is not None else end_ns)
    return f"{human_time(start_ns)} to {human_time(end_ns)}"


def frame_label(keyframe: Keyframe) -> str:
    """Name a keyframe by its time, or by ``frame n`` where the medium has no time."""
    return frame_number(keyframe.frame_index) if keyframe.pts_ns is None else human_time(keyframe.pts_ns)


def frame_number(frame_index: int) -> str:
    """Name a frame as people do, counted from 1, as DICOM and page numbers are; ``frame_index`` counts from 0."""
    return f"frame {frame_index + 1}"


def gap_words(gap: Gap) -> str:
    """Say what could not be decoded and why, by time or, where the medium has no times, by frame."""
    if gap.start_frame is None or gap.end_frame is None:
        span = human_span(gap.start_ns, gap.end_ns)
        where = f"Something at {span}" if gap.start_ns == gap.end_ns else span
    elif gap.start_frame == gap.end_frame:
        where = frame_number(gap.start_frame).capitalize()
    else:
        where = f"Frames {gap.start_frame + 1:,} to {gap.end_frame + 1:,}"
    return f"{where} could not be decoded ({gap.cause})"


def human_duration(duration_ns: int | None) -> str:
    """Format a length of time for reading: ``12.3 s``, ``4 min 05 s``, ``2 h 10 min``; None gives a dash."""
    return UNKNOWN if duration_ns is None else human_seconds(duration_ns / 1e9)


def human_seconds(seconds: float) -> str:
    """Format seconds for reading, with about three significant digits."""
    if not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3599.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours} h {rest:02d} min"


def human_bytes(size_bytes: int | None) -> str:
    """Format a size in decimal units (kB, MB, GB, TB); None gives a dash."""
    if size_bytes is None:
        return UNKNOWN
    if size_bytes < 1000:
        return "1 byte" if size_bytes == 1 else f"{size_bytes} bytes"
    size, units = size_bytes / 1000, ["kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} {units[0]}" if size >= 99.5 else f"{size:.1f} {units[0]}"


def human_count(count: int | None) -> str:
    """Format a count with thousands separators; None gives a dash."""
    return UNKNOWN if count is None else f"{count:,}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun in the right number."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def saved_percent(native: int, pooled: int) -> float:
    """Return the share of tokens that pooling saved, in percent; never negative, 0 for no tokens."""
    return 0.0 if native <= 0 else max(0.0, 100.0 * (1 - pooled / native))


def human_percent(percent: float) -> str:
    """Format a percentage without pretending to more than one decimal below 10 %."""
    if percent == 0:
        return "0 %"
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"
