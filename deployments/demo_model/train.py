"""Train the demo model: ``python -m deployments.demo_model.train --pool POOL --out RUN``; starts again where it stopped.

The pool is drawn by ``python -m deployments.demo_model.render --out POOL``. Captions alone leave a small model at the
text prior, so a linear head on the vision tower's outputs also says what covers each token; it is not kept.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from deployments.demo_model import text
from deployments.demo_model.data import DENSE_CLASSES, Batch, batches
from deployments.demo_model.model import (
    batch_inputs,
    build_model,
    encode_pictures,
    patches_of,
    pool_means,
    save_checkpoint,
)
from deployments.demo_model.settings import SETTINGS, DemoSettings

_BACKGROUND_WEIGHT = 0.25


class Examples(IterableDataset[Batch]):
    """An endless stream of batches, drawn in a worker process."""

    def __init__(self, folder: Path, tokenizer: Any, settings: DemoSettings, seed: int) -> None:
        self.folder, self.tokenizer, self.settings, self.seed = folder, tokenizer, settings, seed

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        return batches(self.folder, self.tokenizer, self.settings, self.seed)


class Losses(nn.Module):
    """The model with its auxiliary head; gives the caption loss and the dense loss of a batch."""

    def __init__(self, settings: DemoSettings, tokenizer: Any) -> None:
        super().__init__()
        self.settings = settings
        self.model = build_model(settings, tokenizer)
        self.dense = nn.Linear(settings.width, DENSE_CLASSES + 1)
        self.pad_id = int(tokenizer.convert_tokens_to_ids(text.END_OF_TEXT))
        weights = torch.ones(DENSE_CLASSES)
        weights[0] = _BACKGROUND_WEIGHT
        self.class_weights = nn.Buffer(weights)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return caption loss and dense loss (nats), and the share of answer tokens that are right."""
        count, rows, columns = batch.dense.shape
        merge = self.settings.merge
        tokens = encode_pictures(self.model, patches_of(batch.pixels, self.settings), (rows * merge, columns * merge))
        logits = self.dense(tokens)
        dense = functional.cross_entropy(
            logits[..., :-1].flatten(0, 1), torch.from_numpy(batch.dense).flatten(), self.class_weights
        )
        hazy = torch.from_numpy(batch.smoke).float()[:, None].expand(count, rows * columns)
        dense = dense + 0.5 * functional.binary_cross_entropy_with_logits(logits[..., -1], hazy)
        ids, embeds, positions = batch_inputs(self.model, batch.prompts, pool_means(tokens, batch.plans), self.pad_id)
        hidden = self.model.model.language_model(
            inputs_embeds=embeds, position_ids=positions, use_cache=False
        ).last_hidden_state
        answers = torch.zeros_like(ids, dtype=torch.bool)
        for row, prompt in enumerate(batch.prompts):
            answers[row, prompt.answer_start : len(prompt.ids)] = True
        targets = ids[answers]
        said = self.model.lm_head(hidden[:, :-1][answers[:, 1:]])
        right = (said.detach().argmax(-1) == targets).float().mean()
        return functional.cross_entropy(said, targets), dense, right


def learning_rate(step: int, settings: DemoSettings) -> float:
    """Warm up, stay, and fall to a fiftieth over the last third of the steps."""
    rise = min(1.0, (step + 1) / settings.warmup_steps)
    left = (settings.steps - step) / (settings.steps / 3)
    return settings.learning_rate * rise * min(1.0, max(left, 0.02))


def train(pool: Path, out: Path, settings: DemoSettings, threads: int) -> None:
    """Train to ``settings.steps``, from the last checkpoint in ``out`` if there is one.

    Writes ``out/state.pt`` and ``out/weights/`` every ``checkpoint_steps`` and a line of ``out/log.jsonl`` every ten.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(settings.seed)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = text.train_tokenizer(settings.vocabulary)
    losses = Losses(settings, tokenizer)
    decayed = [p for p in losses.parameters() if p.ndim > 1]
    plain = [p for p in losses.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        betas=(0.9, 0.98),
        fused=True,
    )
    start, spent = 0, 0.0
    state_path = out / "state.pt"
    if state_path.exists():
        state = torch.load(state_path)
        losses.load_state_dict(state["losses"])
        optimizer.load_state_dict(state["optimizer"])
        start, spent = state["step"], state["seconds"]
    examples = Examples(pool, tokenizer, settings, settings.seed * 1000 + start)
    stream = iter(DataLoader(examples, batch_size=None, num_workers=1, prefetch_factor=3))
    began = time.monotonic()
    sums = [0.0, 0.0, 0.0]
    for step in range(start, settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings)
        caption, dense, right = losses(next(stream))
        optimizer.zero_grad(set_to_none=True)
        (caption + settings.dense_weight * dense).backward()
        nn.utils.clip_grad_norm_(losses.parameters(), 1.0)
        optimizer.step()
        sums = [total + float(value.detach()) for total, value in zip(sums, (caption, dense, right), strict=True)]
        seconds = spent + time.monotonic() - began
        if step % 10 == 9:
            means = [round(total / 10, 4) for total in sums]
            sums = [0.0, 0.0, 0.0]
            line = {"step": step + 1, "caption": means[0], "dense": means[1], "right": means[2], "s": round(seconds)}
            with (out / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
        if (step + 1) % settings.checkpoint_steps == 0 or step + 1 == settings.steps:
            save_checkpoint(losses.model, tokenizer, settings, out / "weights")
            state = {
                "losses": losses.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step + 1,
                "seconds": seconds,
            }
            torch.save(state, state_path.with_suffix(".part"))
            state_path.with_suffix(".part").rename(state_path)


def main() -> None:
    """Read the command line and train."""
    import dataclasses

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=SETTINGS.seed)
    parser.add_argument("--steps", type=int, default=SETTINGS.steps)
    parser.add_argument("--learning-rate", type=float, default=SETTINGS.learning_rate)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    settings = dataclasses.replace(
        SETTINGS, seed=options.seed, steps=options.steps, learning_rate=options.learning_rate
    )
    train(options.pool, options.out, settings, options.threads)


if __name__ == "__main__":
    main()
