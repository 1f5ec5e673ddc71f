"""What the Lightning loop costs: `fit_supervised` against a bare PyTorch loop over the same step and the same data.

    taskset -c 0 env OMP_NUM_THREADS=1 python bench/lightning_loop.py [--precision bf16-mixed] [--batch 64]

The model is a transformer of nano's size (width 96, 6 layers, 1.0 M parameters). Both loops make each batch from its
seeds, run forward, backward, clipping and fused AdamW with a schedule; Lightning's has the metric log and the progress
line too. They run in turn, several times; the figures are medians over steps. Two ratios are printed: the full model's,
which the requirement (at most 1.05) is about, and that of a step of nearly no work, which shows the overhead itself.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from uni_train.models.base import Example
from uni_train.training.curriculum import Constant
from uni_train.training.fit import fit_supervised
from uni_train.training.settings import SupervisedSettings
from uni_train.training.steps import StepDataset
from uni_train.training.supervised import SupervisedModule

TOKENS, VOCABULARY = 40, 200


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.gate = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5 + mask
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width))
        h = self.norm_2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Transformer(nn.Module):
    """Next-token and denoising losses on random data."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head, self.velocity = nn.Linear(width, VOCABULARY), nn.Linear(width, 16)
        self.register_buffer("mask", torch.full((TOKENS, TOKENS), -1e4).triu(1), persistent=False)

    def collate(self, examples: Sequence[Example], seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return (
            torch.randint(VOCABULARY, (len(examples), TOKENS + 1), generator=generator),
            torch.randn(len(examples), TOKENS, 16, generator=generator),
        )

    def supervised_loss(self, batch: tuple[Tensor, Tensor]) -> SimpleNamespace:
        tokens, noise = batch
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.head(x).float()
        return SimpleNamespace(
            ce_sum=nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"),
            ce_tokens=torch.tensor(tokens.shape[0] * TOKENS),
            mse_sum=(self.velocity(x).float() - noise).square().sum(),
            mse_tokens=torch.tensor(noise.numel()),
        )


Moment = tuple[float, float]
"""Wall and CPU seconds; the CPU's are the ones to compare on a machine with other work."""


def now() -> Moment:
    return time.perf_counter(), time.process_time()


class Clock(Callback):
    """Notes the time after every update."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def on_train_batch_end(self, *arguments: object) -> None:
        self.moments.append(now())


def durations(moments: list[Moment]) -> list[Moment]:
    """Of the updates but the first two, which allocate memory."""
    return [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(moments[1:])]


def lightning_steps(model: Transformer, settings: SupervisedSettings) -> list[Moment]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        fit_supervised(
            model, {"rows": [Example("")] * 512}, Constant({"rows": 1}), settings, Path(directory), callbacks=[clock]
        )
    return durations(clock.moments)


def bare_steps(model: Transformer, settings: SupervisedSettings) -> list[Moment]:
    data = StepDataset(
        model.collate,
        {"rows": [Example("")] * 512},
        lambda step: {"rows": 1},
        rows=settings.rows,
        updates=settings.updates,
        seed=settings.seed,
        stage=settings.stage,
    )
    made = SupervisedModule(model, settings).configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    mixed = settings.precision == "bf16-mixed"
    moments = []
    model.train()
    for step in range(settings.updates):
        batch = data[step][0].content
        torch.manual_seed(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            sums = model.supervised_loss(batch)
            loss = sums.ce_sum / sums.ce_tokens + sums.mse_sum / sums.mse_tokens
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip, foreach=True)
        optimizer.step()
        schedule.step()
        moments.append(now())
    return durations(moments)


def compare(title: str, width: int, layers: int, rows: int, updates: int, repeats: int, precision: str) -> None:
    settings = SupervisedSettings(
        updates=updates,
        rows=rows,
        warmup_updates=2,
        schedule="linear",
        precision=precision,
        accelerator="cpu",
        checkpoint_every=10**6,
    )
    bare: list[Moment] = []
    lightning: list[Moment] = []
    for _ in range(repeats):
        bare += bare_steps(Transformer(width, layers), settings)
        lightning += lightning_steps(Transformer(width, layers), settings)
    print(f"{title} ({precision}, medians of {len(bare)} steps each)")
    for index, clock in enumerate(("wall", "CPU")):
        a, b = (statistics.median(moment[index] for moment in moments) for moments in (bare, lightning))
        print(
            f"  {clock:4} bare {1e3 * a:8.2f} ms, Lightning {1e3 * b:8.2f} ms, "
            f"ratio {b / a:.3f}, {1e6 * (b - a):+6.0f} us a step"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="bf16-mixed", choices=["32-true", "bf16-mixed"])
    parser.add_argument("--batch", type=int, default=64, help="rows of 40 tokens a step")
    parser.add_argument("--updates", type=int, default=12, help="steps a repeat")
    parser.add_argument("--repeats", type=int, default=4)
    chosen = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    compare("nearly empty step", 8, 1, 1, 200, chosen.repeats, chosen.precision)
    compare("nano-sized step", 96, 6, chosen.batch, chosen.updates, chosen.repeats, chosen.precision)


if __name__ == "__main__":
    main()
