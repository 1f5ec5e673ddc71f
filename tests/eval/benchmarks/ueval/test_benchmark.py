"""UEval: what each setting asks, rubrics by program and by a judge, and the numbers that they make."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.benchmarks.ueval.test_files import row, write
from uni_train.data_gen import sprites
from uni_train.data_gen.task import Verdict
from uni_train.errors import UsageError
from uni_train.eval.benchmark import Ask, Sample, Scored, Unparseable
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ueval.benchmark import ONE_PASS, THINK_FIRST, TRACED, TWO_PASSES
from uni_train.eval.benchmarks.ueval.prompts import JUDGE, judge_prompt
from uni_train.eval.judges.asking import NoReply, Stopped
from uni_train.eval.judges.reading import JsonReader
from uni_train.models.base import Request
from uni_train.models.pictures import encode_png


class Author:
    """Says and draws what it is told to, and keeps what it was asked."""

    name = "author"

    def __init__(self, text: Any = "3 apples", image: Any = None) -> None:
        self.text = text
        self.image = sprites.render("apple", 3, 1) if image is None else image
        self.asked: list[tuple[str, Request]] = []

    def _say(self, skill: str, requests: Sequence[Request], value: Any) -> list[Any]:
        self.asked += [(skill, request) for request in requests]
        return [value for _ in requests]

    def think(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        return self._say("think", requests, self.text)

    def answer(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        return self._say("answer", requests, self.text)

    def draw(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        return self._say("draw", requests, self.image)

    def compose(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
        return self._say("compose", requests, [self.text, self.image, "and", self.image])


def answered(benchmark: UEval, model: Author, *settings: str) -> list[Sample]:
    asks = [Ask(case, setting, 0, 5) for case in benchmark.cases() for setting in settings or benchmark.settings]
    return benchmark.respond(model, asks)


def statuses(verdict: Verdict | None) -> dict[str, str]:
    return {} if verdict is None else {check.name: check.status for check in verdict.checks}


@pytest.fixture(scope="module")
def apples() -> UEval:
    """Any number of apples, asked in all ways."""
    benchmark = UEval(n=100, sets=("any_number",), passes="all")
    benchmark._cases = tuple(case for case in benchmark._cases if "apples" in case.prompt)
    return benchmark


def test_each_setting_asks_as_the_paper_or_as_we_say(apples: UEval) -> None:
    model = Author()
    one, two, thoughtful = answered(apples, model, ONE_PASS, TWO_PASSES, THINK_FIRST)
    assert [kind for kind, _ in model.asked] == ["answer", "think", "draw", "draw", "compose"]
    assert {request.prompt for _, request in model.asked} == {"Draw some apples ."}  # the same prompt each time
    assert [r.thought for kind, r in model.asked if kind == "draw"] == [None, "3 apples"]
    assert [type(part) for part in one.parts] == [str, bytes, str, bytes] and one.thought is None
    assert two.parts == thoughtful.parts and (two.thought, thoughtful.thought) == (None, "3 apples")
    asks = [sample.ask for sample in (one, two, thoughtful)]
    assert apples.calls(asks) == {"think": 1, "answer": 1, "draw": 2, "compose": 1, "judge": 0}


def test_the_trace_of_another_model_stands_behind_the_question(apples: UEval) -> None:
    class Tracer(Author):
        def think(self, requests: Sequence[Request], *, on_step: Any = None) -> list[Any]:
            return self._say("think", requests, self.text)

    for passes, skills in (("two", ["answer", "draw"]), ("one", ["compose"])):
        tracer, model = Tracer("So draw 3 apples ."), Author()
        traced = UEval(n=1, sets=("any_number",), passes=passes, tracer=tracer)  # type: ignore[arg-type]
        assert traced.settings[-1] == TRACED and TRACED not in UEval(n=1, passes=passes).settings
        traced._cases = apples.cases()  # type: ignore[assignment]
        (sample,) = answered(traced, model, TRACED)
        assert [request.prompt for _, request in tracer.asked] == ["Draw some apples ."]
        assert {request.prompt for _, request in model.asked} == {"Draw some apples . So draw 3 apples ."}
        assert [kind for kind, _ in model.asked] == skills
        assert (sample.thought, sample.prompt) == ("So draw 3 apples .", "Draw some apples . So draw 3 apples .")
        assert traced.calls([sample.ask])["think"] == 1
        without, *_ = answered(traced, Author(image=sprites.render("cup", 3, 1)), traced.settings[0])
        scored = [Scored(one, traced.check(one)) for one in (without, sample)]
        change = traced.scores(scored)["trace"]["image"]["difference"]
        assert change["value"] == 1.0 and traced.tables(scored)[-2].columns[-1] == "Difference"
        tracer.text = RuntimeError("refused")
        (failed,) = answered(traced, Author(), TRACED)
        assert failed.status == "generation_failed" and "refused" in failed.note


def test_a_part_that_fails_leaves_the_other(apples: UEval) -> None:
    (undrawn,) = answered(apples, Author(image=RuntimeError("refused")), TWO_PASSES)
    assert undrawn.status == "ok" and undrawn.parts == ("3 apples",) and "refused" in undrawn.note
    assert statuses(apples.check(undrawn)) == {"image 1": "fail", "text 1": "pass", "text 2": "fail"}
    silent, unthought = answered(apples, Author(text=RuntimeError("refused")), TWO_PASSES, THINK_FIRST)
    assert statuses(apples.check(silent)) == {"image 1": "pass", "text 1": "fail", "text 2": "fail"}
    assert unthought.status == "generation_failed"  # nothing to draw by


@pytest.mark.parametrize(
    ("text", "image", "expected"),
    [
        ("36 % 16 = 3 . So draw 3 apples .", ("apple", 3), "pass pass pass"),
        ("4 apples", ("apple", 3), "pass pass fail"),
        ("3 cups", ("apple", 3), "pass fail pass"),
        ("3 apples", ("cup", 3), "fail pass pass"),
        ("apples", ("apple", 3), "pass fail fail"),
        ("3 apples and 2 cups", ("apple", 3), "pass fail fail"),
        ("3 apples", None, "unreadable pass unreadable"),
    ],
)
def test_a_program_decides_every_rubric_of_nano(apples: UEval, text: str, image: Any, expected: str) -> None:
    picture = np.full((24, 24, 3), 128, np.uint8) if image is None else sprites.render(*image, 1)
    (sample,) = answered(apples, Author(text, picture), TWO_PASSES)
    verdict = apples.check(sample)
    assert verdict is not None and list(statuses(verdict).values()) == expected.split()
    assert verdict.value == expected.split().count("pass") / 3  # an unreadable rubric is not satisfied


def test_maths_has_a_number_and_other_worlds_need_a_judge() -> None:
    nano = UEval(n=3, sets=("maths", "mapping"))
    assert [case.facts["program"]["count"] > 0 for case in nano.cases()] == [True] * 9  # pairs of mapping
    for case in nano.cases():
        program = case.facts["program"]
        said = f"So draw {case.facts['text_ref']} ."
        picture = sprites.render(program["object"], program["count"], 0)
        (sample,) = (s for s in answered(nano, Author(said, picture), TWO_PASSES) if s.ask.case == case)
        assert nano.check(sample).passed  # type: ignore[union-attr]
    other = UEval(world="everyday", n=3, sets=("maths",))
    assert "Answer with an image" in other.cases()[0].prompt
    assert other.check(answered(other, Author(), TWO_PASSES)[0]) is None
    asks = [Ask(case, TWO_PASSES, 0, 0) for case in other.cases()]
    assert other.calls(asks)["judge"] == 4 * 3
    assert UEval(n=1, sets=("maths",), verifier="judge").calls(asks[:1])["judge"] == 4


# --- the judge -----------------------------------------------------------------------------------------------------


class Judge:
    """Replies by rubric; an exception is raised. Reads as strictly as the real one, without asking again."""

    dialect = "paper"

    def __init__(self, replies: dict[str, Any]) -> None:
        self.replies, self.asked = replies, []  # type: ignore[var-annotated]

    async def __call__(self, prompt: str, images: Sequence[bytes] = (), *, parse: Any = None, **_: Any) -> Any:
        self.asked.append((prompt, images))
        reply = next(value for key, value in self.replies.items() if f"#### Rubric Item\n\n{key}\n" in prompt)
        if isinstance(reply, Exception):
            raise reply
        try:
            return parse(reply)
        except ValueError as error:
            raise Unparseable(reply) from error


def met(value: Any) -> str:
    return json.dumps({"explanation": "I looked.", "criteria_met": value})


@pytest.fixture
def published(tmp_path: Path) -> UEval:
    return UEval(write(tmp_path, row(), row(id=8, task="art", image_rubrics=["It shows a cat.", "It shows a car."])))


def judged(benchmark: UEval, replies: dict[str, Any], case: int = 0) -> tuple[Verdict, Judge]:
    judge = Judge(replies)
    sample = answered(benchmark, Author(), TWO_PASSES)[case]
    return asyncio.run(benchmark.judge(sample, judge)), judge


CROWN, STAIRS, YEAR = "It shows the crown.", "It names the stairs.", "It names the year."


def test_questions_about_the_same_rules_are_one_cluster() -> None:
    nano = UEval(n=3, sets=("mapping",))
    scored = [Scored(one, nano.check(one)) for one in answered(nano, Author(), TWO_PASSES)]
    overall = nano.scores(scored)[TWO_PASSES]["overall"]
    assert (overall["n"], overall["distinct"]) == (6, 3)
    assert len({unit.cluster for unit in nano.units(scored, "")}) == 3


def test_the_judge_sees_figure_9_for_each_rubric(published: UEval) -> None:
    verdict, judge = judged(published, {CROWN: met(True), STAIRS: met("not sure"), YEAR: met(False)})
    assert statuses(verdict) == {"image 1": "pass", "text 1": "fail", "text 2": "fail"}  # not sure is false
    assert "(not sure)" in verdict.checks[1].reason and verdict.value == pytest.approx(1 / 3)
    prompt, images = judge.asked[0]
    assert images == (encode_png(Author().image),)
    asked = "Question: Why can people stand on it?\nText Answer: 3 apples\nImage Answer: the attached image\n"
    assert asked in prompt and "<<" not in prompt
    assert judge_prompt("<<rubric_item>>", "", 0, "R").count("<<rubric_item>>") == 1  # filled once, as it stands
    assert JUDGE.startswith("Your job is to look at a conversation") and JUDGE.endswith("and the text answer.")


@pytest.mark.parametrize("failure", ["I think so.", met("yes"), NoReply("500: no")])
def test_a_rubric_that_cannot_be_read_does_not_take_the_others_with_it(published: UEval, failure: Any) -> None:
    verdict, _ = judged(published, {CROWN: met(True), STAIRS: failure, YEAR: met(True)})
    assert statuses(verdict) == {"image 1": "pass", "text 1": "unreadable", "text 2": "pass"}
    assert verdict.status == "unreadable" and verdict.value == pytest.approx(2 / 3)


def test_a_judge_that_answers_nothing_has_no_verdict(published: UEval) -> None:
    with pytest.raises(Unparseable):
        judged(published, dict.fromkeys((CROWN, STAIRS, YEAR), "?"))
    with pytest.raises(Stopped):  # a limit: no more is asked, and a later run asks the rest
        judged(published, {CROWN: met(True), STAIRS: Stopped("the limit is reached"), YEAR: met(True)})


def test_without_an_image_the_judge_is_asked_about_the_text_alone(published: UEval) -> None:
    judge = Judge({STAIRS: met(True), YEAR: met(True)})
    (sample, _) = answered(published, Author(image=RuntimeError("no")), TWO_PASSES)
    verdict = asyncio.run(published.judge(sample, judge))
    assert statuses(verdict) == {"image 1": "fail", "text 1": "pass", "text 2": "pass"} and len(judge.asked) == 2
    assert "Image Answer: (none)" in judge.asked[0][0]


# --- numbers -------------------------------------------------------------------------------------------------------


def test_scores_are_means_of_image_and_text_over_questions_then_tasks(published: UEval) -> None:
    replies = {
        CROWN: met(True),
        STAIRS: met(True),
        YEAR: met(False),
        "It shows a cat.": met(True),
        "It shows a car.": "?",
    }
    judge = Judge(replies)
    samples = answered(published, Author(), TWO_PASSES)
    scored = [Scored(one, asyncio.run(published.judge(one, judge)), "judge") for one in samples]
    found = published.scores(scored)
    value = lambda measure, name: (found[measure] if measure != "score" else found)[TWO_PASSES][name]["value"]  # noqa: E731
    # space: image 1 of 1, text 1 of 2; art: image 1 of 2 (one unreadable), text 1 of 2
    assert [value("image", name) for name in ("space", "art", "overall")] == [1.0, 0.5, 0.75]
    assert [value("text", name) for name in ("space", "art", "overall")] == [0.5, 0.5, 0.5]
    assert [value("score", name) for name in ("space", "art", "closed-ended", "open-ended", "overall")] == [
        0.75, 0.5, 0.75, 0.5, 0.625,
    ]  # fmt: skip
    assert value("all_rubrics", "overall") == pytest.approx((2 / 3 + 2 / 4) / 2)  # section 2.2, another number
    assert found["rubrics"][TWO_PASSES] == {
        "rubrics": 7, "satisfied": 4, "by_program": 0, "unreadable": 1, "not_judged": 0,
    }  # fmt: skip
    assert [unit.value for unit in published.units(scored, "")] == [0.75, 0.5]
    assert [published.attribute(one) for one in scored] == ["text wanting", "image and text wanting"]
    lost = [scored[0], Scored(samples[1], None, "judge", "unparseable")]
    assert published.scores(lost)[TWO_PASSES]["overall"]["value"] == 0.375  # stays in the denominator


def test_the_paper_s_rows_stand_below_ours_for_the_tasks_that_were_asked(published: UEval) -> None:
    verdict, _ = judged(published, {CROWN: met(True), STAIRS: met(True), YEAR: met(True)})
    published.published = True
    scored = [Scored(answered(published, Author(), TWO_PASSES)[0], verdict, "judge")]
    first, third, judges, rubrics = published.tables(scored)
    assert judges.rows[0][0] == "judge, two passes" and judges.columns == ("Judge", "Space")
    assert ("GPT-5 in the paper, GPT-5-Thinking", "0.800") in judges.rows
    assert first.columns == ("Setting", "Space", "Closed-ended", "Overall", "All rubrics")
    assert ("BAGEL in the paper", "0.298", None, None, None) in first.rows
    assert ("BAGEL in the paper", "0.276", "0.319", None, None) in third.rows
    assert third.rows[1][0] == "Reference in the paper" and rubrics.rows[0][1:] == ("3", "3", "0", "0", "0")
    own = UEval(n=1)
    drawn = [Scored(one, own.check(one)) for one in answered(own, Author())]
    assert not any("paper" in str(r[0]) for table in own.tables(drawn) for r in table.rows)


def test_what_cannot_be_meant_is_named() -> None:
    with pytest.raises(UsageError, match="UEval has no set math1"):
        UEval(sets=("math1",))
    with pytest.raises(UsageError, match="no compat loose"):
        UEval(compat="loose")
    with pytest.raises(UsageError, match="UEval has no passes both"):
        UEval(passes="both")


def test_replies_are_read_strictly() -> None:
    from uni_train.eval.benchmarks.ueval.prompts import REPLY

    read = JsonReader(REPLY)
    assert read(f"```json\n{met(True)}\n```")["criteria_met"] is True
    for bad in (met("true"), met(1), met(None), '{"criteria_met": true}', f"Yes: {met(True)}"):
        with pytest.raises(ValueError):
            read(bad)
