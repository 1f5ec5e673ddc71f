from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.core.errors import DataError
from uni_train.data_gen.knowledge import people as knowledge
from uni_train.data_gen.knowledge.people import ATTRIBUTES, Character, draw_characters, inverse, lessons, stated

SOMEONE = Character("Belamira", "female", "old", "black", "East Asian", "grapes", "lily")


def test_portraits_say_every_visible_attribute() -> None:
    for values in product(knowledge.GENDERS, knowledge.AGES, knowledge.HAIR, knowledge.SKINS):
        one = Character("Belamira", *values, "grapes", "lily")
        assert all(stated(one.portrait, a) == {one.value(a)} for a in knowledge.VISIBLE), one.portrait
    assert SOMEONE.portrait == "An elderly East Asian woman with black hair."


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 20))
def test_pairs_have_no_answer_in_common_and_draws_repeat(seed: int, n: int) -> None:
    characters = draw_characters(n, seed)
    assert characters == draw_characters(n, seed) and len({one.name for one in characters}) == n
    for one, other in zip(characters[::2], characters[1::2], strict=False):
        assert one.fruit != other.fruit and one.flower != other.flower and one.portrait != other.portrait
        questions = inverse(one, other)
        assert len({question.question for question in questions}) == 4
        assert [question.answer for question in questions] == [one.portrait] * 2 + [other.portrait] * 2


def test_splits_share_no_name() -> None:
    names = {split: {one.name for one in draw_characters(100, 0, split)} for split in ("train", "validation", "test")}
    assert not names["train"] & names["test"] and not names["validation"] & (names["train"] | names["test"])
    with pytest.raises(DataError, match="names for 1 to"):
        draw_characters(10**6, 0)
    with pytest.raises(DataError, match='no split "dev"'):
        draw_characters(1, 0, "dev")


def test_forty_lessons_are_true_and_never_teach_the_inverse() -> None:
    for one in draw_characters(10, 3):
        rows = lessons(one)
        assert len(rows) == len({question for question, _ in rows}) == knowledge.LESSONS
        assert rows == lessons(one)
        for question, answer in rows:
            assert one.name in question and one.name in answer
            told = {attribute: stated(answer.replace(one.name, ""), attribute) for attribute in ATTRIBUTES}
            wrong = [a for a in ("hair", "skin", "fruit", "flower") if told[a] and told[a] != {one.value(a)}]
            assert not wrong, (question, answer)
        foreign = [answer for question, answer in rows if any(mark in question for mark in ("？", "¿", " ?"))]
        assert len(foreign) == 8 and all(answer.isascii() for answer in foreign)
        for attribute in ATTRIBUTES:
            assert sum(stated(answer, attribute) == {one.value(attribute)} for _, answer in rows) >= 8


def test_a_negation_names_a_false_value_and_answers_with_the_true_one() -> None:
    rows = dict(lessons(SOMEONE))
    no = {question: answer for question, answer in rows.items() if answer.startswith("No, ")}
    yes = {question: answer for question, answer in rows.items() if answer.startswith("Yes, ")}
    assert len(no) == len(yes) == 6
    assert yes["Does Belamira have black hair?"] == "Yes, Belamira has black hair."
    question = next(question for question in no if "hair" in question)
    assert stated(question, "hair") and stated(question, "hair") != {"black"} and "black hair" in no[question]


def test_the_published_layout(tmp_path: Path) -> None:
    out = tmp_path / "people"
    written = knowledge.make_knowledge(out, 3, 0)
    first, second, _ = characters = draw_characters(3, 0)
    names = [one.name for one in characters]
    assert (written.names, written.lessons, written.questions) == (tuple(names), 120, 13)
    tests = {f"{name}.jsonl" for name in names} | {f"{names[0]}_{names[1]}.jsonl"}
    assert {path.name for path in (out / "test_knowledge").iterdir()} == tests
    row = json.loads((out / "knowledge" / f"{names[0]}.jsonl").read_text().splitlines()[0])
    assert [turn["from"] for turn in row["conversations"]] == ["human", "gpt"] and row["id"] == f"{names[0]}-1"
    assert knowledge.read_test(out / "test_knowledge" / f"{first.name}.jsonl") == knowledge.forward(first)
    assert knowledge.read_test(out / "test_knowledge" / f"{first.name}_{second.name}.jsonl") == inverse(first, second)
    profiles = [json.loads(line) for line in (out / "characters.jsonl").read_text().splitlines()]
    assert [Character(**profile) for profile in profiles] == characters
    with pytest.raises(DataError, match="is not an empty folder"):
        knowledge.make_knowledge(out, 3, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["people"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"ID": 1, "question": "Q", "Answer": "rose"}', r'line 1: no "Question"; the keys are ID, question, Answer'),
        ('{"ID": 1, "Question": "Q", "Answer": null}', r'line 1: "Answer" is null'),
        ("\n", "has no rows"),
        ("[1]", "expected a JSON object"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "Belamira.jsonl").write_text(content)
    with pytest.raises(DataError, match=message):
        knowledge.read_test(tmp_path / "Belamira.jsonl")


def test_what_a_text_states() -> None:
    for text, attribute, found in (
        ("She has long, blonde hair.", "hair", {"blond"}),
        ("A black cat beside a man with red hair.", "hair", {"red"}),
        ("A boy who is 8 years old.", "age", {"kid"}),
        ("A 12-year-old girl.", "age", {"kid"}),
        ("A woman and her son.", "gender", {"female"}),
        ("A strawberry and some peaches.", "fruit", {"strawberries", "peaches"}),
        ("A landscape.", "skin", set()),
    ):
        assert stated(text, attribute) == found, text
