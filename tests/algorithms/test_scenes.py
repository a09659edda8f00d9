import numpy as np
import pytest

from tasks.algorithms.scenes import PLACED_KINDS, PLACES, Finding, Look, Pose, draw_scene, findings_of, random_pose

SIZES = [(640, 360), (224, 224), (360, 640), (601, 479)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_scene_has_the_size_asked_for(width: int, height: int) -> None:
    scene = draw_scene(width, height, seed=3)
    assert scene.pixels.shape == (height, width, 3)
    assert scene.pixels.dtype == np.uint8
    assert all(mask.shape == (height, width) for _, mask in scene.masks)


def test_the_same_seed_draws_the_same_scene() -> None:
    first, again, other = (draw_scene(320, 180, seed) for seed in (5, 5, 6))
    assert np.array_equal(first.pixels, again.pixels)
    assert first.findings == again.findings
    assert not np.array_equal(first.pixels, other.pixels)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", PLACED_KINDS)
def test_every_object_is_drawn_where_it_is_said_to_be(kind: str, place: str) -> None:
    for seed in range(4):
        pose = random_pose(kind, place, np.random.default_rng(seed))
        scene = draw_scene(480, 270, seed, poses=[pose], look=Look(noise_sigma=0))
        ((finding, mask),) = scene.masks
        assert scene.findings == (finding,) == (Finding(kind, place),)
        assert mask.sum() > 40
        half = (
            (slice(135, None) if place.startswith("lower") else slice(None, 135)),
            (slice(240, None) if place.endswith("right") else slice(None, 240)),
        )
        assert mask[half].sum() >= 0.9 * mask.sum()


def test_an_object_changes_the_pixels_under_its_mask_and_no_others() -> None:
    pose = Pose("scissors", 0.7, 0.7, -2.4)
    look = Look(noise_sigma=0)
    empty, full = (draw_scene(480, 270, 1, poses=poses, look=look) for poses in ([], [pose]))
    changed = (empty.pixels != full.pixels).any(axis=2)
    ((_, mask),) = full.masks
    assert changed[mask].mean() > 0.95
    assert (changed & ~mask).mean() < 0.01


def test_findings_are_in_raster_order_and_smoke_is_last() -> None:
    poses = [Pose("needle", 0.7, 0.7, 0), Pose("clip", 0.7, 0.3, 0), Pose("bleeding", 0.3, 0.3, 0)]
    names = [str(finding) for finding in findings_of(poses, smoke=0.5)]
    assert names == ["bleeding upper left", "clip upper right", "needle lower right", "smoke"]
    assert findings_of([], smoke=0.0) == ()


def test_smoke_lowers_contrast() -> None:
    clear, smoky = (draw_scene(320, 180, 2, poses=[], look=Look(smoke=smoke, noise_sigma=0)) for smoke in (0.0, 0.6))
    assert smoky.pixels.std() < 0.8 * clear.pixels.std() or smoky.pixels.mean() > clear.pixels.mean() + 15
    assert [str(finding) for finding in smoky.findings] == ["smoke"]


def test_noise_has_the_sigma_asked_for() -> None:
    look = {"circle": 3.0, "gain": 0.6}
    quiet, noisy = (draw_scene(320, 180, 2, poses=[], look=Look(noise_sigma=s, **look)) for s in (0.0, 4.0))
    difference = noisy.pixels.astype(int) - quiet.pixels
    assert difference.std() == pytest.approx(4.0, rel=0.1)
