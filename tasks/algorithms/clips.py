"""Scripted clips of rendered scenes: every event and every object in them is known. No files here, only frames."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import cv2
import numpy as np
import numpy.typing as npt

from tasks.algorithms.scenes import (
    Finding,
    Look,
    Pixels,
    Pose,
    add_haze,
    draw_object,
    findings_of,
    sensor_noise,
    tissue,
    veil,
    vignette,
)

SpanKind = Literal[
    "static", "tool_burst", "camera_motion", "cut", "cross_fade", "slow_drift", "black", "flicker", "smoke"
]
NS = 1_000_000_000

_EXTENT = 1.6  # the tissue of a view is this many frames wide and high
_TOOLS = ("grasper", "scissors")
_SMOKE_STRENGTH = 0.55


@dataclass(frozen=True)
class ClipSpan:
    """A stretch of a clip.

    ``poses`` are the objects once the span's change is over; None keeps those from before. ``cut`` changes the view at
    the span's first frame and is still afterwards; ``cross_fade`` changes it over the whole span; in ``tool_burst``
    tools come, go and work fast; ``camera_motion`` and ``slow_drift`` move the tissue under the objects.
    """

    kind: SpanKind
    seconds: float
    poses: tuple[Pose, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(SpanKind) or self.seconds <= 0:
            raise ValueError(f"no such span: {self.kind = }, {self.seconds = }")


@dataclass(frozen=True)
class ClipScript:
    """Size in pixels, spans in order, mean rate in frames a second; with ``variable_rate`` the intervals differ."""

    width: int
    height: int
    spans: tuple[ClipSpan, ...]
    fps: float = 25.0
    variable_rate: bool = False
    seed: int = 0
    noise_sigma: float = 2.5

    @property
    def seconds(self) -> float:
        """Whole length."""
        return sum(span.seconds for span in self.spans)


@dataclass(frozen=True)
class ClipEvent:
    """A change that a viewer would notice; a cut has no length, its end is its start."""

    kind: SpanKind
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class SpanTruth:
    """What is to be seen in a span, after its change."""

    kind: SpanKind
    start_ns: int
    end_ns: int
    findings: tuple[Finding, ...]


def frame_times(script: ClipScript) -> npt.NDArray[np.int64]:
    """Return the presentation time of every frame in nanoseconds, (N,) int64, rising from 0."""
    count = max(1, round(script.seconds * script.fps))
    if not script.variable_rate:
        return np.round(np.arange(count) * (NS / script.fps)).astype(np.int64)
    rng = np.random.default_rng([script.seed, 1])
    steps = rng.choice([0.5, 0.8, 1.0, 1.0, 1.3, 2.2], size=count)
    starts = np.concatenate([[0.0], np.cumsum(steps)[:-1]])
    return np.asarray(np.round(starts * (script.seconds / steps.sum() * NS)), np.int64)


def events_of(script: ClipScript) -> tuple[ClipEvent, ...]:
    """List the events of a clip: every span but the still ones."""
    return tuple(
        ClipEvent(truth.kind, truth.start_ns, truth.start_ns if truth.kind == "cut" else truth.end_ns)
        for truth in truth_of(script)
        if truth.kind != "static"
    )


def truth_of(script: ClipScript) -> tuple[SpanTruth, ...]:
    """List what is to be seen in each span."""
    truths = []
    for part in _parts(script):
        smoke = _SMOKE_STRENGTH if part.kind == "smoke" else 0.0
        seen = () if part.kind == "black" else findings_of(part.after, smoke)
        truths.append(SpanTruth(part.kind, round(part.start * NS), round(part.end * NS), seen))
    return tuple(truths)


def render_clip(script: ClipScript) -> Iterator[tuple[int, Pixels]]:
    """Draw a clip frame by frame: (pts_ns, pixels (H, W, 3) uint8 RGB); the same script gives the same pixels."""
    parts = _parts(script)
    view = functools.lru_cache(maxsize=2)(functools.partial(_view, script))
    noise_rng = np.random.default_rng([script.seed, 2])
    margin = 64
    noise = sensor_noise(script.width + margin, script.height + margin, script.noise_sigma, noise_rng)
    current = 0
    for pts in frame_times(script):
        seconds = int(pts) / NS
        while current + 1 < len(parts) and seconds >= parts[current].end - 1e-9:
            current += 1
        frame = _frame(script, parts[current], seconds, view)
        x, y = noise_rng.integers(0, margin, 2)
        grain = noise[y : y + script.height, x : x + script.width]
        yield int(pts), np.asarray(cv2.add(frame, grain, dtype=cv2.CV_8U), np.uint8)


def demo_script(width: int = 1280, height: int = 720, seed: int = 11) -> ClipScript:
    """Return the demo's clip: 21 s at 25 frames a second with five events."""
    grasper = Pose("grasper", 0.70, 0.68, -2.45, 1.15, 0.7, 3)
    bleeding = Pose("bleeding", 0.30, 0.69, 0.4, 1.15, 0.6, 5)
    other_grasper = Pose("grasper", 0.31, 0.29, 0.7, 1.1, 0.9, 8)
    scissors = Pose("scissors", 0.71, 0.32, 2.5, 1.15, 0.8, 4)
    return ClipScript(
        width,
        height,
        (
            ClipSpan("static", 3.5),
            ClipSpan("tool_burst", 2.0, (grasper,)),
            ClipSpan("static", 2.5),
            ClipSpan("cut", 3.5, (bleeding, other_grasper)),
            ClipSpan("tool_burst", 1.5, (bleeding, scissors)),
            ClipSpan("static", 2.0),
            ClipSpan("smoke", 3.0),
            ClipSpan(
                "cross_fade", 1.0, (Pose("clip", 0.32, 0.34, 0.6, 1.2, 0.7, 2), Pose("needle", 0.7, 0.66, 2.2, 1.2))
            ),
            ClipSpan("static", 2.0),
        ),
        seed=seed,
    )


