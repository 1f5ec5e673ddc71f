"""A fit that ends when a question about its weights is answered with yes, also where it is killed at that moment."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.training.keys import killed_after
from tests.training.toy_model import ToyExample, ToyModel, assert_same_weights, train
from uni_train.training import callbacks
from uni_train.training.metric_log import read_metrics

EXAMPLES = [ToyExample(tuple(float(i == j) for j in range(8)), i % 5, image=True) for i in range(8)]


def fitted(folder: Path, least: int = 0) -> tuple[ToyModel, callbacks.EarlyStop, list[int]]:
    model, looks = ToyModel(), list[int]()

    def passed(step: int) -> bool:
        assert not model.training and not torch.is_grad_enabled()
        looks.append(step)
        return step >= 4

    until = callbacks.EarlyStop(passed, every=2, least=least)
    train(folder, model, EXAMPLES, updates=10, rows=4, lr=1e-2, checkpoint_every=2, log_every=1, callbacks=[until])
    return model, until, looks


def test_it_looks_and_ends(tmp_path: Path) -> None:
    _, until, looks = fitted(tmp_path / "a")
    assert (until.ended, looks) == (4, [2, 4])
    assert [line["step"] for line in read_metrics(tmp_path / "a" / "metrics.jsonl")] == [1, 2, 3, 4]
    _, later, looks = fitted(tmp_path / "b", least=5)
    assert (later.ended, looks) == (6, [6])


def test_killed_at_its_last_update_it_goes_no_further(tmp_path: Path) -> None:
    unbroken, _, _ = fitted(tmp_path / "unbroken")
    with killed_after(4):
        fitted(tmp_path / "killed")
    model, until, looks = fitted(tmp_path / "killed")
    assert (until.ended, looks) == (4, [])
    assert (tmp_path / "killed/metrics.jsonl").read_bytes() == (tmp_path / "unbroken/metrics.jsonl").read_bytes()
    assert_same_weights(unbroken, model)
