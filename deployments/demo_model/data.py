"""Training and evaluation examples: a pool of rendered scenes on disk, flips and pool plans drawn from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from deployments.demo_model import text
from deployments.demo_model.model import Prompt, build_prompt
from deployments.demo_model.settings import DemoSettings
from tasks.algorithms.pooling import plan_from_cells, plan_native, plan_threshold, token_scores
from tasks.algorithms.scenes import PLACED_KINDS, PLACES, SMOKE, Finding, Pixels, draw_scene, sensor_noise
from tasks.records.pooling import Cell, PoolPlan

SHARD_SCENES = 250
BLOCK_TOKENS = 4
DENSE_CLASSES = 1 + len(PLACED_KINDS) * len(PLACES)
_COVERED = 0.06


@dataclass(frozen=True)
class Shard:
    """Scenes of one picture size on the model's grid.

    pixels (n, h, w, 3) uint8; dense (n, rows, columns) uint8, 0 or 1 + kind x 4 + place of what covers the token;
    kinds (n, 4) uint8, 0 or 1 + kind at each place; smoke (n,) bool.
    """

    pixels: Pixels
    dense: Pixels
    kinds: Pixels
    smoke: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Batch:
    """One step: B pictures, each of which stands in several prompts under different plans.

    pixels (B, H, W, 3); dense (B, rows, columns); smoke (B,); ``order`` (F,) is the picture of each frame, prompt by
    prompt, ``plans`` (F) its plan.
    """

    pixels: Pixels
    dense: npt.NDArray[np.int64]
    smoke: npt.NDArray[np.bool_]
    order: npt.NDArray[np.int64]
    plans: list[PoolPlan]
    prompts: list[Prompt]


def grid_pixels(width: int, height: int, settings: DemoSettings) -> tuple[int, int]:
    """Return (height, width) in pixels to which the image processor resizes a picture."""
    rows, columns = smart_resize(height, width, settings.token_px, settings.min_pixels, settings.max_pixels)
    return int(rows), int(columns)


def resize_picture(pixels: Pixels, settings: DemoSettings) -> Pixels:
    """Resize a picture to the model's grid as the image processor does, bicubic."""
    height, width = grid_pixels(pixels.shape[1], pixels.shape[0], settings)
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))


def render_shard(size: int, seed: int, settings: DemoSettings, count: int = SHARD_SCENES) -> Shard:
    """Draw ``count`` scenes of the picture size with that index, some of them with compression artefacts."""
    rng = np.random.default_rng([seed, size])
    px = settings.token_px
    pixels, dense, kinds, smoke = [], [], [], []
    for index in range(count):
        scale = float(rng.uniform(0.6, 1.1))
        width, height = (round(edge * scale) for edge in settings.picture_sizes[size])
        scene = draw_scene(width, height, int(rng.integers(1 << 62)) + index)
        picture = scene.pixels
        if rng.random() < 0.35:
            quality = int(rng.integers(35, 92))
            coded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
            picture = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)
        picture = resize_picture(picture, settings)
        rows, columns = picture.shape[0] // px, picture.shape[1] // px
        label = np.zeros((rows, columns), np.uint8)
        best = np.full((rows, columns), _COVERED * 255, np.float32)
        at_place = np.zeros(len(PLACES), np.uint8)
        for finding, mask in scene.masks:
            kind, place = PLACED_KINDS.index(finding.kind), PLACES.index(finding.place or "")
            cover = cv2.resize(mask.astype(np.uint8) * 255, (columns, rows), interpolation=cv2.INTER_AREA)
            label[cover > best] = 1 + kind * len(PLACES) + place
            best = np.maximum(best, cover)
            at_place[place] = 1 + kind
        pixels.append(picture)
        dense.append(label)
        kinds.append(at_place)
        smoke.append(any(finding.kind == SMOKE for finding in scene.findings))
    return Shard(np.stack(pixels), np.stack(dense), np.stack(kinds), np.array(smoke))


def save_shard(shard: Shard, path: Path) -> None:
    """Write a shard; it appears under its name only when complete."""
    part = path.with_suffix(".part")
    with part.open("wb") as stream:
        np.savez(stream, pixels=shard.pixels, dense=shard.dense, kinds=shard.kinds, smoke=shard.smoke)
    part.rename(path)


def load_shard(path: Path) -> Shard:
    """Read a shard."""
    with np.load(path) as arrays:
        return Shard(arrays["pixels"], arrays["dense"], arrays["kinds"], arrays["smoke"])


def flip_shard(shard: Shard, *, across: bool, down: bool) -> Shard:
    """Mirror every scene left to right and/or upside down, its places with it."""
    order = np.arange(len(PLACES)).reshape(2, 2)[:: -1 if down else 1, :: -1 if across else 1].reshape(-1)
    lookup = np.zeros(DENSE_CLASSES, np.uint8)
    for kind, place in np.ndindex(len(PLACED_KINDS), len(PLACES)):
        lookup[1 + kind * len(PLACES) + place] = 1 + kind * len(PLACES) + order[place]
    turn = (slice(None), slice(None, None, -1 if down else 1), slice(None, None, -1 if across else 1))
    return Shard(shard.pixels[turn], lookup[shard.dense][turn], shard.kinds[:, order], shard.smoke)


def findings_at(kinds: Pixels, smoke: bool) -> list[Finding]:
    """Return what is to be seen in a scene of a shard, in the answer's order."""
    placed = [Finding(PLACED_KINDS[kind - 1], place) for kind, place in zip(kinds, PLACES, strict=True) if kind]
    return [*placed, Finding(SMOKE)] if smoke else placed


