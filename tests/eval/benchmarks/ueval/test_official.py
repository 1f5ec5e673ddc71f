"""compat=official: prompts are read from the released code (here a file of ours in its form), and asked as it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.eval.benchmarks.ueval.test_benchmark import Author, Judge, answered, statuses
from tests.eval.benchmarks.ueval.test_files import row, write
from uni_train.data_gen.errors import DataError
from uni_train.errors import UsageError
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
    data = write(tmp_path / "data", row(), row(id=8, task="art", text_rubrics=["It names the stairs."]))
    return UEval(data, compat="official", code=tmp_path)


def test_each_part_and_kind_of_question_has_its_own_prompt(released: UEval) -> None:
    replies = dict.fromkeys(("It shows the crown.", "It names the stairs."), '{"criteria_met": "Yes"}')
    judge = Judge({**replies, "It names the year.": '{"criteria_met": "not sure"}'})
    space, art = answered(released, Author(), TWO_PASSES)
    verdict = asyncio.run(released.judge(space, judge))
    assert statuses(verdict) == {"image 1": "pass", "text 1": "pass", "text 2": "fail"}
    asyncio.run(released.judge(art, judge))
    prompts = [(prompt.partition("\n")[0], len(images)) for prompt, images in judge.asked]
    question = "Why can people stand on it?"
    assert prompts == [
        (f"Closed image. {question}", 1),
        *[(f"Text. {question} | 3 apples", 0)] * 2,
        (f"Open image. {question} | 3 apples", 1),
        (f"Text. {question} | 3 apples", 0),
    ]
    assert judge.asked[1][0].startswith("Text.") and "\n\n\n#### Rubric Item" in judge.asked[1][0]


def test_a_part_that_is_missing_is_asked_about_all_the_same(released: UEval) -> None:
    sample, _ = answered(released, Author(image=RuntimeError("no")), TWO_PASSES)
    judge = Judge(
        dict.fromkeys(("It shows the crown.", "It names the stairs.", "It names the year."), '{"criteria_met": 1}')
    )
    assert released.check(sample) is None
    with pytest.raises(Exception, match="criteria_met"):  # neither a text nor a boolean
        asyncio.run(released.judge(sample, judge))
    assert [len(images) for _, images in judge.asked] == [0, 0, 0]


def test_the_code_s_averages_are_over_questions(released: UEval) -> None:
    yes = dict.fromkeys(("It shows the crown.", "It names the stairs.", "It names the year."), '{"criteria_met": true}')
    samples = answered(released, Author(), TWO_PASSES)
    judge = Judge({**yes, "It names the year.": '{"criteria_met": false}'})
    scored = [Scored(one, asyncio.run(released.judge(one, judge)), "judge") for one in samples]
    found = released.scores(scored)["over_questions"][TWO_PASSES]
    assert (found["image"]["value"], found["text"]["value"], found["text"]["n"]) == (1.0, 0.75, 2)
    table = next(one for one in released.tables(scored) if one.title.startswith("Over questions"))
    assert table.columns == ("Setting", "Image", "Text") and table.rows[0][0] == "Two passes"


def test_the_released_code_is_asked_for_and_checked(tmp_path: Path, released: UEval) -> None:
    data = tmp_path / "data"
    with pytest.raises(UsageError, match="not shipped"):
        UEval(data, compat="official")
    for place, text in (("nowhere", None), ("empty", "x = 1"), ("broken", "def (")):
        (tmp_path / place).mkdir()
        if text is not None:
            (tmp_path / place / "ueval_eval.py").write_text(text)
        with pytest.raises(DataError, match=r"git clone https://github.com/zlab-princeton/UEval"):
            read_official(tmp_path / place)
    assert released.revision != UEval(data).revision
    (tmp_path / "ueval_eval.py").write_text(CODE.replace("Text. ", "Texts. "))
    assert UEval(data, compat="official", code=tmp_path / "ueval_eval.py").revision != released.revision
    said = ("true", " Yes", "1", "not sure", "maybe", True, False)
    assert [met({"criteria_met": one}) for one in said] == [True, True, True, False, False, True, False]
