from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.errors import UsageError
from uni_train.eval.benchmark import Ask, Case, Sample, Scored
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.generation import asks_of
from uni_train.models.base import OnStep, Request


class Draughtsman:
    """Draws the right answer of nano's questions where it is given the right thought, a blank sheet otherwise."""

    name = "draughtsman"

    def __init__(self, cases: Sequence[Case], silent: frozenset[str] = frozenset()) -> None:
        self.items = {case.id: Item.from_dict(case.facts["item"]) for case in cases if "item" in case.facts}
        self.silent = silent
        self.drawn: list[Request] = []

    def think(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return [ValueError("no words") if r.id in self.silent else self.items[r.id].thought for r in requests]

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray | Exception]:
        self.drawn += requests
        blank = np.full((24, 24, 3), 255, np.uint8)
        return [
            task_of(item).render(item, request.seed)
            if (item := self.items.get(request.id)) is not None and request.thought == item.thought
            else (ValueError("refused") if request.id.endswith("/2") else blank)
            for request in requests
        ]

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        raise AssertionError("UniSandbox asks for no texts")


def scored(benchmark: UniSandbox, samples: Sequence[Sample]) -> list[Scored]:
    return [Scored(one, benchmark.check(one) if one.status == "ok" else None) for one in samples]


def test_a_thought_is_passed_on_and_checked_by_program() -> None:
    benchmark = UniSandbox(n=2, sets=("math1", "mapping3"))
    model = Draughtsman(benchmark.cases(), silent=frozenset({benchmark.cases()[0].id}))
    found = scored(benchmark, benchmark.respond(model, asks_of(benchmark.cases(), benchmark.settings)))
    assert [one.outcome for one in found] == ["fail"] * 6 + ["generation_failed"] + ["pass"] * 5
    assert found[6].sample.note == "no thought: no words"
    assert benchmark.attribute(found[0]) == "wrong, no thought" and benchmark.attribute(found[-1]) == ""
    scores = benchmark.scores(found)
    assert scores["cot"]["math1"]["value"] == 0.5 and scores["cot"]["mapping3"] == {
        "value": 1.0, "n": 2, "low": pytest.approx(0.224, abs=1e-3), "high": 1.0,
    }  # fmt: skip
    assert [request.thought for request in model.drawn[:6]] == [None] * 6


def test_settings_and_labels_share_seeds_and_drawings(repository: Path) -> None:
    benchmark = UniSandbox(repository, labels="both", sets=("math1",), settings=("normal",))
    model = Draughtsman(benchmark.cases())
    asks = asks_of(benchmark.cases(), benchmark.settings, k=2, seed=3)
    samples = benchmark.respond(model, asks)
    assert len(asks) == 2 * (6 + 2) and len(model.drawn) == 2 * 6  # two questions have two labels
    assert benchmark.calls(asks) == {"think": 0, "draw": 12, "judge": 32}
    by_case = {(one.ask.case.id, one.ask.k): one for one in samples}
    for k in (0, 1):
        official, corrected = by_case["math1/2", k], by_case["math1/2/corrected", k]
        assert official.ask.seed == corrected.ask.seed and official.status == "generation_failed"
        assert official.note == corrected.note == "no image: refused"
    assert by_case["math1/5", 0].image == by_case["math1/5/corrected", 0].image is not None


