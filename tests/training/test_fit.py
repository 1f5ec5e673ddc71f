"""The whole fit: resumed runs equal uninterrupted ones bit for bit, and micro-batches change nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch

from tests.training.driver import CRASHING, train_crashing
from tests.training.keys import given
from tests.training.toy_model import ToyModel, assert_same_weights, toy_examples, train
from uni_train.config.schema import OptimizerConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.training.checkpoint_io import list_checkpoints, load_folder
from uni_train.training.curriculum import Level, Threshold
from uni_train.training.fit import fit_supervised
from uni_train.training.metric_log import read_metrics
from uni_train.training.optimizer import learning_rate_factor
from uni_train.training.steps import StepDataset
from uni_train.training.supervised import SupervisedModule
from uni_train.training.trained import select_parameters


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("uninterrupted")
    model, result = train_crashing(directory)
    return directory, model, result


def test_result_log_and_checkpoints(uninterrupted):
    directory, _, result = uninterrupted
    lines = read_metrics(directory / "metrics.jsonl")
    updates = [line for line in lines if "loss" in line]
    assert [line["step"] for line in updates] == list(range(1, 61))
    assert result.losses == [line["loss"] for line in updates] and result.seconds > 0 and result.resumed_from == 0
    assert sum(result.losses[-10:]) < 0.9 * sum(result.losses[:10])
    for line in updates:
        assert line["loss"] == pytest.approx(line["ce"] + line["mse"], rel=1e-6)
        optimizer = CRASHING["config"].optimizer
        assert line["lr"] == optimizer.lr * learning_rate_factor(line["step"] - 1, optimizer, 60)
    checks = [line for line in lines if "accuracy" in line]
    assert [line["step"] for line in checks] == list(range(5, 61, 5))
    assert [path.name for path in list_checkpoints(directory / "checkpoints")] == ["step=00000056", "step=00000060"]
    assert max(line["accuracy"] for line in checks) >= 0.47, "the first level ends by its metric, not by its length"


def test_nothing_left_to_do_gives_the_same_averaged_weights(uninterrupted, tmp_path):
    directory, model, result = uninterrupted
    shutil.copytree(directory, tmp_path / "run")
    again, second = train_crashing(tmp_path / "run")
    assert_same_weights(again, model)
    assert second.losses == result.losses and second.resumed_from == second.updates == 60
    state = load_folder(tmp_path / "run/checkpoints/step=00000060")
    raw = state["state_dict"]["model.head.weight"]
    assert not torch.equal(raw, model.head.weight), "the weights handed back are the averaged ones"


SMALL = {"lr": 1e-2, "seed": 5}


def test_loss_is_the_mean_over_all_tokens(tmp_path):
    """The first logged loss, from its definition."""
    model = ToyModel()
    batch = StepDataset(
        model.collate, {"a": toy_examples(40, 0)}, lambda s: {"a": 1}, rows=12, updates=1, seed=5, stage="finetune"
    )[0][0]
    sums = model.supervised_loss(batch.content)
    expected = 0.3 * sums.ce_sum / sums.ce_tokens + 2.0 * sums.mse_sum / sums.mse_tokens
    _, result = train(tmp_path, updates=1, ce_weight=0.3, mse_weight=2.0, **SMALL)
    assert result.losses[0] == pytest.approx(expected.item(), rel=1e-6)


def test_micro_batches_change_nothing_but_the_order_of_summation_also_after_a_resume(tmp_path):
    """Four of three rows each, with unequal numbers of tokens. Gradient norms matter: Adam hides their scale."""
    whole, _ = train(tmp_path / "1", **SMALL)
    split, _ = train(tmp_path / "4", accumulate=4, **SMALL)
    torch.testing.assert_close(split.state_dict(), whole.state_dict(), rtol=1e-4, atol=1e-5)
    logs = [read_metrics(tmp_path / place / "metrics.jsonl") for place in "14"]
    for one, other in zip(*logs, strict=True):
        assert other == pytest.approx(one, rel=1e-4)
    train(tmp_path / "parts", updates=4, accumulate=4, **SMALL)
    resumed, _ = train(tmp_path / "parts", accumulate=4, **SMALL)
    assert_same_weights(split, resumed)
    assert (tmp_path / "4/metrics.jsonl").read_bytes() == (tmp_path / "parts/metrics.jsonl").read_bytes()


def test_what_is_not_trained_stays_and_an_update_that_reaches_nothing_is_skipped_and_counted(tmp_path):
    """Neither momentum nor decay moves a weight."""
    with pytest.raises(UsageError, match="no parameter of ToyModel"):
        select_parameters(ToyModel(), "lora")
    model, rows = ToyModel(), toy_examples(40, 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    text = [replace(row, image=False) for row in rows]
    for done, source, idle in ((1, rows, 0), (4, text, 3)):
        _, result = train(tmp_path, model, source, trained="moe_gen", weight_decay=0.5, updates=done, **SMALL)
        moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
        assert moved == ({"out_moe_gen.weight", "out_moe_gen.bias"} if done == 1 else set()) and result.idle == idle
        before = {name: value.clone() for name, value in model.state_dict().items()}
        assert all(parameter.requires_grad for parameter in model.parameters()), "as it was before"


def test_norms_and_biases_do_not_decay_and_schedules_do():
    module = SupervisedModule(ToyModel(), **given(updates=6, weight_decay=0.5))
    groups = module.configure_optimizers()["optimizer"].param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.5, 3), (0.0, 5)]
    for schedule, least, most in (("constant", 1.0, 1.0), ("linear", 0.1, 0.13), ("cosine", 0.1, 0.13)):
        optimizer = OptimizerConfig(lr=1e-3, warmup_updates=10, decay=schedule, decay_share=0.5, final_lr=0.1)
        factors = [learning_rate_factor(step, optimizer, 100) for step in range(100)]
        assert factors[0] == 0.1 and factors[9:50] == [1.0] * 41
        assert factors[50:] == sorted(factors[50:], reverse=True) and least <= factors[-1] <= most


def test_refusals(tmp_path):
    watching = Threshold([Level({"a": 1}, "accuracy", 0.5, 5)], check_every=2)
    sources = {"a": toy_examples(10, 0)}
    with pytest.raises(UsageError, match="no evaluation was given"):
        fit_supervised(ToyModel(), sources, watching, directory=tmp_path, **given(updates=6, rows=12))
    train(tmp_path / "run")
    with pytest.raises(UserError, match="after 6 updates, but only 3"):
        train(tmp_path / "run", updates=3)


def test_a_damaged_metric_log_names_its_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step"\n{"step": 3}\n{"st')
    with pytest.raises(UserError, match=r"metrics\.jsonl:2: not JSON"):
        read_metrics(tmp_path / "metrics.jsonl")
