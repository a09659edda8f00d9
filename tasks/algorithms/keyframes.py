"""Choose keyframes from a signals table; pure, so that thresholds can be tried without decoding again.

How far a frame is from the keyframe before is not in the table: it holds similarity to the scorer's reference, which is
renewed by fixed, fine thresholds (``tasks/algorithms/signals.py``). Between two renewals the distance is the
difference of two distances to one reference; across renewals the steps add up. Every keyframe that follows a clear
change is itself a renewal, so that the next distance is measured from it, not estimated.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tasks.algorithms.signals import is_renewal
from tasks.records.keyframes import Keyframe, KeyframeReason, KeyframeSet
from tasks.records.media import MediaKind
from tasks.records.specs import SelectionSpec

if TYPE_CHECKING:
    import pandas as pd

_BUCKET_FRAMES = 4.0  # keyframes that may follow each other without the rate cap's say
_CUT_CREDIT = 3.0  # keyframes that a cut may take in advance: another scene must not wait for the bucket
_BURST_SHARE = 0.5  # in a burst half the distance counts as change
_CUT_MEAN = 0.6  # below this mean SSIM the picture is another scene: no neighbour stands in across it
_NOMINAL_FRAME_NS = 40_000_000  # stands in where a video's frames carry no time
_BLANK_SHARE = 0.1  # pages are blank below this share of min_entropy_bits: line art and masks have little entropy


class _Row(NamedTuple):
    """One good scored frame; a named tuple, since an hour has a hundred thousand of them."""

    frame_index: int
    pts_ns: int
    at_ns: int
    far_mean: float
    far_tile: float
    flow: float
    entropy: float
    sharpness: float
    is_new: bool
    is_cut: bool


@dataclass(frozen=True)
class _Pick:
    row: _Row
    score: float
    reason: KeyframeReason
    weight: float


def select_keyframes(table: "pd.DataFrame", spec: SelectionSpec, *, media_id: str, kind: MediaKind) -> KeyframeSet:
    """Choose the frames that stand for a medium; at least one.

    Moving pictures: the first frame; then a frame that differs from the keyframe before in some tile or on the whole,
    at half that distance while two scored frames in a row move faster than ``burst_flow_rms_px``; then one each
    ``max_gap_s``. The sharpest of the frames that follow within ``sharpness_window_frames`` stands in, never across a
    cut, and only a cut brings another keyframe that soon. Frames flatter than ``min_entropy_bits`` are not kept unless
    there are no others, and then one is. A token bucket (four at once, refilled at ``max_keep_fraction``; a cut may
    borrow three) delays keyframes in long motion; in the end at most ``max_keep_fraction`` of the frames stays, but
    always one: small changes go first, the first frame and cuts last.

    Pages and untimed stacks: every page that is not blank, and all if all are; ``max_keep_fraction`` does not apply,
    since no page repeats the one before.

    ``max_keyframes`` holds for both: time is cut into as many stretches, each keeps its frame of most entropy, and
    what room empty stretches leave goes to the best of the rest.

    Args:
        table: ``SIGNAL_COLUMNS``, one row per delivered frame.
        spec: thresholds.
        media_id: pseudonym of the medium.
        kind: of the medium.

    Raises:
        ValueError: the table has no frame that was scored.
    """
    rows = _rows(table)
    if not rows:
        raise ValueError("no frame of the table was scored: there is nothing to choose from")
    is_moving = kind in (MediaKind.VIDEO, MediaKind.DICOM_VIDEO) or any(row.pts_ns != -1 for row in rows)
    if is_moving:
        picks, capped = _moving(rows, spec)
        limit = max(1, math.floor(spec.max_keep_fraction * len(table) + 1e-9))
        picks, was_cut = _thin(picks, limit, lambda pick: (pick.weight, pick.row.entropy))
        capped = capped or was_cut
    else:
        picks, capped = _pages(rows, spec), False
    picks, was_cut = _thin(picks, spec.max_keyframes, lambda pick: (pick.row.entropy, pick.weight))
    return KeyframeSet(
        media_id=media_id,
        spec=spec,
        keyframes=tuple(_keyframe(pick) for pick in picks),
        frames_considered=len(table),
        capped=capped or was_cut,
    )


def _rows(table: "pd.DataFrame") -> list[_Row]:
    good = table[table["scored"].to_numpy(bool) & ~table["is_corrupt"].to_numpy(bool)]
    columns: list[list[Any]] = [
        good[name].tolist()
        for name in ("frame_index", "pts_ns", "ssim_mean", "ssim_tile_min", "flow_rms_px", "entropy_bits", "sharpness")
    ]
    has_times = -1 not in columns[1]
    return [
        _Row(
            frame_index=index,
            pts_ns=pts_ns,
            at_ns=pts_ns if has_times else index * _NOMINAL_FRAME_NS,
            far_mean=1.0 - mean,
            far_tile=1.0 - tile_min,
            flow=flow if flow == flow else 0.0,
            entropy=entropy,
            sharpness=sharpness,
            is_new=place == 0 or is_renewal(mean, tile_min),
            is_cut=mean < _CUT_MEAN,
        )
        for place, (index, pts_ns, mean, tile_min, flow, entropy, sharpness) in enumerate(zip(*columns, strict=True))
    ]


def _pages(rows: Sequence[_Row], spec: SelectionSpec) -> list[_Pick]:
    filled = [row for row in rows if row.entropy >= _BLANK_SHARE * spec.min_entropy_bits] or rows
    picks = [_Pick(row, min(1.0, max(0.0, row.far_tile)), KeyframeReason.STILL, row.far_tile) for row in filled]
    return [replace(picks[0], score=1.0), *picks[1:]]


def _moving(rows: Sequence[_Row], spec: SelectionSpec) -> tuple[list[_Pick], bool]:
    """Return the picks in time order, and whether the bucket held any back."""
    if not any(row.entropy >= spec.min_entropy_bits for row in rows):
        return [_Pick(max(rows, key=lambda row: row.entropy), 1.0, KeyframeReason.FIRST, 3.0)], False
    tile_limit, mean_limit = 1.0 - spec.ssim_tile_min_threshold, 1.0 - spec.ssim_mean_threshold
    gap_ns = spec.max_gap_s * 1e9
    picks: list[_Pick] = []
    was_held = False
    tokens, last_index = _BUCKET_FRAMES, rows[0].frame_index
    from_tile = from_mean = 0.0  # distance of the reference in force from the keyframe before, negative on its far side
    place = 0
    while place < len(rows):
        row = rows[place]
        tokens = min(_BUCKET_FRAMES, tokens + spec.max_keep_fraction * (row.frame_index - last_index))
        last_index = row.frame_index
        tile, mean = abs(from_tile + row.far_tile), abs(from_mean + row.far_mean)
        reason: KeyframeReason | None = None
        if row.entropy >= spec.min_entropy_bits:
            bursts = row.flow >= spec.burst_flow_rms_px and place > 0 and rows[place - 1].flow >= spec.burst_flow_rms_px
            share = _BURST_SHARE if bursts else 1.0
            if not picks:
                reason, tile = KeyframeReason.FIRST, 1.0
            elif not row.is_cut and row.frame_index - picks[-1].row.frame_index <= spec.sharpness_window_frames:
                reason = None  # the keyframe before already stands for this neighbourhood
            elif tile > share * tile_limit or mean > share * mean_limit:
                reason = KeyframeReason.BURST if bursts else KeyframeReason.CHANGE
            elif row.at_ns - picks[-1].row.at_ns >= gap_ns:
                reason = KeyframeReason.MAX_GAP
        if reason is not None and tokens >= (1.0 - _CUT_CREDIT if row.is_cut else 1.0):
            place = _sharpest(rows, place, spec)
            chosen = rows[place]
            # What must go first when too many are left: small changes; last: the first frame and cuts.
            weight = 3.0 if reason is KeyframeReason.FIRST else 2.0 if row.is_cut else min(1.0, tile)
            picks.append(_Pick(chosen, min(1.0, tile), reason, weight))
            tokens -= 1.0
            from_tile, from_mean = (0.0, 0.0) if chosen.is_new else (-chosen.far_tile, -chosen.far_mean)
        else:
            was_held = was_held or reason is not None
            if row.is_new:
                from_tile, from_mean = tile, mean
        place += 1
    return picks, was_held


def _sharpest(rows: Sequence[_Row], place: int, spec: SelectionSpec) -> int:
    """Return the place of the sharpest frame from ``place`` on, within the window and before the next cut."""
    best = place
    last = rows[place].frame_index + spec.sharpness_window_frames
    for other in range(place + 1, len(rows)):
        row = rows[other]
        if row.frame_index > last or row.is_cut:
            break
        if row.sharpness > rows[best].sharpness and row.entropy >= spec.min_entropy_bits:
            best = other
    return best


def _thin(picks: list[_Pick], limit: int, rank: Callable[[_Pick], tuple[float, float]]) -> tuple[list[_Pick], bool]:
    """Return at most ``limit`` picks, the best by ``rank``, spread over time so that no stretch goes dark."""
    if len(picks) <= limit:
        return picks, False
    start, span = picks[0].row.at_ns, max(1, picks[-1].row.at_ns - picks[0].row.at_ns)
    stretches: dict[int, int] = {}
    for place, pick in enumerate(picks):
        # A page has no time; its place in the order stands for it.
        part = (pick.row.at_ns - start) / span if pick.row.pts_ns != -1 else place / (len(picks) - 1)
        stretch = min(limit - 1, int(part * limit))
        best = stretches.get(stretch)
        if best is None or rank(pick) > rank(picks[best]):
            stretches[stretch] = place
    kept = set(stretches.values())
    rest = sorted((place for place in range(len(picks)) if place not in kept), key=lambda place: rank(picks[place]))
    while len(kept) < limit:
        kept.add(rest.pop())
    return [picks[place] for place in sorted(kept)], True


def _keyframe(pick: _Pick) -> Keyframe:
    row = pick.row
    return Keyframe(
        frame_index=row.frame_index,
        pts_ns=row.pts_ns if row.pts_ns != -1 else None,
        score=min(1.0, max(0.0, pick.score)),
        reason=pick.reason,
        sharpness=row.sharpness,
        entropy_bits=row.entropy,
    )
