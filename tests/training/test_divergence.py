"""A training that fails stops before a checkpoint holds it, says so, and the same command goes on from a good one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.driver import Poison, Stack
from tests.training.flow_grpo.toy import GRPO, PROMPTS, ToyFlow, bright
from tests.training.keys import changed
from tests.training.toy_model import ToyModel, assert_same_weights, toy_examples, train
from uni_train.core.errors import UserError
from uni_train.rewards.contract import Reward
from uni_train.training import checkpoint_io
from uni_train.training.checkpoint_io import checkpoint_name, list_checkpoints, load_folder
from uni_train.training.divergence import diverged
from uni_train.training.flow_grpo import trainer
from uni_train.training.flow_grpo.rollout import Sampling
from uni_train.training.flow_grpo.trainer import fit_flow_grpo
from uni_train.training.metric_log import read_metrics
from uni_train.training.supervised import FitOptions

NAN = float("nan")


def fitted(folder: Path, model: ToyModel | None = None, **keys: Any) -> ToyModel:
    return train(folder, model or Stack(), checkpoint_every=2, keep=9, **keys)[0]


def reinforce(folder: Path, **keys: Any) -> ToyFlow:
    model, options = ToyFlow(), FitOptions(stage="grpo", progress=keys.pop("progress", False), keep=9, log_every=1)
    sampling = Sampling(PROMPTS, [Reward("it", keys.pop("reward", bright))])
    fit_flow_grpo(model, sampling, changed(GRPO, **keys), folder, options)
    return model


def saved(folder: Path) -> list[str]:
    return [path.name for path in list_checkpoints(folder / "checkpoints")]


@pytest.mark.parametrize(
    ("update", "keys"),
    [
        (4, {}),  # saves
        (5, {"clip": 0.0}),  # does not
        (6, {"accumulate": 3, "ema": 0.5}),  # is the last
        (6, {"trained": "moe_gen"}),
        (6, {"precision": "bf16-true"}),
        (6, {"precision": "bf16-mixed"}),
    ],
    ids=str,
)
def test_a_gradient_that_is_not_finite_is_not_applied(update: int, keys: dict[str, Any], tmp_path: Path) -> None:
    layer = "out_moe_gen" if "trained" in keys else "norm"
    with pytest.raises(UserError, match=f"the gradient of update {update} has the norm nan") as error:
        fitted(tmp_path / "run", callbacks=[Poison(update, layer)], **keys)
    last = {4: 2, 5: 4, 6: 4}[update]
    assert saved(tmp_path / "run") == [checkpoint_name(step) for step in range(2, last + 1, 2)]
    assert f"continues from {tmp_path}/run/checkpoints/{checkpoint_name(last)}" in (error.value.hint or "")
    assert "its rows (a " in (error.value.hint or "")
    assert len(read_metrics(tmp_path / "run/metrics.jsonl")) == update - 1
    assert_same_weights(fitted(tmp_path / "run", **keys), fitted(tmp_path / "unbroken", **keys))


@pytest.mark.parametrize("update", [3, 6])
def test_reinforcement_neither(update: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = trainer.EpochLog
    monkeypatch.setattr(trainer, "EpochLog", lambda *args: Both(log(*args), Poison(update, "body")))
    with pytest.raises(UserError, match=f"the gradient of update {update} has the norm nan") as error:
        reinforce(tmp_path)
    assert saved(tmp_path)[-1] == checkpoint_name((update - 1) // 2 * 2)
    assert "prompt 'prompt" in (error.value.hint or "")


class Both(Poison):
    """Poison beside a callback of the trainer's own."""

    def __init__(self, other: Any, poison: Poison) -> None:
        super().__init__(poison.update, poison.layer)
        self.on_train_batch_end = other.on_train_batch_end  # type: ignore[method-assign]


def spoil(folder: Path, part: str) -> None:
    """Write a NaN or an infinity into the newest checkpoint, whose checksums are right."""
    newest = list_checkpoints(folder / "checkpoints")[-1]
    state = load_folder(newest)
    tensor, value = {
        "a weight": (state["state_dict"]["model.body.weight"], NAN),
        "an average": (state["callbacks"]["Ema"]["averages"]["model.body.weight"], float("inf")),
        "the optimizer": (state["optimizer_states"][0]["state"][0]["exp_avg_sq"], float("inf")),
    }[part]
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(checkpoint_io, "not_finite", lambda tensors: None)
        tensor[...] = value
        checkpoint_io.save_folder(state, newest)


