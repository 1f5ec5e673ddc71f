"""UniSandbox: files, what settings ask, labels and verdicts, scores, and evaluations pooled over models."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.benchmarks.doubles import Judge, Model, checked
from tests.eval.benchmarks.published import write
from tests.eval.test_compare import evaluation
from uni_train.core.errors import DataError, UserError
from uni_train.data_gen import sprites
from uni_train.data_gen.export import make
from uni_train.data_gen.knowledge.people import draw_characters, make_knowledge
from uni_train.data_gen.registry import get_task, task_of
from uni_train.data_gen.task import Check, Item, Status, Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Scored, Source, Table
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.unisandbox.cases import ALL_SETS, generated, published
from uni_train.eval.benchmarks.unisandbox.pooling import pool
from uni_train.eval.generation import asks_of
from uni_train.eval.results import Results, changes
from uni_train.eval.sets.counting import accuracy, average, by_cell, units
from uni_train.eval.sets.thoughts import conclusion
from uni_train.eval.statistics import Estimate, PairedComparison
from uni_train.eval.task_benchmark import item_of
from uni_train.models.base import Request
from uni_train.models.pictures import encode_png

# Questions of our own in the published schema, with the kinds of mistakes that the published files hold.
MATHS = [
    {"Question": "Draw as many chairs as 2 + 2.", "Answer": "4 chairs", "id": "1"},
    {"Question": "Draw as many cups as the square root of 9 plus 1 minus 2.", "Answer": "4 cups", "id": "2"},
    {"Question": "Draw as many dogs as 3 * 3.", "Answer": "9 dogs", "id": "3"},
    {"Question": "Draw as many lamps as 4 / 0.", "Answer": "1 lamp", "id": "4"},
    {"Question": "Draw as many kites as 6 - 5.", "Answer": "2 kites", "id": "5"},
    {"Question": "Draw as many pens as 1 plus 1 times 2.", "Answer": "3 pens", "id": "6"},
]
RULES = (
    "Rule 1: The symbol @ represents {}. Rule 2: The symbol * represents {}. "
    "Please generate the object represented by the symbol {}."
)


def pair(number: int, first: str, second: str, answers: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"ID": str(number), f"Question_{which}": RULES.format(first, second, symbol), "Answer": answer}
        for which, symbol, answer in zip("AB", "@*", answers, strict=True)
    ]


MAPPING = [
    *pair(1, "apples", "bananas", ["Apples", "Bananas"]),
    *pair(2, "chairs", "tables", ["Chairs", "Chairs"]),  # B is wrong
    *pair(3, "kites", "kites", ["Kites", "Kites"]),  # no pair at all
    {"ID": "4", "Question_A": RULES.format("dogs", "cats", "@"), "Answer": "Dogs"},
    {"ID": "4", "Question_B": RULES.format("dogs", "cats", "#"), "Answer": "Cats"},  # no rule says what # means
]
PORTRAIT = "An elderly Caucasian woman with white hair."
FORWARD = [
    {"ID": 1, "Question": "Generate a portrait of Belamira.", "Answer": PORTRAIT},
    {"ID": 2, "Question": "Draw Belamira's favorite fruit.", "Answer": "apples"},
    {"ID": 3, "Question": "Draw Belamira's favorite flower.", "Answer": "rose"},
]
INVERSE = [{"ID": 1, "Question": "Draw the person whose favorite fruit is apples.", "Answer": PORTRAIT}]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Laid out as the published repository."""
    folder = tmp_path / "UniSandBox"
    for name, rows in (
        ("test_reasoning/math_1", MATHS), ("test_reasoning/mapping2", MAPPING),
        ("test_knowledge/Belamira", FORWARD), ("test_knowledge/Belamira_Coraneth", INVERSE),
    ):  # fmt: skip
        write(folder, "unisandbox", *rows, file=f"benchmark/{name}.jsonl")
    return folder


def by_label(cases: tuple[Case, ...], label: str) -> dict[str, str]:
    return {case.facts["drawn_as"]: case.facts["answer"] for case in cases if label in case.facts["labels"]}


