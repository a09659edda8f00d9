import json
import re
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from deployments.demo_model import text
from deployments.demo_model.data import draw_plan, flip_shard, render_shard, resize_picture, scores_of
from deployments.demo_model.evaluate import held_out_scenes, load_model, measure, native_plan, threshold_planner
from deployments.demo_model.model import build_prompt, encode_pictures, patches_of, pool_means
from deployments.demo_model.settings import SETTINGS, WEIGHTS
from tasks.algorithms.pooling import kept_positions, plan_from_cells
from tasks.algorithms.prompts import stamp_text
from tasks.algorithms.scenes import Finding

CARD = WEIGHTS.parent / "README.md"
HELD_OUT_SEED = 31_000_000


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    torch.set_num_threads(2)
    return load_model(WEIGHTS)


@pytest.fixture(scope="module")
def tokenizer(loaded: tuple[Any, Any]) -> Any:
    return loaded[1]


def test_the_weights_are_small() -> None:
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 8_000_000


def test_ids_of_config_and_tokenizer_agree(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    config = model.config
    named = {
        text.IMAGE_PAD: config.image_token_id,
        text.VIDEO_PAD: config.video_token_id,
        text.VISION_START: config.vision_start_token_id,
        text.VISION_END: config.vision_end_token_id,
        text.IM_END: config.text_config.eos_token_id,
        text.END_OF_TEXT: config.text_config.pad_token_id,
    }
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in named} == named
    assert len(tokenizer) == config.text_config.vocab_size == SETTINGS.vocabulary
    assert tokenizer.eos_token_id in model.generation_config.eos_token_id


def test_auto_classes_load_the_folder() -> None:
    from transformers import AutoImageProcessor, AutoTokenizer

    processor = AutoImageProcessor.from_pretrained(WEIGHTS, backend="pil")
    assert (processor.patch_size, processor.merge_size) == (SETTINGS.patch_px, SETTINGS.merge)
    assert len(AutoTokenizer.from_pretrained(WEIGHTS)) == SETTINGS.vocabulary


@pytest.mark.parametrize(
    "words", ["zürich 你好 🙂 \x00\t\n", "Where's the tool?", "<|im_endx|>", "12.3 s: no instruments."]
)
def test_text_comes_back_from_its_tokens(words: str, tokenizer: Any) -> None:
    assert tokenizer.decode(tokenizer.encode(words)) == words


def test_every_byte_has_a_token(tokenizer: Any) -> None:
    every = "".join(map(chr, range(0x80))) + "".join(chr(0x80 + 0x111 * step) for step in range(200))
    assert tokenizer.decode(tokenizer.encode(every)) == every
    assert len({token for token in tokenizer.get_vocab() if len(token) == 1}) == 256


