"""What each benchmark keeps: nano is evaluated and a restart asks nothing; files are checked; names are known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from tests.eval.benchmarks.published import PNG, ROWS, opened, row, write
from tests.eval.judges.server import JudgeServer
from uni_train.config.schema import EvalConfig, JudgeConfig
from uni_train.core.errors import DataError, UsageError, UserError
from uni_train.eval.benchmark import BENCHMARKS, Sample, Scored, Source, Table
from uni_train.eval.benchmarks.ufo.rubric import DIMENSIONS
from uni_train.eval.evaluation import EvaluationPlan, run
from uni_train.eval.generation import asks_of
from uni_train.eval.results import printed

NAMES = tuple(ROWS)


def test_each_of_ours_is_here() -> None:
    ours = [name for name in BENCHMARKS.names() if BENCHMARKS.get(name).__module__.startswith("uni_train.eval.")]
    assert sorted(ours) == sorted(NAMES)


GRADED = {  # UFO's rubric: of all questions on nano's world only this one needs a judge
    "decision_critical_factors": [{"factor": "x", "criticality": "critical", "status": "missing"}],
    "scores": dict.fromkeys(DIMENSIONS, 5),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n", "options", "found"),
    [
        ("unisandbox", 2, {}, ["normal/math1", "cot/mapping3", "cot_gain/average"]),
        ("ureason", 3, {}, ["decontextualized/code", "gains/reasoning/arithmetic", "outcomes/reasoning_chain/pass"]),
        ("ueval", 2, {}, ["think_first/any_number", "two_passes/closed-ended", "two_passes/mapping/distinct=2"]),
        ("ufo", 2, {"extra": ("blind", "dimensions", "swap")},
         ["direct/maths_open", "swap/visual/other", "dimensions/causal_utility", "textual_cue/overall/distinct=6"]),
        ("vigor", 3, {}, ["direct/algebraic_calculation", "cot/overall", "measures/cot/mean_without_quality"]),
        ("wise", 2, {}, ["direct/maths", "cot/mapping/distinct=2", "cot/overall/distinct=4"]),
    ],
)  # fmt: skip
def test_nano_is_evaluated_and_a_restart_changes_nothing(
    tmp_path: Path, name: str, n: int, options: dict[str, Any], found: list[str]
) -> None:
    benchmark = opened(name, Source(n=n), **options)
    with JudgeServer(lambda asked: json.dumps(GRADED)) as server:
        config = EvalConfig(judge=JudgeConfig(model=f"{server.url}#judge"), out=str(tmp_path), name="first")
        plan = EvaluationPlan(checkpoint="shipped", benchmarks=[benchmark], config=config)
        first = run(plan)
        asked = len(server.asked)
        again = run(replace(plan, config=replace(config, name="again")))
    assert len(server.asked) == asked and {counts["made"] for counts in again.calls.values()} == {0}
    assert again.results == first.results
    result, scored = first.results[name], list(first.scored(name))
    asks = asks_of(benchmark.cases(), benchmark.settings)
    assert result.n == len(scored) == len(asks) and not result.unjudged and not result.not_scored
    planned = benchmark.calls(asks)
    assert bool(asked) == bool(planned.pop("judge")) and bool(asked) == any(one.by != "program" for one in scored)
    made = {kind: counts["made"] for kind, counts in first.calls.items() if kind in planned}
    if name == "ureason":  # without a refined prompt nothing is drawn
        made["draw"] += sum(one.outcome == "not_extracted" for one in scored)
    assert made == planned or (name == "ufo" and made["answer"] < planned["answer"])  # schedules of one question
    assert all(bool(one.cause) != one.passed for one in scored) and any(one.passed for one in scored)
    assert json.loads(json.dumps(result.scores)) == result.scores and {*benchmark.settings} <= {*result.scores}
    for path, _, value in (one.partition("=") for one in found):  # questions that share rules or cues are one cluster
        there = reduce(getitem, path.split("/"), result.scores)
        assert there and value in ("", str(there)), path
    for table in result.tables:
        assert all(table.columns) and {len(one) for one in table.rows} <= {len(table.columns)}, table.title
        assert Table.from_dict(table.to_dict()) == table
        assert not any(map(printed, table.rows))  # the paper's stand below its own questions alone


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("unisandbox", [("BAGEL + CoT in the paper", "Math1", "0.60")]),
        ("ureason", [("Bagel in the paper, 1 Direct", "Spatial", "0.03"), ("Bagel in the paper", "Spatial", "0.88"),
                     ("Bagel in the paper, 1 Direct", "Overall", "–")]),
        ("ueval", [("BAGEL in the paper", "Space", "0.298"), ("BAGEL in the paper", "Overall", None),
                   ("BAGEL in the paper", "Space, text", "0.319"), ("Reference in the paper", "Space, image", "0.914"),
                   ("GPT-5 in the paper, GPT-5-Thinking", "Space", "0.800")]),
        ("ufo", [("UniPic1 (1.5B) in the paper, visual", "State reconstruction", "0.3454"),
                 ("Gemini-3.0-pro (-) in the paper, direct", "Per question", "0.6765")]),
        ("vigor", [("Bagel in the paper, unified", "Mean of four", "0.231")]),
        ("wise", [("Bagel in the paper", "Time", "0.3500"), ("BAGEL (w/ CoT) in the paper", "Time", "0.6333"),
                  ("Bagel in the paper", "Overall", None)]),
    ],
)  # fmt: skip
def test_the_paper_s_rows_stand_below_published_questions(tmp_path: Path, name: str, cells: list[Any]) -> None:
    """Of the sets that were asked; a mean over others is none."""
    benchmark = opened(name, Source(data=write(tmp_path, name, row(name))))
    assert not any(printed(one) for table in benchmark.tables([]) for one in table.rows)  # nothing was asked
    benchmark.published = True
    samples = [Sample(ask, parts=(PNG,)) for ask in asks_of(benchmark.cases(), benchmark.settings)]
    assert name == "ufo" or not any(map(benchmark.check, samples))  # no program knows these
    tables = benchmark.tables([Scored(sample, None, "judge", "judge_failed") for sample in samples])
    shown = {
        (one[0], column, cell)
        for table in tables for one in table.rows for column, cell in zip(table.columns, one, strict=True)
    }  # fmt: skip
    assert {*cells} <= shown


NOT_THERE = 'its "image" is not there'


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        # Text, keys and ids, of which each benchmark shares the reader or has one of its own.
        ("unisandbox", {"Answer": ..., "answer": "x"}, 'line 2: no "Answer"'),
        ("unisandbox", {"id": "1"}, "line 2: the id 1 was used before, in line 1"),
        ("ureason", {"expect_en": ...}, 'line 2: no "expect_en"'),
        ("ueval", "{half", "line 2: not JSON"), ("ueval", "[1]", "line 2: a list"),
        ("ueval", {"prompt": ...}, 'line 2: no "prompt"; its keys are id, task'),
        ("ueval", {"task": "spce"}, 'there is no task "spce"; did you mean "space"'),
        ("ueval", {"id": None}, 'line 2: "id" is null'),
        ("ueval", {"image_rubrics": "It shows it."}, '"image_rubrics" is "It shows it."; expected a list'),
        ("ueval", {"text_rubrics": ["fine", 3]}, 'number 2 of "text_rubrics" is 3'),
        ("ueval", {"text_rubrics": [{"weight": 1}]}, "an object with one of rubric, criterion"),
        ("ueval", {"text_rubrics": [], "image_rubrics": []}, "no rubrics at all"),
        ("ueval", {"id": 7}, "the id 7 was used in "),
        ("ufo", {"task": "Jigsaws and more", "answer": "E"}, 'line 2: "answer" is "E"'),
        ("ufo", {"id": "1"}, "line 2: the id 1 was used in"),
        ("ufo", {"task": "Cooking"}, 'line 2: "task" is "Cooking"'),
        ("ufo", {"category": "State Augmentation"}, "jigsaw is of state reconstruction"),
        ("ufo", {"input_images": ["none.png"]}, "none.png cannot be read"),
        ("ufo", {"choice_b": None}, "expected at least two"), ("ufo", {"question": " "}, '"question" is'),
        ("vigor", 3, "record 1 must be an object"),
        ("vigor", {"instruction": ...}, 'record 1: no "instruction"; its keys are image'),
        ("vigor", {"hint": "x"},
         "record 1: unknown field 'hint'. Say what it is for: options.vigor.fields=hint=ROLE"),
        ("vigor", {"image": ...}, 'record 1: no "image", which is a file named input_image'),
        ("vigor", {"prompt": "Empty."}, "'instruction' and 'prompt' both give its instruction, and differ"),
        ("vigor", {"image": "c.png"}, NOT_THERE), ("vigor", {"image": "../../secret.png"}, NOT_THERE),
        ("vigor", {"image": "records.json"}, "no image that can be read"),
        ("vigor", {"gt_image": "a.mp4"}, '"answer_image" is "a.mp4"; a video: take its frames'),
        ("vigor", {"image": ["a.png", "a.png"]}, "expected one file name"),
        ("vigor", {"size": "large"}, '"size" is "large"; expected a size like 4 or 4x4'),
        ("vigor", {"id": 1}, "record 1: the id 1 was used in "),
        ("vigor", {"item": {"id": 3}}, "expected an item of data_gen"),
        ("wise", {"prompt_id": 402, "Explanation": ...}, 'record 1: no "Explanation"'),
        ("wise", {"prompt_id": 402, "Category": "chemistri"}, 'there is no category "chemistri"; did you mean'),
        ("wise", {}, "record 1: the id 401 was used in"),
    ],
)  # fmt: skip
def test_a_damaged_row_is_named_by_file_place_and_key(tmp_path: Path, name: str, change: Any, said: str) -> None:
    (tmp_path / "secret.png").write_bytes(PNG)
    second = row(name, **{"id": "2", **change}) if isinstance(change, dict) else change
    good = row(name, id=1) if name == "vigor" else row(name)
    folder = write(tmp_path / "a" / "b", name, good, second)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        opened(name, Source(data=folder))
    assert Path(ROWS[name][0]).name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "get", "lacking", "said"),
    [
        ("unisandbox", "data.unisandbox=|benchmark folder", "math3", r"has no math3\nIt has math1"),
        ("ureason", r"is no folder|has no code\.jsonl", "text", r"has no text\.jsonl"),
        ("ueval", "data.ueval=hf://zlab-princeton/UEval", "art", "has no questions of art: it has space"),
        ("ufo", "yzzyu/UFO.*data.ufo=FOLDER", "", ""),
        ("vigor", "not shipped .*VincentHancoder/ViGoR-Bench|one folder a task", "biology", "no folder of biology"),
        ("wise", "git clone .*PKU-YuanGroup/WISE.*data.wise=WISE", "space", r"no questions of these sets\n.*has time"),
    ],
)
def test_absent_files_and_sets_are_named(tmp_path: Path, name: str, get: str, lacking: str, said: str) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises((UserError, DataError), match=get):
            opened(name, Source(data=folder))
    if lacking:
        with pytest.raises((UserError, DataError), match=said):
            opened(name, Source(data=write(tmp_path, name, row(name)), sets=(lacking,)))


@pytest.mark.parametrize("name", NAMES)
def test_the_revision_is_that_of_the_content(tmp_path: Path, name: str) -> None:
    first, moved = (opened(name, Source(data=write(tmp_path / at, name, row(name)))) for at in ("a", "b"))
    assert first.revision == moved.revision and len(first.cases()) == 1 and first.user_files
    (key,) = {"Question", "prompt", "question", "instruction", "Prompt"} & set(row(name))
    changed = opened(name, Source(data=write(tmp_path / "a", name, row(name, **{key: "Draw as many cups as 1 + 2."}))))
    assert changed.revision != first.revision
    assert opened(name, Source(n=1)).revision == opened(name, Source(n=1)).revision != first.revision


@pytest.mark.parametrize(
    ("name", "source", "options", "said"),
    [
        *[(name, {"sets": ("maths9",)}, {}, "has no set maths9") for name in NAMES if name != "ureason"],
        *[(name, {"compat": "loose"}, {}, "has no compat loose") for name in NAMES if name != "vigor"],
        ("ureason", {"sets": ("text",)}, {}, "the nano world has no text"),
        ("unisandbox", {}, {"labels": "officiel"}, "has no labels officiel"),
        ("unisandbox", {}, {"characters": ("Coraneth",)}, r"whose are Coraneth\?"),
        ("ueval", {}, {"passes": "both"}, "UEval has no passes both"),
        ("ueval", {"compat": "official"}, {}, "not shipped"),
        ("vigor", {}, {"steps": 0}, "a plan has at least one"),
        ("vigor", {}, {"fields": ("hint=role",)}, "no NAME=ROLE"),
        ("wise", {"sets": ("culture",)}, {}, "WISE has no set culture"),
    ],
)
def test_what_cannot_be_meant_is_named(
    tmp_path: Path, name: str, source: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    data = write(tmp_path, name, row(name)) if "fields" in options or source == {"compat": "official"} else None
    with pytest.raises(UsageError, match=said):
        opened(name, Source(data=data, **source), **options)
