"""What a plan says a training needs, and what trainings need: memory on the CPU, as a markdown table.

    python bench/memory.py [--only nano,100m] [--cases 1,2] [--updates 2] [--at-once 1]

Each configuration is trained by `fit_supervised` in a process of its own, which has trained something small before,
so that libraries are loaded. Measured is the most memory that is resident until its last update ends, beyond
what it held before the model was built. The C library is told to give memory back at once (M_MMAP_THRESHOLD); otherwise
its fragments would be measured, too. Predicted is the peak of the trace that `uni_train plan` makes
(uni_train/plan), here of the paths that a CPU takes: nothing is computed.

100M is the random BAGEL of bench/bagel.py, drawing 128 x 128 images.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bagel import SIDES, SPEECH, TINY, Letters, hundred, hundred_config, picture, released_sampling, requests
from bench.markdown import row, table
from bench.timing import MB, forget_peak, forked, resident
from uni_train.config.compose import compose
from uni_train.config.kinds import Updates
from uni_train.config.schema import LoraConfig, OptimizerConfig, StrategyConfig, TrainingConfig
from uni_train.data_gen.registry import get_task
from uni_train.models.bagel.bagel import Bagel
from uni_train.models.bagel.checkpoint import open_folder
from uni_train.models.bagel.shapes import packed_loss
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.bagel.vae import AutoEncoder
from uni_train.models.base import Example
from uni_train.models.load import build_model
from uni_train.models.meta import without_weights
from uni_train.plan.updates import supervised
from uni_train.training.curriculum import Constant
from uni_train.training.fit import fit_supervised
from uni_train.training.lora import adapted, add_adapters
from uni_train.training.supervised import FitOptions

LIBC = ctypes.CDLL("libc.so.6")
M_MMAP_THRESHOLD = -3


@dataclass(frozen=True)
class Case:
    """One training. `rows`: examples of an update; `noise_draws`: noised copies of each one's image."""

    model: Literal["nano", "100m"]
    rows: int
    noise_draws: int = 1
    precision: Literal["32-true", "bf16-true", "bf16-mixed"] = "32-true"
    trained: str = "all"
    activation_checkpointing: bool = False
    ema: float | None = None
    accumulate: int = 1

    @property
    def title(self) -> str:
        """What differs from the plainest."""
        extra = [
            f"{self.rows} rows",
            self.precision,
            *([self.trained] if self.trained != "all" else []),
            *(["activation checkpointing"] if self.activation_checkpointing else []),
            *([f"ema {self.ema}"] if self.ema is not None else []),
            *([f"{self.accumulate} micro-batches"] if self.accumulate > 1 else []),
        ]
        return ", ".join([self.model, *extra])

    @property
    def config(self) -> TrainingConfig:
        strategy = StrategyConfig(precision=self.precision, accelerator="cpu")
        return TrainingConfig(optimizer=OptimizerConfig(lr=1e-6), ema=self.ema, strategy=strategy)

    def updates(self, total: int) -> Updates:
        return Updates(total, self.accumulate, rows=self.rows)


CASES = (
    Case("nano", 128, 3),
    Case("nano", 128, 3, activation_checkpointing=True),
    Case("nano", 128, 3, precision="bf16-true"),
    Case("nano", 128, 3, precision="bf16-mixed"),
    Case("nano", 256, 3, accumulate=2),
    Case("nano", 384, 3),
    Case("100m", 16),
    Case("100m", 4, precision="bf16-true"),
    Case("100m", 4, trained="lora"),
    Case("100m", 4, trained="moe_gen"),
    Case("100m", 4, ema=0.999),
    Case("100m", 8, activation_checkpointing=True),
    Case("100m", 8, precision="bf16-true", activation_checkpointing=True, ema=0.999),
)
LORA = LoraConfig()


def examples(case: Case) -> list[Example]:
    """Prompts and images, as many as an update has."""
    if case.model == "100m":
        asked = requests(case.rows)
        return [Example(one.prompt, target=picture(one.seed, SIDES[-1]), seed=one.seed) for one in asked]
    items = get_task("mapping", "nano").generate(case.rows, 1, "train", 0)[: case.rows]
    blank = np.zeros((24, 24, 3), np.uint8)
    return [Example(one.prompt, target=blank, noise_draws=case.noise_draws, seed=i) for i, one in enumerate(items)]


