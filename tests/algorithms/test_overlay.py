import numpy as np
import pytest

from tasks.algorithms.overlay import pool_overlay
from tasks.algorithms.pooling import plan_from_cells, plan_native
from tasks.records.pooling import PoolPlan
from tests import samples


def half_pooled() -> PoolPlan:
    """8 x 8 tokens: two 4 x 4 cells on the left, native tokens on the right."""
    cells = [(0, 0, 0, 4), (0, 4, 0, 4)] + [(0, r, c, 1) for r in range(8) for c in range(4, 8)]
    return plan_from_cells(cells, grid_thw=(1, 16, 16), merge_size=2)


def test_pooled_cells_are_veiled_and_native_tokens_clear() -> None:
    rgb = np.full((224, 224, 3), (190, 90, 80), np.uint8)
    drawn = pool_overlay(rgb, half_pooled(), width_px=224)
    assert drawn.shape == (224, 224, 3)
    left, right = drawn[8:100, 8:100], drawn[:, 116:]
    assert left.mean() < 0.6 * rgb.mean()
    token_middles = right[14::28, 10::28]
    assert (token_middles == rgb[0, 0]).all()
    assert right.mean() > rgb.mean()  # the faint grid only lightens


def test_a_black_pooled_cell_differs_from_a_black_native_one() -> None:
    drawn = pool_overlay(np.zeros((224, 224, 3), np.uint8), half_pooled(), width_px=224).astype(int)
    assert drawn[50, 50].sum() > drawn[50, 130].sum() + 40


def test_cell_borders_are_drawn() -> None:
    rgb = np.full((224, 224, 3), 120, np.uint8)
    drawn = pool_overlay(rgb, half_pooled(), width_px=224).astype(int)
    assert drawn[112, 50].sum() > drawn[108, 50].sum() + 60  # between the two pooled cells


@pytest.mark.parametrize("width_px", [300, 600, 900])
def test_size_and_proportions(width_px: int) -> None:
    rgb = samples.scene(1)
    drawn = pool_overlay(rgb, samples.plan_of(rgb), width_px=width_px)
    assert drawn.shape == (round(504 * width_px / 896), width_px, 3)
    assert drawn.dtype == np.uint8


def test_odd_grids_have_no_holes() -> None:
    """5 x 7 tokens with clipped edge cells on a picture whose size is no multiple of the grid."""
    cells = [(0, r, c, 4) for r in (0, 4) for c in (0, 4)]
    plan = plan_from_cells(cells, grid_thw=(1, 10, 14), merge_size=2)
    drawn = pool_overlay(np.full((101, 143, 3), 255, np.uint8), plan, width_px=143)
    assert (drawn < 250).all()


def test_nothing_pooled_leaves_small_tokens_untouched() -> None:
    rgb = samples.scene(4)
    plan = plan_native(grid_thw=(1, 36, 64), merge_size=2)
    drawn = pool_overlay(rgb, plan, width_px=150)
    assert np.abs(drawn.astype(int).mean() - rgb.mean()) < 2


def test_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="uint8"):
        pool_overlay(np.zeros((10, 10), np.uint8), half_pooled())
    with pytest.raises(ValueError, match="frame"):
        pool_overlay(np.zeros((10, 10, 3), np.uint8), half_pooled(), frame=1)
