"""Draw the pool of training scenes: ``python -m deployments.demo_model.render --out POOL``."""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2

from deployments.demo_model.data import SHARD_SCENES, render_shard, save_shard
from deployments.demo_model.settings import SETTINGS


def shard_sizes(shards: int) -> list[int]:
    """Return the picture size of each shard, in proportion to the shares and well mixed."""
    sizes: list[int] = []
    drawn = [0.0] * len(SETTINGS.picture_shares)
    for _ in range(shards):
        size = min(range(len(drawn)), key=lambda s: drawn[s] / SETTINGS.picture_shares[s])
        drawn[size] += 1
        sizes.append(size)
    return sizes


def _render_one(index: int, size: int, seed: int, folder: Path) -> None:
    cv2.setNumThreads(1)
    path = folder / f"{size}-{index:04d}.npz"
    if not path.exists():
        save_shard(render_shard(size, seed * 100_003 + index, SETTINGS), path)


def main() -> None:
    """Render the pool; shards already there are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=SETTINGS.seed)
    parser.add_argument("--scenes", type=int, default=SETTINGS.pool_scenes)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = shard_sizes(-(-options.scenes // SHARD_SCENES))
    with ProcessPoolExecutor(options.workers) as pool:
        waiting = [pool.submit(_render_one, i, s, options.seed, options.out) for i, s in enumerate(sizes)]
        for future in waiting:
            future.result()


if __name__ == "__main__":
    main()
