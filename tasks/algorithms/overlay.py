"""Draw what pooling does to a frame: native tokens stay clear, pooled cells lie under a veil."""

import math

import numpy as np
import numpy.typing as npt

from tasks.algorithms.pictures import Pixels, fit_picture
from tasks.records.pooling import PoolPlan

_VEIL_RGB = (26.0, 38.0, 66.0)
_EDGE_RGB = (150.0, 178.0, 222.0)
_MIN_TOKEN_PX_FOR_GRID = 7.0


def pool_overlay(rgb: Pixels, plan: PoolPlan, *, width_px: int = 600, frame: int = 0) -> Pixels:
    """Draw a plan's cells over the frame it was made for.

    Pooled cells lose their colour under a dark blue veil, the denser the larger the cell, and get a pale border;
    native tokens keep their pixels, with a faint grid where tokens are large enough to tell apart.

    Args:
        rgb: (H, W, 3) uint8 of any size; the plan's grid is laid over it in proportion.
        plan: the frame's pool plan.
        width_px: width of the drawing; its height keeps the proportions of ``rgb``.
        frame: which frame of the plan's grid to draw.

    Returns:
        (height, ``width_px``, 3) uint8 RGB.

    Raises:
        ValueError: ``rgb`` is not (H, W, 3) uint8, or ``frame`` lies outside the plan's grid.
    """
    if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8:
        raise ValueError(f"rgb must be (H, W, 3) uint8, got {rgb.shape = }, {rgb.dtype = }")
    frames, rows, columns = plan.token_grid_thw
    if not 0 <= frame < frames:
        raise ValueError(f"{frame = } lies outside the plan's {frames} frames")
    height_px = max(1, round(rgb.shape[0] * width_px / rgb.shape[1]))
    canvas = fit_picture(rgb, width_px, height_px).astype(np.float32)

    cells = [(row, column, size) for t, row, column, size in plan.cells if t == frame]
    ys = np.round(np.linspace(0, height_px, rows + 1)).astype(int)
    xs = np.round(np.linspace(0, width_px, columns + 1)).astype(int)

    density = np.zeros((rows, columns), np.float32)
    for row, column, size in cells:
        if size > 1:
            density[row : row + size, column : column + size] = min(0.88, 0.66 + 0.06 * math.log2(size))
    veil = np.repeat(np.repeat(density, np.diff(ys), axis=0), np.diff(xs), axis=1)[..., None]
    grey = canvas.mean(axis=2, keepdims=True) * 0.9
    veiled = (1 - veil) * grey + veil * np.array(_VEIL_RGB, np.float32)
    canvas = np.where(veil > 0, veiled, canvas)

    token_px = min(width_px / columns, height_px / rows)
    if token_px >= _MIN_TOKEN_PX_FOR_GRID:
        for row, column, size in cells:
            if size == 1:
                _outline(canvas, (ys[row], ys[row + 1], xs[column], xs[column + 1]), (255.0, 255.0, 255.0), 0.16)
    for row, column, size in cells:
        if size > 1:
            box = ys[row], ys[min(row + size, rows)], xs[column], xs[min(column + size, columns)]
            _outline(canvas, box, _EDGE_RGB, 0.55)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


def _outline(
    canvas: npt.NDArray[np.float32],
    box: tuple[int, int, int, int],
    colour: tuple[float, float, float],
    alpha: float,
) -> None:
    """Blend the upper and left edge of a box, one pixel wide; neighbours draw the other two."""
    top, bottom, left, right = box
    paint = np.array(colour, np.float32)
    for edge in (canvas[top : top + 1, left:right], canvas[top + 1 : bottom, left : left + 1]):
        edge[:] = (1 - alpha) * edge + alpha * paint
