"""bench/thoughts.py: filters on a few thoughts, and the runs that it asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import thoughts
from tests.tiny import QUICK, fit
from uni_train.config.compose import compose
from uni_train.errors import UserError
from uni_train.recipes.distil.config import DistilConfig


def test_every_filter_is_asked_about_the_same_thoughts() -> None:
    lines = list(thoughts.filters([("maths", 1)], 4, 1.0, 0))
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[0] == "maths1" and float(cells[2]) == 1.0, "none keeps all"
    spread, agreement = float(cells[1]), float(cells[3])
    assert 0 <= spread <= 1 and agreement >= 1 - spread, "thoughts that all agree are kept"
    assert all("[" in cell or cell == "-" for cell in cells[6:]) and "4 prompts a set, 4 thoughts each" in lines[-3]


def test_each_run_is_one_that_the_recipe_knows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(thoughts.subprocess, "run", lambda arguments, check: asked.append(arguments))
    arms = [(0.0, "none", "teacher"), (1.0, "agreement", "student")]
    more = ["budget.mapping2={prompts: 8, updates: 3}"]
    thoughts.sharpness(tmp_path, "mapping", 2, arms, [5], more)
    found: list[Any] = [compose(one[5], one[6:]) for one in asked]
    assert all(isinstance(config, DistilConfig) and config.evaluation.sets == ("mapping2",) for config in found)
    assert [(one.filter, one.states, one.candidates, one.temperature) for one in found] == [
        ("none", "teacher", 1, None),
        ("agreement", "student", thoughts.CANDIDATES, 1.0),
    ]
    assert [(one.task, one.level, one.prompts, one.updates) for one in found[0].rounds] == [("mapping", 2, 8, 3)]
    with pytest.raises(UserError, match="no finished run"):
        list(thoughts.outcomes(tmp_path))


def test_what_a_run_says_of_itself_is_a_row_of_the_table(tmp_path: Path) -> None:
    fit(
        tmp_path,
        *QUICK,
        "level=1",
        "rounds=[{task: mapping, level: 1}]",
        "candidates=2",
        "temperature=1",
        recipe="distil_math",
    )
    (run,) = tmp_path.glob("distil_math/*")
    lines = list(thoughts.outcomes(tmp_path))
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    found = json.loads((run / "summary.json").read_text(encoding="utf-8"))["statuses"]
    assert cells[0] == run.name and len(cells) == len(lines[0].strip("|").split("|"))
    for cell, when in zip((cells[4], cells[6]), ("after", "before"), strict=True):
        assert cell.startswith(f"{found[when]['normal']['mapping1']['unreadable']['value']:.2f} [")
