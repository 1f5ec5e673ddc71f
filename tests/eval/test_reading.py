"""What a person reads in a reply, reader by reader; None is no answer, or two that differ."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uni_train.core.errors import UserError
from uni_train.eval import reading
from uni_train.eval.benchmarks.vigor.prompts import DIMENSIONS, PROCESS, RESULT, read_marks, steps_of
from uni_train.eval.benchmarks.wise.editions import read_binary
from uni_train.eval.extraction import extract
from uni_train.eval.judges.ways import split_confidence, tagged_yes_no
from uni_train.recipes.stars.filters import _verdict
from uni_train.rewards.judging import read_score

YES_NO: dict[bool | None, list[str]] = {
    True: [
        # of the papers' prompts
        "Score: YES", "Score: [YES]", "**Score**: YES", "**Score: YES**", "Final Answer: YES", "**Final Answer: YES**",
        "Three apples, as asked.\nFinal Answer: YES", "It fits. Final Answer: YES", "It matches.\n<answer>Yes</answer>",
        "<answer>Yes</answer> as I said: <answer>yes</answer>",
        # beside them
        "Score: YES because both are four chairs", "Score: YES\nReason: both say four chairs.",
        "## Final Answer\n\nYES",
        "Final Answer: yes.", "Verdict: Yes", "My judgement is yes.", "Here is what I think: <answer>True</answer>",
        "<answer>Score: YES</answer>", "```\nScore: YES\n```", "```text\nFinal Answer: YES\n```", '{"answer": "Yes"}',
        "The answer is $\\boxed{\\text{YES}}$.", "YES", "**Yes.**", "[YES]", "I see four chairs.\n\nYES",
        "YES\nThe caption says four chairs.", "\u200bScore:\u200b YES", "\ufeffYES", "Score： YES",
        "<think>Final Answer: NO? I look again.</think>Final Answer: YES", "Score: NO? No.</think> Score: YES",
        "1. Is it a cup? Answer: Yes. 2. Is it red? Answer: No.\n<answer>Yes</answer>",
        "Answer: NO?\nFinal Answer: YES",
        "I count $\\boxed{3}$ chairs.\nFinal Answer: YES",
        "<thinking>NO</thinking>\nYES",
    ],
    False: ["Score: NO", "Score: [NO]", "Final Answer: NO\n\n", "<ANSWER> no. </ANSWER>",
            "Score: NO (the count differs)", "Score: NO. No chair is there.", "Final answer: **No** - it is blurred",
            "Answer: no, the cup is missing", "Correct Number: YES\nCorrect Type: NO\nFinal Answer: NO",
            "<answer>\nfalse\n</answer>"],
    None: ["", "Score: [YES or NO]", "Score: YES/NO", "Final Answer: YES or NO", "Score: YES, NO", "Final Answer:",
           "Final Answer: NO\nOn reflection:\nFinal Answer: YES", "Score: YES\nFinal Answer: NO",
           "<answer>Yes</answer> or <answer>No</answer>", "Final Answer: NO\n<answer>Yes</answer>", "YES\n...\nNO",
           "The eyes have it. YES", "The eyes of the picture say yes.", "<answer>eyes</answer>", "Score: eyes",
           "yesterday", "Yes, it does.", "<answer>Yes, mostly</answer>", "<answer></answer>", "<answer>是</answer>",
           "<answer>Yes", "The answer is no longer clear.", "Answer: no apples", "The score. No apples are there",
           "Score: NOT YES", "Final Answer: YES? No.", "I know.", "Is it right?\nYes\nIs it sharp?\nNo\nHm.",
           "If it matches, output <answer>Yes</answer>.\nIf it does not match, output <answer>No</answer>."],
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), [(value, text) for value, texts in YES_NO.items() for text in texts])
def test_yes_or_no(value: bool | None, text: str) -> None:
    """Also where a judge is asked, and by the filter of STARS."""
    assert reading.yes_no(text) is value
    assert _verdict(text).status == {True: "pass", False: "fail", None: "unreadable"}[value]
    if value is None:
        with pytest.raises(ValueError, match="<answer>Yes</answer> or"):
            tagged_yes_no(text)


CHOICES = {"A": "2 cups", "B": "3 cups", "C": None, "D": "a dog"}
LETTERS: dict[str | None, list[str]] = {
    "A": ["I think so. Answer: A", "Caption: 2 cups", "The answer should be (A).", "A", "Option A, clearly, is right."],
    "B": [
        "B", "(b) a cup", "3 cups.", "**B**", "Answer: 3 cups\n\nThe answer is clear.", "First A. No: the answer is B.",
        "Answer: A because of this. But then the final answer is B.", "I would choose B.", "I'd go with option (B).",
        "<answer>B</answer>", "<answer>B: 3 cups</answer>", "$\\boxed{B}$", "So it is \\boxed{\\textbf{(B)}}.",
        "There are \\boxed{3}, so \\boxed{B}.",
        "The cups are three.\n\nB", "I look at it.\n**(B)**", "```\nB\n```", '{"answer": "B"}', "My choice: B",
        "The correct option is B.", "Option B is correct.", "B is the best answer, as there are three.",
        "<think>A, or C?</think>B", "\u200bB\u200b", "## Answer\nB", "Neither A nor C is correct.\n\nB",
        *[f"{mark}B{why}"
          for mark in ("", "Answer: ", "**Answer:** ", "The answer is ", "The correct answer is option ",
                       "Final answer ", "A cup, I first thought. Answer: (")
          for why in ("", ".", ")", " because it fits.", ", because not A or C.", "\n\nExplanation: A is too small.",
                      " - it fits", ". The answer follows from the rule.", ") 3 cups", "\nSo A and C are no answer.",
                      " and A is too small.")],
    ],
    "C": ["\\boxed{C}", "The right choice is C."],
    "D": ["Option D is correct.", "Option D would be the right one.", "a dog"],
    None: [
        "", "E", "a cat", "C or D", "Either A or B is correct.", "A or B is correct", "B\n\nNo, wait.\nC",
        "The answer is B. Hmm, option C is correct.", "Option A is correct. Option B is correct.",
        "A is right of the cup.",
        "Option B is not correct.", "not B", "I would not choose B.", "If A is right then C", "\\boxed{A or B}",
        "<answer>A</answer> or <answer>B</answer>", "I would choose a cup.", "The Cat",
        *[f"{mark}{reply}" for mark in ("", "Answer: ", "The answer is ")
          for reply in ("A or B", "A. or B.", "(A) or (B)", "A, B", "A/B", "A and B", "A or option B.",
                        "A) 2 cups or B) 3 cups", "a cup", "A cup is there", "an apple", "A-frame")],
    ],
}  # fmt: skip


@pytest.mark.parametrize(("letter", "text"), [(letter, text) for letter, texts in LETTERS.items() for text in texts])
def test_a_choice_is_a_letter_or_the_words_of_one(letter: str | None, text: str) -> None:
    assert reading.choice(text, CHOICES) == letter


SENT = '{"explanation": "a", "criteria_met": true}'
CAPTIONS: dict[str | None, list[str]] = {
    "3 apples": ["Caption: 3 apples", "Caption: [3 apples]", "I see\n**Caption:** 3 apples", 'Caption: "3 apples"',
                 "3 apples", "[3 apples]", "**Caption**: 3 apples\n\nAll of them are visible.", "Caption:\n3 apples",
                 "```\nCaption: 3 apples\n```", "<answer>3 apples</answer>\nCaption: 3 apples",
                 "<think>4?</think>Caption: 3 apples"],
    "Error": ["Error", "Caption: Error", "**Error**", "error.", "Caption: 'Error'", "Caption: Error (two kinds)"],
    None: ["", "Caption: 3 apples\nCaption: 4 apples\nHm.", "There are 3 apples", "An error", "3", "Caption:"],
}  # fmt: skip
KNOWN: dict[str | None, list[str]] = {
    "Person: Caucasian; white; old; male": ["Person: Caucasian; white; old; male",
                                            "Caption: Person: Caucasian; white; old; male"],
    "Flower: rose": [" Flower: rose \n", "[Flower: rose]", "Flower: rose\nIt is red.", "- **Flower: rose**"],
    "Reject": ["Reject", "Reject.", "'Reject'", "Reject (two kinds of fruit)"],
    None: ["Person: Caucasian; white; old", "A rose.", "The picture is a Reject", "Flower: rose\nFruit: apple", ""],
}  # fmt: skip
SCORES: dict[float | None, list[str]] = {
    0.7: ["It is good.\nScore: 7", "Score: 7/10", "Score: [7]", "**Score**: 7.", "Score: 7 out of 10", "Score: 70%",
          "Score: 7\nMuch is right.", "7", "Score: 7, as one is missing", "\\boxed{7}", "<answer>7</answer>"],
    1.0: ["Score: 10/10"],
    0.25: ["**Score:** 2.5"],
    None: ["Score: 11", "Score: -1", "Underscore: 7", "Score: 7 or 8", "Score: 7-8", "Score: 3/5",
           "Score: 6, no, Score: 7", "I see 7 cups", ""],
}  # fmt: skip
BINARY: dict[str | None, list[str]] = {
    "pass": ["Score: 1", "1\n", "<think>Score: 0? No.</think>\nScore: 1", "No... so be it.</think> Score: 1",
             "Score: [1]", "`Score: 1`", "Score: 1/1"],
    "fail": ["**Score**: 0", "score:0.", "Score: 0 (it is night)"],
    None: ["Score: 0 or Score: 1", "Score: 0 or 1", "Score: 2", "Score: 10", "I see 1 opera.", ""],
}  # fmt: skip
REFINED: dict[str, list[str]] = {
    "a red kite": ["<refined_prompt>a red kite</refined_prompt>", "refined prompt: a red kite",
                   'The refined prompt is: "a red kite"', "**Final Scene Prompt:** {a red kite}",
                   "Final image prompt: a red kite", "### Refined Prompt\na red kite",
                   "I think.\n\n**Refined Prompt**\n\na red kite\n\n## Notes\nIt flies.",
                   "2. Refined prompt\n```text\na red kite\n```"],
    "": ["I add the final prompt:", "This is my refined prompt\nand no more", "a red kite", ""],
}  # fmt: skip
PLANS: dict[str, list[str]] = {
    "Move the cup|Fill it": ["1. Move the cup\n2. Fill it", "Step 1: Move the cup\nStep 2: Fill it",
                             "**1.** Move the cup\n**2.** Fill it", "**Step 1:** Move the cup\n- Step 2 Fill it",
                             "<think>1. No</think>(1) Move the cup\n2) Fill it"],
    "": ["2 cups are there", "Move the cup"],
}  # fmt: skip
CONFIDENCES: dict[float | None, list[str]] = {
    0.95: ["YES\nConfidence: 95", "YES\n**Confidence**: 95%", "YES Confidence: [95]", "YES\nConfidence: 95/100."],
    None: ["YES", "YES\nConfidence: 101", "YES\nConfidence: 0.95", "Confidence: 95\nYES"],
}


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            return None

    return parse


READERS: list[tuple[Callable[[str], Any], dict[Any, list[str]]]] = [
    (reading.caption, CAPTIONS),
    (reading.knowledge_caption, KNOWN),
    (read_score, SCORES),
    (_or_none(lambda text: read_binary(text).status), BINARY),
    (lambda text: extract(text, "paper").text, REFINED),
    (lambda text: "|".join(steps_of(text, 3)), PLANS),
    (_or_none(lambda text: split_confidence(text)[1]), CONFIDENCES),
]


@pytest.mark.parametrize(
    ("read", "value", "text"),
    [(read, value, text) for read, forms in READERS for value, texts in forms.items() for text in texts],
)
def test_captions_scores_and_prompts(read: Callable[[str], Any], value: Any, text: str) -> None:
    assert read(text) == value


# --- JSON -------------------------------------------------------------------------------------------------------------

RUBRIC = {
    "type": "object",
    "required": ["criteria_met"],
    "properties": {
        "criteria_met": {"anyOf": [{"type": "boolean"}, {"enum": ["not sure"]}]},
        "score": {"type": "integer", "minimum": 0, "maximum": 5},
        "status": {"enum": ["verified", "weak"]},
    },
}
OBJECTS: dict[str, list[str]] = {
    "true": [SENT, f"Here is my evaluation: {SENT}", f"{SENT}\nThat is all.", f"<answer>{SENT}</answer>",
             f"```python\n{SENT}\n```", f"So:\n~~~ json\n{SENT}\n~~~ Done.", f"\ufeff\u200b{SENT}", f"{{ {SENT} }}",
             f"<think>{SENT.replace('true', 'false')}</think>{SENT}", f"{SENT}\nAs I said: {SENT}",
             SENT.replace("true", "True"), SENT.replace("true", '"true"'), SENT.replace("true", '"True"'),
             SENT.replace("true", '"yes"'), SENT.replace("true", "1"), SENT.replace("true}", "true,}"),
             "```json\n" + SENT],
    "false": [SENT.replace("true", '" FALSE "'), SENT.replace("true", '"0"')],
    '"not sure"': [SENT.replace("true", '"Not sure"')],
    "it is not JSON": ["", "Yes.", SENT[:-1], f'{{"explanation": "cut", "inner": {SENT}',
                       SENT.replace("true", "true or false")],
    "NaN is not JSON": [SENT.replace("true", "NaN")],
    "nested too deeply|not JSON": ["[" * 100_000],
    "does not fit": ["{}", "[true]", SENT.replace("true", '"perhaps"'), SENT.replace("true", "2"),
                     SENT.replace("true", "null"), SENT.replace("true", "[true]"), "true"],
    "at status, 'new' is not one of": [SENT.replace("}", ', "status": "new"}')],
    "several JSON objects": [f"{SENT} or {SENT.replace('true', 'false')}"],
    "appears twice": [SENT.replace("explanation", "criteria_met")],
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), [(value, text) for value, texts in OBJECTS.items() for text in texts])
def test_json(value: str, text: str) -> None:
    read = reading.JsonReader(RUBRIC)
    if value in ("true", "false", '"not sure"'):
        assert read(text)["criteria_met"] == json.loads(value) and type(read(text)["criteria_met"]) is not int
    else:
        with pytest.raises(ValueError, match=value):
            read(text)


@example({"why": "it wrote <think>"})
@example({"why": "it wrote </think>"})  # a mark in the JSON is no thought
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10))
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    assert reading.JsonReader({})(json.dumps(value)) == value


def test_scalars_of_another_type_count_where_the_schema_leaves_no_doubt() -> None:
    read = reading.JsonReader(RUBRIC)
    given = {'"4"': 4, "4.0": 4, '"4/5"': 4, '"80%"': 4, '"4.5"': None, "6": None, '"4 or 5"': None}
    for said, score in given.items():
        text = f'{{"criteria_met": true, "score": {said}, "status": "Verified"}}'
        if score is None:
            with pytest.raises(ValueError, match="at score"):
                read(text)
        else:
            assert read(text) == {"criteria_met": True, "score": score, "status": "verified"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\frac{1}{2}", r"\frac{1}{2}"), (r"3 \times 4", r"3 \times 4"), (r"\nu and \beta", r"\nu and \beta"),
        (r"\rho \neq \tau, \forall x", r"\rho \neq \tau, \forall x"), (r"\left(\right)", r"\left(\right)"),
        (r"\text{a}\to\textbf{b}", r"\text{a}\to\textbf{b}"), (r"\(x\) \sum", r"\(x\) \sum"),
        (r"\\frac \\nu", r"\frac \nu"),  # escaped, as it should be
        (r"one\nnext\n\nnot\ttab\r\n\u00e9\/", "one\nnext\n\nnot\ttab\r\né/"),  # escapes stay what they are
        (r"it fits\nbut \alpha is \beta", "it fits\nbut \\alpha is \\beta"),
    ],
)  # fmt: skip
def test_latex_survives_json(written: str, meant: str) -> None:
    assert reading.JsonReader({})(f'{{"why": "{written}"}}') == {"why": meant}
    assert reading.JsonReader({})(json.dumps({"why": meant})) == {"why": meant}


@pytest.mark.parametrize(
    ("kind", "given", "share"),
    [
        *[(PROCESS, given, 0.4) for given in (40, 40.0, "40", "40.0", "40%", " 40 % ", "40/100")],
        *[(RESULT, given, 1.0) for given in (1, 1.0, "1", "1.0", True, "1/1")],
        *[(PROCESS, given, None) for given in (True, 0.4, "0.4", 101, "101%", -1, "forty", None, [40], "40 or 50")],
        *[(RESULT, given, None) for given in (2, 0.5, "100%", "yes and no", None, "0 or 1")],
    ],
)
def test_marks_of_vigor(kind: str, given: Any, share: float | None) -> None:
    names = ("Background.Consistency", "RuleObey", "Visual_Quality", "ReasoningAccuracy")
    text = json.dumps(dict.fromkeys(names, given))
    if share is None:
        with pytest.raises(ValueError, match="must be"):
            read_marks(text, kind)
    else:
        found = read_marks(text, kind)
        assert found.value == pytest.approx(share) and {check.name for check in found.checks} == {*DIMENSIONS}


def test_a_reader_of_json_names_the_package_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema.validators", None)
    with pytest.raises(UserError, match="jsonschema is not installed") as error:
        reading.JsonReader({})
    assert error.value.hint == "pip install -e '.[eval]'"
