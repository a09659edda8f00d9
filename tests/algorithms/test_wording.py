import pytest

from tasks.algorithms import wording as words
from tasks.records import errors
from tasks.records.keyframes import KeyframeReason
from tasks.records.signals import Gap
from tests import samples

S = 1_000_000_000


@pytest.mark.parametrize(
    ("pts_ns", "expected"),
    [
        (0, "0:00:00.000"),
        (12_345_678_901, "0:00:12.346"),
        (59_999_600_000, "0:01:00.000"),
        (3600 * S, "1:00:00.000"),
        (90_061 * S + 5_000_000, "25:01:01.005"),
        (-40_000_000, "-0:00:00.040"),
        (None, "–"),
    ],
)
def test_human_time(pts_ns: int | None, expected: str) -> None:
    assert words.human_time(pts_ns) == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, S, "0:00:00.000 to 0:00:01.000"),
        (S, S, "0:00:01.000"),
        (S, None, "0:00:01.000"),
        (None, S, "0:00:01.000"),
        (None, None, "–"),
    ],
)
def test_human_span(start: int | None, end: int | None, expected: str) -> None:
    assert words.human_span(start, end) == expected


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        (Gap(start_ns=0, end_ns=S, cause="x"), "0:00:00.000 to 0:00:01.000 could not be decoded (x)"),
        (Gap(start_ns=S, end_ns=S, cause="x"), "Something at 0:00:01.000 could not be decoded (x)"),
        (Gap(start_frame=1, end_frame=1, cause="x"), "Frame 2 could not be decoded (x)"),
        (Gap(start_frame=0, end_frame=4, cause="x"), "Frames 1 to 5 could not be decoded (x)"),
    ],
)
def test_gap_words(gap: Gap, expected: str) -> None:
    assert words.gap_words(gap) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0 ms"),
        (0.0421, "42 ms"),
        (0.5, "0.50 s"),
        (9.99, "9.99 s"),
        (9.996, "10.0 s"),
        (59.96, "1 min 00 s"),
        (245.0, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7800.0, "2 h 10 min"),
        (float("nan"), "–"),
        (-1.0, "–"),
    ],
)
def test_human_seconds(seconds: float, expected: str) -> None:
    assert words.human_seconds(seconds) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (123_456, "123 kB"),
        (999_600, "1.0 MB"),
        (1_604_321_887, "1.6 GB"),
        (5 * 10**15, "5000 TB"),
        (None, "–"),
    ],
)
def test_human_bytes(size: int | None, expected: str) -> None:
    assert words.human_bytes(size) == expected


def test_percent_and_counts() -> None:
    assert words.human_percent(words.saved_percent(1000, 450)) == "55 %"
    assert words.human_percent(words.saved_percent(1000, 997)) == "0.3 %"
    assert words.human_percent(words.saved_percent(10, 12)) == "0 %"
    assert words.saved_percent(0, 0) == 0
    assert words.human_count(1234567) == "1,234,567"
    assert words.human_count(None) == "–"
    assert words.counted(1, "keyframe") == "1 keyframe"
    assert words.counted(2000, "keyframe") == "2,000 keyframes"
    assert words.counted(2, "medium", "media") == "2 media"


def test_frame_label_names_stills_by_number() -> None:
    assert words.frame_label(samples.keyframe(1)) == "0:00:31.280"
    assert words.frame_label(samples.keyframe(7, still=True)) == "frame 8"


def test_every_reason_and_every_error_has_words() -> None:
    for reason in KeyframeReason:
        assert words.REASON_WORDS[reason]
        assert words.REASON_DETAIL[reason]
    causes = [
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.ScopeFlowError) and name != "ScopeFlowError"
    ]
    assert len(causes) > 10
    unexpected = words.explain("ZeroDivisionError")
    for cause in causes:
        assert words.explain(cause) != unexpected, cause
        assert words.explain(cause).advice.endswith(".")


def test_plain_text_drops_what_deceives() -> None:
    assert words.plain_text("a\x1b[31mb\x00c\u202ed\r\ne\tf\u2066") == "a[31mbcd\ne\tf"
    assert words.plain_text("Gewebe – 組織 ✓") == "Gewebe – 組織 ✓"
    words.plain_text("\ud83d").encode()
