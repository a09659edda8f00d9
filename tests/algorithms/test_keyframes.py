"""Which frames are kept: on rendered clips with known events, and the rules that hold for any table."""

import time
from dataclasses import asdict
from functools import cache
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.algorithms.clips import ClipScript, ClipSpan, demo_script, events_of, render_clip
from tasks.algorithms.keyframes import select_keyframes
from tasks.algorithms.signals import SignalRow, SignalScorer
from tasks.records.keyframes import KeyframeReason, KeyframeSet
from tasks.records.media import MediaKind
from tasks.records.signals import SIGNAL_COLUMNS
from tasks.records.specs import SelectionSpec

SECOND = 1_000_000_000


@cache
def clip_table(script: ClipScript) -> pd.DataFrame:
    scorer = SignalScorer(240, 5)
    rows = []
    for index, (pts_ns, pixels) in enumerate(render_clip(script)):
        if scorer.wants(index, pts_ns):
            rows.append(scorer.score(index, pts_ns, np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8)))
        else:
            rows.append(SignalRow(index, pts_ns))
    return as_table(rows)


def as_table(rows: list[SignalRow]) -> pd.DataFrame:
    return pd.DataFrame([asdict(row) for row in rows], columns=list(SIGNAL_COLUMNS)).astype(SIGNAL_COLUMNS)


def chosen(table: pd.DataFrame, kind: MediaKind = MediaKind.VIDEO, **spec: Any) -> KeyframeSet:
    return select_keyframes(table, SelectionSpec(**spec), media_id="m", kind=kind)


def row(index: int, **values: Any) -> SignalRow:
    facts = {
        "pts_ns": index * 40_000_000,
        "ssim_mean": 0.98,
        "ssim_tile_min": 0.95,
        "entropy_bits": 6.0,
        "sharpness": 50.0,
        "scored": True,
    }
    return SignalRow(index, **{**facts, **values})


def indices(found: KeyframeSet) -> list[int]:
    return [keyframe.frame_index for keyframe in found.keyframes]


DEMO = demo_script(320, 180)
VARIED = ClipScript(
    320,
    180,
    (
        ClipSpan("static", 2.0),
        ClipSpan("camera_motion", 1.0),
        ClipSpan("static", 2.0),
        ClipSpan("black", 1.0),
        ClipSpan("static", 2.0),
        ClipSpan("cut", 2.0),
        ClipSpan("slow_drift", 4.0),
    ),
    variable_rate=True,
    seed=5,
)


@pytest.mark.parametrize("script", [DEMO, VARIED], ids=["demo", "varied"])
def test_every_event_of_a_clip_is_covered_within_the_cap(script: ClipScript) -> None:
    table = clip_table(script)
    found = chosen(table)
    assert len(found.keyframes) <= 0.05 * len(table)
    times = [keyframe.pts_ns for keyframe in found.keyframes if keyframe.pts_ns is not None]
    for event in events_of(script):
        if event.kind != "black":
            assert any(event.start_ns <= pts_ns <= event.end_ns + SECOND for pts_ns in times), event


def test_black_is_never_kept() -> None:
    black = [event for event in events_of(VARIED) if event.kind == "black"]
    margin = 100_000_000
    for keyframe in chosen(clip_table(VARIED)).keyframes:
        assert keyframe.entropy_bits >= 1.0
        assert keyframe.pts_ns is not None
        assert not any(event.start_ns + margin < keyframe.pts_ns < event.end_ns - margin for event in black)


def test_still_clip_keeps_its_first_frame_alone() -> None:
    found = chosen(clip_table(ClipScript(320, 180, (ClipSpan("static", 6.0),))))
    assert [keyframe.reason for keyframe in found.keyframes] == [KeyframeReason.FIRST]
    assert not found.capped
    assert found.frames_considered == 150


