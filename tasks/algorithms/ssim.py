"""Structural similarity of small grey pictures, with the reference's statistics kept.

Wang, Bovik, Sheikh, Simoncelli (2004), "Image Quality Assessment: From Error Visibility to Structural Similarity", with
a uniform 7x7 window and sample covariance, as ``skimage.metrics.structural_similarity`` computes it by default.
"""

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

ByteImage = npt.NDArray[np.uint8]
FloatImage = npt.NDArray[np.float32]

WINDOW_PX = 7
TILE_COLUMNS, TILE_ROWS = 10, 6
_C1 = np.float32((0.01 * 255.0) ** 2)
_C2 = np.float32((0.03 * 255.0) ** 2)


@dataclass(frozen=True)
class Similarity:
    """How like its reference a picture is.

    Attributes:
        mean: of the SSIM map; 1 is equal.
        tile_min: least of the means over a grid of ``TILE_COLUMNS`` x ``TILE_ROWS`` tiles. A moving instrument barely
            moves the mean but takes its tile down.
    """

    mean: float
    tile_min: float


class SsimReference:
    """A reference picture and its window statistics, compared with many others.

    Args:
        picture: (H, W) uint8; kept, not copied. Below 7 px the window shrinks to the largest odd size that fits.
    """

    def __init__(self, picture: ByteImage) -> None:
        self.shape = picture.shape
        self._window = min(WINDOW_PX, (min(picture.shape) - 1) // 2 * 2 + 1)
        samples = self._window**2
        self._unbias = np.float32(samples / (samples - 1) if samples > 1 else 1.0)
        self._grey = picture.astype(np.float32)
        self._mean = self._blur(self._grey)
        self._mean_square = self._mean * self._mean
        self._variance = self._blur(self._grey * self._grey) - self._mean_square

    def compare(self, picture: ByteImage) -> Similarity:
        """Return the similarity of a picture; one of another size is as unlike as can be.

        Args:
            picture: (H, W) uint8.
        """
        if picture.shape != self.shape:
            return Similarity(0.0, 0.0)
        ssim = self._map(picture)
        border = self._window // 2
        height, width = ssim.shape
        inner = ssim[border : height - border, border : width - border]
        tiles = cv2.resize(
            inner, (min(TILE_COLUMNS, inner.shape[1]), min(TILE_ROWS, inner.shape[0])), interpolation=cv2.INTER_AREA
        )
        return Similarity(float(inner.mean()), float(tiles.min()))

    def _map(self, picture: ByteImage) -> FloatImage:
        """Return the SSIM of every window; works in place, since fresh pages cost more than the arithmetic."""
        grey = picture.astype(np.float32)
        mean = self._blur(grey)
        covariance = self._blur(self._grey * grey)
        grey *= grey
        variances = self._blur(grey)
        cross = np.multiply(self._mean, mean, out=grey)
        covariance -= cross
        mean *= mean
        variances -= mean
        variances += self._variance
        mean += self._mean_square  # sum of both squared means
        mean += _C1
        variances *= self._unbias
        variances += _C2
        mean *= variances
        covariance *= 2 * self._unbias
        covariance += _C2
        cross *= 2
        cross += _C1
        covariance *= cross
        covariance /= mean
        return covariance

    def _blur(self, picture: FloatImage) -> FloatImage:
        window = (self._window, self._window)
        return np.asarray(cv2.blur(picture, window, borderType=cv2.BORDER_REFLECT), np.float32)