class Judge:
    """Gives its replies one after the other and remembers what it was asked."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[str, int]] = []

    async def __call__(
        self, prompt: str, images: Sequence[bytes] = (), *, parse: Callable[[str], Any] | None = None, **_: Any
    ) -> Any:
        self.asked.append((prompt, len(images)))
        reply = self.replies.pop(0)
        return reply if parse is None else parse(reply)


def judged(benchmark: UniSandbox, case_id: str, *replies: str) -> tuple[Verdict, Judge]:
    case = next(case for case in benchmark.cases() if case.id == case_id)
    sample = Sample(Ask(case, "normal", 0, 0), parts=(b"png",))
    judge = Judge(*replies)
    assert benchmark.check(sample) is None
    return asyncio.run(benchmark.judge(sample, judge)), judge


def test_each_label_is_compared_with_the_same_caption(repository: Path) -> None:
    benchmark = UniSandbox(repository, labels="both")
    verdict, judge = judged(benchmark, "math1/2/corrected", "Caption: 2 cups", "Score: YES")
    assert verdict.passed and [images for _, images in judge.asked] == [1, 0]
    assert "**Expected Answer:** 2 cups" in judge.asked[1][0]
    verdict, judge = judged(benchmark, "math1/2", "Caption: 2 cups", "Score: NO")
    assert not verdict.passed and "**Expected Answer:** 4 cups" in judge.asked[1][0]
    verdict, judge = judged(benchmark, "forward/Belamira/2", "Fruit: apple", "Score: YES")
    assert verdict.passed and "GroundTruth: apples" in judge.asked[1][0]


def test_mapping_by_the_paper_and_by_the_code(repository: Path) -> None:
    asked = {
        compat: judged(UniSandbox(repository, compat=compat), "mapping2/1/A", "Caption: 2 apples", "Score: NO")[1].asked
        for compat in ("paper", "official")
    }
    assert asked["paper"] != asked["official"]
    assert UniSandbox(repository, compat="paper").revision != UniSandbox(repository, compat="official").revision


def test_the_judge_can_be_asked_about_pictures_that_a_program_reads() -> None:
    benchmark = UniSandbox(n=1, sets=("math1",), verifier="judge")
    assert benchmark.revision == UniSandbox(n=1, sets=("math1",)).revision
    case = benchmark.cases()[0]
    assert benchmark.check(Sample(Ask(case, "normal", 0, 0), parts=(b"png",))) is None
    assert benchmark.calls([Ask(case, "normal", 0, 0)])["judge"] == 2


@pytest.mark.parametrize(
    ("thought", "cause"),
    [
        (None, "wrong, no thought"),
        ("2 + 2 = 4. So draw 4 chairs.", "drawn wrong"),
        ("2 + 2 = 5. So draw 5 chairs.", "reasoning wrong"),
        ("Chairs in the sun.", "conclusion not found"),
    ],
)
def test_causes(repository: Path, thought: str | None, cause: str) -> None:
    benchmark = UniSandbox(repository)
    case = next(case for case in benchmark.cases() if case.id == "math1/1")
    sample = Sample(Ask(case, "cot", 0, 0), thought=thought, parts=(b"png",))
    assert benchmark.attribute(Scored(sample, Verdict((Check("caption", "fail"),)))) == cause
    assert benchmark.attribute(Scored(sample, Verdict((Check("caption", "pass"),)))) == ""
    assert benchmark.attribute(Scored(sample, None, failure="unparseable")) == "judge unreadable"
    assert benchmark.attribute(Scored(sample, None, failure="judge_failed")) == "judge failed"


def test_the_revision_is_that_of_the_content(repository: Path) -> None:
    before = UniSandbox(repository)
    assert before.revision == UniSandbox(repository / "benchmark").revision
    assert before.revision == UniSandbox(repository, settings=("normal",)).revision
    file = repository / "benchmark/test_knowledge/Belamira.jsonl"
    file.write_text(file.read_text().replace("apples", "pears"))
    assert before.revision != UniSandbox(repository).revision


def test_a_checkpoint_is_asked_about_those_it_was_taught(repository: Path) -> None:
    benchmark = UniSandbox(repository, sets=("forward", "inverse"), names=("Coraneth",))
    assert [case.id for case in benchmark.cases()] == ["inverse/Belamira_Coraneth/1"]
    with pytest.raises(UsageError, match=r"whose are Coraneth\?"):
        UniSandbox(names=("Coraneth",))


def test_unknown_names_are_named() -> None:
    for wrong in ({"settings": ("COT",)}, {"sets": ("math4",)}, {"labels": "officiel"}, {"compat": "code"}):
        with pytest.raises(UsageError, match="UniSandbox has no"):
            UniSandbox(**wrong)  # type: ignore[arg-type]


def test_nanos_mapping_answers_mean_one_object() -> None:
    benchmark = UniSandbox(n=1, sets=("mapping1",), verifier="judge")
    case = benchmark.cases()[0]
    _, judge = judged(benchmark, case.id, "Caption: 2 moons", "Score: NO")
    assert f"**Expected Answer:** 1 {case.facts['answer']}" in judge.asked[1][0]