def real(case: Case) -> BagelUnified:
    """The model with weights."""
    if case.model == "100m":
        return hundred(torch.float32).model
    return build_model(compose("stars_mapping", []).model)  # type: ignore[return-value]


def blank(case: Case) -> BagelUnified:
    """The model without."""
    if case.model == "nano":
        return real(case)
    with without_weights():
        bagel, vae = Bagel(hundred_config()), AutoEncoder(open_folder(TINY).vae_config())
    return BagelUnified("100M", bagel, vae, Letters(), SPEECH, released_sampling(), SIDES[-1])


def prepared(model: BagelUnified, case: Case) -> BagelUnified:
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0, activation_checkpointing=case.activation_checkpointing)
    return model


# --- predicted --------------------------------------------------------------------------------------------------------


def predict(case: Case) -> int:
    """Bytes at the peak; of the second update or any later one."""
    model = prepared(blank(case), case)
    rows = examples(case)
    micros = [model.examples.blank(rows[start :: case.accumulate], "cpu") for start in range(case.accumulate)]
    if case.trained == "lora":
        with without_weights():
            add_adapters(model, LORA, 0)
    losses = [packed_loss(model, micro, case.config.ce_weight, case.config.mse_weight, "cpu") for micro in micros]
    (traced,) = supervised(model, losses, case.config, "cpu", trained=case.trained)
    return traced.timeline.peak()


# --- measured ---------------------------------------------------------------------------------------------------------


def measure(case: Case, updates: int) -> int:
    """Bytes at the peak of this process, beyond those before the model was built."""
    fit(Case("nano", 1, precision=case.precision), 2)  # what libraries load and compile once is none of the model's
    before = forget_peak()
    return fit(case, updates) - before


def fit(case: Case, updates: int) -> int:
    """The peak at the end of the last update, before its checkpoint."""

    class Enough(Exception):
        pass

    class Look(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == updates:
                raise Enough

    model = prepared(real(case), case)
    length = case.updates(updates + 1)
    adapters = adapted(model, LORA, 0) if case.trained == "lora" else nullcontext()
    with tempfile.TemporaryDirectory() as folder, adapters:
        sources = {"rows": examples(case)}
        schedule = Constant({"rows": 1.0})
        with suppress(Enough):
            fit_supervised(
                model, sources, schedule, case.config, length, Path(folder),
                FitOptions(trained=case.trained, progress=False), callbacks=[Look()],
            )  # fmt: skip
        return resident("VmHWM")


def compare(cases: Sequence[Case], updates: int, at_once: int) -> int:
    """Print the table; the number of cases that are more than a tenth off."""
    LIBC.mallopt(M_MMAP_THRESHOLD, 2**16)
    for line in table("training", "predicted MB", "measured MB", "predicted / measured"):
        print(line, flush=True)
    off = 0
    for begin in range(0, len(cases), at_once):
        some = cases[begin : begin + at_once]
        running = [(case, forked(partial(predict, case)), forked(partial(measure, case, updates))) for case in some]
        for case, predicting, measuring in running:
            predicted, measured = predicting(), measuring()
            off += abs(predicted / measured - 1) > 0.1
            cells = f"{predicted / MB:.0f}", f"{measured / MB:.0f}", f"{predicted / measured:.2f}"
            print(row(case.title, *cells), flush=True)
    print(f"\nWithin 10 %: {len(cases) - off} of {len(cases)}.")
    return off


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", default="nano,100m", help="models, comma between")
    made.add_argument("--cases", help="numbers of cases, from 1, comma between; by default all")
    made.add_argument("--updates", type=int, default=2)
    made.add_argument("--at-once", type=int, default=1, help="cases")
    return made


def main() -> None:
    arguments = parser().parse_args()
    numbers = range(1, len(CASES) + 1) if arguments.cases is None else map(int, arguments.cases.split(","))
    cases = [CASES[number - 1] for number in numbers]
    compare([case for case in cases if case.model in arguments.only.split(",")], arguments.updates, arguments.at_once)


if __name__ == "__main__":
    main()
