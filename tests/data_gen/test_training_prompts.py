"""Prompts of files as items: published questions, and those of `data make`; and which of them a test asks too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from uni_train.core.errors import DataError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.jsonl import published_rows, write_items, write_rows
from uni_train.data_gen.overlap import overlap, problem_of, prompts_of, questions_below, read_questions
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.data_gen.training_prompts import read_prompts
from uni_train.eval.sets.thoughts import conclusion
from uni_train.eval.task_benchmark import item_case
from uni_train.models.nano.language import vocabulary
from uni_train.models.nano.tokenizer import WordTokenizer

RULES = "Rule 1: A means 7. Rule 2: 7 means apples. Rule 3: B means 9. Rule 4: 9 means kittens. "
ASK = RULES + "Please generate the object represented by the letter {}."


def items(task: str, world: str, split: str = "train") -> list[Item]:
    return get_task(task, world).generate(12, 2, split, derive_seed("file", task))


def written(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    write_rows(path, rows)
    return path


@pytest.mark.parametrize("world", ["nano", "everyday"])
@pytest.mark.parametrize("task", ["maths", "maths_paper", "mapping"])
def test_published_rows_become_the_items_that_they_were(tmp_path: Path, task: str, world: str) -> None:
    """What verifiers, judges, filters and readers of thoughts use of an item is read from its prompt again."""
    given, trained = items(task, world), get_task(task, world)
    read = read_prompts(written(tmp_path / "rows.jsonl", published_rows(given)), trained, 2)
    assert not (read.left_out or read.relabelled or read.repeated) and len(read.items) == len(given)
    for item, like in zip(read.items, given, strict=True):
        assert (item.prompt, item.answer, item.task, item.level) == (like.prompt, like.answer, task, 2)
        facts = ("world", "object", "count", "plural", *(("symbol", "chain", "other") if task == "mapping" else ()))
        assert [item.facts[key] for key in facts] == [like.facts[key] for key in facts]
        assert conclusion(item.thought, item_case(item)) == "right"
        assert conclusion(like.thought, item_case(item)) == "right"
        assert (item.pair is None) == (like.pair is None)
        if world == "nano":
            assert trained.verify(item, trained.render(like, 0)).passed
            WordTokenizer(vocabulary()).encode(item.thought)  # every word is known
    write_items(tmp_path / "items.jsonl", given)
    assert read_prompts(tmp_path / "items.jsonl", trained, 2).items == given


def test_what_has_no_provable_answer_is_left_out_and_labels_are_corrected(tmp_path: Path) -> None:
    sums = [
        ("Draw as many owls as 2 + 2.", "4 owls"),
        ("Draw as many kittens as 4 / 2.", "3 kittens"),
        ("Draw as many owls as 2 + 2.", "4 owls"),
        ("Draw as many owls as 4 + 5.", "9 owls"),
        ("Draw what you like.", "2 owls"),
        ("Draw as many children as 3 - 2.", "1 child"),
        ("Draw as many owls as half of 4 plus 6.", "5 owls"),
        ("Draw as many owls as 4 + 5.", "8 owls"),
    ]
    rows = [{"Question": question, "Answer": answer, "id": str(i)} for i, (question, answer) in enumerate(sums)]
    read = read_prompts(written(tmp_path / "sums.jsonl", rows), get_task("maths", "everyday"), 1)
    assert [item.answer for item in read.items] == ["4 owls", "2 kittens", "1 child", "5 owls"]
    assert [item.facts["object"] for item in read.items] == ["owl", "kitten", "child", "owl"]
    assert read.items[2].facts["plural"] == "children"
    assert read.items[3].thought == "(4 + 6) / 2 = 5. So draw 5 owls.", "the reading that has the answer"
    assert (read.relabelled, read.repeated, [*read.left_out]) == (["1"], 1, ["3", "4", "7"])

    pairs = [
        ("1", "A", "Apples"),
        ("1", "B", "Dogs"),
        ("2", "A", "Apples"),
        ("3", "B", "Kittens"),
        ("3", "A", "Apples"),
    ]
    rows = [{"ID": name, f"Question_{which}": ASK.format(which), "Answer": answer} for name, which, answer in pairs]
    read = read_prompts(written(tmp_path / "pairs.jsonl", rows), get_task("mapping", "everyday"), 2)
    assert [item.answer for item in read.items] == ["Apples", "Kittens"]
    assert [item.facts["rules"][0] for item in read.items] == [["A", "7"]] * 2
    assert (read.relabelled, read.left_out) == (["1/B"], {"2": "question B is missing"})
    assert read.repeated == 2, "the same pair in another order"
    with pytest.raises(DataError, match="A leads over 2 rules, and level 1 over 1"):
        read_prompts(tmp_path / "pairs.jsonl", get_task("mapping", "everyday"), 1)


@pytest.mark.parametrize(
    ("rows", "task", "world", "message"),
    [
        ("maths", "mapping", "nano", "has questions in the schema of math_1.jsonl, which is not mapping's"),
        ("mapping", "maths", "nano", "has questions in the schema of mapping1.jsonl"),
        ("maths", "maze", "nano", "which is not maze's"),
        ("items", "mapping", "nano", "it is maths of level 2"),
        ("items", "maths", "everyday", "it is of the nano world, and data.world is everyday"),
        ("owls", "maths", "nano", "the nano world has no owls"),
        ("wrong", "maths", "nano", "the label says 9"),
        ("bare", "maths", "nano", "its facts have no object"),
        ("none", "maths", "nano", "cannot be read"),
    ],
)
def test_files_without_a_prompt_for_the_task_are_named(
    tmp_path: Path, rows: str, task: str, world: str, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    if rows == "items":
        write_items(path, items("maths", "nano"))
    elif rows in ("wrong", "bare"):
        (item,) = items("maths", "nano")[:1]
        facts = {"world": "nano"} if rows == "bare" else item.facts
        write_items(path, [replace(item, answer="9 cups" if rows == "wrong" else item.answer, facts=facts)])
    elif rows == "owls":
        write_rows(path, [{"Question": "Draw as many owls as 2 + 2 .", "Answer": "4 owls", "id": "1"}])
    elif rows != "none":
        write_rows(path, published_rows(items(rows, "nano")))
    with pytest.raises(DataError, match=message):
        read_prompts(path, get_task(task, world), 2)


def test_the_overlap_knows_a_problem_in_other_words_with_another_object(tmp_path: Path) -> None:
    assert problem_of("Draw as many apples as 2 + 3 .") == problem_of("Work out 2 + 3 and draw that many owls.")
    undefined = [problem_of(f"Draw as many owls as {n} / 0 rounded down.") for n in (7, 8)]
    assert len(set(undefined)) == 2, "what has no value is no one problem"
    assert problem_of(ASK.format("A")) == problem_of(ASK.format("B")) != problem_of("Draw something.") == ""
    tests = [
        {"Question": "Draw as many owls as 2 + 3.", "Answer": "5 owls", "id": "1"},
        {"Question": "Draw as many owls as 3 + 2.", "Answer": "5 owls", "id": "2"},
        {"Question": "Draw as many  Cats as 1 + 1.", "Answer": "2 cats", "id": "3"},
    ]
    trained = [
        {"Question": "Draw as many cats as 1 + 1.", "Answer": "2 cats", "id": "1"},
        {"Question": "Work out 2 + 3 and draw that many cups.", "Answer": "5 cups", "id": "2"},
        {"Question": "Work out 6 - 2 and draw that many cups.", "Answer": "4 cups", "id": "3"},
    ]
    written(tmp_path / "test/math.jsonl", tests)
    (tmp_path / "test/people.jsonl").write_text(json.dumps({"ID": 1, "Question": "Who?", "Answer": "Ada"}) + "\n")
    training = read_questions(written(tmp_path / "train.jsonl", trained))
    questions, unread = questions_below(tmp_path / "test")
    assert [*questions] == ["math.jsonl"] and unread == ["people.jsonl"]
    found = overlap("math.jsonl", questions["math.jsonl"], training)
    assert (found.questions, found.same_prompt, found.same_problem, found.training) == (3, ("3",), ("1", "2", "3"), 2)
    mazes = get_task("maze").generate(3, 3, "train", 0)
    found = overlap("mazes", prompts_of(mazes[:2]), prompts_of(mazes[1:]))
    assert len(found.same_prompt) == len(found.same_problem) == found.training == 1, "all mazes have the same words"
    with (tmp_path / "test/math.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"Question": ')
    with pytest.raises(DataError, match="line 4"):
        questions_below(tmp_path / "test")
    (tmp_path / "test/math.jsonl").unlink()
    with pytest.raises(DataError, match=r"has no \.jsonl file with questions"):
        questions_below(tmp_path / "test")
