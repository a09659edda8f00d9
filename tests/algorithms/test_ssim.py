"""Box SSIM against scikit-image, and what its tile minimum sees."""

from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from skimage.metrics import structural_similarity

from tasks.algorithms.scenes import tissue
from tasks.algorithms.ssim import SsimReference

Grey = npt.NDArray[np.uint8]


def picture(seed: int = 0, width: int = 240, height: int = 136) -> Grey:
    return np.asarray(cv2.cvtColor(tissue(width, height, np.random.default_rng(seed)), cv2.COLOR_RGB2GRAY), np.uint8)


def noisy(grey: Grey, sigma: float) -> Grey:
    noise = np.random.default_rng(1).normal(0, sigma, grey.shape)
    return np.clip(grey + noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    "change",
    [
        lambda grey: grey,
        lambda grey: noisy(grey, 2.5),
        lambda grey: noisy(grey, 12),
        lambda grey: np.roll(grey, 3, axis=1),
        lambda grey: cv2.GaussianBlur(grey, (0, 0), 2),
        lambda grey: np.clip(grey.astype(int) + 30, 0, 255).astype(np.uint8),
        lambda grey: picture(5),
        lambda grey: np.zeros_like(grey),
        lambda grey: 255 - grey,
    ],
)
def test_mean_is_skimages(change: Callable[[Grey], Grey]) -> None:
    reference = picture()
    other = np.asarray(change(reference), np.uint8)
    found = SsimReference(reference).compare(other)
    assert found.mean == pytest.approx(structural_similarity(reference, other, data_range=255), abs=0.02)
    assert found.tile_min <= found.mean + 1e-6


def test_equal_pictures_are_one() -> None:
    found = SsimReference(picture()).compare(picture())
    assert found.mean == pytest.approx(1.0, abs=1e-4)
    assert found.tile_min == pytest.approx(1.0, abs=1e-4)


def test_small_object_shows_in_the_tile_and_hardly_in_the_mean() -> None:
    reference = picture()
    other = reference.copy()
    cv2.line(other, (20, 20), (44, 34), 250, 3)
    found = SsimReference(reference).compare(other)
    assert found.mean > 0.95
    assert found.tile_min < 0.6


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 3), (6, 200), (7, 7), (8, 16), (100, 50)])
def test_tiny_pictures(shape: tuple[int, int]) -> None:
    grey = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    assert SsimReference(grey).compare(grey).mean == pytest.approx(1.0, abs=1e-4)
    assert SsimReference(grey).compare(255 - grey).mean < 1.0


def test_another_size_is_unlike() -> None:
    found = SsimReference(picture()).compare(picture(width=200))
    assert (found.mean, found.tile_min) == (0.0, 0.0)


def test_flat_pictures_do_not_divide_by_zero() -> None:
    black, white = np.zeros((60, 80), np.uint8), np.full((60, 80), 255, np.uint8)
    assert SsimReference(black).compare(black).mean == pytest.approx(1.0)
    assert SsimReference(black).compare(white).mean < 0.01
