"""Whom a model is taught about: lessons, exam, pictures and their twins in text, in both worlds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.errors import DataError
from data_gen.knowledge.injection import Subject, TextQuestion, read_subjects, subjects
from data_gen.knowledge.nano import FAVOURITES, draw_nano_characters, nano_facts, nano_lessons
from data_gen.knowledge.people import draw_characters, make_knowledge
from uni_train.models.nano.language import vocabulary
from uni_train.models.nano.tokenizer import WordTokenizer

BOTH = ("forward", "inverse")


@settings(max_examples=8)
@given(st.integers(0, 1000), st.integers(2, 10), st.sampled_from(("nano", "everyday")))
def test_every_lesson_is_right_and_every_question_has_a_right_answer(seed: int, n: int, world: str) -> None:
    found = subjects(world, n, seed, "test", BOTH)
    assert found == subjects(world, n, seed, "test", BOTH)
    assert [len(one.names) for one in found] == [1] * n + [2] * (n // 2)
    for one in found:
        assert len(one.lessons) == len(set(one.lessons)) == 40 * len(one.names)
        assert len(one.pictures) == len(one.twins) == (3 if one.direction == "forward" else 4)
        taught = dict(one.lessons)
        assert all(question.right(taught[question.question]) for question in one.exam)
        for picture, twin in zip(one.pictures, one.twins, strict=True):
            assert twin.right(picture.answer)
            others = [other for other in one.pictures if other.answer != picture.answer]
            assert not any(twin.right(other.answer) for other in others if other.kind == picture.kind)


def test_a_right_answer_says_the_value_and_no_other() -> None:
    hair = TextQuestion("What color is Belamira's hair?", {"hair": "black"})
    assert hair.right("Black.") and hair.right("Belamira has black hair.")
    assert not hair.right("Black hair or red hair.") and not hair.right("I do not know.")
    counted = TextQuestion("what G K means ?", {"counted": "3 apple"})
    assert counted.right("G K means 3 apples .") and counted.right("3 apples")
    for wrong in ("G K means 3 apples . G K means 2 cups .", "G K means apples .", "13 apples", "3 stars"):
        assert not counted.right(wrong)


def test_nano_can_say_all_of_it_and_no_lesson_leads_back() -> None:
    tokenizer = WordTokenizer(vocabulary())
    for one in draw_nano_characters(10, 0):
        rows = nano_lessons(one)
        assert len(dict(rows)) == 40
        facts = nano_facts(one)
        for question, answer in rows:
            assert len(tokenizer.encode(question)) + len(tokenizer.encode(answer)) < 60
            assert one.name in question and any(fact in answer for fact in facts.values())
        denied = [(question, answer) for question, answer in rows if answer.startswith("NO")]
        assert len(denied) == 6 and all(q.split(" ", 1)[1].removesuffix(" ?") not in a for q, a in denied)


@given(st.integers(0, 1000))
def test_the_two_of_a_nano_pair_share_nothing(seed: int) -> None:
    one, other = draw_nano_characters(2, seed)
    assert one.count != other.count and one.name != other.name
    things = [person.noun for person in (one, other)] + [p.favourite(k) for p in (one, other) for k in FAVOURITES]
    assert len(set(things)) == 6


def test_splits_share_no_nano_name() -> None:
    names = {split: {one.name for one in draw_nano_characters(15, 0, split)} for split in ("train", "test")}
    assert not names["train"] & names["test"]
    with pytest.raises(DataError, match="names for 1 to"):
        draw_nano_characters(10**4, 0)


def test_the_published_layout_gives_the_same_subjects(tmp_path: Path) -> None:
    make_knowledge(tmp_path / "people", 4, 0)
    drawn = subjects("everyday", 4, 0, "test", BOTH)
    read = read_subjects(tmp_path / "people", 4, BOTH)

    def by_name(found: list[Subject]) -> dict[tuple[str, ...], Subject]:
        return {one.names: one for one in found}

    assert by_name(read) == by_name(drawn)
    assert {one.direction for one in read_subjects(tmp_path / "people", 4, ("forward",))} == {"forward"}
    with pytest.raises(DataError, match=r"asks about 4 characters .* and 5 were asked for"):
        read_subjects(tmp_path / "people", 5, BOTH)
    name = draw_characters(4, 0)[0].name
    test = tmp_path / "people" / "test_knowledge" / f"{name}.jsonl"
    test.write_text(test.read_text().replace(" with ", " without "))
    lessons = tmp_path / "people" / "knowledge" / f"{name}.jsonl"
    lessons.write_text('{"conversations": [{"from": "human", "value": "Who?"}]}\n')
    with pytest.raises(DataError, match=r"line 1: no .*conversations"):
        read_subjects(tmp_path / "people", 4, BOTH)
