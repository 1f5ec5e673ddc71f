"""Experiments: what is run, what is only read, and the arithmetic of scores from stored answers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench import experiment
from bench.experiments import unisandbox
from uni_train.core.errors import UserError
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval import summary as run_summary
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.scored import write_scored
from uni_train.eval.task_benchmark import item_case


def chosen(*words: str) -> argparse.Namespace:
    return experiment.parser().parse_args(words)


def refuse(arguments: Sequence[str]) -> tuple[int, str]:
    raise AssertionError(arguments)


# --- from stored answers --------------------------------------------------------------------------------------------


def stored(folder: Path, right: Mapping[str, Sequence[bool]]) -> unisandbox.Run:
    """A run's shards after training: setting -> which of the answers to mapping1 are right."""
    items = get_task("mapping", "nano").generate(len(right["normal"]) // 2, 1, "test", 0)
    samples = []
    for setting, marks in right.items():
        for item, ok in zip(items, marks, strict=True):
            verdict = Verdict((Check("object", "pass" if ok else "unreadable"),))
            samples.append(Scored(Sample(Ask(item_case(item), setting, 0, 0), parts=(b"png",)), verdict))
    write_scored(folder / "stages" / "03-evaluate-after" / "scored" / "00000.parquet", samples)
    calls = {"thoughts": 8, "images": 8, "velocities": 80, "rollout": 0}
    entry = {"sampled": 8, "kept": 6, "precision": 0.5, "updates": 3, "seconds": 30.0, "calls": calls}
    about = {"recipe": "r", "model": "nano", "seed": 0, "wall_seconds": 1, "peak_rss_bytes": 1, "scores": {}}
    run_summary.write(folder, about | {"rounds": [entry] * 2})
    return unisandbox.Run(folder)


# --- what is asked --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_run_composes_and_slips_show_before_anything_runs(tmp_path: Path) -> None:
    names = [name for name, module in experiment.EXPERIMENTS.items() if module == "unisandbox" and name != "seeds"]
    assert len(experiment.pages(chosen(*names, "--seeds", "0"), refuse)) == 8
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
