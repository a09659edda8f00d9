"""Pictures in memory: reading, resizing to a model's grid, luma, and writing as WebP."""

import io
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]

WEBP_MAX_SIDE_PX = 16_383
"""Longest side that WebP can hold."""


def read_picture(encoded: bytes) -> Pixels:
    """Decode a picture that ScopeFlow itself wrote; (H, W, 3) uint8 RGB."""
    with Image.open(io.BytesIO(encoded)) as picture:
        return np.asarray(picture.convert("RGB"))


def fit_picture(rgb: Pixels, width_px: int, height_px: int) -> Pixels:
    """Resize to exactly ``width_px`` x ``height_px``; by area when shrinking, so that fine texture does not alias."""
    if rgb.shape[:2] == (height_px, width_px):
        return rgb
    shrinks = rgb.shape[0] * rgb.shape[1] >= width_px * height_px
    resized: Any = cv2.resize(rgb, (width_px, height_px), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC)
    return np.asarray(resized, dtype=np.uint8)


def thumbnail(rgb: Pixels, max_side_px: int) -> Pixels:
    """Shrink so that the longer side is at most ``max_side_px``; smaller pictures are left as they are."""
    height, width = rgb.shape[:2]
    scale = max_side_px / max(height, width)
    if scale >= 1:
        return rgb
    return fit_picture(rgb, max(1, round(width * scale)), max(1, round(height * scale)))


def luma_of(rgb: Pixels) -> Pixels:
    """Return (H, W) uint8 luma by ITU-R BT.601 weights."""
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def webp_bytes(rgb: Pixels, *, quality: int | None) -> bytes:
    """Encode as WebP; ``quality`` 0..100, None for lossless. Larger than WebP allows is shrunk to fit."""
    target = io.BytesIO()
    picture = Image.fromarray(thumbnail(rgb, WEBP_MAX_SIDE_PX))
    if quality is None:
        picture.save(target, "WEBP", lossless=True, quality=50, method=2)
    else:
        picture.save(target, "WEBP", quality=quality, method=4)
    return target.getvalue()
