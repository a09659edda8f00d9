"""Patch pooling: flat blocks of vision tokens become one token, informative regions keep theirs.

The unit is the merged vision token (patch x spatial merge). Pure numpy; imported by the model-server plugin too.
"""

import numpy as np
import numpy.typing as npt

from tasks.records.pooling import Cell, PoolPlan

FloatImage = npt.NDArray[np.float32]


def token_scores(luma: npt.NDArray[np.generic], token_px: int) -> npt.NDArray[np.float32]:
    """Score each merged token by its mean absolute gradient above the picture's noise floor.

    The score is the mean of |dx| + |dy| over the token's pixels, less the floor that sensor noise alone would give;
    the floor is the noise level of Immerkaer (1996, "Fast Noise Variance Estimation") turned into a mean absolute
    difference of two noisy pixels, sigma x 2 / sqrt(pi) on each axis.

    Args:
        luma: (H, W) in grey levels 0..255, H and W multiples of ``token_px``: the pixels the encoder sees.
        token_px: edge of a merged token in pixels.

    Returns:
        (H / token_px, W / token_px) float32, in grey levels, never negative.
    """
    height, width = luma.shape
    if height % token_px or width % token_px:
        raise ValueError(f"{luma.shape = } is not a multiple of {token_px = }")
    grey = luma.astype(np.float32)
    gradient = np.zeros_like(grey)
    gradient[:, 1:] += np.abs(np.diff(grey, axis=1))
    gradient[1:, :] += np.abs(np.diff(grey, axis=0))
    rows, columns = height // token_px, width // token_px
    means = gradient.reshape(rows, token_px, columns, token_px).mean(axis=(1, 3))
    floor = 2.0 * noise_sigma(grey) * 2.0 / np.sqrt(np.pi)
    scores: npt.NDArray[np.float32] = np.maximum(means - floor, 0.0).astype(np.float32)
    return scores


def noise_sigma(grey: FloatImage) -> float:
    """Estimate the standard deviation of sensor noise, in the units of ``grey``.

    Immerkaer (1996): the 3x3 difference of two Laplacians cancels structure; the median over tiles keeps texture
    from counting as noise.

    Args:
        grey: (H, W) float32.
    """
    if min(grey.shape) < 3:
        return 0.0
    across = grey[:, :-2] - 2.0 * grey[:, 1:-1] + grey[:, 2:]
    laplacian = np.abs(across[:-2] - 2.0 * across[1:-1] + across[2:])
    tile = 16
    rows, columns = laplacian.shape[0] // tile, laplacian.shape[1] // tile
    if rows and columns:
        tiles = laplacian[: rows * tile, : columns * tile].reshape(rows, tile, columns, tile).mean(axis=(1, 3))
        typical = float(np.median(tiles))
    else:
        typical = float(laplacian.mean())
    return typical * float(np.sqrt(np.pi / 2.0)) / 6.0


def plan_threshold(
    scores: npt.NDArray[np.float32],
    *,
    grid_thw: tuple[int, int, int],
    merge_size: int,
    threshold: float,
    block_tokens: int,
) -> PoolPlan:
    """Pool each block whose every token scores under the threshold; keep all tokens of the others.

    Args:
        scores: (rows, columns) of merged tokens; the maximum over a block decides, so a needle tip stays native.
        grid_thw: patch grid of the picture, as the processor gives it; t must be 1.
        merge_size: patches a merged token spans on each axis.
        threshold: grey levels; 0 pools nothing.
        block_tokens: edge of a block in tokens, a power of two.
    """
    rows, columns = scores.shape
    if grid_thw != (1, rows * merge_size, columns * merge_size):
        raise ValueError(f"{scores.shape = } does not fit {grid_thw = } with {merge_size = }")
    cells: list[Cell] = []
    for row in range(0, rows, block_tokens):
        for column in range(0, columns, block_tokens):
            block = scores[row : row + block_tokens, column : column + block_tokens]
            if float(block.max()) < threshold:
                cells.append((0, row, column, block_tokens))
            else:
                cells.extend((0, row + r, column + c, 1) for r, c in np.ndindex(block.shape))
    return plan_from_cells(cells, grid_thw=grid_thw, merge_size=merge_size)


def plan_native(*, grid_thw: tuple[int, int, int], merge_size: int) -> PoolPlan:
    """Return the plan that pools nothing."""
    t, h, w = grid_thw
    cells = [(f, r, c, 1) for f, r, c in np.ndindex(t, h // merge_size, w // merge_size)]
    return plan_from_cells(cells, grid_thw=grid_thw, merge_size=merge_size)


def plan_from_cells(cells: list[Cell], *, grid_thw: tuple[int, int, int], merge_size: int) -> PoolPlan:
    """Build a plan with its cells in raster order of their kept positions."""
    shape = (grid_thw[1] // merge_size, grid_thw[2] // merge_size)
    ordered = sorted(cells, key=lambda cell: _kept_position(cell, shape))
    return PoolPlan(grid_thw=grid_thw, merge_size=merge_size, cells=tuple(ordered))


def kept_positions(plan: PoolPlan) -> npt.NDArray[np.int64]:
    """Return each kept token's position (frame, row, column) in merged tokens, shape (K, 3), raster order."""
    _, rows, columns = plan.token_grid_thw
    return np.array([_kept_position(cell, (rows, columns)) for cell in plan.cells], dtype=np.int64)


def segment_ids(plan: PoolPlan) -> npt.NDArray[np.int64]:
    """Return for each native token, in raster order, the index of the kept token it goes into, shape (native,)."""
    owner = np.full(plan.token_grid_thw, -1, dtype=np.int64)
    for index, (frame, row, column, size) in enumerate(plan.cells):
        owner[frame, row : row + size, column : column + size] = index
    return owner.reshape(-1)


def _kept_position(cell: Cell, shape: tuple[int, int]) -> tuple[int, int, int]:
    frame, row, column, size = cell
    members = min(size, shape[0] - row), min(size, shape[1] - column)
    return frame, row + (members[0] - 1) // 2, column + (members[1] - 1) // 2
