"""compat=official: prompts are read from the released code (here a file of ours in its form), and asked as it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.eval.benchmarks.published import row, write
from tests.eval.benchmarks.ueval.test_benchmark import RUBRICS, STAIRS, YEAR, answered, author, by_rubric, statuses
from uni_train.data_gen.errors import DataError
from uni_train.eval.benchmark import Scored
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ueval.benchmark import TWO_PASSES
from uni_train.eval.benchmarks.ueval.prompts import met, read_official

CODE = '''
import os
raise SystemExit("nobody runs this")
TEXT_TEMPLATE = """
Text. <<question>> | <<text_answer>>
""".strip()
IMAGE_TEMPLATE_OPEN = "Open image. <<question>> | <<text_answer>>"
IMAGE_TEMPLATE_CLOSED = """Closed image. <<question>>""".strip()
TEXT_RUBRIC_TEMPLATE = """
#### Rubric Item

<<rubric_item>>
"""
IMAGE_RUBRIC_TEMPLATE = "#### Rubric Item\\n\\n<<rubric_item>>\\n"
'''


@pytest.fixture
def released(tmp_path: Path) -> UEval:
    (tmp_path / "ueval_eval.py").write_text(CODE)
    art = row("ueval", id=8, task="art", text_rubrics=[STAIRS])
    return UEval(write(tmp_path / "data", "ueval", row("ueval"), art), compat="official", code=tmp_path)


def test_each_part_and_kind_of_question_has_its_own_prompt(released: UEval) -> None:
    yes = dict.fromkeys(RUBRICS, '{"criteria_met": "Yes"}')
    judge = by_rubric({**yes, YEAR: '{"criteria_met": "not sure"}'})
    samples = answered(released, author(), TWO_PASSES)
    space, art = (Scored(one, asyncio.run(released.judge(one, judge)), "judge") for one in samples)
    assert statuses(space.verdict) == {"image 1": "pass", "text 1": "pass", "text 2": "fail"}
    prompts = [(prompt.partition("\n")[0], len(images)) for prompt, images in judge.asked]
    question = "Why can people stand on it?"
    assert prompts == [
        (f"Closed image. {question}", 1),
        *[(f"Text. {question} | 3 apples", 0)] * 2,
        (f"Open image. {question} | 3 apples", 1),
        (f"Text. {question} | 3 apples", 0),
    ]
    assert judge.asked[1][0].startswith("Text.") and "\n\n\n#### Rubric Item" in judge.asked[1][0]
    # The code's averages are over questions.
    found = released.scores([space, art])["over_questions"][TWO_PASSES]
    assert (found["image"]["value"], found["text"]["value"], found["text"]["n"]) == (1.0, 0.75, 2)
    table = next(one for one in released.tables([space, art]) if one.title.startswith("Over questions"))
    assert table.columns == ("Setting", "Image", "Text") and table.rows[0][0] == "Two passes"


def test_a_part_that_is_missing_is_asked_about_all_the_same(released: UEval) -> None:
    sample, _ = answered(released, author(image=RuntimeError("no")), TWO_PASSES)
    judge = by_rubric(dict.fromkeys(RUBRICS, '{"criteria_met": 1}'))
    assert released.check(sample) is None
    with pytest.raises(Exception, match="criteria_met"):  # neither a text nor a boolean
        asyncio.run(released.judge(sample, judge))
    assert [len(images) for _, images in judge.asked] == [0, 0, 0]


def test_the_released_code_is_asked_for_and_checked(tmp_path: Path, released: UEval) -> None:
    for place, text in (("nowhere", None), ("empty", "x = 1"), ("broken", "def (")):
        (tmp_path / place).mkdir()
        if text is not None:
            (tmp_path / place / "ueval_eval.py").write_text(text)
        with pytest.raises(DataError, match=r"git clone https://github.com/zlab-princeton/UEval"):
            read_official(tmp_path / place)
    data = tmp_path / "data"
    assert released.revision != UEval(data).revision
    (tmp_path / "ueval_eval.py").write_text(CODE.replace("Text. ", "Texts. "))
    assert UEval(data, compat="official", code=tmp_path / "ueval_eval.py").revision != released.revision
    said = ("true", " Yes", "1", "not sure", "maybe", True, False)
    assert [met({"criteria_met": one}) for one in said] == [True, True, True, False, False, True, False]
