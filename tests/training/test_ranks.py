"""BAGEL on two ranks and on one: the same loss and gradients, though the ranks have unlike numbers of tokens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.models.bagel.test_examples import ASKED, CHAIN, DRAWN, EDIT
from tests.training.keys import given
from uni_train.config.compose import compose
from uni_train.models.load import build_model
from uni_train.training.curriculum import Constant
from uni_train.training.fit import fit_supervised
from uni_train.training.metric_log import read_metrics
from uni_train.training.steps import StepDataset

ROWS = [EDIT, CHAIN, ASKED, DRAWN]
ROOT = Path(__file__).parents[2]


def train(place: Path, out: Path, ranks: int) -> dict[str, torch.Tensor]:
    """One update; with Adam's epsilon far above the gradients it is a step along them."""
    model = build_model(compose("sft", [f"model.checkpoint={place}"]).model)
    model.prepare_training(timestep_shift=4.0, text_dropout=0.0)
    asked = given(
        updates=1,
        tokens=150,
        rows=1,
        lr=1.0,
        eps=1e3,
        clip=0.0,
        ce_weight=0.25,
        accumulate=2 // ranks,
        devices=ranks,
        accelerator="cpu",
        kind="ddp_fork" if ranks > 1 else "single",
        seed=2,
    )
    fit_supervised(model, {"rows": ROWS}, Constant({"rows": 1.0}), directory=out, progress=False, **asked)
    return {name: value.clone() for name, value in model.state_dict().items()}


def shares(model: Any) -> list[tuple[int, int]]:
    """Supervised text and latent tokens of the two places of that update."""
    places = StepDataset(
        model.collate,
        {"rows": ROWS},
        lambda step: {"rows": 1.0},
        rows=1,
        updates=1,
        seed=2,
        stage="finetune",
        grad_accumulation_steps=2,
        token_counts=model.token_counts,
        tokens=150,
        example_tokens=model.example_tokens,
    )
    return [model.token_counts(place.content) for place in places[0]]


@pytest.mark.slow
def test_bagel_on_two_ranks_equals_one(tmp_path: Path) -> None:
    place = published(FOLDER, tmp_path / "BAGEL")
    model = build_model(compose("sft", [f"model.checkpoint={place}"]).model)
    start = model.state_dict()
    (text, latent), (other_text, other_latent) = shares(model)
    assert text * other_latent != other_text * latent and (text, latent) != (other_text, other_latent)
    whole = train(place, tmp_path / "1", 1)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.test_ranks", str(place), str(tmp_path / "2")]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    both = load_file(tmp_path / "2" / "final.safetensors")
    lines = [read_metrics(tmp_path / ranks / "metrics.jsonl") for ranks in "12"]
    assert lines[1][0] == pytest.approx(lines[0][0], rel=1e-5)
    moved = 0
    for name, value in whole.items():
        step, other = value - start[name], both[name] - start[name]
        rounding = 2**-23 * float(start[name].abs().max())  # of the weights that the step was added to
        assert float((step - other).abs().max()) <= 1e-4 * float(step.abs().max()) + rounding, name
        moved += bool(step.any())
    assert moved > 100


if __name__ == "__main__":
    final = train(Path(sys.argv[1]), Path(sys.argv[2]), 2)
    save_file(final, Path(sys.argv[2]) / "final.safetensors")