def test_coarser_thresholds_keep_no_more() -> None:
    table = clip_table(DEMO)
    counts = [
        len(chosen(table, ssim_tile_min_threshold=tile, ssim_mean_threshold=mean, max_keep_fraction=1.0).keyframes)
        for tile, mean in ((0.9, 0.95), (0.7, 0.8), (0.4, 0.6), (0.1, 0.3))
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_one_and_two_frames() -> None:
    assert indices(chosen(as_table([row(0)]))) == [0]
    assert indices(chosen(as_table([row(0), row(1, ssim_mean=0.1, ssim_tile_min=0.0)]))) == [0]
    both = chosen(as_table([row(0), row(1, ssim_mean=0.1, ssim_tile_min=0.0)]), max_keep_fraction=1.0)
    assert indices(both) == [0, 1]


def test_sharpest_neighbour_stands_in_but_not_across_a_cut() -> None:
    rows = [row(n) for n in range(100)]
    rows[50] = row(50, ssim_mean=0.2, ssim_tile_min=0.0, sharpness=5.0)
    rows[53] = row(53, sharpness=90.0)
    assert indices(chosen(as_table(rows))) == [0, 53]
    rows[52] = row(52, ssim_mean=0.2, ssim_tile_min=0.0, sharpness=30.0)
    assert indices(chosen(as_table(rows))) == [0, 51, 53]


def test_longest_gap() -> None:
    found = chosen(as_table([row(n) for n in range(2000)]), max_gap_s=20.0)
    assert [keyframe.reason for keyframe in found.keyframes] == ["first", "max_gap", "max_gap", "max_gap"]
    assert indices(found) == [0, 500, 1000, 1500]


def test_black_clip_keeps_one_frame() -> None:
    found = chosen(as_table([row(n, entropy_bits=0.1 + (n == 7) * 0.2) for n in range(50)]))
    assert indices(found) == [7]


def test_damaged_and_unscored_frames_are_never_kept() -> None:
    rows = [SignalRow(n, n * 40_000_000, is_corrupt=True) for n in range(10)]
    rows += [SignalRow(n, n * 40_000_000) for n in range(10, 20)]
    rows += [row(n) for n in range(20, 30)]
    assert indices(chosen(as_table(rows))) == [20]
    with pytest.raises(ValueError, match="no frame of the table was scored"):
        chosen(as_table(rows[:20]))
    with pytest.raises(ValueError, match="nothing to choose from"):
        chosen(as_table([]))


def test_cuts_go_before_motion_when_the_cap_bites() -> None:
    rows = [row(n, ssim_mean=0.85, ssim_tile_min=0.3, flow_rms_px=3.0) for n in range(400)]
    for cut in (101, 202, 303):
        rows[cut] = row(cut, ssim_mean=0.1, ssim_tile_min=0.0)
    found = chosen(as_table(rows))
    assert len(found.keyframes) == 20
    assert found.capped
    kept = set(indices(found))
    assert all(kept & set(range(cut, cut + 6)) for cut in (101, 202, 303))


def test_budget_takes_the_most_entropy_of_every_stretch() -> None:
    rows = [row(n, ssim_mean=0.2, ssim_tile_min=0.0, entropy_bits=5.0 + (n % 10) / 10) for n in range(1000)]
    found = chosen(as_table(rows), max_keyframes=5, max_keep_fraction=1.0, sharpness_window_frames=0)
    assert len(found.keyframes) == 5
    assert found.capped
    assert [index // 200 for index in indices(found)] == [0, 1, 2, 3, 4]
    assert all(keyframe.entropy_bits == pytest.approx(5.9) for keyframe in found.keyframes)
    assert len(chosen(as_table(rows), max_keyframes=1).keyframes) == 1


def test_pages_are_all_kept_up_to_the_budget() -> None:
    pages = [row(n, pts_ns=-1, ssim_mean=0.99, ssim_tile_min=0.99) for n in range(60)]
    found = chosen(as_table(pages), MediaKind.TIFF)
    assert len(found.keyframes) == 60
    assert {keyframe.reason for keyframe in found.keyframes} == {KeyframeReason.STILL}
    assert {keyframe.pts_ns for keyframe in found.keyframes} == {None}
    assert len(chosen(as_table(pages), MediaKind.DICOM, max_keyframes=10).keyframes) == 10
    pages[3] = row(3, pts_ns=-1, entropy_bits=0.0)
    assert 3 not in indices(chosen(as_table(pages), MediaKind.TIFF))
    blank = [row(n, pts_ns=-1, entropy_bits=0.0) for n in range(3)]
    assert len(chosen(as_table(blank), MediaKind.TIFF).keyframes) == 3


def test_timed_dicom_is_treated_as_a_video() -> None:
    assert len(chosen(as_table([row(n) for n in range(60)]), MediaKind.DICOM).keyframes) == 1


def test_video_without_times_works() -> None:
    rows = [row(n, pts_ns=-1) for n in range(2000)]
    found = chosen(as_table(rows), max_gap_s=20.0)
    assert indices(found) == [0, 500, 1000, 1500]
    assert {keyframe.pts_ns for keyframe in found.keyframes} == {None}


def test_an_hour_takes_a_moment() -> None:
    rng = np.random.default_rng(0)
    count = 108_000
    table = pd.DataFrame(
        {
            "frame_index": np.arange(count),
            "pts_ns": np.arange(count) * 33_333_333,
            "ssim_mean": rng.uniform(0.5, 1, count),
            "ssim_tile_min": rng.uniform(0, 1, count),
            "flow_rms_px": rng.uniform(0, 3, count),
            "entropy_bits": rng.uniform(2, 7, count),
            "sharpness": rng.uniform(0, 100, count),
            "is_corrupt": False,
            "scored": True,
        }
    ).astype(SIGNAL_COLUMNS)
    started = time.process_time()
    found = chosen(table)
    assert time.process_time() - started < 2.0  # 0.5 s on an idle core
    assert len(found.keyframes) == 256


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    count = draw(st.integers(1, 120))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    timed = draw(st.booleans())
    rows = []
    for index in range(count):
        if index and rng.random() < 0.3:
            rows.append(SignalRow(index, index * 40_000_000 if timed else -1, is_corrupt=bool(rng.random() < 0.5)))
        else:
            rows.append(
                row(
                    index,
                    pts_ns=index * 40_000_000 - 80_000_000 if timed else -1,
                    ssim_mean=rng.uniform(-0.2, 1),
                    ssim_tile_min=rng.uniform(-0.5, 1),
                    flow_rms_px=rng.choice([np.nan, 0.1, 5.0]),
                    entropy_bits=rng.choice([0.0, 3.0, 7.0]),
                    sharpness=rng.uniform(0, 100),
                )
            )
    return as_table(rows)


@settings(max_examples=80, deadline=None)
@given(
    table=tables(),
    kind=st.sampled_from(list(MediaKind)),
    fraction=st.sampled_from([0.01, 0.05, 0.5, 1.0]),
    most=st.integers(1, 30),
    window=st.integers(0, 9),
)
def test_rules_that_always_hold(table: pd.DataFrame, kind: MediaKind, fraction: float, most: int, window: int) -> None:
    found = chosen(
        table, kind, max_keep_fraction=fraction, max_keyframes=most, sharpness_window_frames=window, max_gap_s=1.0
    )
    kept = indices(found)
    good = table[table.scored & ~table.is_corrupt]
    assert 1 <= len(kept) <= most
    assert kept == sorted(set(kept))
    assert set(kept) <= set(good.frame_index)
    if kind is MediaKind.VIDEO:
        assert len(kept) <= max(1, fraction * len(table) + 1e-6)
        if (good.entropy_bits >= 1.0).any():
            assert all(keyframe.entropy_bits >= 1.0 for keyframe in found.keyframes)
    assert all(0.0 <= keyframe.score <= 1.0 for keyframe in found.keyframes)
    assert KeyframeSet.model_validate_json(found.model_dump_json()) == found
