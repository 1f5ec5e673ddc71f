from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from uni_train.data_gen.knowledge.people import draw_characters, make_knowledge
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UserError
from uni_train.eval.benchmark import Sample, Scored
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.unisandbox.pooling import pool
from uni_train.eval.evaluation import ASKED, FORMAT, SCORED, SCORES, Result
from uni_train.eval.generation import asks_of
from uni_train.eval.scored import write_scored


def evaluated(folder: Path, benchmark: UniSandbox, right: str, **asked: Any) -> Path:
    """A finished evaluation whose model draws things of one kind right: "portrait", "fruit" or "flower"."""
    asks = asks_of(benchmark.cases(), benchmark.settings)
    scored = [
        Scored(Sample(ask, parts=(b"x",)), Verdict((Check("x", "pass" if ask.case.category == right else "fail"),)))
        for ask in asks
    ]
    write_scored(folder / SCORED / "unisandbox.parquet", scored)
    result = Result(
        name="unisandbox", revision=benchmark.revision, settings=benchmark.settings, sets=benchmark.sets, n=len(asks),
        outcomes={}, causes={}, scores=benchmark.scores(scored), tables=(), unjudged=(), shards=("unisandbox.parquet",),
    )  # fmt: skip
    plain = {
        "format": FORMAT, "model": {"name": folder.name, "content": folder.name, "settings": {}}, "subset": None,
        "seed": 0, "k": 1, "options": {"compat": "paper"}, "benchmarks": {}, "command": [], "started": "",
        "judge": {"model": "judge"}, **asked,
    }  # fmt: skip
    (folder / ASKED).write_text(json.dumps(plain))
    scores = {"format": FORMAT, "results": [result.to_dict()], "calls": {}, "seconds": {}}
    (folder / SCORES).write_text(json.dumps(scores))
    return folder


def test_table_4_counts_over_models(tmp_path: Path) -> None:
    people = make_knowledge(tmp_path / "people", 2, 0).path
    names = [one.name for one in draw_characters(2, 0)]
    folders = [
        evaluated(tmp_path / name, UniSandbox(people, sets=("forward",), names=(name,)), right)
        for name, right in zip(names, ("fruit", "portrait"), strict=True)
    ]
    folders.append(evaluated(tmp_path / "pair", UniSandbox(people, sets=("inverse",)), "portrait"))
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
    forward = UniSandbox(people, sets=("forward",))
    one = evaluated(tmp_path / "one", forward, "fruit")
    with pytest.raises(UserError, match=r"forward/\w+/1 \(normal\) is in .*one and in .*two"):
        pool([one, evaluated(tmp_path / "two", forward, "fruit")])
    with pytest.raises(UserError, match="the judge was judge and other"):
        pool([one, evaluated(tmp_path / "three", forward, "fruit", judge={"model": "other"})])
    with pytest.raises(UserError, match="asked for no knowledge"):
        pool([one, evaluated(tmp_path / "four", UniSandbox(n=1, sets=("math1",)), "fruit")])