# Nothing is left to train, or it goes on.
@pytest.mark.parametrize(
    ("part", "updates"), [("a weight", 4), ("a weight", 6), ("an average", 4), ("the optimizer", 6)]
)
def test_a_resumed_training_passes_over_a_step_that_is_not_finite(part: str, updates: int, tmp_path: Path) -> None:
    unbroken = fitted(tmp_path / "unbroken", ema=0.5, updates=updates)
    fitted(tmp_path / "run", ema=0.5, updates=4)
    spoil(tmp_path / "run", part)
    with pytest.warns(UserWarning, match="step=00000004 is damaged: state.safetensors: .* is not finite"):
        resumed = fitted(tmp_path / "run", ema=0.5, updates=updates)
    assert_same_weights(resumed, unbroken)
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == (tmp_path / "unbroken/metrics.jsonl").read_bytes()


def test_weights_that_a_step_made_infinite_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write the checkpoint .*: .* is not finite|training diverged"):
        fitted(tmp_path, lr=1e38, precision="32-true")
    assert saved(tmp_path) == []


@pytest.mark.parametrize(
    ("lr", "spoilt", "says"),
    [
        (1e4, None, "the (ce|mse) of update .* and was .* at first"),
        (1e-3, NAN, "the gradient of update 1 has the norm nan"),
    ],
)
def test_a_loss_that_no_model_has_is_an_error(lr: float, spoilt: float | None, says: str, tmp_path: Path) -> None:
    model = ToyModel()
    if spoilt is not None:
        model.head.weight.data[0, 0] = spoilt
    with pytest.raises(UserError, match=says):
        fitted(tmp_path, model, lr=lr, warmup_updates=0, updates=20, clip=0.0)
    assert all(line["mse"] < 1000 for line in read_metrics(tmp_path / "metrics.jsonl"))


def test_after_an_alarm_the_same_command_goes_on_from_a_good_step(tmp_path: Path) -> None:
    """Not from the weights of the alarm, which stay to be looked at."""
    ruin: dict[str, Any] = {"lr": 1.0, "clip": 0.0}
    with pytest.raises(UserError, match="stopped after update 2: the log ratio") as error:
        reinforce(tmp_path, **ruin)
    assert "alarm=00000002" in (error.value.hint or "") and "starts from the beginning" in (error.value.hint or "")
    first = load_folder(tmp_path / "checkpoints/alarm=00000002")["state_dict"]
    with pytest.raises(UserError, match="stopped after update 2: the log ratio"):
        reinforce(tmp_path, **ruin)
    again = load_folder(tmp_path / "checkpoints/alarm=00000002")["state_dict"]
    assert saved(tmp_path) == [] and all(torch.equal(again[name], value) for name, value in first.items())


def still(prompts: Any, completions: Any, **_: Any) -> list[float]:
    return [0.5] * len(completions)


@pytest.mark.parametrize("again", [False, True])
def test_a_training_that_learned_nothing_is_an_error(
    again: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where all of its updates are done."""
    model = ToyModel()
    text = [example for example in toy_examples(60, 0) if not example.image]
    for _ in range(1 + again):
        with pytest.raises(UserError, match="nothing was learned: the gradient of all 3 updates is 0"):
            train(tmp_path / "sft", model, text, updates=3, rows=4, trained="moe_gen", progress=True)
        with pytest.raises(UserError, match="nothing was learned: the gradient of all 6 updates is 0"):
            reinforce(tmp_path / "grpo", reward=still, progress=True)
    said = capsys.readouterr().out
    assert "nothing was learned in 3 updates" in said and "in an epoch no group had rewards that differ" in said


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"loss": 3.0, "ce": 99.0, "mse": 0.1}, None),
        ({"loss": NAN, "ce": 2.0, "mse": 0.1}, "the loss of update 7 is nan"),
        ({"loss": 3.0, "ce": 201.0, "mse": 0.1}, "the ce of update 7 is 201, and was 2 at first"),
        ({"loss": 3.0, "ce": 2.0, "mse": 101.0}, "the mse of update 7 is 101, and was 0.5 at first"),
    ],
)
def test_a_loss_that_is_not_finite_or_a_part_that_rose_a_hundredfold_is_a_sign(
    metrics: dict[str, float], message: str | None
) -> None:
    assert diverged({"step": 7, **metrics}, {"ce": 2.0, "mse": 0.5}) == message
