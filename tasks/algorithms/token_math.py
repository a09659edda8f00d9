"""Token mathematics of the Qwen2-VL family: which size a picture is shown at, and how many tokens that makes."""

import math
from dataclasses import dataclass

_MAX_ASPECT_RATIO = 200.0


@dataclass(frozen=True)
class VisionGeometry:
    """How a model cuts pictures into tokens.

    Attributes:
        patch_px: edge of a vision patch in pixels.
        merge_size: patches that one token spans on each axis.
        min_pixels: pictures are enlarged to at least this area.
        max_pixels: pictures are reduced to at most this area.
    """

    patch_px: int
    merge_size: int
    min_pixels: int
    max_pixels: int

    @property
    def token_px(self) -> int:
        """Edge of a merged token in pixels."""
        return self.patch_px * self.merge_size


def shown_size(width_px: int, height_px: int, geometry: VisionGeometry) -> tuple[int, int]:
    """Return the (width, height) at which the model's processor would show a picture.

    Follows the resize rule that Qwen2-VL's processor publishes (Wang et al. 2024, "Qwen2-VL", dynamic resolution):
    each side a multiple of the token edge, the area inside the limits, the aspect ratio nearly kept.

    Raises:
        ValueError: the picture is empty or more than 200 times longer than wide.
    """
    if min(width_px, height_px) < 1:
        raise ValueError(f"picture is empty: {width_px = }, {height_px = }")
    if max(width_px, height_px) / min(width_px, height_px) > _MAX_ASPECT_RATIO:
        raise ValueError(f"picture is too long for its width: {width_px} x {height_px} px")
    edge = geometry.token_px
    height, width = round(height_px / edge) * edge, round(width_px / edge) * edge
    if height * width > geometry.max_pixels:
        shrink = math.sqrt(height_px * width_px / geometry.max_pixels)
        height = max(edge, math.floor(height_px / shrink / edge) * edge)
        width = max(edge, math.floor(width_px / shrink / edge) * edge)
    elif height * width < geometry.min_pixels:
        grow = math.sqrt(geometry.min_pixels / (height_px * width_px))
        height = math.ceil(height_px * grow / edge) * edge
        width = math.ceil(width_px * grow / edge) * edge
    return width, height


def patch_grid(width_px: int, height_px: int, geometry: VisionGeometry) -> tuple[int, int, int]:
    """Return the patch grid (t, h, w) of one picture that is already at its shown size."""
    return 1, height_px // geometry.patch_px, width_px // geometry.patch_px
