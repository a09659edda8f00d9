"""The demo model itself: a small Qwen2-VL, its checkpoint folder, and one pooled prompt as embeddings and positions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from deployments.demo_model import text
from deployments.demo_model.settings import MODEL_NAME, NOTICE, DemoSettings
from tasks.algorithms.pooling import kept_positions, segment_ids
from tasks.records.pooling import PoolPlan

Ints = npt.NDArray[np.int64]


def build_model(settings: DemoSettings, tokenizer: Any) -> Any:
    """Build a ``Qwen2VLForConditionalGeneration`` with random weights, its ids those of the tokenizer."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in text.SPECIAL_TOKENS}
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": settings.vocabulary,
            "hidden_size": settings.width,
            "intermediate_size": settings.language_mlp,
            "num_hidden_layers": settings.language_layers,
            "num_attention_heads": settings.heads,
            "num_key_value_heads": settings.heads,
            "max_position_embeddings": settings.max_positions,
            "max_window_layers": settings.language_layers,
            "rms_norm_eps": 1e-6,
            "initializer_range": settings.initial_sigma,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": settings.rope_theta,
                "mrope_section": list(settings.mrope_section),
            },
            "bos_token_id": ids[text.END_OF_TEXT],
            "eos_token_id": ids[text.IM_END],
            "pad_token_id": ids[text.END_OF_TEXT],
        },
        vision_config={
            "depth": settings.vision_layers,
            "embed_dim": settings.width,
            "hidden_size": settings.width,
            "num_heads": settings.heads,
            "patch_size": settings.patch_px,
            "spatial_merge_size": settings.merge,
            "temporal_patch_size": 2,
            "initializer_range": settings.initial_sigma,
        },
        image_token_id=ids[text.IMAGE_PAD],
        video_token_id=ids[text.VIDEO_PAD],
        vision_start_token_id=ids[text.VISION_START],
        vision_end_token_id=ids[text.VISION_END],
        tie_word_embeddings=True,
        **{
            "bos_token_id": ids[text.END_OF_TEXT],
            "eos_token_id": ids[text.IM_END],
            "pad_token_id": ids[text.END_OF_TEXT],
        },
    )
    return Qwen2VLForConditionalGeneration(config)  # type: ignore[no-untyped-call]


def save_checkpoint(model: Any, tokenizer: Any, settings: DemoSettings, folder: Path) -> None:
    """Write a checkpoint folder that transformers and vLLM load, weights in bfloat16."""
    import copy

    from transformers import GenerationConfig, Qwen2VLImageProcessorPil

    folder.mkdir(parents=True, exist_ok=True)
    half = copy.deepcopy(model).to(torch.bfloat16)
    half.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False,
        eos_token_id=[half.config.text_config.eos_token_id, half.config.text_config.pad_token_id],
        pad_token_id=half.config.text_config.pad_token_id,
        bos_token_id=half.config.text_config.bos_token_id,
    )
    half.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor = Qwen2VLImageProcessorPil(
        min_pixels=settings.min_pixels,
        max_pixels=settings.max_pixels,
        patch_size=settings.patch_px,
        merge_size=settings.merge,
        temporal_patch_size=2,
        image_mean=list(settings.image_mean),
        image_std=list(settings.image_sigma),
    )
    processor.save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    fields = json.loads(path.read_text())
    fields |= {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
        "min_pixels": settings.min_pixels,
        "max_pixels": settings.max_pixels,
    }
    path.write_text(json.dumps(fields, indent=2) + "\n")
    facts = {
        "model": MODEL_NAME,
        "notice": NOTICE,
        "max_segment_frames": settings.max_segment_frames,
    }
    (folder / "scopeflow.json").write_text(json.dumps(facts, indent=2) + "\n")


@dataclass(frozen=True)
class Prompt:
    """Token ids (L,), M-RoPE positions (3, L), where the kept vision tokens go (L,), and the first answer position."""

    ids: Ints
    positions: Ints
    is_vision: npt.NDArray[np.bool_]
    answer_start: int


def build_prompt(
    tokenizer: Any, stamps: Sequence[str], plans: Sequence[PoolPlan], question: str, answer: str | None = None
) -> Prompt:
    """Lay out one user message (stamp and picture of each frame, then the question) and, if given, its answer.

    A kept token stands at the picture's start plus its kept position; text after a picture goes on where it would
    without pooling.
    """
    image_pad = tokenizer.convert_tokens_to_ids(text.IMAGE_PAD)
    head = f"{text.IM_START}system\n{text.DEFAULT_SYSTEM}{text.IM_END}\n{text.IM_START}user\n"
    ids: list[Ints] = []
    positions: list[Ints] = []
    position = 0

    def add_text(words: str) -> None:
        nonlocal position
        encoded = np.array(tokenizer.encode(words, add_special_tokens=False), dtype=np.int64)
        ids.append(encoded)
        positions.append(np.tile(np.arange(position, position + len(encoded)), (3, 1)))
        position += len(encoded)

    for index, (words, plan) in enumerate(zip(stamps, plans, strict=True)):
        opening = head if index == 0 else text.VISION_END
        add_text(opening + words + text.VISION_START)
        kept = kept_positions(plan)
        ids.append(np.full(len(kept), image_pad))
        positions.append(position + kept.T)
        position += max(plan.token_grid_thw)
    add_text(f"{text.VISION_END}{question}{text.IM_END}\n{text.IM_START}assistant\n")
    answer_start = sum(map(len, ids))
    if answer is not None:
        add_text(answer + text.IM_END)
    flat = np.concatenate(ids)
    return Prompt(flat, np.concatenate(positions, axis=1), flat == image_pad, answer_start)