def scores_of(pixels: Pixels, settings: DemoSettings) -> npt.NDArray[np.float32]:
    """Score the tokens of a picture on the model's grid, (H, W, 3) to (rows, columns)."""
    return token_scores(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), settings.token_px)


def draw_plan(scores: npt.NDArray[np.float32], dense: Pixels, random: Random, settings: DemoSettings) -> PoolPlan:
    """Draw a plan: native, 4x4 blocks under a random threshold, or a random quadtree that follows objects or pixels."""
    rows, columns = dense.shape
    grid = (1, rows * settings.merge, columns * settings.merge)
    roll = random.random()
    if roll < 1 / 3:
        return plan_native(grid_thw=grid, merge_size=settings.merge)
    if roll < 2 / 3:
        threshold = (
            float(np.quantile(scores, random.uniform(0.3, 0.95))) if random.random() < 0.5 else random.uniform(1, 6)
        )
        return plan_threshold(
            scores, grid_thw=grid, merge_size=settings.merge, threshold=threshold, block_tokens=BLOCK_TOKENS
        )
    cut = float(np.quantile(scores, random.uniform(0.4, 0.95)))
    detailed = dense > 0 if random.random() < 0.5 else scores > cut
    split, keep = random.uniform(0.0, 0.4), random.uniform(0.0, 0.15)
    cells: list[Cell] = []

    def grow(row: int, column: int, size: int) -> None:
        if row >= rows or column >= columns:
            return
        chance = 1 - keep if detailed[row : row + size, column : column + size].any() else split
        if size == 1 or random.random() >= (1.0 if size == 8 and chance > 0.5 else chance):
            cells.append((0, row, column, size))
            return
        half = size // 2
        for r, c in np.ndindex(2, 2):
            grow(row + r * half, column + c * half, half)

    for row in range(0, rows, 8):
        for column in range(0, columns, 8):
            grow(row, column, 8)
    return plan_from_cells(cells, grid_thw=grid, merge_size=settings.merge)


def draw_stamps(count: int, random: Random) -> list[float | None]:
    """Draw rising times in seconds with one decimal, or none for stills."""
    if random.random() < 0.12:
        return [None] * count
    start = random.choice((random.uniform(0, 30), random.uniform(0, 600), random.uniform(0, 9000)))
    times: list[float | None] = []
    for _ in range(count):
        times.append(round(start, 1))
        start += random.choice((random.uniform(0.1, 2), random.uniform(0.5, 20), random.uniform(5, 300)))
    return times


def draw_prompt(tokenizer: Any, findings: list[list[Finding]], plans: list[PoolPlan], random: Random) -> Prompt:
    """Draw stamps and a question for some frames and lay out the prompt with its answer."""
    times = draw_stamps(len(plans), random)
    stamps = [text.stamp(seconds, number) for number, seconds in enumerate(times, 1)]
    lines = [
        text.answer_line(seen, seconds, number)
        for number, (seen, seconds) in enumerate(zip(findings, times, strict=True), 1)
    ]
    return build_prompt(tokenizer, stamps, plans, text.draw_question(random), "\n".join(lines))


def batches(folder: Path, tokenizer: Any, settings: DemoSettings, seed: int) -> Iterator[Batch]:
    """Draw batches without end from the shards in a folder; shards that appear later are used from then on."""
    random, rng = Random(seed), np.random.default_rng(seed)
    loaded: dict[int, list[Shard]] = {size: [] for size in range(len(settings.picture_sizes))}
    known: set[Path] = set()
    for step in range(1 << 62):
        if step % 50 == 0:
            for path in sorted(set(folder.glob("*.npz")) - known):
                loaded[int(path.stem.split("-")[0])].append(load_shard(path))
                known.add(path)
        sizes = [size for size, shards in loaded.items() if shards]
        size = random.choices(sizes, [settings.picture_shares[size] for size in sizes])[0]
        frames = random.choices(settings.frame_counts, settings.frame_count_shares)[0]
        count = settings.frames_per_step // frames * frames
        shard = loaded[size][random.randrange(len(loaded[size]))]
        chosen = rng.choice(len(shard.smoke), count, replace=False)
        part = Shard(shard.pixels[chosen], shard.dense[chosen], shard.kinds[chosen], shard.smoke[chosen])
        part = flip_shard(part, across=random.random() < 0.5, down=random.random() < 0.5)
        pixels = _relight(part.pixels, rng)
        scores = [scores_of(picture, settings) for picture in pixels]
        seen = [findings_at(kinds, bool(smoke)) for kinds, smoke in zip(part.kinds, part.smoke, strict=True)]
        order = np.concatenate([rng.permutation(count) for _ in range(settings.prompts_per_frame)])
        plans = [draw_plan(scores[index], part.dense[index], random, settings) for index in order]
        prompts = [
            draw_prompt(
                tokenizer,
                [seen[index] for index in order[start : start + frames]],
                plans[start : start + frames],
                random,
            )
            for start in range(0, len(order), frames)
        ]
        yield Batch(pixels, part.dense.astype(np.int64), part.smoke, order, plans, prompts)


def _relight(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Vary gain and tint of each picture a little and add noise."""
    lit = np.empty_like(pixels)
    for index, picture in enumerate(pixels):
        gain = rng.uniform(0.85, 1.12) * rng.uniform(0.95, 1.05, 3)
        levels = np.clip(np.arange(256)[:, None] * gain, 0, 255).astype(np.uint8)[:, None, :]
        noise = sensor_noise(picture.shape[1], picture.shape[0], float(rng.uniform(0, 2.5)), rng)
        lit[index] = cv2.add(cv2.LUT(np.ascontiguousarray(picture), levels), noise, dtype=cv2.CV_8U)
    return lit
