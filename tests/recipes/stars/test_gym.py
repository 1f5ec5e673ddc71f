"""The gym: after each round every family is measured, also those that no round trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.nano.test_edit import SMALL
from tests.tiny import finish
from uni_train.eval import summary
from uni_train.eval.sets import training_run
from uni_train.eval.statistics import Estimate

FAMILIES = ("symmetry1", "queens1", "tic_tac_toe1")


@pytest.mark.slow
def test_the_transfer_table_has_every_family_after_every_round(tmp_path: Path) -> None:
    rounds = "{task: queens, level: 1, prompts: 4, updates: 1}, {task: symmetry, level: 1, prompts: 4, updates: 1}"
    quick = [f"rounds=[{rounds}]", "model.checkpoint=null", "model.threads=1", "batch.prompts=4"]
    run = finish(tmp_path, *SMALL, *quick, "evaluation.n=3", f"evaluation.sets=[{','.join(FAMILIES)}]", recipe="gym")
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "Transfer, normal" in text and "before and after training on solutions" in text
    assert "M1 to M3" not in text and "CoT: " not in text and "One of two right" not in text

    found = summary.read(run)
    assert [(one["kept"], one["precision"], one["calls"]["images"]) for one in found["rounds"]] == [(4, 1.0, 0)] * 2
    measured = [found["scores"]["before"], found["after_round"]["round1"], found["scores"]["after"]]
    columns = ("queens1", "symmetry1", "tic_tac_toe1")  # the trained ones first, in the order of the rounds
    for row, scores in enumerate(measured):
        assert scores["normal"].keys() == set(FAMILIES) and all(one["n"] == 3 for one in scores["normal"].values())
        for column, name in enumerate(columns):
            scores["normal"][name]["value"] = (10 * row + column) / 100  # untrained models draw nothing right
    table, _ = training_run.tables(found)  # and the rounds: no family has a table of its own
    assert table.columns == ("After", *columns)
    assert [row[0] for row in table.rows] == ["before", "1: queens 1", "2: symmetry 1", "trivial"]
    values = [[cell.value for cell in row[1:] if isinstance(cell, Estimate)] for row in table.rows]
    assert values[:3] == [[0.0, 0.01, 0.02], [0.1, 0.11, 0.12], [0.2, 0.21, 0.22]] and len(values[3]) == 3
