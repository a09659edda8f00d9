"""What all sources do to pixels: 8-bit display range, square pixels, upright."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from blocks.frame_source import ByteImage

_LARGEST_ASPECT = 16
_SAMPLE_PIXELS = 1_000_000
_BAND_PIXELS = 4_000_000
_DARK_PERCENT, _BRIGHT_PERCENT = 0.5, 99.5

# (swap axes, mirror columns, mirror rows) for the values 1..8 of the TIFF and EXIF orientation tag.
_ORIENTATIONS = {
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, True, False),
    7: (True, True, True),
    8: (True, False, True),
}


def display_range(values: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the 0.5 and 99.5 percentiles of a picture's finite values, from at most a million of them.

    Args:
        values: any shape, any number type.
    """
    flat = values.reshape(-1)
    sample = flat[:: max(1, flat.size // _SAMPLE_PIXELS)].astype(np.float64)
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return 0.0, 0.0
    low, high = np.percentile(sample, (_DARK_PERCENT, _BRIGHT_PERCENT))
    if high <= low:
        low, high = sample.min(), sample.max()
    return float(low), float(high)


def to_bytes(values: npt.NDArray[Any], low: float, high: float) -> ByteImage:
    """Return values scaled linearly so that ``low`` is 0 and ``high`` is 255; NaN is 0; a flat picture is all 0.

    Works in bands of rows, so that no second full-size float picture exists.

    Args:
        values: (H, W) or (H, W, C).
        low: value shown black.
        high: value shown white.
    """
    out = np.zeros(values.shape, np.uint8)
    if not high > low:
        return out
    rows = max(1, _BAND_PIXELS // max(1, values[0].size))
    for top in range(0, len(values), rows):
        band = values[top : top + rows].astype(np.float32)
        band -= np.float32(low)
        band *= np.float32(255.0 / (high - low))
        np.nan_to_num(band, copy=False, nan=0.0, posinf=255.0, neginf=0.0)
        out[top : top + rows] = np.clip(np.rint(band, out=band), 0, 255, out=band)
    return out


def to_display(values: npt.NDArray[Any]) -> ByteImage:
    """Return any picture as 8 bits: bytes as they are, truth values as black and white, the rest by percentiles."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "c":
        values = np.abs(values)
    return to_bytes(values, *display_range(values))


def checked(image: ByteImage) -> ByteImage:
    """Return the picture, unless it is not (H, W) or (H, W, 3) uint8 or has no pixels, as damaged headers make it.

    Raises:
        ValueError: it is no such picture.
    """
    is_picture = image.dtype == np.uint8 and image.size and (image.ndim == 2 or image.shape[2:] == (3,))
    if not is_picture:
        raise ValueError(f"no picture: {image.shape = }, {image.dtype = }")
    return image


def to_luma(image: ByteImage) -> ByteImage:
    """Return (H, W) uint8 of an (H, W) or (H, W, 3) RGB picture."""
    if image.ndim == 2:
        return image
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)


def to_rgb(image: ByteImage) -> ByteImage:
    """Return (H, W, 3) uint8 of an (H, W) or (H, W, 3) picture."""
    return image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)


def square_pixels(image: ByteImage, sample_aspect: tuple[float, float]) -> ByteImage:
    """Return the picture with square pixels; the shorter-sampled axis is enlarged so that no detail is lost.

    Args:
        image: (H, W) or (H, W, 3) uint8.
        sample_aspect: width and height of one stored pixel in any unit; absurd values are ignored.
    """
    across, down = sample_aspect
    if across <= 0 or down <= 0 or across == down or max(across, down) > _LARGEST_ASPECT * min(across, down):
        return image
    height, width = image.shape[:2]
    if across > down:
        width = max(1, round(width * across / down))
    else:
        height = max(1, round(height * down / across))
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


def orient(image: ByteImage, orientation: int) -> ByteImage:
    """Return the picture upright by the TIFF/EXIF orientation tag (1..8; others change nothing)."""
    swap, mirror_columns, mirror_rows = _ORIENTATIONS.get(orientation, (False, False, False))
    return turned(image, swap, mirror_columns, mirror_rows)


def turned(image: ByteImage, swap: bool, mirror_columns: bool, mirror_rows: bool) -> ByteImage:
    """Return the picture with its axes swapped, then its columns and its rows mirrored."""
    image = image.swapaxes(0, 1) if swap else image
    image = image[:, ::-1] if mirror_columns else image
    image = image[::-1] if mirror_rows else image
    return np.ascontiguousarray(image)
