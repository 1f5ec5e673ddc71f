"""What the Lightning loop costs: `fit_supervised` against a bare PyTorch loop over the same steps and the same data.

Both make each batch from its seeds, run forward, backward, clipping and fused AdamW with a schedule; Lightning's has
the metric log and the progress line too. `bench/nano.py` prints the comparison, for nano's own step and for a step of
nearly no work, which shows the overhead itself.
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.timing import Moment
from uni_train.config.kinds import Updates
from uni_train.config.schema import TrainingConfig
from uni_train.models.base import Example, SupervisedLoss, Trainable
from uni_train.training.curriculum import Curriculum
from uni_train.training.fit import fit_supervised
from uni_train.training.steps import Source, StepDataset
from uni_train.training.supervised import FitOptions, SupervisedModule

SKIPPED = 2  # first updates of a loop, which allocate memory


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Medians over all updates of all repeats, in seconds.

    wall_ratio, cpu_ratio: median over updates of Lightning / bare, each pair on the same batch.
    batch: what making the batch takes of `bare`.
    """

    updates: int
    bare: Moment
    lightning: Moment
    wall_ratio: float
    cpu_ratio: float
    batch: Moment


class Clock(Callback):
    """Notes the time after every update."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def on_train_batch_end(self, *arguments: object) -> None:
        self.moments.append(Moment.now())


def lightning_steps(
    model: nn.Module,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    config: TrainingConfig,
    updates: Updates,
    trained: str = "all",
) -> list[Moment]:
    """How long each update takes but the first ones."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        options = FitOptions(trained=trained)
        fit_supervised(model, sources, schedule, config, updates, Path(directory), options, callbacks=[clock])
    return [after.since(before) for before, after in itertools.pairwise(clock.moments[SKIPPED - 1 :])]


def bare_steps(
    model: nn.Module,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    config: TrainingConfig,
    updates: Updates,
    trained: str = "all",
) -> tuple[list[Moment], list[Moment]]:
    """The same updates without Lightning: how long each takes, and how long making its batch takes of that."""
    data = StepDataset(
        model.collate,  # type: ignore[arg-type]
        sources,
        schedule.mixture,
        rows=updates.rows or 1,
        updates=updates.total,
        seed=config.seed,
        stage="finetune",
    )
    made = SupervisedModule(model, config, updates, FitOptions(trained=trained)).configure_optimizers()
    optimizer, scheduler = made["optimizer"], made["lr_scheduler"]["scheduler"]  # type: ignore[typeddict-item,index]
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    mixed = config.strategy.precision == "bf16-mixed"
    taken, batches = [], []
    model.train()
    before = Moment.now()
    for step in range(updates.total):
        batch = data[step][0].content
        batches.append(Moment.now().since(before))
        torch.default_generator.manual_seed(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            sums = model.supervised_loss(batch)  # type: ignore[operator]
            loss = sums.ce_sum / sums.ce_tokens.clamp(min=1) + sums.mse_sum / sums.mse_tokens.clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, config.optimizer.clip, foreach=True)
        optimizer.step()
        scheduler.step()  # type: ignore[union-attr]
        after = Moment.now()
        taken.append(after.since(before))
        before = after
    return taken[SKIPPED:], batches[SKIPPED:]


def compare(
    model: nn.Module,
    sources: Mapping[str, Source],
    schedule: Curriculum,
    config: TrainingConfig,
    length: Updates,
    repeats: int,
    trained: str = "all",
) -> LoopCost:
    """Both loops in turn, `repeats` times, each from the weights that `model` has now."""
    bare: list[Moment] = []
    batches: list[Moment] = []
    lightning: list[Moment] = []
    for _ in range(repeats):
        updates, made = bare_steps(copy.deepcopy(model), sources, schedule, config, length, trained)
        bare += updates
        batches += made
        lightning += lightning_steps(copy.deepcopy(model), sources, schedule, config, length, trained)
    pairs = list(zip(lightning, bare, strict=True))
    return LoopCost(
        len(pairs),
        Moment.median(bare),
        Moment.median(lightning),
        statistics.median(a.wall / b.wall for a, b in pairs),
        statistics.median(a.cpu / b.cpu for a, b in pairs),
        Moment.median(batches),
    )


class NearlyEmpty(Trainable):
    """A step of nearly no work: what is left is the loop."""

    prepare_training = example_tokens = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def collate(self, examples: Sequence[Example], seed: int) -> Tensor:
        return torch.ones(len(examples), 8)

    def supervised_loss(self, batch: Tensor) -> SupervisedLoss:
        out, tokens = self.layer(batch), torch.tensor(batch.numel())
        return SupervisedLoss(out.square().sum(), tokens, (out - batch).square().sum(), tokens)