def test_pictures_become_the_processors_patches() -> None:
    from transformers import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil.from_pretrained(WEIGHTS)
    picture = np.random.default_rng(0).integers(0, 255, (360, 640, 3), dtype=np.uint8)
    given = processor(images=[Image.fromarray(picture)], return_tensors="pt")
    ours = resize_picture(picture, SETTINGS)
    assert given["image_grid_thw"].tolist() == [[1, ours.shape[0] // 14, ours.shape[1] // 14]]
    assert torch.allclose(given["pixel_values"], patches_of(ours[None], SETTINGS)[0], atol=1e-5)


def test_the_batched_tower_is_the_stock_tower(loaded: tuple[Any, Any]) -> None:
    model, _ = loaded
    pictures = np.stack([sample.pixels for sample in held_out_scenes(6, SETTINGS) if sample.pixels.shape[1] == 336][:2])
    grid = pictures.shape[1] // 14, pictures.shape[2] // 14
    patches = patches_of(pictures, SETTINGS)
    with torch.inference_mode():
        ours = encode_pictures(model, patches, grid).flatten(0, 1)
        grids = torch.tensor([[1, *grid]] * len(pictures))
        stock = model.model.visual(patches.flatten(0, 1), grid_thw=grids).pooler_output
    assert torch.allclose(ours, stock, atol=1e-4)


def test_a_prompt_is_the_chat_template_with_kept_tokens_at_their_positions(tokenizer: Any) -> None:
    pooled = plan_from_cells([(0, 0, 0, 4), (0, 0, 4, 4)], grid_thw=(1, 8, 12), merge_size=2)
    stamps = [stamp_text(12_340_000_000, 1), stamp_text(None, 2)]
    prompt = build_prompt(tokenizer, stamps, [pooled, pooled], text.DEFAULT_QUESTION)
    content: list[dict[str, str]] = []
    for stamp in stamps:
        content += [{"type": "text", "text": stamp}, {"type": "image"}]
    content.append({"type": "text", "text": text.DEFAULT_QUESTION})
    messages = [{"role": "user", "content": content}]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(prompt.ids) == rendered.replace(text.IMAGE_PAD, text.IMAGE_PAD * 2)
    assert tokenizer.encode(tokenizer.decode(prompt.ids)) == prompt.ids.tolist()
    first = int(np.flatnonzero(prompt.is_vision)[0])
    start = int(prompt.positions[0, first - 1]) + 1
    assert (prompt.positions[:, first : first + 2] == start + kept_positions(pooled).T).all()
    assert (prompt.positions[:, first + 2] == start + 6).all()


def test_pooling_takes_the_mean_of_members() -> None:
    tokens = torch.arange(24.0).reshape(1, 24, 1)
    plan = plan_from_cells([(0, 0, 0, 4), (0, 0, 4, 4)], grid_thw=(1, 8, 12), merge_size=2)
    assert pool_means(tokens, [plan]).flatten().tolist() == [10.5, 13.5]


def test_a_flipped_shard_is_labelled_as_it_looks() -> None:
    shard = render_shard(0, 5, SETTINGS, count=6)
    flipped = flip_shard(shard, across=True, down=False)
    assert np.array_equal(flipped.pixels, shard.pixels[:, :, ::-1])
    assert np.array_equal(flipped.kinds, shard.kinds[:, [1, 0, 3, 2]])
    for dense, kinds in zip(flipped.dense, flipped.kinds, strict=True):
        for place, kind in enumerate(kinds):
            if kind:
                rows, columns = np.nonzero(dense == 1 + (kind - 1) * 4 + place)
                assert len(rows)
                assert (columns.mean() > 5.5) == (place % 2 == 1)
                assert (rows.mean() > 2.5) == (place >= 2)


def test_random_plans_are_partitions_of_every_size() -> None:
    shard = render_shard(1, 6, SETTINGS, count=2)
    scores = scores_of(shard.pixels[0], SETTINGS)
    plans = [draw_plan(scores, shard.dense[0], Random(seed), SETTINGS) for seed in range(40)]
    kept = {plan.pooled_tokens for plan in plans}
    assert max(kept) == 70
    assert min(kept) < 40


def test_answers_name_what_is_there() -> None:
    seen = [Finding("grasper", "upper left"), Finding("smoke")]
    assert text.answer_line(seen, 12.34) == "12.3 s: grasper upper left, smoke."
    assert text.answer_line([], None, 2) == "frame 2: no instruments."


def test_the_model_answers_about_scenes_it_never_saw(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    scenes = held_out_scenes(24, SETTINGS, HELD_OUT_SEED)
    native = measure(model, tokenizer, scenes, SETTINGS, planner=native_plan)
    pooled = measure(model, tokenizer, scenes, SETTINGS, planner=threshold_planner(3.0), frames=2)
    assert native["findings_right"] >= 0.75
    assert native["stamps_right"] >= 0.75
    assert pooled["objects_right"] >= 0.75
    assert pooled["tokens"] < pooled["native_tokens"]


def test_the_card_says_what_was_measured() -> None:
    measured = json.loads((WEIGHTS / "evaluation.json").read_text())["conditions"]
    card = CARD.read_text()
    rows = dict(re.findall(r"^\| .*? \(`(\w+)`\) \| (.*) \|$", card, flags=re.MULTILINE))
    assert rows.keys() == measured.keys()
    for name, row in rows.items():
        figures = measured[name]
        percents = [f"{100 * figures[key]:.1f} %" for key in ("findings_right", "objects_right", "stamps_right")]
        assert row.split(" | ") == [str(figures["frames"]), str(figures["tokens"]), *percents]
    assert "Not for clinical use" in card
    assert "Not for clinical use" in json.loads((WEIGHTS / "scopeflow.json").read_text())["notice"]
