"""pool-patches: decide for each keyframe which vision tokens become one."""

from typing import Any

from prefect import task

from blocks.access import StoreAccess
from blocks.embedded_vlm import ModelCard
from blocks.media_store import MediaStore
from blocks.run_view import StageProgress, table_artifact
from tasks.algorithms.overlay import pool_overlay
from tasks.algorithms.pictures import fit_picture, luma_of, read_picture, webp_bytes
from tasks.algorithms.pooling import plan_native, plan_threshold, token_scores
from tasks.algorithms.token_math import patch_grid, shown_size
from tasks.policy import RETRIES, cached_as, sealed
from tasks.records.base import digest_of
from tasks.records.errors import UnsupportedMedia
from tasks.records.keyframes import Keyframe, KeyframeSet
from tasks.records.pooling import PoolAccount, PooledFrame
from tasks.records.specs import PoolSpec

_OVERLAY_WIDTH_PX = 600


def _digest(parameters: dict[str, Any]) -> tuple[str, str]:
    chosen, card = parameters["chosen"], parameters["card"]
    geometry = (card.patch_px, card.merge_size, card.min_pixels, card.max_pixels)
    return chosen.media_id, digest_of(chosen, parameters["spec"], geometry)


@task(name="pool-patches", **RETRIES, **cached_as("pool-patches", _digest))
@sealed
def pool_patches(chosen: KeyframeSet, spec: PoolSpec, card: ModelCard, store: MediaStore) -> PoolAccount:
    """Resize each keyframe to the model's grid and plan its pooling from the pixels the encoder will see."""
    access = store.access()
    _, digest = _digest({"chosen": chosen, "spec": spec, "card": card})
    folder = f"pooling/{chosen.media_id}/{digest}"
    frames: list[PooledFrame] = []
    with StageProgress("pool-patches") as progress:
        for keyframe in chosen.keyframes:
            frames.append(_pool_one(keyframe, spec, card, access, folder))
            progress.show({"done": len(frames), "total": len(chosen.keyframes), "unit": "keyframes"})
    account = PoolAccount(
        frames=tuple(frames),
        native_tokens=sum(frame.native_tokens for frame in frames),
        pooled_tokens=sum(frame.pooled_tokens for frame in frames),
    )
    table_artifact("token-account", _account_rows(account), description="Vision tokens before and after pooling")
    return account


def _pool_one(keyframe: Keyframe, spec: PoolSpec, card: ModelCard, access: StoreAccess, folder: str) -> PooledFrame:
    assert keyframe.image_uri is not None
    picture = read_picture(access.read_bytes(keyframe.image_uri, max_bytes=512 << 20))
    height, width = picture.shape[:2]
    try:
        size = shown_size(width, height, card.geometry)
    except ValueError as error:
        raise UnsupportedMedia(f"frame {keyframe.frame_index}: {error}") from None
    shown = fit_picture(picture, *size)
    grid = patch_grid(*size, card.geometry)
    if spec.mode == "off":
        plan = plan_native(grid_thw=grid, merge_size=card.merge_size)
    else:
        plan = plan_threshold(
            token_scores(luma_of(shown), card.geometry.token_px),
            grid_thw=grid,
            merge_size=card.merge_size,
            threshold=spec.threshold,
            block_tokens=spec.block_tokens,
        )
    name = f"{folder}/{keyframe.frame_index:08d}"
    overlay = pool_overlay(shown, plan, width_px=_OVERLAY_WIDTH_PX)
    return PooledFrame(
        frame_index=keyframe.frame_index,
        image_uri=access.write_bytes(f"{name}.webp", webp_bytes(shown, quality=None), content_type="image/webp"),
        image_size_px=size,
        plan_uri=access.write_bytes(
            f"{name}.plan.json", plan.model_dump_json().encode(), content_type="application/json"
        ),
        overlay_uri=access.write_bytes(
            f"{name}.overlay.webp", webp_bytes(overlay, quality=80), content_type="image/webp"
        ),
        native_tokens=plan.native_tokens,
        pooled_tokens=plan.pooled_tokens,
    )


def _account_rows(account: PoolAccount) -> list[dict[str, Any]]:
    rows = [
        {
            "frame": frame.frame_index,
            "native tokens": frame.native_tokens,
            "pooled tokens": frame.pooled_tokens,
            "saved": f"{1 - frame.pooled_tokens / frame.native_tokens:.0%}",
        }
        for frame in account.frames
    ]
    total = {
        "frame": "all",
        "native tokens": account.native_tokens,
        "pooled tokens": account.pooled_tokens,
        "saved": f"{1 - account.pooled_tokens / account.native_tokens:.0%}",
    }
    return [*rows, total]
