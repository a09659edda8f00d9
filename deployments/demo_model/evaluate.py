"""Measure the demo model on scenes it never saw: ``python -m deployments.demo_model.evaluate``.

Writes ``evaluation.json`` beside the weights. An answer is right when every object and every place in it is, and
nothing else is named; the stamp is counted apart.
"""

import argparse
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import av
import numpy as np
import torch
from PIL import Image

from blocks.clip_writer import write_clip
from deployments.demo_model import text
from deployments.demo_model.data import resize_picture, scores_of
from deployments.demo_model.model import batch_inputs, build_prompt, encode_pictures, patches_of, pool_means
from deployments.demo_model.settings import SETTINGS, WEIGHTS, DemoSettings
from tasks.algorithms.clips import ClipScript, ClipSpan, render_clip, truth_of
from tasks.algorithms.pooling import plan_native, plan_threshold
from tasks.algorithms.scenes import Finding, Pixels, draw_scene, random_poses
from tasks.records.pooling import PoolPlan

EVALUATION_SEED = 900_001
THRESHOLDS = (3.0, 5.0)
BLOCK_TOKENS = 4
_ANSWER_TOKENS_PER_FRAME = 40
_BATCH = 16


@dataclass(frozen=True)
class Sample:
    """A picture on the model's grid, (H, W, 3) uint8, and what is to be seen in it."""

    pixels: Pixels
    findings: tuple[Finding, ...]


Planner = Callable[[Pixels, DemoSettings], PoolPlan]


