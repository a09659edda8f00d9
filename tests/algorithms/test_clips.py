import itertools

import numpy as np
import pytest

from tasks.algorithms.clips import (
    ClipEvent,
    ClipScript,
    ClipSpan,
    demo_script,
    events_of,
    frame_times,
    render_clip,
    truth_of,
)
from tasks.algorithms.scenes import Pose

GRASPER = Pose("grasper", 0.7, 0.7, -2.4)
BLEEDING = Pose("bleeding", 0.3, 0.3, 0.0)
SECOND = 1_000_000_000


def script(*spans: ClipSpan, **fields: object) -> ClipScript:
    return ClipScript(240, 136, spans, **{"fps": 10.0, **fields})  # type: ignore[arg-type]


def changes(clip: ClipScript) -> np.ndarray:
    """Mean absolute difference of each frame to the one before, in grey levels."""
    frames = [pixels.astype(int) for _, pixels in render_clip(clip)]
    return np.array([np.abs(after - before).mean() for before, after in itertools.pairwise(frames)])


def test_constant_rate_times() -> None:
    clip = script(ClipSpan("static", 2.0))
    assert frame_times(clip).tolist() == [i * SECOND // 10 for i in range(20)]
    assert [pts for pts, _ in render_clip(clip)] == frame_times(clip).tolist()


def test_variable_rate_times_rise_and_differ() -> None:
    times = frame_times(script(ClipSpan("static", 5.0), variable_rate=True))
    steps = np.diff(times)
    assert len(times) == 50
    assert steps.min() > 0
    assert steps.max() > 2 * steps.min()
    assert times[-1] < 5 * SECOND


def test_events_and_truth_follow_the_script() -> None:
    clip = script(ClipSpan("static", 1.0), ClipSpan("tool_burst", 2.0, (GRASPER,)), ClipSpan("cut", 1.0, (BLEEDING,)))
    clip = script(*clip.spans, ClipSpan("smoke", 1.0), ClipSpan("black", 0.5))
    assert events_of(clip) == (
        ClipEvent("tool_burst", SECOND, 3 * SECOND),
        ClipEvent("cut", 3 * SECOND, 3 * SECOND),
        ClipEvent("smoke", 4 * SECOND, 5 * SECOND),
        ClipEvent("black", 5 * SECOND, 5 * SECOND + SECOND // 2),
    )
    seen = [[str(finding) for finding in truth.findings] for truth in truth_of(clip)]
    assert seen == [[], ["grasper lower right"], ["bleeding upper left"], ["bleeding upper left", "smoke"], []]


def test_a_clip_is_the_same_every_time() -> None:
    clip = script(ClipSpan("static", 0.3), ClipSpan("tool_burst", 0.5, (GRASPER,)), seed=4)
    for (_, first), (_, again) in zip(render_clip(clip), render_clip(clip), strict=True):
        assert np.array_equal(first, again)


def test_a_still_view_changes_only_by_noise_and_breath() -> None:
    assert changes(script(ClipSpan("static", 1.5), noise_sigma=0.0)).max() < 2.0


def test_a_cut_stands_out_in_one_frame() -> None:
    change = changes(script(ClipSpan("static", 1.0), ClipSpan("cut", 1.0)))
    assert int(change.argmax()) == 9
    assert change[9] > 4 * np.delete(change, 9).max()


@pytest.mark.parametrize(
    "span", [ClipSpan("tool_burst", 1.0, (GRASPER,)), ClipSpan("camera_motion", 1.0), ClipSpan("flicker", 1.0)]
)
def test_motion_and_flicker_stand_out(span: ClipSpan) -> None:
    change = changes(script(ClipSpan("static", 1.0), span, ClipSpan("static", 1.0), noise_sigma=0.0))
    assert change[10:19].mean() > 1.5 * change[:9].mean()


def test_slow_drift_shows_against_the_start_more_than_from_frame_to_frame() -> None:
    clip = script(ClipSpan("slow_drift", 8.0), noise_sigma=0.0, fps=5.0)
    frames = [pixels.astype(int) for _, pixels in render_clip(clip)]
    steps = [np.abs(after - before).mean() for before, after in itertools.pairwise(frames)]
    assert np.abs(frames[-1] - frames[0]).mean() > 4 * np.mean(steps)


def test_black_frames_are_black() -> None:
    clip = script(ClipSpan("black", 0.5))
    assert max(pixels.mean() for _, pixels in render_clip(clip)) < 3


def test_a_cross_fade_goes_from_one_view_to_the_other() -> None:
    clip = script(ClipSpan("static", 0.5), ClipSpan("cross_fade", 1.0, (BLEEDING,)), ClipSpan("static", 0.5))
    frames = [pixels.astype(int) for _, pixels in render_clip(clip)]
    to_start = [np.abs(frame - frames[4]).mean() for frame in frames[5:15]]
    assert all(later > earlier - 0.5 for earlier, later in itertools.pairwise(to_start))


def test_a_span_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no such span"):
        ClipSpan("earthquake", 1.0)  # type: ignore[arg-type]


def test_the_demo_has_five_events_in_about_twenty_seconds() -> None:
    clip = demo_script()
    assert (clip.width, clip.height) == (1280, 720)
    assert 18 <= clip.seconds <= 22
    assert [event.kind for event in events_of(clip)] == ["tool_burst", "cut", "tool_burst", "smoke", "cross_fade"]
    _, pixels = next(iter(render_clip(demo_script(640, 360))))
    assert pixels.shape == (360, 640, 3)
