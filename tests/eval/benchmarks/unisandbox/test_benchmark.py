from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.eval.benchmarks.doubles import Judge, Model
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.generation import asks_of
from uni_train.models.base import Request


def draughtsman(cases: Sequence[Case], silent: str = "") -> Model:
    """Draws the right answer of nano's questions where it is given the right thought, a blank sheet otherwise.

    It has no words for the question `silent`, and refuses to draw what ends in /2.
    """
    items = {case.id: Item.from_dict(case.facts["item"]) for case in cases if "item" in case.facts}

    def draw(request: Request) -> np.ndarray | Exception:
        item = items.get(request.id)
        if item is not None and request.thought == item.thought:
            return task_of(item).render(item, request.seed)
        return ValueError("refused") if request.id.endswith("/2") else np.full((24, 24, 3), 255, np.uint8)

    return Model(think=lambda one: ValueError("no words") if one.id == silent else items[one.id].thought, draw=draw)


def scored(benchmark: UniSandbox, samples: Sequence[Sample]) -> list[Scored]:
    return [Scored(one, benchmark.check(one) if one.status == "ok" else None) for one in samples]


def test_a_thought_is_passed_on_and_checked_by_program() -> None:
    benchmark = UniSandbox(Source(n=2, sets=("math1", "mapping3")))
    model = draughtsman(benchmark.cases(), silent=benchmark.cases()[0].id)
    found = scored(benchmark, benchmark.respond(model, asks_of(benchmark.cases(), benchmark.settings)))
    assert [one.outcome for one in found] == ["fail"] * 6 + ["generation_failed"] + ["pass"] * 5
    assert found[6].sample.note == "no thought: no words"
    assert benchmark.attribute(found[0]) == "wrong, no thought" and benchmark.attribute(found[-1]) == ""
    scores = benchmark.scores(found)
    assert scores["cot"]["math1"]["value"] == 0.5 and scores["cot"]["mapping3"] == {
        "value": 1.0, "n": 2, "low": pytest.approx(0.224, abs=1e-3), "high": 1.0,
    }  # fmt: skip
    assert [request.thought for skill, request in model.asked if skill == "draw"][:6] == [None] * 6


def test_settings_and_labels_share_seeds_and_drawings(repository: Path) -> None:
    benchmark = UniSandbox(Source(data=repository, sets=("math1",)), labels="both", settings=("normal",))
    model = draughtsman(benchmark.cases())
    asks = asks_of(benchmark.cases(), benchmark.settings, k=2, seed=3)
    samples = benchmark.respond(model, asks)
    assert len(asks) == 2 * (6 + 2) and len(model.asked) == 2 * 6  # two questions have two labels
    assert benchmark.calls(asks) == {"think": 0, "draw": 12, "judge": 32}
    by_case = {(one.ask.case.id, one.ask.k): one for one in samples}
    for k in (0, 1):
        official, corrected = by_case["math1/2", k], by_case["math1/2/corrected", k]
        assert official.ask.seed == corrected.ask.seed and official.status == "generation_failed"
        assert official.note == corrected.note == "no image: refused"
    assert by_case["math1/5", 0].image == by_case["math1/5/corrected", 0].image is not None


def judged(benchmark: UniSandbox, case_id: str, *replies: str) -> tuple[Verdict, str]:
    """What the judge says of an image by these replies, and its last question, the comparison."""
    case = next(case for case in benchmark.cases() if case.id == case_id)
    sample = Sample(Ask(case, "normal", 0, 0), parts=(b"png",))
    assert benchmark.check(sample) is None
    left = iter(replies)
    judge = Judge(lambda *_: next(left))
    verdict = asyncio.run(benchmark.judge(sample, judge))
    assert [len(images) for _, images in judge.asked] == [1, 0]
    return verdict, judge.asked[1][0]


@pytest.mark.parametrize(
    ("case", "caption", "right", "compared"),
    [
        ("math1/2/corrected", "Caption: 2 cups", True, "**Expected Answer:** 2 cups"),
        ("math1/2", "Caption: 2 cups", False, "**Expected Answer:** 4 cups"),
        ("forward/Belamira/2", "Fruit: apple", True, "GroundTruth: apples"),
    ],
)
def test_each_label_is_compared_with_the_caption(
    repository: Path, case: str, caption: str, right: bool, compared: str
) -> None:
    said = f"Score: {'YES' if right else 'NO'}"
    verdict, asked = judged(UniSandbox(Source(data=repository), labels="both"), case, caption, said)
    assert verdict.passed == right and compared in asked and caption.partition(": ")[2] in asked


def test_mapping_is_compared_by_the_paper_or_by_the_code(repository: Path) -> None:
    paper, official = (UniSandbox(Source(data=repository, compat=compat)) for compat in ("paper", "official"))
    asked = [judged(one, "mapping2/1/A", "Caption: 2 apples", "Score: NO")[1] for one in (paper, official)]
    assert asked[0] != asked[1] and paper.revision != official.revision
    nano = UniSandbox(Source(n=1, sets=("mapping1",), verifier="judge"))  # a program could read these
    case = nano.cases()[0]
    assert nano.revision == UniSandbox(Source(n=1, sets=("mapping1",))).revision
    assert nano.calls([Ask(case, "normal", 0, 0)])["judge"] == 2
    assert f"Answer:** 1 {case.facts['answer']}" in judged(nano, case.id, "Caption: 2 moons", "Score: NO")[1]


def test_causes(repository: Path) -> None:
    benchmark = UniSandbox(Source(data=repository))
    case = next(case for case in benchmark.cases() if case.id == "math1/1")
    wrong = Scored(Sample(Ask(case, "cot", 0, 0), parts=(b"png",)), Verdict((Check("caption", "fail"),)))
    for thought, cause in {
        None: "wrong, no thought",
        "2 + 2 = 4. So draw 4 chairs.": "drawn wrong",
        "2 + 2 = 5. So draw 5 chairs.": "reasoning wrong",
        "Chairs in the sun.": "conclusion not found",
    }.items():
        assert benchmark.attribute(replace(wrong, sample=replace(wrong.sample, thought=thought))) == cause
    for failure, cause in (("unparseable", "judge unparseable"), ("judge_failed", "judge failed")):
        assert benchmark.attribute(replace(wrong, verdict=None, failure=failure)) == cause
