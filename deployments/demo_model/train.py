"""Train the demo model: ``python -m deployments.demo_model.train --pool POOL --out RUN``; goes on where it stopped.

The pool is drawn by ``python -m deployments.demo_model.render --out POOL``. Captions alone leave a small model at the
text prior, so a linear head on the vision tower's outputs also says what covers each token; it is not kept.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn import functional

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

    def forward(self, batch: Batch, tower_learns: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return caption loss and dense loss (nats), and the share of answer tokens that are right."""
        count, rows, columns = batch.dense.shape
        merge = self.settings.merge
        with torch.set_grad_enabled(tower_learns):
            patches = patches_of(batch.pixels, self.settings)
            tokens = encode_pictures(self.model, patches, (rows * merge, columns * merge))
        logits = self.dense(tokens)
        dense = functional.cross_entropy(
            logits[..., :-1].flatten(0, 1), torch.from_numpy(batch.dense).flatten(), self.class_weights
        )
        hazy = torch.from_numpy(batch.smoke).float()[:, None].expand(count, rows * columns)
        dense = dense + 0.5 * functional.binary_cross_entropy_with_logits(logits[..., -1], hazy)
        ids, embeds, positions = batch_inputs(
            self.model, batch.prompts, pool_means(tokens[batch.order], batch.plans), self.pad_id
        )
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


def train(pool: Path, out: Path, settings: DemoSettings, processes: int) -> None:
    """Train to ``settings.steps``, from the last checkpoint in ``out`` if there is one.

    Each process takes an equal share of a step's frames on one thread, and the gradients are averaged; on a busy
    machine that is faster than one process with as many threads. Writes ``out/state.pt`` and ``out/weights/`` every
    ``checkpoint_steps``, and a line of ``out/log.jsonl`` every ten.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / "rendezvous").unlink(missing_ok=True)
    start_processes(  # type: ignore[no-untyped-call]
        _train_rank, (processes, pool, out, settings), nprocs=processes, start_method="spawn"
    )


def _train_rank(rank: int, ranks: int, pool: Path, out: Path, settings: DemoSettings) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    distributed.init_process_group(
        "gloo", init_method=f"file://{(out / 'rendezvous').resolve()}", rank=rank, world_size=ranks
    )
    tokenizer = text.train_tokenizer(settings.vocabulary)
    losses = Losses(settings, tokenizer)
    parameters = list(losses.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ],
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
    share = dataclasses.replace(settings, frames_per_step=settings.frames_per_step // ranks)
    stream = batches(pool, tokenizer, share, (settings.seed * 100 + rank) * 100_000 + start)
    began = time.monotonic()
    sums = torch.zeros(3)
    for step in range(start, settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings)
        caption, dense, right = losses(next(stream), tower_learns=step % settings.tower_every == 0)
        optimizer.zero_grad(set_to_none=True)
        (caption + settings.dense_weight * dense).backward()
        _average_gradients(parameters, ranks)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        sums += torch.stack([caption, dense, right]).detach()
        if rank > 0:
            continue
        seconds = spent + time.monotonic() - began
        if step % 10 == 9:
            means = [round(float(total) / 10, 4) for total in sums]
            sums.zero_()
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
    distributed.destroy_process_group()


def _average_gradients(parameters: list[nn.Parameter], ranks: int) -> None:
    if ranks == 1:
        return
    learning = [p for p in parameters if p.grad is not None]
    flat = torch.cat([p.grad.flatten() for p in learning if p.grad is not None])
    distributed.all_reduce(flat)
    flat /= ranks
    for parameter, gradient in zip(learning, torch.split(flat, [p.numel() for p in learning]), strict=True):
        parameter.grad = gradient.view_as(parameter)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=SETTINGS.seed)
    parser.add_argument("--steps", type=int, default=SETTINGS.steps)
    parser.add_argument("--learning-rate", type=float, default=SETTINGS.learning_rate)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    settings = dataclasses.replace(
        SETTINGS, seed=options.seed, steps=options.steps, learning_rate=options.learning_rate
    )
    train(options.pool, options.out, settings, options.processes)


if __name__ == "__main__":
    main()
