"""Experiments: what is run, and what is refused before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import experiment
from uni_train.core.errors import UserError


def chosen(*words: str) -> argparse.Namespace:
    return experiment.parser().parse_args(words)


def refuse(arguments: Sequence[str]) -> tuple[int, str]:
    raise AssertionError(arguments)


@pytest.mark.slow
def test_every_run_composes_and_slips_show_before_anything_runs(tmp_path: Path) -> None:
    names = [name for name, module in experiment.EXPERIMENTS.items() if module == "unisandbox" and name != "seeds"]
    assert len(experiment.pages(chosen(*names, "--seeds", "0"), refuse)) == 8
    assert len(experiment.pages(chosen("replay", "retention", "preferences", "--seeds", "0"), refuse)) == 3
    for words, message in (
        (("table_2", "--set", "batch.promts=3"), "batch.promts"),
        (("table_2", "--base", "mine"), "NAME=FOLDER"),
        (("table_2", "--base", f"mine={tmp_path / 'gone'}"), "there is no folder"),
        (("table_2", "--seeds", "0;1"), "cannot read --seeds"),
        (("tabel_2",), "no experiment and no folder"),
        (("hacking", "-o", "epochs=many"), "hacking: epochs"),
        *(((name, "--only", "sft_some"), "cannot read --only") for name in ("mazes", "hacking", "unigrpo")),
        (("--run", "stars_mixd"), "unknown recipe"),
        ((), "nothing was asked for"),
    ):
        with pytest.raises(UserError, match=message):
            experiment.pages(chosen(*words), refuse)


def test_a_plan_names_each_seed() -> None:
    one, other = experiment.plan("stars_mapping level=3 budget.mapping3.updates=900 name=long", [0, 7])
    assert (str(one.folder), str(other.folder)) == ("runs/stars_mapping/long-seed0", "runs/stars_mapping/long-seed7")
    assert one.arguments[-2:] == ("name=long-seed0", "seed=0")