@dataclass(frozen=True)
class _Part:
    """A span on the clip's clock (seconds), with the objects, view numbers and camera offsets before and after it."""

    kind: SpanKind
    start: float
    end: float
    before: tuple[Pose, ...]
    after: tuple[Pose, ...]
    views: tuple[int, int]
    offsets: tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class _View:
    canvas: Pixels
    light: Pixels
    density: Pixels


def _parts(script: ClipScript) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    rng = np.random.default_rng([script.seed, 3])
    clock, view, offset = 0.0, 0, (0.0, 0.0)
    poses: tuple[Pose, ...] = (script.spans[0].poses or ()) if script.spans else ()
    for span in script.spans:
        after = poses if span.poses is None else span.poses
        next_view, next_offset = view, offset
        if span.kind in ("cut", "cross_fade"):
            next_view, next_offset = view + 1, (0.0, 0.0)
        elif span.kind in ("camera_motion", "slow_drift"):
            heading = float(rng.uniform(0, 2 * np.pi))
            reach = 0.24 if span.kind == "camera_motion" else min(0.24, 0.015 * span.seconds)
            next_offset = (
                _pulled_back(offset[0] + reach * np.cos(heading)),
                _pulled_back(offset[1] + reach * np.sin(heading)),
            )
        instant = span.kind == "cut"
        parts.append(
            _Part(
                span.kind,
                clock,
                clock + span.seconds,
                after if instant else poses,
                after,
                (next_view if instant else view, next_view),
                (next_offset if instant else offset, next_offset),
            )
        )
        clock, view, offset, poses = clock + span.seconds, next_view, next_offset, after
    return tuple(parts)


def _pulled_back(offset: float) -> float:
    """Reflect a camera offset into what the canvas covers."""
    room = (_EXTENT - 1) / 2 - 0.03
    return float(2 * room - offset if offset > room else -2 * room - offset if offset < -room else offset)


def _view(script: ClipScript, number: int) -> _View:
    rng = np.random.default_rng([script.seed, 4, number])
    canvas = tissue(round(script.width * _EXTENT), round(script.height * _EXTENT), rng, _EXTENT)
    look = Look(circle=float(rng.uniform(0.95, 1.15)), gain=float(rng.uniform(1.0, 1.15)))
    return _View(canvas, vignette(script.width, script.height, look), veil(script.width, script.height, rng))


