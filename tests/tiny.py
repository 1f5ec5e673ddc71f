"""Runs of the whole main job in a few seconds: a nano of ten thousand parameters with random weights, 24 samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.models.load import build_model, save_model
from uni_train.models.nano.nano import Nano
from uni_train.stages import work

MODEL = (
    "model.checkpoint=null",
    "model.threads=1",
    "model.architecture.hidden_size=32",
    "model.architecture.intermediate_size=48",
    "model.architecture.layers=2",
    "model.architecture.heads=2",
    "model.architecture.kv_heads=2",
    "model.architecture.vit_hidden_size=32",
    "model.architecture.vit_intermediate_size=48",
    "model.architecture.vit_heads=2",
    "model.sampling.steps=2",
    "model.sampling.max_think_tokens=8",
    "model.draw_batch=4",
)
WORK = (
    "evaluation.n=2",
    "evaluation.sets=[math1,math2,math3,mapping1,mapping2,mapping3]",
    "batch.prompts=8",
    "batch.noise_draws=1",
    "checkpoint_every=2",
    "filter=none",
    "budget={mapping1:{prompts:8,updates:3},mapping2:{prompts:8,updates:3},mapping3:{prompts:8,updates:3}}",
)
TINY = (*MODEL, *WORK)
QUICK = (*TINY, "evaluation.sets=[mapping1]", "evaluation.modes=[normal]")
"""For tests that do not look at the scores."""


def fit(out: Path, *overrides: str, recipe: str = "stars_curriculum") -> Result:
    """`uni_train fit`, as typed; defects of ours come through with their traceback."""
    return CliRunner().invoke(
        uni_train, ["fit", "--recipe", recipe, f"out={out}", *overrides], catch_exceptions=False, terminal_width=100
    )


def finish(out: Path, *overrides: str, recipe: str = "stars_curriculum") -> Path:
    """The folder of a run that has succeeded."""
    result = fit(out, *overrides, recipe=recipe)
    assert result.exit_code == 0, result.output
    (folder,) = (path for path in (out / recipe).iterdir() if path.is_dir())
    return folder


@contextmanager
def keeping_steps() -> Iterator[None]:
    """Runs within it keep the training checkpoints of finished stages, as if killed just before those were removed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "CHECKPOINTS", "nothing")
        yield


def shards(run: Path) -> Iterator[Path]:
    """Every finished batch of samples of a run, in order."""
    yield from sorted(run.glob("stages/*/shards/[0-9]*.parquet"))


def save_drawer(folder: Path, seed: int = 0) -> Path:
    """A checkpoint whose velocity is not zero, as that of fresh weights is; the VAE is the same for all seeds."""
    model = build_model(compose("stars_curriculum", MODEL).model)
    assert isinstance(model, Nano)
    torch.nn.init.normal_(model.bagel.llm2vae.weight, std=0.3, generator=torch.Generator().manual_seed(seed))
    save_model(model, folder)
    return folder


def save_talker(folder: Path, text: str) -> Path:
    """A checkpoint that answers every question by `text`, whose words must all be different.

    Its layers write nothing to the residual stream, so the next word is a function of the one before.
    """
    model = build_model(compose("stars_curriculum", MODEL).model)
    assert isinstance(model, Nano)
    language = model.bagel.language_model
    with torch.no_grad():
        for name, parameter in language.model.layers.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()
        language.lm_head.weight.zero_()
        ids = [model.tokenizer.tokens.bos, *model.tokenizer.encode(text), model.tokenizer.tokens.eos]
        for now, following in pairwise(ids):
            embedding = language.model.embed_tokens.weight[now]
            language.lm_head.weight[following] = 20 * embedding / embedding.norm()
    save_model(model, folder)
    return folder