def native_plan(pixels: Pixels, settings: DemoSettings) -> PoolPlan:
    """Plan that pools nothing."""
    height, width = pixels.shape[:2]
    grid = (1, height // settings.patch_px, width // settings.patch_px)
    return plan_native(grid_thw=grid, merge_size=settings.merge)


def threshold_planner(threshold: float) -> Planner:
    """Return the planner that pools 4x4 blocks under a threshold in grey levels."""

    def plan(pixels: Pixels, settings: DemoSettings) -> PoolPlan:
        height, width = pixels.shape[:2]
        return plan_threshold(
            scores_of(pixels, settings),
            grid_thw=(1, height // settings.patch_px, width // settings.patch_px),
            merge_size=settings.merge,
            threshold=threshold,
            block_tokens=BLOCK_TOKENS,
        )

    return plan


def load_model(folder: Path) -> tuple[Any, Any]:
    """Load the checkpoint's weights, as they are rounded, into float32, and its tokenizer."""
    from transformers import Qwen2VLForConditionalGeneration

    model: Any = Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), text.load_tokenizer(folder)


def held_out_scenes(count: int, settings: DemoSettings, seed: int = EVALUATION_SEED) -> list[Sample]:
    """Draw scenes of every picture size, at 1.0 to 2.0 times the size, none of them used in training."""
    rng = np.random.default_rng(seed)
    samples = []
    for index in range(count):
        size = int(rng.choice(len(settings.picture_sizes), p=settings.picture_shares))
        scale = float(rng.choice([1.0, 1.5, 2.0]))
        width, height = (round(edge * scale) for edge in settings.picture_sizes[size])
        scene = draw_scene(width, height, seed + index, masks=False)
        samples.append(Sample(resize_picture(scene.pixels, settings), scene.findings))
    return samples


def clip_frames(clips: int, settings: DemoSettings, seed: int = EVALUATION_SEED) -> list[Sample]:
    """Render short clips, write them as H.264, decode them, store frames as WebP and read those: as the pipeline does.

    Each clip has six still stretches, two frames of each are taken.
    """
    samples = []
    for index in range(clips):
        rng = np.random.default_rng([seed, index])
        spans = [ClipSpan("cut" if n % 2 else "static", 0.8, random_poses(rng)) for n in range(6)]
        script = ClipScript(1280, 720, tuple(spans), fps=12.5, seed=seed + index)
        wanted = {
            round((truth.start_ns / 1e9 + at) * script.fps): truth for truth in truth_of(script) for at in (0.3, 0.6)
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "clip.mp4"
            write_clip(path, render_clip(script), fps=script.fps)
            with av.open(str(path)) as container:
                for number, frame in enumerate(container.decode(video=0)):
                    if number in wanted:
                        stored = io.BytesIO()
                        Image.fromarray(frame.to_ndarray(format="rgb24")).save(stored, "WEBP", quality=90)
                        pixels = np.asarray(Image.open(stored).convert("RGB"))
                        samples.append(Sample(resize_picture(pixels, settings), wanted[number].findings))
    return samples


@torch.inference_mode()
def answer(
    model: Any,
    tokenizer: Any,
    frames: Sequence[Sequence[tuple[Pixels, PoolPlan, str]]],
    question: str,
    settings: DemoSettings,
) -> list[str]:
    """Answer prompts greedily; each is a sequence of (pixels, plan, stamp). Pictures of one call may differ in size."""
    eos = tokenizer.convert_tokens_to_ids(text.IM_END)
    pad = tokenizer.convert_tokens_to_ids(text.END_OF_TEXT)
    prompts, kept = [], []
    for prompt in frames:
        for pixels, plan, _ in prompt:
            grid = plan.grid_thw[1:]
            kept.append(pool_means(encode_pictures(model, patches_of(pixels[None], settings), grid), [plan]))
        prompts.append(
            build_prompt(tokenizer, [stamp for *_, stamp in prompt], [plan for _, plan, _ in prompt], question)
        )
    _, embeds, positions = batch_inputs(model, prompts, torch.cat(kept), pad)
    lengths = torch.tensor([len(prompt.ids) for prompt in prompts])
    longest = int(lengths.max())
    # Padding goes to the left, so that every prompt's next token stands in the same column.
    columns = (torch.arange(longest)[None] - (longest - lengths)[:, None]) % longest
    embeds = embeds.gather(1, columns[..., None].expand_as(embeds))
    positions = positions.gather(2, columns[None].expand_as(positions))
    mask = (torch.arange(longest)[None] >= (longest - lengths)[:, None]).long()
    following = positions[:, :, -1:] + 1
    language = model.model.language_model
    out = language(inputs_embeds=embeds, position_ids=positions, attention_mask=mask, use_cache=True)
    said: list[torch.Tensor] = []
    done = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(_ANSWER_TOKENS_PER_FRAME * max(len(prompt) for prompt in frames)):
        token = model.lm_head(out.last_hidden_state[:, -1]).argmax(-1)
        said.append(torch.where(done, eos, token))
        done |= token == eos
        if bool(done.all()):
            break
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        out = language(
            inputs_embeds=language.embed_tokens(token)[:, None],
            position_ids=following,
            attention_mask=mask,
            past_key_values=out.past_key_values,
            use_cache=True,
        )
        following = following + 1
    return [tokenizer.decode(row, skip_special_tokens=True) for row in torch.stack(said, dim=1)]


def measure(
    model: Any,
    tokenizer: Any,
    samples: Sequence[Sample],
    settings: DemoSettings,
    *,
    planner: Planner = native_plan,
    frames: int = 1,
    question: str = text.DEFAULT_QUESTION,
    seed: int = 1,
) -> dict[str, float]:
    """Ask about samples, ``frames`` to a prompt, and count per frame; times start within an hour, gaps are 0.3 to 10 s.

    Returns:
        frames; tokens (mean kept of a frame) and native_tokens; findings_right, stamps_right and lines_right (shares of
        frames); objects_right, the share of objects named with their place.
    """
    random = Random(seed)
    groups = [samples[start : start + frames] for start in range(0, len(samples) - frames + 1, frames)]
    lines: list[tuple[str, str]] = []
    kept = native = 0
    for start in range(0, len(groups), _BATCH):
        prompts, wanted = [], []
        for group in groups[start : start + _BATCH]:
            start_s = random.uniform(0, 3600)
            times = [round(start_s + gap, 1) for gap in accumulate(random.uniform(0.3, 10) for _ in group)]
            plans = [planner(sample.pixels, settings) for sample in group]
            kept += sum(plan.pooled_tokens for plan in plans)
            native += sum(plan.native_tokens for plan in plans)
            prompts.append([(s.pixels, p, text.stamp(t)) for s, p, t in zip(group, plans, times, strict=True)])
            wanted.append([text.answer_line(s.findings, t) for s, t in zip(group, times, strict=True)])
        for said, lines_wanted in zip(answer(model, tokenizer, prompts, question, settings), wanted, strict=True):
            spoken = said.split("\n")
            spoken += [""] * (len(lines_wanted) - len(spoken))
            lines += zip(spoken, lines_wanted, strict=False)
    parts = [(said.partition(": "), wanted.partition(": ")) for said, wanted in lines]
    objects = [(item, said[2]) for said, wanted in parts for item in wanted[2].rstrip(".").split(", ")]
    count = len(lines)
    return {
        "frames": count,
        "tokens": round(kept / count, 1),
        "native_tokens": round(native / count, 1),
        "findings_right": round(sum(said[2] == wanted[2] for said, wanted in parts) / count, 4),
        "stamps_right": round(sum(said[0] == wanted[0] for said, wanted in parts) / count, 4),
        "lines_right": round(sum(said == wanted for said, wanted in lines) / count, 4),
        "objects_right": round(sum(item in said.rstrip(".").split(", ") for item, said in objects) / len(objects), 4),
    }


def conditions(
    model: Any, tokenizer: Any, scenes: Sequence[Sample], clips: Sequence[Sample], settings: DemoSettings
) -> Iterator[tuple[str, dict[str, float]]]:
    """Measure every condition of the model card; yield its name and figures."""
    yield "native", measure(model, tokenizer, scenes, settings)
    for threshold in THRESHOLDS:
        planner = threshold_planner(threshold)
        yield f"threshold_{threshold:g}", measure(model, tokenizer, scenes, settings, planner=planner)
    planner = threshold_planner(THRESHOLDS[0])
    for frames in (2, 4):
        yield f"frames_{frames}", measure(model, tokenizer, scenes, settings, frames=frames)
        pooled = measure(model, tokenizer, scenes, settings, planner=planner, frames=frames)
        yield f"frames_{frames}_threshold_{THRESHOLDS[0]:g}", pooled
    yield "clip_h264", measure(model, tokenizer, clips, settings)
    yield f"clip_h264_threshold_{THRESHOLDS[0]:g}", measure(model, tokenizer, clips, settings, planner=planner)
    question = "Please tell me if anything went wrong here, and when."
    yield "unknown_question", measure(model, tokenizer, scenes, settings, question=question)


def card_table(results: dict[str, dict[str, float]]) -> str:
    """Return the model card's table of figures."""
    lines = [
        "| condition | frames | tokens a frame | answers right | objects right | stamps right |",
        "|---|---|---|---|---|---|",
    ]
    for name, figures in results.items():
        shares = [f"{100 * figures[key]:.1f} %" for key in ("findings_right", "objects_right", "stamps_right")]
        lines.append(
            f"| {_words(name)} (`{name}`) | {figures['frames']} | {figures['tokens']} | {' | '.join(shares)} |"
        )
    return "\n".join(lines)


def _words(name: str) -> str:
    head, _, threshold = name.partition("threshold_")
    words = {
        "": "one frame",
        "native": "one frame",
        "frames_2": "two frames a prompt",
        "frames_4": "four frames a prompt",
        "clip_h264": "frames of H.264 clips",
        "unknown_question": "a question it was not trained on",
    }[head.rstrip("_")]
    return f"{words}, 4 x 4 blocks under {threshold} grey levels pooled" if threshold else f"{words}, native"


def write_card(card: Path, results: dict[str, dict[str, float]]) -> None:
    """Put the table of figures between the marks of the model card."""
    before, _, rest = card.read_text().partition("<!-- figures -->\n")
    after = rest.partition("<!-- end of figures -->")[2]
    card.write_text(f"{before}<!-- figures -->\n{card_table(results)}\n<!-- end of figures -->{after}")


def main() -> None:
    """Evaluate a checkpoint and write the figures beside it, and into the card when it is the repository's own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--scenes", type=int, default=304)
    parser.add_argument("--clips", type=int, default=14)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, tokenizer = load_model(options.weights)
    scenes = held_out_scenes(options.scenes, SETTINGS)
    clips = clip_frames(options.clips, SETTINGS)
    results = {}
    for name, figures in conditions(model, tokenizer, scenes, clips, SETTINGS):
        results[name] = figures
        print(name, json.dumps(figures), flush=True)
    facts = {"parameters": sum(p.numel() for p in model.parameters()), "seed": EVALUATION_SEED, "conditions": results}
    (options.weights / "evaluation.json").write_text(json.dumps(facts, indent=2) + "\n")
    if options.weights == WEIGHTS:
        write_card(WEIGHTS.parent / "README.md", results)


if __name__ == "__main__":
    main()
