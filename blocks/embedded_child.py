"""The embedded engine's inside: encode pictures, pool their tokens, prefill in chunks, decode greedily."""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoTokenizer, DynamicCache, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from blocks.access import StoreAccess, config_from
from blocks.access_open import open_access
from tasks.algorithms.pooling import kept_positions, segment_ids
from tasks.algorithms.prompts import chat_messages
from tasks.records.errors import ConfigurationError
from tasks.records.inference import InferenceRequest, SegmentFrame
from tasks.records.pooling import PoolPlan

Emit = Callable[[dict[str, Any]], None]

_IMAGE_PAD = "<|image_pad|>"


@dataclass(frozen=True)
class Engine:
    """A loaded checkpoint."""

    model: Any
    tokenizer: Any
    processor: Any
    device: torch.device


@dataclass(frozen=True)
class Prompt:
    """A prompt ready to prefill.

    Attributes:
        embeddings: (L, D) text embeddings and pooled vision tokens in order.
        positions: (3, L) int64 M-RoPE positions (time, height, width).
        next_position: position of the first token of the answer.
    """

    embeddings: torch.Tensor
    positions: torch.Tensor
    next_position: int


def answer(request: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """Answer one question about one segment; see ``EmbeddedVlm.answer``."""
    engine = load_engine(Path(request["weights"]))
    store = open_access(config_from(request["access"]))
    question = InferenceRequest.model_validate(request["request"])
    started = time.monotonic()
    with torch.inference_mode():
        pictures = [encode_picture(engine, store, frame) for frame in question.frames]
        prompt = build_prompt(engine, question, pictures)
        logits, cache, steps = prefill(engine, prompt, question.prefill_chunk_tokens)
        tokens, complete = decode(engine, logits, cache, prompt.next_position, question.max_output_tokens, emit)
    text = engine.tokenizer.decode(tokens, skip_special_tokens=True).strip()
    return {
        "outcome": ("complete" if text else "refused") if complete else "truncated",
        "text": text,
        "prompt_tokens": prompt.embeddings.shape[0],
        "output_tokens": len(tokens),
        "latency_ms": (time.monotonic() - started) * 1000,
        "prefill_steps": steps,
    }


@lru_cache(maxsize=1)
def load_engine(weights: Path) -> Engine:
    """Load a Qwen2-VL checkpoint on the GPU if there is one, else on the CPU in float32."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    model = Qwen2VLForConditionalGeneration.from_pretrained(
        weights, dtype=torch.bfloat16 if gpu else torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    model.train(False).to(device)
    return Engine(
        model=model,
        tokenizer=AutoTokenizer.from_pretrained(weights, local_files_only=True),
        processor=Qwen2VLImageProcessorPil.from_pretrained(weights, local_files_only=True),
        device=device,
    )


def encode_picture(engine: Engine, store: StoreAccess, frame: SegmentFrame) -> tuple[PoolPlan, torch.Tensor]:
    """Encode one picture and pool its tokens by its plan.

    Returns:
        The plan and (K, D) pooled tokens, each the mean of its members' encoder outputs.

    Raises:
        ConfigurationError: the plan was made for another model's grid.
    """
    plan = PoolPlan.model_validate_json(store.read_bytes(frame.plan_uri))
    with Image.open(io.BytesIO(store.read_bytes(frame.image_uri))) as picture:
        inputs = engine.processor(images=picture.convert("RGB"), do_resize=False, return_tensors="pt")
    grid = tuple(int(n) for n in inputs["image_grid_thw"][0])
    merge = engine.model.config.vision_config.spatial_merge_size
    if grid != plan.grid_thw or merge != plan.merge_size:
        raise ConfigurationError(f"the pool plan is for grid {plan.grid_thw}, the model sees {grid}; pool again")
    visual = engine.model.model.visual
    encoded = visual(
        inputs["pixel_values"].to(engine.device, visual.dtype), grid_thw=inputs["image_grid_thw"].to(engine.device)
    )
    native = (encoded if isinstance(encoded, torch.Tensor) else encoded.pooler_output).float()
    owner = torch.from_numpy(segment_ids(plan)).to(engine.device)
    total = torch.zeros(plan.pooled_tokens, native.shape[1], device=engine.device).index_add_(0, owner, native)
    members = torch.bincount(owner, minlength=plan.pooled_tokens).unsqueeze(1)
    return plan, total / members


def build_prompt(engine: Engine, question: InferenceRequest, pictures: list[tuple[PoolPlan, torch.Tensor]]) -> Prompt:
    """Lay out text and pooled pictures with the positions that they would have without pooling.

    The text after a picture starts at ``start + max(t, rows, columns)``, whatever the plan.
    """
    text = engine.tokenizer.apply_chat_template(
        chat_messages(question.frames, question.prompt), tokenize=False, add_generation_prompt=True
    )
    pad_id = engine.tokenizer.convert_tokens_to_ids(_IMAGE_PAD)
    ids = engine.tokenizer(text, add_special_tokens=False)["input_ids"]
    if ids.count(pad_id) != len(pictures):
        raise ConfigurationError(f"the question contains {_IMAGE_PAD}; leave the model's own tokens out of it")
    embed = engine.model.get_input_embeddings()
    table = embed(torch.tensor(ids, device=engine.device))
    rows: list[torch.Tensor] = []
    positions: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    start, waiting = 0, iter(pictures)
    for index, token in enumerate(ids):
        if token == pad_id:
            plan, vision = next(waiting)
            rows.append(vision.to(table.dtype))
            positions.append(start + kept_positions(plan).T)
            start += max(plan.token_grid_thw)
        else:
            rows.append(table[index : index + 1])
            positions.append(np.full((3, 1), start, dtype=np.int64))
            start += 1
    return Prompt(torch.cat(rows), torch.from_numpy(np.concatenate(positions, axis=1)).to(engine.device), start)


def prefill(engine: Engine, prompt: Prompt, chunk_tokens: int) -> tuple[torch.Tensor, DynamicCache, list[int]]:
    """Run the prompt through the model in chunks against one KV cache, so that the chunk sets the peak memory.

    Returns:
        (V,) logits after the last token, the cache, and the context tokens of each step.
    """
    language, cache = engine.model.model.language_model, DynamicCache(config=engine.model.config.get_text_config())
    hidden, steps = None, []
    for begin in range(0, prompt.embeddings.shape[0], chunk_tokens):
        chunk = prompt.embeddings[begin : begin + chunk_tokens]
        hidden = language(
            inputs_embeds=chunk.unsqueeze(0),
            position_ids=prompt.positions[:, begin : begin + chunk_tokens].unsqueeze(1),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        steps.append(chunk.shape[0])
    assert hidden is not None
    return engine.model.lm_head(hidden[0, -1]), cache, steps


def decode(
    engine: Engine, logits: torch.Tensor, cache: DynamicCache, position: int, max_tokens: int, emit: Emit
) -> tuple[list[int], bool]:
    """Continue greedily until the end token or the limit.

    Returns:
        The tokens without the end token, and whether the model ended by itself.
    """
    ends = engine.model.generation_config.eos_token_id
    end_ids = set(ends if isinstance(ends, list) else [ends])
    tokens: list[int] = []
    told = time.monotonic()
    while True:
        token = int(logits.argmax())
        if token in end_ids:
            return tokens, True
        tokens.append(token)
        if len(tokens) == max_tokens:
            return tokens, False
        if time.monotonic() - told > 1.0:
            told = time.monotonic()
            emit({"done": len(tokens), "total": max_tokens, "unit": "answer tokens"})
        hidden = engine.model.model.language_model(
            inputs_embeds=engine.model.get_input_embeddings()(torch.tensor([[token]], device=engine.device)),
            position_ids=torch.full((3, 1, 1), position, device=engine.device),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        position += 1
        logits = engine.model.lm_head(hidden[0, -1])