@pytest.mark.parametrize("place", ["", "benchmark", "benchmark/test_reasoning"])
def test_official_labels_are_the_published_ones_right_or_wrong(repository: Path, place: str) -> None:
    official = by_label(published(repository / place, ["math1", "mapping2"]).cases, "official")
    assert [official[f"math1/{row['id']}"] for row in MATHS] == [row["Answer"] for row in MATHS]
    assert official["mapping2/2/B"] == "Chairs" and len(official) == 6 + 8


def test_corrected_labels_are_recomputed_and_questions_without_one_are_named(repository: Path) -> None:
    questions = published(repository, ["math1", "mapping2"])
    corrected = by_label(questions.cases, "corrected")
    assert corrected == {
        "math1/1": "4 chairs",
        "math1/2": "2 cups",  # (√9 + 1) - 2; other readings are no whole numbers
        "math1/5": "1 kite",
        "mapping2/1/A": "Apples",
        "mapping2/1/B": "Bananas",
        "mapping2/2/A": "Chairs",
        "mapping2/2/B": "Tables",
    }
    assert set(questions.excluded["math1"]) == {"math1/3", "math1/4", "math1/6"}
    assert "divided by zero" in questions.excluded["math1"]["math1/4"]
    assert "several ways" in questions.excluded["math1"]["math1/6"]  # 3 or 4, and both can be drawn
    assert set(questions.excluded["mapping2"]) == {"mapping2/3", "mapping2/4"}
    assert "both questions ask for" in questions.excluded["mapping2"]["mapping2/3"]


def test_two_labels_of_a_question_share_its_drawing_and_category(repository: Path) -> None:
    cases = {case.id: case for case in published(repository, ["math1", "mapping2"]).cases}
    official, corrected = cases["math1/2"], cases["math1/2/corrected"]
    assert official.facts["drawn_as"] == corrected.facts["drawn_as"] == "math1/2"
    assert official.prompt == corrected.prompt and official.cluster == corrected.cluster is not None
    assert (official.category, corrected.category) == ("4 objects", "")  # a breakdown counts the drawing once
    assert (cases["math1/4"].category, cases["mapping2/1/B"].category) == ("1 object", "question B")
    ours = generated("nano", 2, 0, "test", 0, ("math1", "mapping1")).cases
    assert {case.category for case in ours if case.set == "mapping1"} == {"question A", "question B"}
    assert all(case.category.startswith(f"{case.facts['item']['facts']['count']} ") for case in ours[:2])


