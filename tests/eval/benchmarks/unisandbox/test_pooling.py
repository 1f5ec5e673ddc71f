from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.eval.test_compare import evaluation
from uni_train.core.errors import UserError
from uni_train.data_gen.knowledge.people import draw_characters, make_knowledge
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.unisandbox.pooling import pool


def evaluated(folder: Path, benchmark: UniSandbox, right: str, **asked: Any) -> Path:
    """Of a model that draws things of one kind right: "portrait", "fruit" or "flower"."""
    asked = {"options": {"compat": "paper"}, "judge": {"model": "judge"}, **asked}
    return evaluation(folder, [benchmark], lambda ask: ask.case.category == right, **asked)


def test_table_4_counts_over_models(tmp_path: Path) -> None:
    people = make_knowledge(tmp_path / "people", 2, 0).path
    names = [one.name for one in draw_characters(2, 0)]
    folders = [
        evaluated(tmp_path / name, UniSandbox(Source(data=people, sets=("forward",)), characters=(name,)), right)
        for name, right in zip(names, ("fruit", "portrait"), strict=True)
    ]
    folders.append(evaluated(tmp_path / "pair", UniSandbox(Source(data=people, sets=("inverse",))), "portrait"))
    found = pool(folders)
    assert (found.models, found.notes) == (3, ())
    normal = found.scores["normal"]
    assert {name: (cell["value"], cell["n"]) for name, cell in normal.items()} == {
        "forward": (2 / 6, 2), "inverse": (1.0, 1),
    }  # fmt: skip
    overall = found.scores["knowledge"]["official"]["cot"]
    assert (overall["value"], overall["n"]) == (0.6, 3)  # models: questions of one are not independent
    assert found.tables[0].title.startswith("Knowledge transfer") and found.tables[0].columns[-1] == "CoT - Normal"


def test_what_cannot_be_pooled(tmp_path: Path) -> None:
    people = make_knowledge(tmp_path / "people", 2, 0).path
    forward = UniSandbox(Source(data=people, sets=("forward",)))
    one = evaluated(tmp_path / "one", forward, "fruit")
    with pytest.raises(UserError, match=r"forward/\w+/1 \(normal\) is in .*one and in .*two"):
        pool([one, evaluated(tmp_path / "two", forward, "fruit")])
    with pytest.raises(UserError, match="the judge was judge and other"):
        pool([one, evaluated(tmp_path / "three", forward, "fruit", judge={"model": "other"})])
    with pytest.raises(UserError, match="asked for no knowledge"):
        pool([one, evaluated(tmp_path / "four", UniSandbox(Source(n=1, sets=("math1",))), "fruit")])
