"""Token mathematics is held to the real processor."""

import random

import pytest

from tasks.algorithms.token_math import VisionGeometry, patch_grid, shown_size

QWEN2 = VisionGeometry(patch_px=14, merge_size=2, min_pixels=56 * 56, max_pixels=14 * 14 * 4 * 1280)
QWEN3 = VisionGeometry(patch_px=16, merge_size=2, min_pixels=65_536, max_pixels=16_777_216)


@pytest.mark.parametrize("geometry", [QWEN2, QWEN3], ids=["qwen2-vl", "qwen3-vl"])
def test_shown_size_equals_the_real_resize_rule(geometry: VisionGeometry) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    chance = random.Random(7)
    sizes = [(chance.randint(1, 4000), chance.randint(1, 4000)) for _ in range(220)]
    sizes = [(w, h) for w, h in sizes if max(w, h) / min(w, h) <= 200]
    assert len(sizes) >= 200
    for width, height in sizes:
        expected = smart_resize(
            height,
            width,
            factor=geometry.token_px,
            min_pixels=geometry.min_pixels,
            max_pixels=geometry.max_pixels,
        )
        assert shown_size(width, height, geometry) == (expected[1], expected[0]), (width, height)


def test_patch_grid_equals_the_real_processor() -> None:
    import numpy as np
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(size={"shortest_edge": QWEN2.min_pixels, "longest_edge": QWEN2.max_pixels})
    for width, height in ((640, 360), (100, 31), (1920, 1080)):
        shown = shown_size(width, height, QWEN2)
        inputs = processor(images=np.zeros((height, width, 3), np.uint8), return_tensors="np")
        assert tuple(inputs["image_grid_thw"][0]) == patch_grid(*shown, QWEN2)


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, 0), (1, 201), (4000, 19)])
def test_impossible_pictures_are_refused(width: int, height: int) -> None:
    with pytest.raises(ValueError, match="picture is"):
        shown_size(width, height, QWEN2)
