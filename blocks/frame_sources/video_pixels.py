"""Pixels of a decoded video frame: luma without a copy, and RGB as it is meant to be seen."""

import struct
from typing import Any

import cv2
import numpy as np
from av.video.reformatter import Colorspace

from blocks.frame_source import ByteImage
from blocks.frame_sources.pixels import square_pixels, turned

_UNSPECIFIED_COLORSPACE = 2
_HD_HEIGHT_PX = 720


def luma_of(frame: Any) -> ByteImage:
    """Return the luma plane as (H, W) uint8, without converting colours.

    Rows of a plane are ``line_size`` bytes apart, which is more than the width; more than 8 bits lie in two bytes and
    are scaled down. Limited-range luma stays 16..235. Formats without a plane of luma (RGB, packed, big endian) are
    converted by FFmpeg.

    Args:
        frame: ``av.VideoFrame``.
    """
    layout = frame.format
    bits = layout.components[0].bits
    has_plane = layout.name.startswith(("yuv", "yuvj", "yuva", "gray", "nv", "p0", "p2", "p4")) and layout.is_planar
    if not (has_plane or layout.name.startswith("gray")) or layout.is_rgb or layout.is_big_endian or bits > 16:
        converted: ByteImage = frame.to_ndarray(format="gray")
        return converted
    plane = frame.planes[0]
    if bits == 8:
        rows: ByteImage = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        return rows[: frame.height, : frame.width]
    words = np.frombuffer(plane, np.uint16).reshape(-1, plane.line_size // 2)[: frame.height, : frame.width]
    used_bits = 16 if layout.name.startswith(("p0", "p2", "p4")) else bits  # P010 and kin fill the high bits
    return np.asarray(cv2.convertScaleAbs(words, alpha=1.0 / (1 << (used_bits - 8))), np.uint8)


def rgb_of(frame: Any, sample_aspect: tuple[int, int]) -> ByteImage:
    """Return (H, W, 3) uint8 RGB, upright by the display matrix and with square pixels.

    Where the file names no colour matrix, BT.709 is taken from 720 lines up and BT.601 below, as players do.

    Args:
        frame: ``av.VideoFrame``.
        sample_aspect: width to height of one stored pixel.
    """
    source = Colorspace.ITU709 if frame.height >= _HD_HEIGHT_PX else Colorspace.ITU601
    unspecified = int(frame.colorspace) == _UNSPECIFIED_COLORSPACE and not frame.format.is_rgb
    options = {"src_colorspace": source} if unspecified else {}
    rgb: ByteImage = frame.to_ndarray(format="rgb24", **options)
    return upright(square_pixels(rgb, sample_aspect), display_matrix(frame))


def display_matrix(frame: Any) -> tuple[int, int, int, int] | None:
    """Return (a, b, c, d) of a frame's display matrix (ISO/IEC 14496-12 tkhd), or None where it has none."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return None
    a, b, _, c, d = struct.unpack("5i", bytes(data)[:20])
    return a, b, c, d


def upright(image: ByteImage, matrix: tuple[int, int, int, int] | None) -> ByteImage:
    """Turn and mirror a picture by a display matrix: a stored (x, y) is shown at (a x + c y, b x + d y).

    Only the eight turns by right angles exist here; other matrices are taken as the nearest of them.
    """
    if matrix is None:
        return image
    a, b, c, d = matrix
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return turned(image, False, a < 0, d < 0)
    return turned(image, True, c < 0, b < 0)