def test_knowledge_files(repository: Path) -> None:
    asked = {case.id: case.category for case in published(repository, ["forward", "inverse"]).cases}
    assert asked == {"forward/Belamira/1": "portrait", "forward/Belamira/2": "fruit", "forward/Belamira/3": "flower",
                     "inverse/Belamira_Coraneth/1": "portrait"}  # fmt: skip
    assert len(published(repository, ["forward", "inverse"], ["Coraneth"]).cases) == 1
    with pytest.raises(UserError, match="asks nothing about Nobody"):
        published(repository, None, ["Nobody"])


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("test_reasoning/mapping1", MATHS, r"mapping1.jsonl holds rows of maths"),
        ("test_knowledge/Belamira", [{"ID": 1, "Question": "Who?", "Answer": "rose"}],
         r"Belamira.jsonl, line 1: .*neither a fruit nor a flower"),
        ("test_knowledge/Belamira", [*FORWARD, FORWARD[0]],
         r"Belamira.jsonl, line 4: the ID 1 was used before, in line 1"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(repository: Path, file: str, rows: Sequence[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        published(write(repository, "unisandbox", *rows, file=f"benchmark/{file}.jsonl"))


def test_a_folder_of_data_make_keeps_what_is_known(tmp_path: Path) -> None:
    make(get_task("mapping", "nano"), (2,), 3, "test", 0, "nano", tmp_path / "mine", False)
    cases = published(tmp_path / "mine").cases
    assert len(cases) == 6 and {case.set for case in cases} == {"mapping2"}
    assert all(case.facts["world"] == "nano" and "item" in case.facts for case in cases)
    row = (tmp_path / "mine" / "items.jsonl").read_text().splitlines()[0]
    (tmp_path / "mine" / "items.jsonl").write_text(f"{row}\n{row}\n")
    with pytest.raises(DataError, match=f"the item {json.loads(row)['id']} is in line 1 already"):
        published(tmp_path / "mine")


@pytest.mark.parametrize(("task", "level", "name"), [("maths_paper", 2, "maths_paper2"), ("sudoku", 1, "sudoku1")])
def test_a_folder_of_any_task_with_sets_is_scored(tmp_path: Path, task: str, level: int, name: str) -> None:
    drawer = get_task(task, "nano")
    make(drawer, (level,), 4, "test", 0, "nano", tmp_path / "mine", False)
    benchmark = UniSandbox(Source(data=tmp_path / "mine"))
    items = [item_of(case) for case in benchmark.cases()]
    asks = [Ask(case, "normal", 0, 0) for case in benchmark.cases()]
    scored = checked(benchmark, [Sample(ask, parts=(encode_png(drawer.render(items[0], 1)),)) for ask in asks])
    right = sum(one.passed for one in scored)
    assert scored[0].passed and right < 4
    assert benchmark.scores(scored)["normal"][name]["value"] == right / 4
    (table,) = [table for table in benchmark.tables(scored) if table.columns == ("Setting", name)]
    assert [row[0] for row in table.rows] == ["Normal", "Best trivial strategy", "Chance"]


@pytest.mark.parametrize(("task", "level", "hint"), [("maze", 12, "3, 4, 5, 6, 7, 8"), ("ureason", 1, "-b ureason")])
def test_a_folder_without_sets_is_refused(tmp_path: Path, task: str, level: int, hint: str) -> None:
    make(get_task(task, "nano"), (level,), 2, "test", 0, "nano", tmp_path / "mine", False)
    with pytest.raises(UserError, match=f"{task} of level {level}, which has no set") as caught:
        published(tmp_path / "mine")
    assert hint in str(caught.value.hint)


def test_answers_to_published_questions_are_read(repository: Path) -> None:
    benchmark = UniSandbox(Source(data=repository, sets=("math1",)), settings=("said",))
    case = benchmark.cases()[0]
    count = case.facts["answer"].split()[0]
    for reply, status in ((count, "pass"), (f"The answer is {count}.", "pass"), ("77", "fail"), ("Hm.", "unreadable")):
        verdict = benchmark.check(Sample(Ask(case, "said", 0, 0), parts=(reply,)))
        assert verdict is not None and verdict.status == status


def test_questions_of_our_own_and_knowledge_that_was_written(tmp_path: Path) -> None:
    questions = generated("everyday", 3, 4, "test", 0, ALL_SETS)
    assert not questions.relabelled
    assert [*Counter(case.set for case in questions.cases).values()] == [3, 3, 3, 6, 6, 6, 12, 8]
    written = published(make_knowledge(tmp_path / "people", 4, 0, "test").path).cases
    ours = [case for case in questions.cases if case.facts["task"] == "knowledge"]
    assert sorted(written, key=lambda case: case.id) == sorted(ours, key=lambda case: case.id)


def test_knowledge_of_the_nano_world_is_checked_by_program() -> None:
    questions = generated("nano", 3, 2, "test", 0, ("forward", "inverse"))
    assert [case.set for case in questions.cases] == ["forward"] * 6 + ["inverse"] * 4
    benchmark = UniSandbox(Source(), questions=questions)
    for case, other in zip(questions.cases, questions.cases[1:] + questions.cases[:1], strict=True):
        shown = case.facts["item"]["facts"]
        picture = encode_png(sprites.render(shown["object"], shown["count"], 0))
        verdicts = [benchmark.check(Sample(Ask(one, "normal", 0, 0), parts=(picture,))) for one in (case, other)]
        same = case.facts["answer"] == other.facts["answer"]
        assert [verdict is not None and verdict.passed for verdict in verdicts] == [True, same]
        assert conclusion(f"G K = {case.facts['answer']} .", case) == "right"
        assert conclusion("G K = 9 keys .", case) == "wrong" and conclusion("G K means G .", case) == "unclear"


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


def test_a_thought_is_passed_on_and_checked_by_program() -> None:
    benchmark = UniSandbox(Source(n=2, sets=("math1", "mapping3")))
    model = draughtsman(benchmark.cases(), silent=benchmark.cases()[0].id)
    found = checked(benchmark, benchmark.respond(model, asks_of(benchmark.cases(), benchmark.settings)))
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


def evaluated(folder: Path, benchmark: UniSandbox, right: str, **asked: Any) -> Path:
    """Of a model that draws things of one kind right: "portrait", "fruit" or "flower"."""
    asked = {"options": {"compat": "paper"}, "judge": {"model": "judge"}, **asked}
    return evaluation(folder, [benchmark], lambda ask: ask.case.category == right, **asked)


def test_table_4_counts_over_models(tmp_path: Path) -> None:
    people = make_knowledge(tmp_path / "people", 2, 0).path
    names = [one.name for one in draw_characters(2, 0)]
    folders = [
        evaluated(tmp_path / name, UniSandbox(Source(data=people, sets=("forward",)), characters=(name,)), right)
        for name, right in zip(names, ("fruit", "portrait"), strict=True)
    ]
    folders.append(evaluated(tmp_path / "pair", UniSandbox(Source(data=people, sets=("inverse",))), "portrait"))
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
    forward = UniSandbox(Source(data=people, sets=("forward",)))
    one = evaluated(tmp_path / "one", forward, "fruit")
    with pytest.raises(UserError, match=r"forward/\w+/1 \(normal\) is in .*one and in .*two"):
        pool([one, evaluated(tmp_path / "two", forward, "fruit")])
    with pytest.raises(UserError, match="the judge was judge and other"):
        pool([one, evaluated(tmp_path / "three", forward, "fruit", judge={"model": "other"})])
    with pytest.raises(UserError, match="asked for no knowledge"):
        pool([one, evaluated(tmp_path / "four", UniSandbox(Source(n=1, sets=("math1",))), "fruit")])


def one(case: Case, right: bool | Status, setting: str = "normal", k: int = 0, thought: str | None = None) -> Scored:
    status: Status = right if isinstance(right, str) else "pass" if right else "fail"
    sample = Sample(Ask(case, setting, k, 0), parts=(b"png",), thought=thought)
    return Scored(sample, Verdict((Check("caption", status),)))


def cell(tables: list[Table], title: str, row: str, column: str) -> Any:
    table = next(table for table in tables if table.title.startswith(title))
    return next(r for r in table.rows if r[0] == row)[table.columns.index(column)]


def test_official_and_corrected_stand_side_by_side(repository: Path) -> None:
    """A model that is right by the true answer, and draws two chairs where the file wrongly says four."""
    benchmark = UniSandbox(Source(data=repository, sets=("math1", "mapping2")), labels="both", settings=("normal",))
    right = {"math1/1", "math1/2/corrected", "math1/5/corrected"}
    scored = [one(case, case.set == "mapping2" or case.id in right) for case in benchmark.cases()]
    scores = benchmark.scores(scored)
    official, corrected = (scores["labels"][label]["normal"] for label in ("official", "corrected"))
    assert scores["normal"] == official
    assert (official["math1"]["value"], official["math1"]["n"]) == (1 / 6, 6)
    assert (corrected["math1"]["value"], corrected["math1"]["n"]) == (1.0, 3)
    assert (official["mapping2"]["n"], corrected["mapping2"]["n"]) == (4, 2)
    tables = benchmark.tables(scored)
    assert cell(tables, "Reasoning", "Normal, corrected labels", "Math1").n == 3
    assert "Math1 3, Mapping2 2" in tables[0].note
    assert set(scores["excluded"]["math1"]) == {"math1/3", "math1/4", "math1/6"}
    for label, n, without in (("official", 6, 0), ("corrected", 3, 3)):  # one label alone
        alone = UniSandbox(Source(data=repository, sets=("math1",)), labels=label)
        scores = alone.scores([one(case, True) for case in alone.cases()])
        assert (len(alone.cases()), scores["label"], len(scores["excluded"].get("math1", ()))) == (n, label, without)


def test_pairs_and_what_lies_below_them() -> None:
    benchmark = UniSandbox(Source(n=4, sets=("mapping1",)), settings=("normal",))
    marks: list[bool | Status] = [True, True, True, False, False, "unreadable", True, False]
    scored = [one(case, mark) for case, mark in zip(benchmark.cases(), marks, strict=True)]
    scores = benchmark.scores(scored)
    assert scores["normal"]["mapping1"]["value"] == 0.25
    assert scores["per_image"]["normal"]["mapping1"]["value"] == 0.5
    assert scores["one_of_two"]["normal"]["mapping1"]["value"] == 0.5
    outcomes = scores["outcomes"]["normal"]["mapping1"]
    assert outcomes["unreadable"]["value"] == 1 / 8
    assert (outcomes["pass"]["n"], outcomes["pass"]["distinct"]) == (8, 4)  # clustered by pair
    half = benchmark.scores(scored[:1])["normal"]["mapping1"]
    assert (half["value"], half["n"]) == (0.0, 1)  # the other of the pair was not asked
    with pytest.raises(ValueError, match="appears twice"):
        units([*scored, scored[0]], "official")


def test_cot_is_compared_with_normal_on_the_same_questions() -> None:
    benchmark = UniSandbox(Source(n=3, sets=("math1", "mapping1")))
    scored = [one(case, setting == "cot", setting) for case in benchmark.cases() for setting in benchmark.settings]
    scores = benchmark.scores(scored)
    gain = scores["cot_gain"]["mapping1"]
    assert (gain["only_second"], gain["difference"]["value"], gain["difference"]["n"]) == (3, 1.0, 3)
    assert scores["cot_gain"]["average"]["difference"]["n"] == 6
    shown = cell(benchmark.tables(scored), "What a thought changes", "Reasoning, average", "CoT - Normal")
    assert isinstance(shown, PairedComparison)
    normal_only = [x for x in scored if x.sample.ask.setting == "normal"]
    assert benchmark.scores(normal_only)["cot_gain"] == {} and benchmark.scores(normal_only)["cot"] == {}
    assert not any(table.title.startswith("What a thought") for table in benchmark.tables(normal_only))


def test_thoughts_and_causes_are_counted() -> None:
    benchmark = UniSandbox(Source(n=4, sets=("math1",)), settings=("cot",))
    thoughts = [case.facts["item"]["thought"] for case in benchmark.cases()]
    thoughts[3] = "So draw 6 moons ."
    asked = enumerate(zip(benchmark.cases(), thoughts, strict=True))
    scored = [one(case, i < 2, "cot", thought=thought) for i, (case, thought) in asked]
    scored = [Scored(x.sample, x.verdict, cause=benchmark.attribute(x)) for x in scored]
    scores = benchmark.scores(scored)
    assert scores["causes"] == {"cot": {"math1": {"drawn wrong": 1, "reasoning wrong": 1}}}
    assert scores["thoughts"]["math1"]["right"]["value"] == 0.75
    assert scores["thoughts"]["math1"]["drawn_right"]["value"] == pytest.approx(2 / 3)


def test_table_4_pools_its_questions(repository: Path) -> None:
    benchmark = UniSandbox(Source(data=repository, sets=("forward", "inverse")))
    benchmark.published = True
    asked = [(case, setting) for case in benchmark.cases() for setting in ("normal", "cot")]
    scored = [one(case, case.category == "fruit", setting) for case, setting in asked]
    tables = benchmark.tables(scored)
    overall = cell(tables, "Knowledge transfer", "Overall", "Normal")
    assert isinstance(overall, Estimate) and (overall.value, overall.n) == (0.25, 2)  # models
    assert cell(tables, "Knowledge transfer", "Forward Retrieval", "CoT").n == 1
    assert cell(tables, "Knowledge transfer", "Overall", "CoT - Normal").difference.n == 2
    assert cell(tables, "Knowledge transfer", "Inverse Search", "BAGEL + CoT in the paper") == "0.15"
    assert not any(table.title.startswith("Reasoning generation") for table in tables)


def test_the_best_trivial_strategy_and_chance_stand_below_the_scores(repository: Path) -> None:
    benchmark = UniSandbox(Source(n=6), settings=("normal",))
    scored = [one(case, True) for case in benchmark.cases()]
    tables, strategies = benchmark.tables(scored), benchmark.scores(scored)["strategies"]
    assert tuple(strategies) == benchmark.sets and all(each["n"] == 6 for some in strategies.values() for each in some)
    shares = [each["value"] for each in strategies["math3"]]
    assert shares == sorted(shares, reverse=True)
    plain, leading = cell(tables, "Reasoning", "Best trivial strategy", "Mapping2"), strategies["mapping2"][0]
    assert isinstance(plain, Estimate) and (plain.value, plain.n) == (leading["value"], 6)
    assert f"Mapping2 {leading['name']}" in tables[0].note
    assert [cell(tables, "Reasoning", "Chance", name) for name in ("Math2", "Mapping2")] == ["0.17", "0.25"]
    assert cell(tables, "Reasoning", "n / distinct", "Mapping2") == "6 / 6"

    published = UniSandbox(
        Source(data=repository, sets=("math1", "mapping2")), labels="corrected", settings=("normal",)
    )
    scored = [one(case, False) for case in published.cases()]
    assert set(published.scores(scored)["strategies"]) == {"math1", "mapping2"}
    assert cell(published.tables(scored), "Reasoning", "n / distinct", "Math1") == "3 / 3"


def answers(name: str, *marks: bool) -> list[Scored]:
    return [one(case, mark) for case, mark in zip(UniSandbox(Source(n=4, sets=(name,))).cases(), marks, strict=False)]


def test_a_pair_is_drawn_as_a_pair_each_time() -> None:
    a, b = UniSandbox(Source(n=4, sets=("mapping1",))).cases()[:2]
    scored = [one(a, True), one(b, False), one(a, False, k=1), one(b, True, k=1)]
    found = by_cell(units(scored, "official"), accuracy)["normal"]["mapping1"]
    assert (found.value, found.n) == (0.0, 1)
    three = [one(replace(s.sample.ask.case, cluster="one"), True) for s in answers("mapping1", True, True, True)]
    with pytest.raises(ValueError, match="at most 2 belong together"):
        units(three, "official")


def test_average_is_the_mean_of_the_columns() -> None:
    scored = answers("mapping1", *[True] * 8) + answers("mapping2", *[True] * 2, *[False] * 6)
    asked = units([*scored, *(one(s.sample.ask.case, False, "cot") for s in scored)], "official")
    assert average(asked, "mapping").value == pytest.approx((1 + 0.25 + 0 + 0) / 4)
    assert average(asked, "maths").value is None


def test_prompts_that_ask_for_one_expression_are_one_cluster() -> None:
    """Eight prompts of two expressions, one of them always right: that is two findings, not eight."""
    first, second, *_ = UniSandbox(Source(n=4, sets=("math1",))).cases()

    def repeat(case: Case, name: str, i: int) -> Case:
        item = {**case.facts["item"], "facts": {**case.facts["item"]["facts"], "canonical": name}}
        again = f"{case.id}-{i}"
        return replace(case, id=again, facts={**case.facts, "drawn_as": again, "item": item})

    repeats = [repeat(case, name, i) for name, case in (("a", first), ("b", second)) for i in range(4)]
    asked = units([one(case, i < 4) for i, case in enumerate(repeats)], "official")
    found = by_cell(asked, accuracy)["normal"]["math1"]
    assert (found.value, found.n, found.distinct) == (0.5, 8, 2) and found.high - found.low > 0.9
    assert average(asked, "maths").distinct == 2
    later = units([one(case, i > 0) for i, case in enumerate(repeats)], "official")
    change = changes(asked, later)["normal"]["math1"]
    assert (change.only_first, change.only_second, change.neither, change.difference.n) == (1, 4, 0, 2)
    assert change.p_value > 0.05
    with pytest.raises(ValueError, match="same items"):
        changes(asked, Results(later.units[:2]))
