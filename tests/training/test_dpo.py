"""Training on pairs of images: errors image by image, equal updates however they are cut, resuming, the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.tiny import MODEL
from tests.training.keys import given, killed_after
from uni_train.config.compose import compose
from uni_train.config.schema import LoraConfig
from uni_train.models.base import Example, Trainable
from uni_train.models.load import build_model
from uni_train.training.curriculum import Constant
from uni_train.training.dpo import Preference, fit_dpo
from uni_train.training.lora import adapted
from uni_train.training.metric_log import read_metrics

PROMPTS = ("Draw 3 apples .", "Draw 2 fish .", "Draw 4 apples .", "A means B . Draw 2 fish .")


def picture(seed: int, side: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (side, side, 3)).astype(np.uint8)


def preference(prompt: str, seed: int, side: int = 24, images: tuple[np.ndarray, ...] = ()) -> Preference:
    chosen = Example(prompt, images, target=picture(seed, side), noise_draws=2)
    return Preference(chosen, replace(chosen, target=picture(seed + 1000, side)), seed)


PAIRS = [preference(prompt, seed) for seed, prompt in enumerate(PROMPTS)]
ASKED = [Example(PROMPTS[0], (picture(7),), answer="3 apples"), Example(PROMPTS[1], target=picture(8))]
SETTINGS = {"beta": 50.0, "sft_weight": 0.5}


def drawn(model: Any) -> Any:
    """With a velocity that is not zero, as that of fresh weights is."""
    torch.nn.init.normal_(model.bagel.llm2vae.weight, std=0.3, generator=torch.Generator().manual_seed(0))
    return model


def nano() -> Any:
    return drawn(build_model(compose("stars_curriculum", MODEL).model))


def nano_edit() -> Any:
    return drawn(build_model(compose("stars_maze", ["model.checkpoint=null", "model.threads=1"]).model))


def bagel(place: Path) -> Any:
    return build_model(compose("sft", [f"model.checkpoint={published(FOLDER, place / 'BAGEL')}"]).model)


def flux(place: Path) -> Any:
    pytest.importorskip("diffusers")
    from tests.models.diffusers import tiny
    from tests.models.diffusers.conftest import build

    tiny.pipeline("flux").save_pretrained(place / "flux")
    return build(place / "flux")


@pytest.mark.parametrize(
    ("make", "pairs"),
    [
        (lambda place: nano(), [preference(prompt, seed) for seed, prompt in enumerate(PROMPTS)]),
        (lambda place: nano_edit(), "mazes"),
        (bagel, [preference("1 2", 0, 32), preference("1 2 3 4 5", 1, 32), preference("1", 2, 48)]),
        (flux, [preference("a cup", 0, 32), preference("a red cup", 1, 64), preference("a", 2, 32)]),
    ],
    ids=["nano", "nano_edit", "BAGEL", "diffusers"],
)
def test_both_sides_of_a_pair_have_one_noise_and_their_errors_one_order(
    make: Callable[[Path], Trainable], pairs: Any, tmp_path: Path
) -> None:
    model = make(tmp_path)
    if pairs == "mazes":
        prompt = model.tokenizer.instruction  # type: ignore[union-attr]
        pairs = [
            preference(prompt, seed, side, (picture(seed + 5, side),)) for seed, side in ((0, 12), (1, 20), (2, 12))
        ]
    model.prepare_training(timestep_shift=3.0, text_dropout=0.0)
    model.eval()
    sides: list[list[Example]] = [[pair.both()[side] for pair in pairs] for side in (0, 1)]
    found = []
    with torch.no_grad():
        for examples in sides:
            loss = model.supervised_loss(model.collate(examples, 0))
            found.append(loss.mse_images())
            assert found[-1].shape == (2 * len(pairs),)
            alone = [model.supervised_loss(model.collate([one], 0)).mse_images() for one in examples]
            means = torch.cat(alone)
            torch.testing.assert_close(found[-1].sort().values, means.sort().values, rtol=1e-3, atol=1e-4)
            order = [int((means - error).abs().argmin()) for error in found[-1]]
            assert sorted(order) == list(range(len(means)))
            found[-1] = order
        same = [replace(one, target=other.target) for one, other in zip(*sides, strict=True)]
        other = model.supervised_loss(model.collate(same, 0)).mse_sum
        torch.testing.assert_close(other, model.supervised_loss(model.collate(sides[1], 0)).mse_sum)
    assert found[0] == found[1], "the numbers of pairs are those of both sides"


def fit(out: Path, model: Any, trained: str = "all", replayed: bool = False, **keys: Any) -> list[dict[str, Any]]:
    """The lines of the log of a training on `PAIRS`."""
    asked = given(
        **(
            {"updates": 4, "rows": 4, "lr": 1e-3, "log_every": 1, "checkpoint_every": 2, "keep": 9, "progress": False}
            | keys
        ),
        trained=trained,
    )
    model.prepare_training(timestep_shift=3.0, text_dropout=0.0)
    sources: dict[str, Any] = {"pairs": PAIRS} | ({"asked": ASKED} if replayed else {})
    shares = {"pairs": 0.5, "asked": 0.5} if replayed else {"pairs": 1.0}
    kept = [asked.pop(name) for name in ("config", "updates", "options")]
    names = ["asked"] if replayed else []
    fit_dpo(model, sources, Constant(shares), *kept[:2], out, kept[2], **SETTINGS, replayed=names, **asked)
    return read_metrics(out / "metrics.jsonl")


@pytest.mark.parametrize("replayed", [False, True])
def test_an_update_is_the_same_in_one_micro_batch_and_in_several(replayed: bool, tmp_path: Path) -> None:
    models = [nano(), nano()]
    whole, parts = (
        fit(tmp_path / str(cut), model, accumulate=cut, replayed=replayed)
        for cut, model in zip((1, 4), models, strict=True)
    )
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
    assert ("ce" in whole[0]) is replayed
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_the_margin_grows_and_the_log_says_at_whose_cost(tmp_path: Path) -> None:
    lines = fit(tmp_path, nano(), updates=30, lr=3e-3)
    first, last = lines[0], lines[-1]
    assert first["dpo"] == pytest.approx(np.log(2)) and first["margin"] == 0 == first["accuracy"]
    assert last["dpo"] < 0.5 and last["accuracy"] > 0.7
    assert last["margin"] == pytest.approx(last["chosen_reward"] - last["rejected_reward"], abs=1e-5)
    assert last["loss"] == pytest.approx(last["dpo"] + 0.5 * last["chosen_error"], abs=1e-5)


@pytest.mark.parametrize("trained", ["all", "lora"])
def test_a_killed_training_ends_as_the_unbroken_one(trained: str, tmp_path: Path) -> None:
    """Its reference are the weights that it began with, not those of the checkpoint."""

    def run(out: Path) -> dict[str, torch.Tensor]:
        model = nano()
        if trained == "all":
            fit(out, model)
        else:
            with adapted(model, LoraConfig(rank=2, dropout=0.1), 0):
                fit(out, model, trained="lora")
        return model.state_dict()

    unbroken = run(tmp_path / "unbroken")
    with killed_after(2):
        run(tmp_path / "killed")
    for name, value in run(tmp_path / "killed").items():
        assert torch.equal(value, unbroken[name]), name
    logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("unbroken", "killed")]
    assert logs[0] == logs[1] and read_metrics(tmp_path / "killed/metrics.jsonl")[-1]["margin"] != 0
