"""Score a stream of frames: one row of the signals table each, in constant memory.

What the SSIM columns mean: each scored frame is compared with a *reference*, the first good frame at the start. A frame
that falls under ``RENEW_TILE_MIN`` or ``RENEW_MEAN`` becomes the new reference, whatever a selection later wants. So
between two renewals every frame looks like their common reference, and a renewal's own values say how far the picture
had moved from the reference before. These thresholds are fixed and finer than those of a selection, which adds up the
steps since its last keyframe; that is why it can be re-run with other thresholds on the same table.
"""

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from tasks.algorithms.flow import sparse_flow_rms_px
from tasks.algorithms.ssim import SsimReference

ByteImage = npt.NDArray[np.uint8]

RENEW_TILE_MIN = 0.75
RENEW_MEAN = 0.88

_MOVING_RMS_PX = 0.3
_CALM_FRAMES = 10
_QUIET_SECONDS_NS = 500_000_000  # a slow recording is not thinned further than this
_LEAST_HEIGHT_PX = 24
_NAN = float("nan")


@dataclass(frozen=True)
class SignalRow:
    """One row of the signals table; the fields are ``SIGNAL_COLUMNS``, in their order and units."""

    frame_index: int
    pts_ns: int
    ssim_mean: float = _NAN
    ssim_tile_min: float = _NAN
    flow_rms_px: float = _NAN
    entropy_bits: float = _NAN
    sharpness: float = _NAN
    is_corrupt: bool = False
    scored: bool = False


class SignalScorer:
    """Scores frames in presentation order.

    Every frame is scored while something moves and for ``_CALM_FRAMES`` after; then only each ``quiet_stride``-th, or
    one each half second if that is more often. Frames without a time, such as pages, are all scored.

    Args:
        analysis_width_px: frames are scored at this width; narrower ones as they are.
        quiet_stride: see above.
    """

    def __init__(self, analysis_width_px: int, quiet_stride: int) -> None:
        self._width_px = analysis_width_px
        self._stride = quiet_stride
        self._reference: SsimReference | None = None
        self._before: ByteImage | None = None
        self._before_index = 0
        self._before_ns = 0
        self._calm = 0
        self._is_moving = False

    def wants(self, frame_index: int, pts_ns: int) -> bool:
        """Tell whether this frame is to be scored; if not, its pixels need not be looked at."""
        if self._before is None or pts_ns == -1 or self._calm < _CALM_FRAMES:
            return True
        if frame_index - self._before_index >= self._stride:
            return True
        return not 0 <= pts_ns - self._before_ns < _QUIET_SECONDS_NS

    def score(self, frame_index: int, pts_ns: int, luma: ByteImage) -> SignalRow:
        """Return the row of one good frame.

        Args:
            frame_index: larger than any before.
            pts_ns: -1 where the medium has no time.
            luma: (H, W) uint8, full resolution.
        """
        small = shrink(luma, self._width_px)
        # Sensor noise alone takes SSIM down to 0.5 in small pictures and gives black 2 bits; a 3x3 mean removes most.
        calm = np.asarray(cv2.blur(small, (3, 3)), np.uint8)
        mean = tile_min = 1.0
        flow = _NAN
        if self._reference is not None:
            found = self._reference.compare(calm)
            # The table holds float32; rounding first lets a reader of it find the same renewals.
            mean, tile_min = float(np.float32(found.mean)), float(np.float32(found.tile_min))
        is_new = self._reference is None or is_renewal(mean, tile_min)
        if self._before is not None and (is_new or self._is_moving):
            flow = self._flow(small, frame_index)
        if is_new:
            self._reference = SsimReference(calm)
        self._is_moving = flow > _MOVING_RMS_PX
        self._calm = 0 if is_new or self._is_moving else self._calm + 1
        self._before, self._before_index, self._before_ns = small, frame_index, pts_ns
        return SignalRow(
            frame_index, pts_ns, mean, tile_min, flow, entropy_bits(calm), sharpness_of(small), False, True
        )

    def _flow(self, small: ByteImage, frame_index: int) -> float:
        """Return pixels a frame at analysis width since the frame last scored."""
        assert self._before is not None
        frames = max(1, frame_index - self._before_index)
        return float(sparse_flow_rms_px(self._before, small) / frames * self._width_px / small.shape[1])


def difference(before: ByteImage, after: ByteImage, analysis_width_px: int) -> float:
    """Return how different two pictures are, 0 (alike) to 1: one less the least SSIM of any tile.

    Args:
        before, after: (H, W) uint8 luma, full resolution.
        analysis_width_px: width at which they are compared, as in scoring.
    """
    calm = [np.asarray(cv2.blur(shrink(luma, analysis_width_px), (3, 3)), np.uint8) for luma in (before, after)]
    return min(1.0, max(0.0, 1.0 - SsimReference(calm[0]).compare(calm[1]).tile_min))


def is_renewal(ssim_mean: float, ssim_tile_min: float) -> bool:
    """Tell whether a scored frame with these values became the new reference."""
    return ssim_tile_min < RENEW_TILE_MIN or ssim_mean < RENEW_MEAN


def shrink(luma: ByteImage, width_px: int) -> ByteImage:
    """Return luma ``width_px`` wide: halved by exact 2x2 means while it stays at least that wide, then by area.

    A cascade of halvings is an order of magnitude cheaper than one area resize by an odd ratio; what remains is small.

    Args:
        luma: (H, W) uint8; narrower pictures come back as they are.
        width_px: width of the result; very flat pictures stay wider, so as not to lose their height.
    """
    while luma.shape[1] // 2 >= width_px and luma.shape[0] // 2 >= _LEAST_HEIGHT_PX:
        luma = _resized(
            luma[: luma.shape[0] // 2 * 2, : luma.shape[1] // 2 * 2], luma.shape[1] // 2, luma.shape[0] // 2
        )
    height = round(luma.shape[0] * width_px / luma.shape[1])
    return _resized(luma, width_px, height) if luma.shape[1] > width_px and height >= _LEAST_HEIGHT_PX else luma


def _resized(luma: ByteImage, width: int, height: int) -> ByteImage:
    return np.asarray(cv2.resize(luma, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def entropy_bits(picture: ByteImage) -> float:
    """Return the Shannon entropy of the grey-level histogram, 0 (flat) to 8 bits.

    Args:
        picture: (H, W) uint8.
    """
    counts = cv2.calcHist([np.ascontiguousarray(picture)], [0], None, [256], [0, 256]).reshape(-1)
    shares = counts[counts > 0] / picture.size
    return max(0.0, float(-(shares * np.log2(shares)).sum()))


def sharpness_of(picture: ByteImage) -> float:
    """Return the variance of the Laplacian, a measure of focus (Pech-Pacheco et al. 2000), in grey levels squared.

    Args:
        picture: (H, W) uint8.
    """
    _, deviation = cv2.meanStdDev(cv2.Laplacian(picture, cv2.CV_16S))
    return float(math.pow(float(deviation[0][0]), 2))
