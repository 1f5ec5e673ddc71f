"""ViGoR-Bench: its templates, and reading what a judge says."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from uni_train.eval.benchmarks.vigor import prompts
from uni_train.eval.benchmarks.vigor.cases import DOMAINS, TASKS, task_named
from uni_train.eval.benchmarks.vigor.prompts import DIMENSIONS, TABLES, dimension_of, family_of, read_marks

KINDS = ("process", "result")
# Of all 18 files, as extracted from the paper: a template is not edited by chance.
DIGEST = "8193121bb529c6ef2178b43a76fa90c1"


def test_templates_are_the_printed_ones() -> None:
    assert sorted(number for pair in TABLES.values() for number in pair) == list(range(5, 23))
    text = "\0".join(prompts.template(family, kind) for family in sorted(TABLES) for kind in KINDS)
    assert hashlib.blake2b(text.encode(), digest_size=16).hexdigest() == DIGEST
    assert {family_of(task) for task in TASKS} == set(TABLES) and len(TASKS) == 20


@pytest.mark.parametrize("family", TABLES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_template_asks_for_four_dimensions_under_keys_that_are_known(family: str, kind: str) -> None:
    asked = prompts.judge_prompt(family, kind, "Draw {gt_prompt}.", "")
    assert "{ {" not in asked and "{instruction}" not in asked
    if family in ("knowledge", "physical"):  # what is filled in is not filled in again
        assert "Draw {gt_prompt}." in asked and prompts.NO_REFERENCE in asked
    form = asked.split("```")[1]
    assert form.count("{") == form.count("}") == 2
    keys = re.findall(r'"([A-Z][\w.]*)": (?:integer|0 or 1)', form)
    assert sorted(name for key in keys if (name := dimension_of(key))) == sorted(DIMENSIONS)
    worth = 100 if kind == "process" else 1
    reply = {key: worth for key in keys} | {"Explanation": {"Background": "kept"}}
    marks = read_marks(f"```json\n{json.dumps(reply)}\n```", kind)
    assert marks.passed and [check.reason for check in marks.checks] == ["kept", "", "", ""]
    assert {check.value for check in marks.checks} == {1.0 if kind == "process" else None}


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"RuleObey": 2}, "result", "RuleObey must be 0 or 1"),
        ({"RuleObey": True}, "process", "an integer from 0 to 100, not true"),
        ({"RuleObey": 0.5}, "process", "an integer from 0 to 100"),
        ({"Rule.Obey": 1}, "result", "gives rule_obey twice"),
        ({"RuleObey": None}, "result", "not null"),
        ({}, "result", "lacks visual_quality"),
    ],
)
def test_a_reply_that_does_not_answer_says_why(change: dict[str, object], kind: str, said: str) -> None:
    reply = {"BackgroundConsistency": 1, "RuleObey": 1, "ReasoningAccuracy": 1, "VisualQuality": 1, **change}
    if not change:
        del reply["VisualQuality"]
    with pytest.raises(ValueError, match=re.escape(said)):
        read_marks(json.dumps(reply), kind)


def test_keys_and_folders_are_known_by_several_names() -> None:
    for key in ("BeneficialAction", "Beneficial_Action", "Beneficial.Action", "Reasoning Accuracy"):
        assert dimension_of(key) == "reasoning_success"
    for name, task in {"Maze_Navigation": "maze_navigation", "Measurement & Verification": "measurement_verification",
                       "Common-Sense": "common_sense", "Jigsaw Puzzle": "jigsaw_puzzle",
                       "Sorting_and_Categorization": "sorting_and_categorization"}.items():  # fmt: skip
        assert task_named(name) == task
    assert task_named("Origami") is None and [len(tasks) for tasks in DOMAINS.values()] == [6, 7, 7]
