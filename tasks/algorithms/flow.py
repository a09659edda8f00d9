"""Sparse optical flow: how far the picture moved, from a few hundred corners."""

import cv2
import numpy as np
import numpy.typing as npt

ByteImage = npt.NDArray[np.uint8]

_MOST_CORNERS = 80
_CORNER_QUALITY = 0.003  # glints are strong corners: a larger share of theirs leaves nothing else
_CORNER_DISTANCE_PX = 7
_WINDOW_PX = 11
_LEVELS = 2
_STOP = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 10, 0.05)
_FEWEST_TRACKED = 4
_FARTHEST_SHARE = 0.25  # of the width; farther is a mismatch


def sparse_flow_rms_px(before: ByteImage, after: ByteImage) -> float:
    """Return the root mean square displacement of tracked corners, in pixels; NaN where too few can be followed.

    Corners: Shi and Tomasi (1994), "Good Features to Track"; tracking: pyramidal Lucas-Kanade, Bouguet (2001). When
    less than a third of the corners is found again, as across a cut, there is no motion to speak of: NaN.

    Args:
        before: (H, W) uint8.
        after: (H, W) uint8 of the same size.
    """
    if before.shape != after.shape or min(before.shape) < 2 * _WINDOW_PX:
        return float("nan")
    corners = cv2.goodFeaturesToTrack(before, _MOST_CORNERS, _CORNER_QUALITY, _CORNER_DISTANCE_PX)
    if corners is None or len(corners) < _FEWEST_TRACKED:
        return float("nan")
    moved, found, _ = cv2.calcOpticalFlowPyrLK(
        before,
        after,
        corners,
        np.empty_like(corners),
        winSize=(_WINDOW_PX, _WINDOW_PX),
        maxLevel=_LEVELS,
        criteria=_STOP,
    )
    steps = (moved - corners).reshape(-1, 2)[found.reshape(-1) == 1]
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    lengths = lengths[lengths <= _FARTHEST_SHARE * before.shape[1]]
    if len(lengths) < max(_FEWEST_TRACKED, len(corners) // 3):
        return float("nan")
    return float(np.sqrt(np.mean(lengths**2)))
