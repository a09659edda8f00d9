"""Rendered laparoscopy-like scenes with known contents: test media, and all that the demo model was trained on."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float64]
Colour = tuple[float, float, float]

INSTRUMENTS = ("grasper", "scissors", "needle", "clip")
PLACED_KINDS = (*INSTRUMENTS, "bleeding")
SMOKE = "smoke"
PLACES = ("upper left", "upper right", "lower left", "lower right")

_SHIFT = 4  # fractional bits of the polygon coordinates
_STEEL: Colour = (196, 202, 208)
_VIOLET: Colour = (150, 70, 190)
_THREAD: Colour = (45, 60, 150)


@dataclass(frozen=True)
class Finding:
    """One thing to be seen: its kind and its place (none for smoke, which is everywhere)."""

    kind: str
    place: str | None = None

    def __str__(self) -> str:
        return self.kind if self.place is None else f"{self.kind} {self.place}"


@dataclass(frozen=True)
class Pose:
    """Where and how an object lies.

    ``x`` and ``y`` are the fractions of width and height of its middle, ``angle`` (radians, y down) is the direction
    in which it points, ``size`` scales its usual extent, ``opening`` (0..1) spreads jaws and blades, ``look`` seeds
    colour and outline.
    """

    kind: str
    x: float
    y: float
    angle: float
    size: float = 1.0
    opening: float = 0.6
    look: int = 0

    @property
    def finding(self) -> Finding:
        """The object and the quarter of the picture its middle lies in."""
        return Finding(self.kind, f"{'upper' if self.y < 0.5 else 'lower'} {'left' if self.x < 0.5 else 'right'}")


@dataclass(frozen=True)
class Look:
    """How a scene is lit and seen: haze 0..1, circle radius in half diagonals, noise in grey levels, overall gain."""

    smoke: float = 0.0
    circle: float = 1.05
    centre: tuple[float, float] = (0.5, 0.5)
    noise_sigma: float = 3.0
    gain: float = 1.0


@dataclass(frozen=True)
class Scene:
    """Pixels (H, W, 3) uint8 RGB, a (H, W) bool mask for each placed object, and what is to be seen in raster order."""

    pixels: Pixels
    masks: tuple[tuple[Finding, npt.NDArray[np.bool_]], ...] = field(repr=False)
    findings: tuple[Finding, ...]


def draw_scene(
    width: int,
    height: int,
    seed: int,
    *,
    poses: Sequence[Pose] | None = None,
    look: Look | None = None,
    masks: bool = True,
) -> Scene:
    """Draw a scene; the same arguments give the same pixels.

    Args:
        width: pixels.
        height: pixels.
        seed: decides the tissue, the noise, and poses and look where they are not given.
        poses: the objects; random ones when None.
        look: light, haze and noise; random when None.
        masks: whether to give the masks too.
    """
    rng = np.random.default_rng(seed)
    poses = random_poses(rng) if poses is None else poses
    look = random_look(rng) if look is None else look
    pixels = tissue(width, height, rng)
    drawn = []
    for pose in poses:
        mask = np.zeros((height, width), np.uint8) if masks else None
        draw_object(pixels, pose, mask)
        if mask is not None:
            drawn.append((pose.finding, mask > 127))
    if look.smoke > 0:
        add_haze(pixels, veil(width, height, rng), look.smoke)
    pixels = np.asarray(cv2.multiply(pixels, vignette(width, height, look), scale=1 / 255), np.uint8)
    if look.noise_sigma > 0:
        noise = sensor_noise(width, height, look.noise_sigma, rng)
        pixels = np.asarray(cv2.add(pixels, noise, dtype=cv2.CV_8U), np.uint8)
    return Scene(pixels, tuple(drawn), findings_of(poses, look.smoke))


def findings_of(poses: Sequence[Pose], smoke: float) -> tuple[Finding, ...]:
    """List what is to be seen: placed objects in raster order of their quarters, then smoke."""
    placed = sorted({pose.finding for pose in poses}, key=lambda f: (PLACES.index(f.place or PLACES[0]), f.kind))
    return (*placed, Finding(SMOKE)) if smoke > 0 else tuple(placed)


def random_poses(rng: np.random.Generator) -> tuple[Pose, ...]:
    """Draw none to three objects of different kinds in different quarters."""
    count = int(rng.choice(4, p=[0.1, 0.3, 0.35, 0.25]))
    kinds = rng.permutation(len(PLACED_KINDS))[:count]
    places = rng.permutation(len(PLACES))[:count]
    return tuple(random_pose(PLACED_KINDS[k], PLACES[p], rng) for k, p in zip(kinds, places, strict=True))


def random_pose(kind: str, place: str, rng: np.random.Generator) -> Pose:
    """Draw a pose well inside a quarter of the picture; tools reach in from outside."""
    down, right = place.startswith("lower"), place.endswith("right")
    x = 0.5 + (1 if right else -1) * rng.uniform(0.15, 0.34)
    y = 0.5 + (1 if down else -1) * rng.uniform(0.16, 0.33)
    if kind in ("grasper", "scissors"):
        steep = rng.uniform(0.25, 1.1)
        angle = float(np.arctan2(-np.sin(steep) * (1 if down else -1), -np.cos(steep) * (1 if right else -1)))
    else:
        angle = float(rng.uniform(-np.pi, np.pi))
    return Pose(
        kind,
        float(x),
        float(y),
        angle,
        float(rng.uniform(0.85, 1.25)),
        float(rng.uniform(0.3, 1.0)),
        int(rng.integers(1 << 30)),
    )


def random_look(rng: np.random.Generator) -> Look:
    """Draw light, haze and noise; one scene in five is smoky."""
    return Look(
        smoke=float(rng.uniform(0.4, 0.7)) if rng.random() < 0.2 else 0.0,
        circle=float(rng.uniform(0.86, 1.3)),
        centre=(float(rng.uniform(0.47, 0.53)), float(rng.uniform(0.47, 0.53))),
        noise_sigma=float(rng.uniform(1.0, 6.0)),
        gain=float(rng.uniform(0.75, 1.15)),
    )


def tissue(width: int, height: int, rng: np.random.Generator, extent: float = 1.0) -> Pixels:
    """Paint moist reddish tissue: folds of sinusoids, mottling, a few vessels and glints.

    Args:
        width: pixels.
        height: pixels.
        rng: decides everything.
        extent: how many views wide the canvas is; textures keep their size relative to one view.

    Returns:
        (height, width, 3) uint8 RGB.
    """
    w, h = max(8, width // 4), max(8, height // 4)
    unit = float(np.sqrt(w * h)) / extent
    yy, xx = np.mgrid[0:h, 0:w].astype(np.float32) / unit
    folds = np.zeros((h, w), np.float32)
    for _ in range(6):
        fx, fy = rng.normal(0, 7.0, 2)
        folds += float(rng.uniform(0.3, 1.0)) * np.sin(fx * xx + fy * yy + float(rng.uniform(0, 6.3)))
    coarse = _smooth_noise(w, h, round(6 * extent), rng)
    fine = _smooth_noise(w, h, round(28 * extent), rng)
    shade = 1.0 + 0.07 * folds + 0.10 * coarse + 0.05 * fine
    base = np.array([rng.uniform(150, 208), rng.uniform(72, 112), rng.uniform(62, 100)], np.float32)
    warm = np.stack([0 * coarse, 5 * coarse + 2 * fine, 4 * coarse + 1.5 * fine], axis=-1)
    small = np.clip(base * shade[..., None] + warm, 0, 255).astype(np.uint8)
    pixels: Pixels = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    _vessels(pixels, rng, extent)
    return pixels


def veil(width: int, height: int, rng: np.random.Generator) -> Pixels:
    """Draw the density of smoke over the picture, (height, width) uint8."""
    w, h = max(8, width // 8), max(8, height // 8)
    density = np.clip(190 + 45 * _smooth_noise(w, h, 4, rng) + 15 * _smooth_noise(w, h, 12, rng), 0, 255)
    return np.asarray(cv2.resize(density.astype(np.uint8), (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


def add_haze(pixels: Pixels, density: Pixels, strength: float) -> None:
    """Blend grey smoke into ``pixels`` (H, W, 3) in place; ``density`` (H, W) uint8 from ``veil``, strength 0..1."""
    alpha = cv2.convertScaleAbs(density, alpha=strength)
    clear = cv2.multiply(pixels, cv2.cvtColor(cv2.bitwise_not(alpha), cv2.COLOR_GRAY2RGB), scale=1 / 255)
    cv2.add(clear, cv2.merge([cv2.convertScaleAbs(alpha, alpha=level / 255) for level in (208, 210, 214)]), dst=pixels)


def vignette(width: int, height: int, look: Look) -> Pixels:
    """Return the factor of the endoscope's circle and light fall-off times gain, (H, W, 3) uint8, 255 is 1.0."""
    yy, xx = np.ogrid[0:height, 0:width]
    radius = look.circle * np.hypot(width, height) / 2
    distance = np.hypot(xx - look.centre[0] * width, yy - look.centre[1] * height) / radius
    edge = np.clip((1.0 - distance) / 0.02, 0.0, 1.0)
    factor = edge * (1.0 - 0.42 * distance**2) * min(look.gain / 1.15, 1.0)
    return np.repeat((factor * 255).astype(np.uint8)[..., None], 3, axis=2)


