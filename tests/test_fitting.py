"""How many processes of this machine a recipe takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from uni_train import fitting
from uni_train.config.compose import compose
from uni_train.plan import this_machine
from uni_train.stages import cpu


@pytest.mark.parametrize(
    ("overrides", "cores", "limit", "quota", "memory", "processes"),
    [
        ([], 2, "", "max 100000", 24, 2),
        ([], 1, "", "max 100000", 24, 1),
        ([], 64, "", "max 100000", 240, fitting.MOST_PROCESSES),
        ([], 4, "3", "max 100000", 24, 3),
        ([], 4, "", "200000 100000", 24, 2),
        ([], 4, "", "50000 100000", 24, 1),
        ([], 4, "", "max 100000", 3, 2),
        ([], 4, "", "max 100000", 2, 1),
        (["batch.prompts=3"], 4, "", "max 100000", 24, 3),
        (["model.threads=1"], 4, "", "max 100000", 24, 1),
        (["strategy.all_cores=false"], 4, "", "max 100000", 24, 1),
        (["strategy.devices=3"], 2, "", "max 100000", 24, 3),
    ],
)
def test_a_recipe_of_nano_takes_a_process_for_each_core_that_it_may_use(
    overrides: list[str],
    cores: int,
    limit: str,
    quota: str,
    memory: int,
    processes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(cpu, "_CGROUP", tmp_path / "cpu.max")
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(this_machine, "memory", lambda: memory * 2**30)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    config = compose("stars_curriculum", ["strategy.accelerator=cpu", *overrides])
    assert fitting._processes(config) == processes


def test_a_large_model_takes_one_process() -> None:
    config = compose("stars_curriculum", ["model=bagel_7b", "strategy.accelerator=cpu"])
    assert fitting._processes(config) == 1
