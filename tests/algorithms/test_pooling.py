"""Pool plans: partitions, positions, and what counts as flat."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.algorithms.pooling import (
    kept_positions,
    noise_sigma,
    plan_from_cells,
    plan_native,
    plan_threshold,
    segment_ids,
    token_scores,
)
from tasks.records.pooling import PoolPlan

TOKEN_PX = 28


@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from([2, 4, 8]), st.integers(0, 2**32 - 1))
def test_a_plan_puts_every_native_token_into_exactly_one_kept_token(
    rows: int, columns: int, block: int, seed: int
) -> None:
    scores = np.random.default_rng(seed).random((rows, columns)).astype(np.float32) * 2
    plan = plan_threshold(scores, grid_thw=(1, rows * 2, columns * 2), merge_size=2, threshold=1.5, block_tokens=block)
    owners = segment_ids(plan)
    assert owners.shape == (rows * columns,)
    assert set(owners) == set(range(plan.pooled_tokens))
    positions = [tuple(p) for p in kept_positions(plan)]
    assert positions == sorted(set(positions)), "unique and in raster order"
    for index, (_, row, column) in enumerate(positions):
        assert owners.reshape(rows, columns)[row, column] == index, "a kept position lies inside its own cell"
    assert PoolPlan.model_validate_json(plan.model_dump_json()) == plan


def test_a_needle_tip_keeps_its_block_native() -> None:
    luma = np.full((8 * TOKEN_PX, 8 * TOKEN_PX), 128, np.uint8)
    luma[2 * TOKEN_PX + 3 : 2 * TOKEN_PX + 20, 2 * TOKEN_PX + 10 : 2 * TOKEN_PX + 13] = 250
    plan = plan_threshold(
        token_scores(luma, TOKEN_PX), grid_thw=(1, 16, 16), merge_size=2, threshold=3.0, block_tokens=4
    )
    assert plan.native_tokens == 64
    assert plan.pooled_tokens == 16 + 3
    assert (0, 2, 2, 1) in plan.cells


def test_sensor_noise_counts_as_flat_and_texture_does_not() -> None:
    noisy = 128 + np.random.default_rng(3).normal(0, 6, (8 * TOKEN_PX, 8 * TOKEN_PX))
    scores = token_scores(np.clip(noisy, 0, 255).astype(np.uint8), TOKEN_PX)
    assert scores.max() < 2.0
    ripple = noisy + 40 * np.sin(np.arange(8 * TOKEN_PX) / 2.0)[None, :]
    assert token_scores(np.clip(ripple, 0, 255).astype(np.uint8), TOKEN_PX).min() > 3.0


@pytest.mark.parametrize("sigma", [0.0, 2.0, 8.0])
def test_noise_is_estimated_beside_structure(sigma: float) -> None:
    rng = np.random.default_rng(5)
    picture = np.full((256, 320), 100.0) + rng.normal(0, sigma, (256, 320)) if sigma else np.full((256, 320), 100.0)
    picture[60:90, 40:200] += 90
    assert noise_sigma(picture.astype(np.float32)) == pytest.approx(sigma, abs=max(0.05, 0.12 * sigma))


def test_threshold_zero_pools_nothing() -> None:
    scores = np.zeros((5, 7), np.float32)
    plan = plan_threshold(scores, grid_thw=(1, 10, 14), merge_size=2, threshold=0.0, block_tokens=4)
    assert plan == plan_native(grid_thw=(1, 10, 14), merge_size=2)
    assert plan.native_tokens == plan.pooled_tokens == 35


@pytest.mark.parametrize(
    "cells",
    [
        [(0, 0, 0, 4)],  # half the grid is missing
        [(0, 0, 0, 4), (0, 0, 4, 4), (0, 1, 1, 1)],  # a token twice
        [(0, 0, 0, 4), (0, 0, 2, 4)],  # not aligned
        [(0, 0, 0, 3), (0, 0, 3, 4)],  # no power of two
        [(0, 0, 0, 4), (0, 0, 8, 4)],  # outside
        [(0, 0, 0, 4), (0, 0, 0, 4)],  # same cell twice
    ],
)
def test_what_is_no_partition_is_refused(cells: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(ValidationError):
        plan_from_cells(cells, grid_thw=(1, 8, 16), merge_size=2)


def test_nested_cells_that_happen_to_add_up_are_refused() -> None:
    # An 8-cell and a 1-cell inside it, with one token elsewhere left out: the count is right, the partition is not.
    rest = [(0, r, c, 1) for r in range(8) for c in range(8, 16)]
    with pytest.raises(ValidationError):
        plan_from_cells([(0, 0, 0, 8), (0, 3, 3, 1), *rest[1:]], grid_thw=(1, 16, 32), merge_size=2)