def patches_of(pixels: npt.NDArray[np.uint8], settings: DemoSettings) -> torch.Tensor:
    """Cut pictures already on the model's grid, (B, H, W, 3) uint8, into normalised patches (B, N, 1176) float32.

    The order is the image processor's: merged tokens in raster order, the patches of each together.
    """
    batch, height, width, _ = pixels.shape
    p, m = settings.patch_px, settings.merge
    image = torch.tensor(pixels).float().div_(255)
    image = (image - torch.tensor(settings.image_mean)) / torch.tensor(settings.image_sigma)
    rows, columns = height // (p * m), width // (p * m)
    cut = image.view(batch, rows, m, p, columns, m, p, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)
    single = cut.reshape(batch, rows * columns * m * m, 3, 1, p * p)
    return single.expand(-1, -1, -1, 2, -1).reshape(batch, rows * columns * m * m, -1)


def encode_pictures(model: Any, patches: torch.Tensor, grid_hw: tuple[int, int]) -> torch.Tensor:
    """Run the vision tower on B pictures of one patch grid at once: (B, N, 1176) to (B, N / merge^2, width).

    It is the stock tower written with a batch axis, which is much faster on a CPU; a test holds it to the original.
    """
    tower = model.model.visual
    batch, count, _ = patches.shape
    heads = tower.blocks[0].attn.num_heads
    # A still picture is the same in both time slices of a patch, so the kernel's slices add up.
    kernel = tower.patch_embed.proj.weight
    slices = patches.view(batch, count, *kernel.shape[1:3], -1)
    hidden = functional.linear(slices[:, :, :, 0].flatten(2), kernel.sum(dim=2).flatten(1))
    h, w = grid_hw
    m = tower.spatial_merge_size
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    order = [axis.reshape(h // m, m, w // m, m).permute(0, 2, 1, 3).reshape(-1) for axis in (rows, columns)]
    angles = torch.cat([axis[:, None].float() * tower.rotary_pos_emb.inv_freq for axis in order], dim=-1)
    cos, sin = angles.cos(), angles.sin()

    def turn(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    for block in tower.blocks:
        qkv = block.attn.qkv(block.norm1(hidden)).view(batch, count, 3, heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(turn(qkv[0]), turn(qkv[1]), qkv[2])
        hidden = hidden + block.attn.proj(mixed.transpose(1, 2).reshape(batch, count, -1))
        hidden = hidden + block.mlp(block.norm2(hidden))
    merged: torch.Tensor = tower.merger(hidden)
    return merged.view(batch, count // m**2, -1)


def pool_means(tokens: torch.Tensor, plans: Sequence[PoolPlan]) -> torch.Tensor:
    """Average the members of each cell: (B, N, width) native tokens to (sum of kept tokens, width)."""
    offset = 0
    owners = []
    for plan in plans:
        owners.append(segment_ids(plan) + offset)
        offset += plan.pooled_tokens
    owner = torch.from_numpy(np.concatenate(owners))
    sums = tokens.new_zeros(offset, tokens.shape[-1]).index_add(0, owner, tokens.flatten(0, 1))
    return sums / torch.bincount(owner, minlength=offset)[:, None]


def batch_inputs(
    model: Any, prompts: Sequence[Prompt], kept: torch.Tensor, pad_id: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pad prompts on the right; return ids (B, L), embeddings with the vision tokens in place, positions (3, B, L)."""
    length = max(len(prompt.ids) for prompt in prompts)
    ids = torch.full((len(prompts), length), pad_id)
    positions = torch.zeros((3, len(prompts), length), dtype=torch.long)
    vision = torch.zeros((len(prompts), length), dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt.ids)] = torch.from_numpy(prompt.ids)
        positions[:, row, : len(prompt.ids)] = torch.from_numpy(prompt.positions)
        vision[row, : len(prompt.ids)] = torch.from_numpy(prompt.is_vision)
    embeds = model.model.language_model.embed_tokens(ids)
    return ids, embeds.masked_scatter(vision[..., None], kept), positions