def sensor_noise(width: int, height: int, sigma: float, rng: np.random.Generator) -> npt.NDArray[np.int16]:
    """Return Gaussian noise of ``sigma`` grey levels, (height, width, 3) int16, cut from one long tape at random."""
    count = width * height * 3
    tape = _noise_tape()
    start = int(rng.integers(tape.size))
    pieces = (
        np.tile(tape, -(-(start + count) // tape.size))[start : start + count] if start + count > tape.size else None
    )
    piece = tape[start : start + count] if pieces is None else pieces
    return np.round(piece.reshape(height, width, 3) * np.float32(sigma)).astype(np.int16)


@functools.cache
def _noise_tape() -> npt.NDArray[np.float32]:
    return np.random.default_rng(7).standard_normal(2_000_003, dtype=np.float32)


def draw_object(pixels: Pixels, pose: Pose, mask: Pixels | None = None) -> None:
    """Draw one object into ``pixels`` (H, W, 3) in place, and its outline into ``mask`` (H, W) as 255."""
    height, width = pixels.shape[:2]
    unit = float(np.sqrt(width * height)) * pose.size
    middle = np.array([pose.x * width, pose.y * height])
    if pose.kind == "bleeding":
        _bleed(pixels, middle, unit, pose, mask)
        return
    shapes = {"grasper": _grasper, "scissors": _scissors, "needle": _needle, "clip": _clip}[pose.kind](unit, pose)
    cos, sin = np.cos(pose.angle), np.sin(pose.angle)
    turn = np.array([[cos, sin], [-sin, cos]])
    for points, colour in shapes:
        corners = np.round((points @ turn + middle) * (1 << _SHIFT)).astype(np.int32)
        cv2.fillPoly(pixels, [corners], colour, cv2.LINE_AA, _SHIFT)
        if mask is not None:
            cv2.fillPoly(mask, [corners], 255, cv2.LINE_AA, _SHIFT)


def _grasper(unit: float, pose: Pose) -> list[tuple[Points, Colour]]:
    rng = np.random.default_rng(pose.look)
    light = float(rng.uniform(0.85, 1.1))
    length, thick, spread = 0.13 * unit, 0.022 * unit, 0.12 + 0.4 * pose.opening
    shapes = _shaft(-0.5 * length, 0.026 * unit, _scaled(_STEEL, light))
    for side in (-1, 1):
        jaw = np.array([[0, 0], [0.15, 0.1], [0.9, 0.1], [1.0, 0.05], [1.0, -0.02], [0.1, -0.03]]) * [
            length,
            side * thick * 5.5,
        ]
        shapes.append((_turned(jaw, side * spread / 2) + [-0.5 * length, 0], _scaled(_STEEL, light * 0.82)))
        for tooth in np.linspace(0.3, 0.9, 5):
            notch = np.array([[tooth, -0.03], [tooth + 0.05, -0.03], [tooth + 0.025, 0.03]]) * [
                length,
                side * thick * 5.5,
            ]
            shapes.append((_turned(notch, side * spread / 2) + [-0.5 * length, 0], (60, 62, 70)))
    shapes.append((_disc(0.018 * unit) + [-0.5 * length, 0], _scaled(_STEEL, light * 0.6)))
    return shapes


def _scissors(unit: float, pose: Pose) -> list[tuple[Points, Colour]]:
    rng = np.random.default_rng(pose.look)
    light = float(rng.uniform(0.95, 1.15))
    length, spread = 0.14 * unit, 0.35 + 0.5 * pose.opening
    shapes = _shaft(-0.5 * length, 0.022 * unit, _scaled((44, 46, 52), float(rng.uniform(0.7, 1.3))))
    for side in (-1, 1):
        blade = np.array([[-0.1, 0.0], [0.1, 0.1], [0.55, 0.08], [1.0, 0.0], [0.1, -0.04]]) * [
            length,
            side * 0.16 * unit,
        ]
        shapes.append((_turned(blade, side * spread / 2) + [-0.5 * length, 0], _scaled((225, 228, 232), light)))
    shapes.append((_disc(0.017 * unit) + [-0.5 * length, 0], (30, 30, 34)))
    shapes.append((_disc(0.008 * unit) + [-0.5 * length, 0], (190, 190, 196)))
    return shapes


def _needle(unit: float, pose: Pose) -> list[tuple[Points, Colour]]:
    rng = np.random.default_rng(pose.look)
    radius, thick = 0.062 * unit, 0.0075 * unit
    arc = np.linspace(-0.1, np.pi + 0.1, 22)
    taper = np.linspace(1.0, 0.25, 22)[:, None]
    ray = np.stack([np.cos(arc), np.sin(arc)], axis=1)
    curve = np.concatenate([ray * (radius + thick * taper), (ray * (radius - thick * taper))[::-1]])
    along = np.linspace(0, 1, 16)
    wave = radius * 0.35 * np.sin(along * float(rng.uniform(4, 7)))
    path = ray[0] * radius + np.stack([wave, -1.5 * radius * along], axis=1)
    thread = np.concatenate([path - [thick * 0.6, 0], (path + [thick * 0.6, 0])[::-1]])
    middle = np.array([0.0, 0.35 * radius])
    return [(thread - middle, _THREAD), (curve - middle, _scaled((222, 226, 232), float(rng.uniform(0.9, 1.1))))]


def _clip(unit: float, pose: Pose) -> list[tuple[Points, Colour]]:
    rng = np.random.default_rng(pose.look)
    length, gap, thick = 0.085 * unit, (0.012 + 0.016 * pose.opening) * unit, 0.0105 * unit
    colour = _scaled(_VIOLET, float(rng.uniform(0.85, 1.25)))
    shapes: list[tuple[Points, Colour]] = []
    for side in (-1, 1):
        leg = np.array([[-length / 2, -thick], [length / 2, -thick], [length / 2, thick], [-length / 2, thick]])
        shapes.append((leg + [0, side * gap], colour))
    back = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [thick, gap + thick] + [-length / 2, 0]
    hook = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [thick, 0.9 * thick] + [length / 2, gap - thick]
    shapes += [(back, colour), (hook, colour)]
    shine = np.array([[-0.4 * length, -0.3 * thick], [0.3 * length, -0.3 * thick], [0.3 * length, 0.2 * thick]])
    return [*shapes, (shine - [0, gap], _scaled(colour, 1.5))]


def _shaft(end: float, half: float, colour: Colour) -> list[tuple[Points, Colour]]:
    bands = []
    for low, high, light in ((-1.0, 1.0, 0.55), (-0.75, 0.7, 0.85), (-0.5, 0.2, 1.1), (-0.35, -0.1, 1.3)):
        far = end - 60 * half
        band = np.array([[far, low * half], [end, low * half], [end, high * half], [far, high * half]])
        bands.append((band, _scaled(colour, light)))
    return bands


def _bleed(pixels: Pixels, middle: Points, unit: float, pose: Pose, mask: Pixels | None) -> None:
    rng = np.random.default_rng(pose.look)
    turn = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    radius = np.full(48, 1.0)
    for harmonic in (2, 3, 5):
        radius += float(rng.uniform(0.04, 0.16)) * np.cos(harmonic * turn + float(rng.uniform(0, 6.3)))
    outline = np.stack([np.cos(turn) * 1.15, np.sin(turn) * 0.85], axis=1) * (0.078 * unit * radius)[:, None]
    drop = np.array([[-0.02, 0], [0.02, 0], [0.013, 0.13], [0, 0.145], [-0.013, 0.13]]) * unit
    shapes = [_turned(outline, pose.angle) + middle, drop + middle + [float(rng.uniform(-0.05, 0.05)) * unit, 0]]
    margin = int(0.03 * unit) + 3
    corners = np.concatenate(shapes)
    low = np.maximum(np.floor(corners.min(axis=0)).astype(int) - margin, 0)
    high = np.minimum(np.ceil(corners.max(axis=0)).astype(int) + margin, [pixels.shape[1], pixels.shape[0]])
    if np.any(high <= low):
        return
    alpha = np.zeros((int(high[1] - low[1]), int(high[0] - low[0])), np.uint8)
    for shape in shapes:
        cv2.fillPoly(alpha, [np.round((shape - low) * (1 << _SHIFT)).astype(np.int32)], 255, cv2.LINE_AA, _SHIFT)
    region = (slice(int(low[1]), int(high[1])), slice(int(low[0]), int(high[0])))
    if mask is not None:
        mask[region] = np.maximum(mask[region], alpha)
    soft = cv2.GaussianBlur(alpha, (0, 0), max(0.5, 0.006 * unit)).astype(np.float32)[..., None] * (0.94 / 255)
    blood = np.array([rng.uniform(112, 150), rng.uniform(0, 14), rng.uniform(4, 20)], np.float32)
    pixels[region] = (pixels[region] * (1 - soft) + blood * soft).astype(np.uint8)
    for _ in range(3):
        spot = middle + rng.normal(0, 0.03 * unit, 2)
        points = np.round((_disc(0.006 * unit) * [1.8, 0.8] + spot) * (1 << _SHIFT)).astype(np.int32)
        cv2.fillPoly(pixels, [points], (236, 190, 186), cv2.LINE_AA, _SHIFT)


def _vessels(pixels: Pixels, rng: np.random.Generator, extent: float) -> None:
    height, width = pixels.shape[:2]
    unit = float(np.sqrt(width * height)) / extent
    share = extent
    along = np.linspace(-0.7, 0.7, 40)
    for _ in range(round(int(rng.integers(1, 5)) * share)):
        bend = float(rng.uniform(-0.25, 0.25)) * np.sin(along * float(rng.uniform(2, 6)))
        path = _turned(np.stack([along, bend], axis=1) * unit, float(rng.uniform(0, 6.3)))
        path += rng.uniform(0.1, 0.9, 2) * [width, height]
        points = np.round(path * (1 << _SHIFT)).astype(np.int32)
        thickness = max(1, round(float(rng.uniform(0.003, 0.009)) * unit))
        shade = float(rng.uniform(0.8, 1.1))
        cv2.polylines(pixels, [points], False, (146 * shade, 52 * shade, 54 * shade), thickness, cv2.LINE_AA, _SHIFT)
    for _ in range(round(int(rng.integers(2, 9)) * share)):
        spot = rng.uniform(0.1, 0.9, 2) * [width, height]
        glint = _turned(_disc(float(rng.uniform(0.002, 0.008)) * unit) * [2.2, 0.7], float(rng.uniform(0, 3.1))) + spot
        cv2.fillPoly(pixels, [np.round(glint * (1 << _SHIFT)).astype(np.int32)], (250, 226, 220), cv2.LINE_AA, _SHIFT)


def _smooth_noise(width: int, height: int, cells: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    grid = rng.normal(0, 1, (cells, max(2, round(cells * width / height)))).astype(np.float32)
    return np.asarray(cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC), np.float32)


def _turned(points: Points, angle: float) -> Points:
    cos, sin = np.cos(angle), np.sin(angle)
    turned: Points = points @ np.array([[cos, sin], [-sin, cos]])
    return turned


def _disc(radius: float) -> Points:
    turn = np.linspace(0, 2 * np.pi, 20, endpoint=False)
    return np.stack([np.cos(turn), np.sin(turn)], axis=1) * radius


def _scaled(colour: Colour, factor: float) -> Colour:
    red, green, blue = (min(255.0, channel * factor) for channel in colour)
    return red, green, blue
