"""UEval: files, settings, rubrics by program and by a judge, the numbers they make, rubrics drafted for new items."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.eval.benchmarks.doubles import Judge, Model, checked
from tests.eval.benchmarks.published import row, write
from uni_train.core.errors import DataError, UserError
from uni_train.data_gen import sprites
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample, Scored, Source, Unparseable
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.ueval.benchmark import ONE_PASS, THINK_FIRST, TRACED, TWO_PASSES
from uni_train.eval.benchmarks.ueval.cases import read_folder
from uni_train.eval.benchmarks.ueval.drafting import ATTEMPTS, drafted
from uni_train.eval.benchmarks.ueval.prompts import JUDGE, REPLY, judge_prompt, read_official
from uni_train.eval.benchmarks.ueval.prompts import met as met_of
from uni_train.eval.judges import NoReply, Stopped
from uni_train.eval.judges.ways import JsonReader
from uni_train.models.pictures import encode_png

APPLES = sprites.render("apple", 3, 1)
CROWN, STAIRS, YEAR = RUBRICS = ("It shows the crown.", "It names the stairs.", "It names the year.")


def author(text: Any = "3 apples", image: Any = APPLES) -> Model:
    """Says and draws the same each time."""
    return Model(think=text, answer=text, draw=image, compose=[text, image, "and", image])


def answered(benchmark: UEval, model: Any, *settings: str) -> list[Sample]:
    asks = [Ask(case, setting, 0, 5) for case in benchmark.cases() for setting in settings or benchmark.settings]
    return benchmark.respond(model, asks)


def statuses(verdict: Verdict | None) -> dict[str, str]:
    return {} if verdict is None else {check.name: check.status for check in verdict.checks}


@pytest.fixture(scope="module")
def apples() -> UEval:
    """Any number of apples, asked in all ways."""
    benchmark = UEval(Source(sets=("any_number",)), passes="all")
    benchmark._cases = tuple(case for case in benchmark._cases if "apples" in case.prompt)
    return benchmark


def test_each_setting_asks_as_the_paper_or_as_we_say(apples: UEval) -> None:
    model = author()
    one, two, thoughtful = answered(apples, model, ONE_PASS, TWO_PASSES, THINK_FIRST)
    assert [kind for kind, _ in model.asked] == ["answer", "think", "draw", "draw", "compose"]
    assert {request.prompt for _, request in model.asked} == {"Draw some apples ."}  # the same prompt each time
    assert [r.thought for kind, r in model.asked if kind == "draw"] == [None, "3 apples"]
    assert [type(part) for part in one.parts] == [str, bytes, str, bytes] and one.thought is None
    assert two.parts == thoughtful.parts and (two.thought, thoughtful.thought) == (None, "3 apples")
    asks = [sample.ask for sample in (one, two, thoughtful)]
    assert apples.calls(asks) == {"think": 1, "answer": 1, "draw": 2, "compose": 1, "judge": 0}


@pytest.mark.parametrize(("passes", "skills"), [("two", ["answer", "draw"]), ("one", ["compose"])])
def test_the_trace_of_another_model_stands_behind_the_question(apples: UEval, passes: str, skills: list[str]) -> None:
    tracer, model = Model(think="So draw 3 apples ."), author()
    source = Source(n=1, sets=("any_number",), open_model=lambda _: tracer)  # type: ignore[arg-type, return-value]
    traced = UEval(source, passes=passes, trace_model="tracer")
    assert traced.settings[-1] == TRACED and TRACED not in UEval(source, passes=passes).settings
    traced._cases = apples.cases()  # type: ignore[assignment]
    (sample,) = answered(traced, model, TRACED)
    assert [request.prompt for _, request in tracer.asked] == ["Draw some apples ."]
    asked = "Draw some apples . So draw 3 apples ."
    assert [(kind, request.prompt) for kind, request in model.asked] == [(kind, asked) for kind in skills]
    assert (sample.thought, sample.prompt) == ("So draw 3 apples .", asked)
    assert traced.calls([sample.ask])["think"] == 1
    without, *_ = answered(traced, author(image=sprites.render("cup", 3, 1)), traced.settings[0])
    scored = checked(traced, [without, sample])
    assert traced.scores(scored)["trace"]["image"]["difference"]["value"] == 1.0
    assert traced.tables(scored)[-2].columns[-1] == "Difference"
    tracer.skills["think"] = RuntimeError("refused")
    (failed,) = answered(traced, author(), TRACED)
    assert failed.status == "generation_failed" and "refused" in failed.note


def traces(folder: Path, *rows: Any) -> str:
    return str(write(folder, "ueval", *rows, file="traces.jsonl") / "traces.jsonl")


@pytest.mark.parametrize(("passes", "skills"), [("two", ["answer", "draw"]), ("one", ["compose"])])
def test_traces_of_a_file_stand_behind_their_questions(tmp_path: Path, passes: str, skills: list[str]) -> None:
    data = write(tmp_path, "ueval", row("ueval"), row("ueval", id=8), row("ueval", id=9, task="art"))
    file = traces(tmp_path, {"id": 7, "trace": "Look inside."}, {"id": "9", "trace": "A cat."}, {"id": 6, "trace": "?"})
    traced, model = UEval(Source(data=data), passes=passes, traces=file), author()
    assert traced.settings[-1] == TRACED
    seen, unseen, _ = samples = answered(traced, model, TRACED)
    asked = "Why can people stand on it?\n\nLook inside."
    assert model.asked[0][1].prompt == asked
    assert [kind for kind, _ in model.asked] == [skill for skill in skills for _ in range(2)]
    assert (seen.thought, seen.prompt) == ("Look inside.", asked) and unseen.status == "cue_missing"
    planned = {**dict.fromkeys(skills, 2), "judge": 2 * 3}
    assert traced.calls([sample.ask for sample in samples]) == planned
    right = Verdict(tuple(Check(f"{part} {n + 1}", "pass") for part, n in (("image", 0), ("text", 0), ("text", 1))))
    scored = [Scored(sample, right if sample.status == "ok" else None, "judge") for sample in samples]
    scored += [Scored(sample, None, "judge", "unparseable") for sample in answered(traced, model, traced.settings[0])]
    found = traced.scores(scored)
    assert (found[TRACED]["space"]["value"], found[TRACED]["space"]["n"]) == (1.0, 1)  # 8 is no part of the mean
    assert (found["trace"]["text"]["difference"]["value"], found["trace"]["text"]["difference"]["n"]) == (1.0, 2)
    note = traced.tables(scored)[0].note
    assert "Questions without a trace, not counted: 1 (8). Traces of no question: 1 (6)." in note
    other = traces(tmp_path / "other", {"id": 7, "trace": "Look outside."})
    assert traced.recorded_options() != UEval(Source(data=data), traces=other).recorded_options()
    part = UEval(Source(data=data, sets=("art",)), traces=file)
    assert part.unknown_traces == ["6"]  # 7 is of a task that is not asked


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["{half"], r"traces\.jsonl, line 1: not JSON"), ([{"id": 7}], r'traces\.jsonl, line 1: no "trace"'),
        ([{"id": 7, "trace": "x"}, {"id": "7", "trace": "y"}], "line 2: the id 7 was used in "),
        ([{"id": 7, "trace": " "}], 'line 1: "trace" is " "'), ([], r"traces\.jsonl has no rows"),
        ([{"id": 70, "trace": "x"}], r"traces\.jsonl: no question has one of its ids, such as 70"),
    ],
)  # fmt: skip
def test_traces_that_do_not_fit_are_named(tmp_path: Path, rows: list[Any], said: str) -> None:
    source = Source(data=write(tmp_path, "ueval", row("ueval")))
    with pytest.raises(DataError, match=said):
        UEval(source, traces=traces(tmp_path, *rows))
    with pytest.raises(DataError, match=r"none\.jsonl cannot be read"):
        UEval(source, traces=str(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match=r"ueval\.trace_model and ueval\.traces both give"):
        UEval(source, traces=traces(tmp_path, {"id": 7, "trace": "x"}), trace_model="URL#MODEL")


def test_a_part_that_fails_leaves_the_other(apples: UEval) -> None:
    (undrawn,) = answered(apples, author(image=RuntimeError("refused")), TWO_PASSES)
    assert undrawn.status == "ok" and undrawn.parts == ("3 apples",) and "refused" in undrawn.note
    assert statuses(apples.check(undrawn)) == {"image 1": "fail", "text 1": "pass", "text 2": "fail"}
    silent, unthought = answered(apples, author(text=RuntimeError("refused")), TWO_PASSES, THINK_FIRST)
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
    (sample,) = answered(apples, author(text, picture), TWO_PASSES)
    verdict = apples.check(sample)
    assert verdict is not None and list(statuses(verdict).values()) == expected.split()
    assert verdict.value == expected.split().count("pass") / 3  # an unreadable rubric is not satisfied


def test_maths_has_a_number_and_other_worlds_need_a_judge() -> None:
    nano = UEval(Source(n=3, sets=("maths", "mapping")))
    assert len(nano.cases()) == 9  # pairs of mapping
    for case in nano.cases():
        said, program = f"So draw {case.facts['text_ref']} .", case.facts["program"]
        picture = sprites.render(program["object"], program["count"], 0)
        (sample,) = nano.respond(author(said, picture), [Ask(case, TWO_PASSES, 0, 5)])  # type: ignore[arg-type]
        assert program["count"] > 0 and nano.check(sample).passed  # type: ignore[union-attr]
    other = UEval(Source(world="everyday", n=3, sets=("maths",)))
    assert "Answer with an image" in other.cases()[0].prompt
    assert other.check(answered(other, author(), TWO_PASSES)[0]) is None
    asks = [Ask(case, TWO_PASSES, 0, 0) for case in other.cases()]
    assert other.calls(asks)["judge"] == 4 * 3
    assert UEval(Source(n=1, sets=("maths",), verifier="judge")).calls(asks[:1])["judge"] == 4


def by_rubric(replies: Mapping[str, Any]) -> Judge:
    return Judge(lambda prompt, _: replies[re.findall(r"#### Rubric Item\n\n(.*)\n", prompt)[0]])


def met(value: Any) -> str:
    return json.dumps({"explanation": "I looked.", "criteria_met": value})


@pytest.fixture
def published(tmp_path: Path) -> UEval:
    art = row("ueval", id=8, task="art", image_rubrics=["It shows a cat.", "It shows a car."])
    return UEval(Source(data=write(tmp_path, "ueval", row("ueval"), art)))


def judged(benchmark: UEval, *said: Any, model: Model | None = None) -> tuple[Verdict, Judge]:
    """The first question, judged by crown, stairs and year."""
    judge = by_rubric(dict(zip(RUBRICS, said, strict=True)))
    sample = answered(benchmark, model or author(), TWO_PASSES)[0]
    return asyncio.run(benchmark.judge(sample, judge)), judge


def test_the_judge_sees_figure_9_for_each_rubric(published: UEval) -> None:
    verdict, judge = judged(published, met(True), met("not sure"), met(False))
    assert statuses(verdict) == {"image 1": "pass", "text 1": "fail", "text 2": "fail"}  # not sure is false
    assert "(not sure)" in verdict.checks[1].reason and verdict.value == pytest.approx(1 / 3)
    prompt, images = judge.asked[0]
    assert images == (encode_png(APPLES),)
    asked = "Question: Why can people stand on it?\nText Answer: 3 apples\nImage Answer: the attached image\n"
    assert asked in prompt and "<<" not in prompt
    assert judge_prompt("<<rubric_item>>", "", 0, "R").count("<<rubric_item>>") == 1  # filled once, as it stands
    assert JUDGE.startswith("Your job is to look at a conversation") and JUDGE.endswith("and the text answer.")
    read = JsonReader(REPLY)
    assert read(f"```json\n{met(True)}\n```")["criteria_met"] is True
    for bad in (met("perhaps"), met(2), met(None), '{"criteria_met": true}'):
        with pytest.raises(ValueError):
            read(bad)


@pytest.mark.parametrize("failure", ["I think so.", met("perhaps"), NoReply("500: no")])
def test_a_rubric_that_cannot_be_read_does_not_take_the_others_with_it(published: UEval, failure: Any) -> None:
    verdict, _ = judged(published, met(True), failure, met(True))
    assert statuses(verdict) == {"image 1": "pass", "text 1": "unreadable", "text 2": "pass"}
    assert verdict.status == "unreadable" and verdict.value == pytest.approx(2 / 3)


def test_a_judge_that_answers_nothing_has_no_verdict(published: UEval) -> None:
    with pytest.raises(Unparseable):
        judged(published, "?", "?", "?")
    with pytest.raises(Stopped):  # a limit: no more is asked, and a later run asks the rest
        judged(published, met(True), Stopped("the limit is reached"), met(True))


def test_without_an_image_the_judge_is_asked_about_the_text_alone(published: UEval) -> None:
    verdict, judge = judged(published, "?", met(True), met(True), model=author(image=RuntimeError("no")))
    assert statuses(verdict) == {"image 1": "fail", "text 1": "pass", "text 2": "pass"} and len(judge.asked) == 2
    assert "Image Answer: (none)" in judge.asked[0][0]


# compat=official: prompts are read from the released code, here a file of ours in its form
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
    source = Source(data=write(tmp_path / "data", "ueval", row("ueval"), art), compat="official")
    return UEval(source, code=str(tmp_path))


def test_each_part_and_kind_of_question_has_its_own_prompt(released: UEval) -> None:
    yes = dict.fromkeys(RUBRICS, '{"criteria_met": "Yes"}')
    judge = by_rubric({**yes, YEAR: '{"criteria_met": "not sure"}'})
    samples = answered(released, author(), TWO_PASSES)
    space, art = (Scored(one, asyncio.run(released.judge(one, judge)), "judge") for one in samples)
    assert statuses(space.verdict) == {"image 1": "pass", "text 1": "pass", "text 2": "fail"}
    prompts = [(prompt.partition("\n")[0], len(images)) for prompt, images in judge.asked]
    question = "Why can people stand on it?"
    closed, text, open_ = (
        f"Closed image. {question}",
        f"Text. {question} | 3 apples",
        f"Open image. {question} | 3 apples",
    )
    assert prompts == [(closed, 1), (text, 0), (text, 0), (open_, 1), (text, 0)]
    assert judge.asked[1][0].startswith("Text.") and "\n\n\n#### Rubric Item" in judge.asked[1][0]
    # The code's averages are over questions.
    found = released.scores([space, art])["over_questions"][TWO_PASSES]
    assert (found["image"]["value"], found["text"]["value"], found["text"]["n"]) == (1.0, 0.75, 2)
    table = next(one for one in released.tables([space, art]) if one.title.startswith("Over questions"))
    assert table.columns == ("Setting", "Image", "Text") and table.rows[0][0] == "Two passes"


def test_a_part_that_is_missing_is_asked_about_all_the_same(released: UEval) -> None:
    sample, _ = answered(released, author(image=RuntimeError("no")), TWO_PASSES)
    judge = by_rubric(dict.fromkeys(RUBRICS, '{"criteria_met": 2}'))
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
    assert released.revision != UEval(Source(data=data)).revision
    (tmp_path / "ueval_eval.py").write_text(CODE.replace("Text. ", "Texts. "))
    assert UEval(released.source, code=str(tmp_path / "ueval_eval.py")).revision != released.revision
    said = ("true", " Yes", "1", "not sure", "maybe", True, False)
    assert [met_of({"criteria_met": one}) for one in said] == [True, True, True, False, False, True, False]


def test_scores_are_means_of_image_and_text_over_questions_then_tasks(published: UEval) -> None:
    yes = dict.fromkeys((CROWN, STAIRS, "It shows a cat."), met(True))
    judge = by_rubric({**yes, YEAR: met(False), "It shows a car.": "?"})
    samples = answered(published, author(), TWO_PASSES)
    scored = [Scored(one, asyncio.run(published.judge(one, judge)), "judge") for one in samples]
    found = published.scores(scored)

    def values(measure: str, *names: str) -> list[float]:
        return [(found[measure] if measure else found)[TWO_PASSES][name]["value"] for name in names]

    # space: image 1 of 1, text 1 of 2; art: image 1 of 2 (one unreadable), text 1 of 2
    assert values("image", "space", "art", "overall") == [1.0, 0.5, 0.75]
    assert values("text", "space", "art", "overall") == [0.5, 0.5, 0.5]
    assert values("", "space", "art", "closed-ended", "open-ended", "overall") == [0.75, 0.5, 0.75, 0.5, 0.625]
    assert values("all_rubrics", "overall") == [pytest.approx((2 / 3 + 2 / 4) / 2)]  # section 2.2, another number
    assert [*found["rubrics"][TWO_PASSES].values()] == [7, 4, 0, 1, 0]  # all, satisfied, by program, unreadable
    assert [unit.value for unit in published.units(scored, "")] == [0.75, 0.5]
    assert [published.attribute(one) for one in scored] == ["text wanting", "image and text wanting"]
    lost = [scored[0], Scored(samples[1], None, "judge", "unparseable")]
    assert published.scores(lost)[TWO_PASSES]["overall"]["value"] == 0.375  # stays in the denominator


def test_both_schemas_ask_the_same(tmp_path: Path) -> None:
    new = read_folder(write(tmp_path / "new", "ueval", row("ueval"), row("ueval", id=8, task="art")))
    rubrics = [{"criterion": "It shows the crown.", "n": 1}]
    older = row("ueval", task=..., task_type="space", question_type="closed", image_rubrics=rubrics)
    assert read_folder(write(tmp_path / "old", "ueval", older))[0] == new[0]
    assert [(case.id, case.set, case.category) for case in new] == [
        ("7", "space", "closed-ended"), ("8", "art", "open-ended"),
    ]  # fmt: skip
    assert new[0].facts["text_rubrics"] == ["It names the stairs.", "It names the year."]


def test_parquet_is_read_without_its_images_and_only_of_the_test_split(tmp_path: Path) -> None:
    file = tmp_path / "data" / "test-00000-of-00001.parquet"
    file.parent.mkdir()
    rows = [row("ueval", id="a", image_ref=...), row("ueval", id="b", task="tech", image_ref=...)]
    table = {name: [one[name] for one in rows] for name in rows[0]}
    pq.write_table(pa.table({**table, "image_ref": [[b"x" * 100], []]}), file)
    write(tmp_path, "ueval", row("ueval", id="c"), file="train.jsonl")
    assert [case.id for case in read_folder(tmp_path)] == ["a", "b"]
    assert [case.id for case in UEval(Source(data=tmp_path, sets=("tech",))).cases()] == ["b"]
    pq.write_table(pa.table({**table, "prompt": ["x", ""]}), file)
    with pytest.raises(DataError, match=r'00001\.parquet, row 2: "prompt" is ""'):
        read_folder(tmp_path)
    file.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError, match="pointer of Git LFS"):
        read_folder(tmp_path)


DRAFT = {"image_rubrics": ["It shows the crown."], "text_rubrics": ["It names the stairs.", "It names the year."]}


def drafter(*replies: Any) -> Any:
    """Gives the replies in turn."""
    left = iter(replies)
    return Model(answer=lambda _: next(left))


def unrated(folder: Path, **changes: Any) -> Path:
    item = row("ueval", id=1, image_rubrics=..., text_rubrics=..., **changes)
    return write(folder, "ueval", item, row("ueval", id=2, image_ref=[]), file="new.jsonl") / "new.jsonl"


def test_drafts_are_rows_that_the_benchmark_reads(tmp_path: Path) -> None:
    model = drafter("I would say: clear.", json.dumps(DRAFT))
    first, second = drafted(unrated(tmp_path), model)
    assert {name: first[name] for name in DRAFT} == DRAFT and first["drafted_by"] == model.name
    assert "drafted_by" not in second and second["image_rubrics"] == row("ueval")["image_rubrics"]
    (_, asked), (_, again) = model.asked
    assert asked.seed != again.seed and asked.prompt == again.prompt and len(asked.images) == 1
    parts = ("Question: Why can people stand on it?", "Reference text: By stairs.", "1, attached", '{"image_rubrics"')
    assert all(part in asked.prompt for part in parts)
    case, _ = UEval(Source(data=write(tmp_path / "data", "ueval", first, second))).cases()
    assert case.facts["text_rubrics"] == DRAFT["text_rubrics"]


def test_what_cannot_be_drafted_is_named(tmp_path: Path) -> None:
    items = unrated(tmp_path)
    for replies, said in ((["no"] * ATTEMPTS, "no rubrics in 3 replies"), ([RuntimeError("down")], "gave no answer")):
        with pytest.raises(UserError, match=said):
            list(drafted(items, drafter(*replies)))
    for changes, said in (
        ({"task": "cooking"}, "no task"), ({"prompt": ...}, 'no "prompt"'), ({"image_ref": [3]}, "names of files"),
        ({"image_ref": ["c.png"]}, "no image"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"line 1: .*{said}"):
            list(drafted(unrated(tmp_path, **changes), drafter()))
