"""The scorer: what it looks at, what its columns mean, and that it stays cheap when nothing happens."""

from dataclasses import fields

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from tasks.algorithms.flow import sparse_flow_rms_px
from tasks.algorithms.scenes import tissue
from tasks.algorithms.signals import SignalRow, SignalScorer, entropy_bits, is_renewal, sharpness_of, shrink
from tasks.records.signals import SIGNAL_COLUMNS

Grey = npt.NDArray[np.uint8]
FRAME_NS = 40_000_000


@pytest.fixture(scope="module")
def canvas() -> Grey:
    return np.asarray(cv2.cvtColor(tissue(900, 500, np.random.default_rng(3)), cv2.COLOR_RGB2GRAY), np.uint8)


def view(canvas: Grey, x: float, noise_seed: int = 0, sigma: float = 2.0) -> Grey:
    left = int(x)
    window = canvas[100 : 100 + 270, left : left + 480]
    noise = np.random.default_rng(noise_seed).normal(0, sigma, window.shape)
    return np.clip(window + noise, 0, 255).astype(np.uint8)


def run(pictures: list[Grey], step_ns: int = FRAME_NS, stride: int = 5) -> list[SignalRow]:
    scorer = SignalScorer(240, stride)
    rows = []
    for index, picture in enumerate(pictures):
        pts_ns = index * step_ns if step_ns > 0 else -1
        wanted = scorer.wants(index, pts_ns)
        rows.append(scorer.score(index, pts_ns, picture) if wanted else SignalRow(index, pts_ns))
    return rows


def test_row_has_the_columns_of_the_table() -> None:
    assert [field.name for field in fields(SignalRow)] == list(SIGNAL_COLUMNS)


def test_still_footage_is_thinned_by_the_stride(canvas: Grey) -> None:
    rows = run([view(canvas, 100, seed) for seed in range(100)])
    scored = [row.frame_index for row in rows if row.scored]
    assert scored[:11] == list(range(11))
    assert scored[11:] == list(range(15, 100, 5))
    assert not any(is_renewal(row.ssim_mean, row.ssim_tile_min) for row in rows if row.scored)
    assert all(np.isnan(row.ssim_mean) and np.isnan(row.entropy_bits) for row in rows if not row.scored)


def test_slow_recordings_are_not_thinned_below_two_a_second(canvas: Grey) -> None:
    rows = run([view(canvas, 100, seed) for seed in range(40)], step_ns=500_000_000, stride=60)
    assert all(row.scored for row in rows)


def test_pages_are_all_scored(canvas: Grey) -> None:
    assert all(row.scored for row in run([view(canvas, 100)] * 40, step_ns=0))


def test_motion_is_seen_at_every_frame_and_measured(canvas: Grey) -> None:
    still = [view(canvas, 50, seed) for seed in range(30)]
    moving = [view(canvas, 50 + 8 * n, n) for n in range(1, 31)]  # 8 px of 480 a frame: 4 px at 240
    rows = run(still + moving)
    burst = rows[35:60]
    assert all(row.scored for row in burst)
    flows = [row.flow_rms_px for row in burst if not np.isnan(row.flow_rms_px)]
    assert len(flows) > 15
    assert np.median(flows) == pytest.approx(4.0, abs=0.5)


def test_cut_renews_the_reference_once(canvas: Grey) -> None:
    other = 255 - canvas
    rows = run([view(canvas, 100, n) for n in range(12)] + [view(other, 300, n) for n in range(12)])
    renewals = [row.frame_index for row in rows[1:] if row.scored and is_renewal(row.ssim_mean, row.ssim_tile_min)]
    assert len(renewals) == 1
    assert 12 <= renewals[0] <= 15
    assert rows[renewals[0]].ssim_mean < 0.65


def test_drift_renews_now_and_then(canvas: Grey) -> None:
    rows = run([view(canvas, 100 + n // 5, n) for n in range(200)])
    renewals = [row for row in rows[1:] if row.scored and is_renewal(row.ssim_mean, row.ssim_tile_min)]
    assert 2 <= len(renewals) <= 60


@pytest.mark.parametrize("sigma", [2.0, 5.0])
def test_noise_alone_is_not_change(canvas: Grey, sigma: float) -> None:
    small = [shrink(view(canvas, 100, n, 0.0), 240) for n in range(30)]
    rng = np.random.default_rng(0)
    noisy = [np.clip(picture + rng.normal(0, sigma, picture.shape), 0, 255).astype(np.uint8) for picture in small]
    rows = run(noisy)
    assert not any(is_renewal(row.ssim_mean, row.ssim_tile_min) for row in rows[1:] if row.scored)


def test_size_change_is_a_change(canvas: Grey) -> None:
    rows = run([view(canvas, 100), np.ascontiguousarray(view(canvas, 100)[:, :400]), view(canvas, 100)[:200]])
    assert [row.ssim_mean for row in rows] == [1.0, 0.0, 0.0]


def test_tiny_pictures_are_scored() -> None:
    for shape in [(1, 1), (3, 3), (8, 16), (50, 10), (2, 3000)]:
        rows = run([np.full(shape, 7, np.uint8), np.full(shape, 200, np.uint8)])
        assert all(row.scored for row in rows)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1920, 1080), (240, 135)),
        ((1280, 720), (240, 135)),
        ((481, 271), (240, 135)),
        ((3000, 60), (1500, 30)),
        ((239, 100), (239, 100)),
    ],
)
def test_shrink_halves_down_to_the_width(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert shrink(np.zeros(size[::-1], np.uint8), 240).shape == expected[::-1]


def test_shrink_means_2x2() -> None:
    picture = np.zeros((48, 128), np.uint8)
    picture[::2, ::2] = 200
    assert set(np.unique(shrink(picture, 64))) == {50}


def test_entropy() -> None:
    assert entropy_bits(np.full((10, 10), 9, np.uint8)) == 0.0
    assert entropy_bits(np.arange(256, dtype=np.uint8).reshape(16, 16)) == pytest.approx(8.0)
    assert entropy_bits(np.array([[0, 255]] * 8, np.uint8)) == pytest.approx(1.0)


def test_sharpness_falls_with_blur(canvas: Grey) -> None:
    sharp = sharpness_of(canvas)
    assert sharpness_of(np.asarray(cv2.GaussianBlur(canvas, (0, 0), 2), np.uint8)) < sharp / 2
    assert sharpness_of(np.full((20, 20), 3, np.uint8)) == 0.0


def test_flow_of_a_shift_and_of_nothing(canvas: Grey) -> None:
    before = shrink(view(canvas, 100), 240)
    after = shrink(view(canvas, 106, 1), 240)
    assert sparse_flow_rms_px(before, after) == pytest.approx(3.0, abs=0.3)
    assert sparse_flow_rms_px(before, before) == pytest.approx(0.0, abs=0.05)
    assert np.isnan(sparse_flow_rms_px(np.zeros_like(before), before))
    assert np.isnan(sparse_flow_rms_px(before[:10], before[:10]))
