"""Pool plans: which vision tokens of an image become one. Imported by the server plugin: pydantic and numpy only."""

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from tasks.records.base import Record

Cell = tuple[int, int, int, int]


class PoolPlan(Record):
    """A partition of an image's merged vision tokens into square cells, one kept token a cell.

    A cell is ``(frame, row, column, size)``: the block of ``size`` x ``size`` merged tokens with that upper left token,
    clipped at the grid's edge. Its level is ``log2(size)``; size 1 is a native token. Cells stand in raster order of
    their kept positions. The kept position of a cell is ``start + (n - 1) // 2`` on each axis, ``n`` being the number
    of real members on that axis.
    """

    plan_version: Literal[1] = 1
    operator: Literal["mean"] = "mean"
    grid_thw: tuple[int, int, int] = Field(description="Patch grid (t, h, w) as the processor gives it, before merging")
    merge_size: int = Field(ge=1)
    cells: tuple[Cell, ...] = Field(min_length=1)

    @property
    def token_grid_thw(self) -> tuple[int, int, int]:
        """Grid of merged tokens (frames, rows, columns)."""
        t, h, w = self.grid_thw
        return t, h // self.merge_size, w // self.merge_size

    @property
    def native_tokens(self) -> int:
        """Tokens without pooling."""
        t, rows, columns = self.token_grid_thw
        return t * rows * columns

    @property
    def pooled_tokens(self) -> int:
        """Tokens with pooling."""
        return len(self.cells)

    @model_validator(mode="after")
    def _is_partition(self) -> "PoolPlan":
        t, rows, columns = self.token_grid_thw
        if min(t, rows, columns) < 1:
            raise ValueError(f"grid has no tokens: {self.grid_thw = }, {self.merge_size = }")
        times_covered = np.zeros((t, rows, columns), dtype=np.uint8)
        for frame, row, column, size in self.cells:
            if size < 1 or size & (size - 1):
                raise ValueError(f"cell size must be a power of two, got {size}")
            if not (0 <= frame < t and 0 <= row < rows and 0 <= column < columns) or row % size or column % size:
                raise ValueError(f"cell {(frame, row, column, size)} does not fit grid {self.token_grid_thw}")
            cell = times_covered[frame, row : row + size, column : column + size]
            if cell.any():
                raise ValueError(f"cell {(frame, row, column, size)} overlaps another")
            cell[:] = 1
        if not times_covered.all():
            raise ValueError(f"cells cover {int(times_covered.sum())} of {self.native_tokens} tokens")
        return self


class PooledFrame(Record):
    """One keyframe as the model sees it; the plan itself lies on the store, since thousands of cells are no record."""

    frame_index: int
    image_uri: str = Field(description="The picture at the model's own size, lossless")
    image_size_px: tuple[int, int] = Field(description="(width, height) of that picture")
    plan_uri: str
    overlay_uri: str | None = Field(default=None, description="The picture with its cells drawn in")
    native_tokens: int = Field(ge=1)
    pooled_tokens: int = Field(ge=1)


class PoolAccount(Record):
    """Outcome of ``pool-patches``: the pooled keyframes and the token account."""

    frames: tuple[PooledFrame, ...] = Field(min_length=1)
    native_tokens: int = Field(ge=1)
    pooled_tokens: int = Field(ge=1)
