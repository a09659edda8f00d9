"""The embedded engine is held to transformers' own forward pass, pooled and native, chunked and whole."""

from pathlib import Path

import numpy as np
import pytest
import torch

from blocks import embedded_child
from blocks.access import LocalConfig
from blocks.access_open import open_access
from blocks.embedded_vlm import DEMO_WEIGHTS, EmbeddedVlm, read_card
from tasks.algorithms.pictures import luma_of, webp_bytes
from tasks.algorithms.pooling import plan_native, plan_threshold, token_scores
from tasks.algorithms.scenes import Pixels
from tasks.algorithms.token_math import patch_grid
from tasks.records.errors import ConfigurationError, EndpointTimeout
from tasks.records.inference import InferenceRequest, SegmentFrame
from tasks.records.pooling import PoolPlan
from tests.real_parts import require_cuda

CARD = read_card(DEMO_WEIGHTS)
SIZES = ((280, 224), (224, 280), (336, 168))  # the grids of several aspect ratios


def picture(index: int) -> Pixels:
    width, height = SIZES[index % len(SIZES)]
    rng = np.random.default_rng(index)
    rgb = np.full((height, width, 3), 90 + 20 * index, np.uint8)
    rgb[30:120, 20:110] = rng.integers(0, 255, (90, 90, 3))
    return rgb