def _frame(script: ClipScript, part: _Part, seconds: float, view: "functools._lru_cache_wrapper[_View]") -> Pixels:
    done = min(1.0, (seconds - part.start) / (part.end - part.start))
    if part.kind == "black":
        return np.zeros((script.height, script.width, 3), np.uint8)
    if part.kind == "cross_fade":
        old = _picture(script, view(part.views[0]), part.before, part.offsets[0], seconds)
        new = _picture(script, view(part.views[1]), part.after, part.offsets[1], seconds)
        return np.asarray(cv2.addWeighted(old, 1 - done, new, done, 0), np.uint8)
    ease = done * done * (3 - 2 * done) if part.kind == "camera_motion" else done
    (x0, y0), (x1, y1) = part.offsets
    offset = x0 + (x1 - x0) * ease, y0 + (y1 - y0) * ease
    poses = _moving(part, done) if part.before != part.after or part.kind == "tool_burst" else part.after
    gain = 0.72 + 0.28 * np.sin(2 * np.pi * 6.5 * seconds) if part.kind == "flicker" else 1.0
    smoke = _SMOKE_STRENGTH * float(np.clip(5 * min(done, 1 - done), 0, 1)) if part.kind == "smoke" else 0.0
    return _picture(script, view(part.views[1]), poses, offset, seconds, gain, smoke)


def _picture(
    script: ClipScript,
    view: _View,
    poses: tuple[Pose, ...],
    offset: tuple[float, float],
    seconds: float,
    gain: float = 1.0,
    smoke: float = 0.0,
) -> Pixels:
    width, height = script.width, script.height
    breath = np.sin(2 * np.pi * seconds / 4.2)
    zoom = 1.0 + 0.004 * breath
    x = (_EXTENT / 2 + offset[0]) * width - zoom * width / 2
    y = (_EXTENT / 2 + offset[1] + 0.004 * breath) * height - zoom * height / 2
    matrix = np.array([[zoom, 0, x], [0, zoom, y]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    warped = cv2.warpAffine(view.canvas, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REFLECT)
    pixels = np.asarray(warped, np.uint8)
    for pose in poses:
        sway = 0.0015 * np.sin(7.0 * seconds + pose.look) if pose.kind in _TOOLS else -0.004 * breath
        draw_object(pixels, replace(pose, y=pose.y + float(sway)))
    if smoke > 0:
        add_haze(pixels, view.density, smoke)
    return np.asarray(cv2.multiply(pixels, view.light, scale=gain / 255), np.uint8)


def _moving(part: _Part, done: float) -> tuple[Pose, ...]:
    """Place the objects of a span in which they change: tools slide along their shafts, the rest grows or shrinks."""
    before = {pose.kind: pose for pose in part.before}
    after = {pose.kind: pose for pose in part.after}
    poses: list[Pose] = []
    for kind in dict.fromkeys([*before, *after]):
        old, new = before.get(kind), after.get(kind)
        if old is not None and new is not None:
            share = float(np.clip(done / 0.8, 0, 1))
            pose = replace(
                new,
                x=old.x + (new.x - old.x) * share,
                y=old.y + (new.y - old.y) * share,
                angle=old.angle + (new.angle - old.angle) * share,
            )
        elif new is not None:
            pose = _arriving(new, float(np.clip(done / 0.45, 0, 1)))
        else:
            assert old is not None
            pose = _arriving(old, 1 - float(np.clip(done / 0.4, 0, 1)))
        if kind in _TOOLS and part.kind == "tool_burst":
            calm = float(np.clip((1 - done) / 0.15, 0, 1))
            beat = (part.end - part.start) * done * 2 * np.pi
            pose = replace(
                pose,
                x=pose.x + calm * 0.035 * float(np.sin(1.7 * beat)),
                y=pose.y + calm * 0.035 * float(np.sin(2.3 * beat + 1)),
                opening=float(np.clip(pose.opening + calm * 0.5 * np.sin(3.1 * beat), 0.1, 1.0)),
            )
        if pose.size > 0.02:
            poses.append(pose)
    return tuple(poses)


def _arriving(pose: Pose, share: float) -> Pose:
    if pose.kind not in _TOOLS:
        return replace(pose, size=pose.size * share)
    away = 0.55 * (1 - share)
    return replace(pose, x=pose.x - away * float(np.cos(pose.angle)), y=pose.y - away * float(np.sin(pose.angle)))
