from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.eval.benchmarks.published import write
from tests.eval.benchmarks.unisandbox.conftest import FORWARD, MATHS
from uni_train.core.errors import DataError, UserError
from uni_train.data_gen import sprites
from uni_train.data_gen.export import make
from uni_train.data_gen.knowledge.people import make_knowledge
from uni_train.data_gen.registry import get_task
from uni_train.eval.benchmark import Ask, Case, Sample, Scored, Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.unisandbox.cases import ALL_SETS, generated, published
from uni_train.eval.sets.thoughts import conclusion
from uni_train.eval.task_benchmark import item_of
from uni_train.models.pictures import encode_png


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
    samples = [Sample(ask, parts=(encode_png(drawer.render(items[0], 1)),)) for ask in asks]
    scored = [Scored(sample, benchmark.check(sample)) for sample in samples]
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