@pytest.fixture
def segment(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[InferenceRequest, LocalConfig, list[PoolPlan]]:
    """Three pictures of unequal shape; the parameter says whether they are pooled."""
    config = LocalConfig(root=str(tmp_path))
    store = open_access(config)
    frames, plans = [], []
    for index in range(3):
        rgb = picture(index)
        grid = patch_grid(rgb.shape[1], rgb.shape[0], CARD.geometry)
        scores = token_scores(luma_of(rgb), CARD.geometry.token_px)
        plan = (
            plan_threshold(scores, grid_thw=grid, merge_size=CARD.merge_size, threshold=3.0, block_tokens=4)
            if request.param == "pooled"
            else plan_native(grid_thw=grid, merge_size=CARD.merge_size)
        )
        plans.append(plan)
        frames.append(
            SegmentFrame(
                image_uri=store.write_bytes(f"{index}.webp", webp_bytes(rgb, quality=None)),
                plan_uri=store.write_bytes(f"{index}.json", plan.model_dump_json().encode()),
                frame_index=index,
                pts_ns=index * 1_500_000_000,
                tokens=plan.pooled_tokens,
            )
        )
    question = InferenceRequest(
        request_id="r",
        media_id="m",
        segment_index=0,
        frames=tuple(frames),
        prompt="Describe the instruments and events in each frame.",
        max_output_tokens=12,
        prefill_chunk_tokens=1024,
        timeout_s=120,
    )
    return question, config, plans


def reference_logits(plans: list[PoolPlan], question: InferenceRequest, *, shift: int = 0) -> torch.Tensor:
    """Compute the logits after the prompt by another road: transformers' own positions and merging, then pooling.

    Args:
        shift: moves every vision position by this much, for the negative control.
    """
    engine = embedded_child.load_engine(DEMO_WEIGHTS)
    model, tokenizer = engine.model, engine.tokenizer
    text = tokenizer.apply_chat_template(
        embedded_child.chat_messages(question.frames, question.prompt), tokenize=False, add_generation_prompt=True
    )
    pad = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    for plan in plans:
        text = text.replace("<|image_pad|>", "<|wait|>" * plan.native_tokens, 1)
    ids = torch.tensor([tokenizer(text.replace("<|wait|>", "<|image_pad|>"), add_special_tokens=False)["input_ids"]])
    vision = ids == pad
    inputs = engine.processor(
        images=[picture(index) for index in range(len(plans))], do_resize=False, return_tensors="pt"
    )
    with torch.inference_mode():
        if all(plan.pooled_tokens == plan.native_tokens for plan in plans) and not shift:
            whole = model(input_ids=ids, mm_token_type_ids=vision.int(), **inputs)
            logits: torch.Tensor = whole.logits[0, -1]
            return logits
        positions, _ = model.model.get_rope_index(ids, vision.int(), image_grid_thw=inputs["image_grid_thw"])
        features = torch.cat(model.model.get_image_features(**inputs).pooler_output)
        table = model.get_input_embeddings()(ids)[0]
        rows: list[torch.Tensor] = []
        kept: list[torch.Tensor] = []
        at, taken = 0, 0
        while at < ids.shape[1]:
            if not vision[0, at]:
                rows.append(table[at])
                kept.append(positions[:, 0, at])
                at += 1
                continue
            plan = plans.pop(0)
            _, height, width = plan.token_grid_thw
            grid = features[taken : taken + height * width].reshape(height, width, -1)
            places = positions[:, 0, at : at + height * width].reshape(3, height, width)
            for _, row, column, size in plan.cells:
                cell = grid[row : row + size, column : column + size]
                rows.append(cell.reshape(-1, cell.shape[-1]).mean(0))
                middle = row + (cell.shape[0] - 1) // 2, column + (cell.shape[1] - 1) // 2
                kept.append(places[:, middle[0], middle[1]] + shift)
            taken += height * width
            at += height * width
        out = model.model.language_model(
            inputs_embeds=torch.stack(rows)[None], position_ids=torch.stack(kept, dim=1)[:, None]
        )
        logits = model.lm_head(out.last_hidden_state[0, -1])
        return logits


def engine_logits(question: InferenceRequest, config: LocalConfig, *, chunk: int) -> tuple[torch.Tensor, list[int]]:
    engine, store = embedded_child.load_engine(DEMO_WEIGHTS), open_access(config)
    with torch.inference_mode():
        pictures = [embedded_child.encode_picture(engine, store, frame) for frame in question.frames]
        prompt = embedded_child.build_prompt(engine, question, pictures)
        logits, _, steps = embedded_child.prefill(engine, prompt, chunk)
    return logits, steps


@pytest.mark.parametrize("segment", ["native", "pooled"], indirect=True)
def test_prefill_equals_transformers(segment: tuple[InferenceRequest, LocalConfig, list[PoolPlan]]) -> None:
    question, config, plans = segment
    ours, _ = engine_logits(question, config, chunk=1024)
    expected = reference_logits(list(plans), question)
    assert float((ours - expected).abs().max()) < 1e-4
    wrong = reference_logits(list(plans), question, shift=3)
    assert float((ours - wrong).abs().max()) > 1e-2, "wrong positions must show, or this test proves nothing"


@pytest.mark.parametrize("segment", ["pooled"], indirect=True)
def test_chunks_bound_each_step_and_change_nothing(
    segment: tuple[InferenceRequest, LocalConfig, list[PoolPlan]],
) -> None:
    question, config, _ = segment
    whole, one_step = engine_logits(question, config, chunk=1024)
    chunked, steps = engine_logits(question, config, chunk=16)
    assert len(one_step) == 1
    assert max(steps) == 16
    assert sum(steps) == sum(one_step)
    assert float((whole - chunked).abs().max()) < 1e-4


@pytest.mark.parametrize("segment", ["pooled"], indirect=True)
def test_answers_through_the_child_and_says_what_it_took(
    segment: tuple[InferenceRequest, LocalConfig, list[PoolPlan]],
) -> None:
    question, config, plans = segment
    engine = EmbeddedVlm()
    try:
        result = engine.answer(question, config)
        again = engine.answer(question.model_copy(update={"prefill_chunk_tokens": 32}), config)
    finally:
        engine.close()
    assert (result.start_ns, result.end_ns) == (0, 3_000_000_000)
    assert result.prompt_tokens == sum(result.prefill_steps) > sum(plan.pooled_tokens for plan in plans)
    assert again.text == result.text
    assert max(again.prefill_steps) == 32
    assert result.outcome in ("complete", "truncated")


@pytest.mark.parametrize("segment", ["pooled"], indirect=True)
def test_a_deadline_ends_the_answer_and_the_next_one_starts_anew(
    segment: tuple[InferenceRequest, LocalConfig, list[PoolPlan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    question, config, _ = segment
    monkeypatch.setattr("blocks.embedded_vlm._START_ALLOWANCE_S", 0.0)
    engine = EmbeddedVlm()
    try:
        with pytest.raises(EndpointTimeout):
            engine.answer(question.model_copy(update={"timeout_s": 0.2}), config)
        assert engine.answer(question, config).text is not None
    finally:
        engine.close()


@pytest.mark.parametrize("segment", ["pooled"], indirect=True)
def test_a_plan_for_another_grid_is_refused(
    segment: tuple[InferenceRequest, LocalConfig, list[PoolPlan]],
) -> None:
    question, config, _ = segment
    frames = (question.frames[0].model_copy(update={"plan_uri": question.frames[1].plan_uri}), *question.frames[1:])
    with pytest.raises(ConfigurationError, match="pool again"):
        engine_logits(question.model_copy(update={"frames": frames}), config, chunk=1024)


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        EmbeddedVlm(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="llama"):
        EmbeddedVlm(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_vl"}')
    with pytest.raises(ConfigurationError, match="lacks patch_size"):
        EmbeddedVlm(tmp_path)
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        EmbeddedVlm(tmp_path / "config.json")


def test_another_checkpoint_has_another_revision(tmp_path: Path) -> None:
    for name in ("config.json", "preprocessor_config.json", "scopeflow.json"):
        (tmp_path / name).write_bytes((DEMO_WEIGHTS / name).read_bytes())
    first = read_card(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert first.model == CARD.model
    assert read_card(tmp_path).revision != first.revision, "or its answers would be taken for the first one's"


@pytest.mark.gpu
@pytest.mark.parametrize("segment", ["pooled"], indirect=True)
def test_the_gpu_gives_the_answer_of_the_cpu(
    segment: tuple[InferenceRequest, LocalConfig, list[PoolPlan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_cuda()
    question, config, _ = segment
    embedded_child.load_engine.cache_clear()
    on_gpu, steps = engine_logits(question, config, chunk=32)
    embedded_child.load_engine.cache_clear()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    on_cpu, _ = engine_logits(question, config, chunk=32)
    embedded_child.load_engine.cache_clear()
    assert on_gpu.device.type == "cuda"
    assert max(steps) == 32
    assert int(on_gpu.argmax()) == int(on_cpu.argmax())
    # bfloat16 keeps 8 bits of mantissa; the logits of a trained model span tens.
    assert float((on_gpu.float().cpu() - on_cpu).abs().max()) < 0.05 * float(on_cpu.abs().max())
