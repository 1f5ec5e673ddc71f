"""Whom a model is taught about: lessons, exam, pictures and their twins in text, in both worlds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uni_train.core.errors import DataError
from uni_train.data_gen.knowledge.injection import TextQuestion, read_subjects, subjects
from uni_train.data_gen.knowledge.nano import FAVOURITES, draw_nano_characters, nano_facts, nano_lessons
from uni_train.data_gen.knowledge.people import draw_characters, make_knowledge
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


@settings(max_examples=30)
@given(st.integers(0, 1000))
def test_the_two_of_a_nano_pair_share_nothing(seed: int) -> None:
    one, other = draw_nano_characters(2, seed)
    assert one.count != other.count and one.name != other.name
    things = [person.noun for person in (one, other)] + [p.favourite(k) for p in (one, other) for k in FAVOURITES]
    assert len(set(things)) == 6


def test_splits_of_nano_share_no_name() -> None:
    trained, tested = ({one.name for one in draw_nano_characters(15, 0, split)} for split in ("train", "test"))
    assert not trained & tested
    with pytest.raises(DataError, match="names for 1 to"):
        draw_nano_characters(10**4, 0)


def test_the_published_layout_gives_the_same_subjects(tmp_path: Path) -> None:
    make_knowledge(tmp_path / "people", 4, 0)
    drawn, read = subjects("everyday", 4, 0, "test", BOTH), read_subjects(tmp_path / "people", 4, BOTH)
    assert {one.names: one for one in read} == {one.names: one for one in drawn}
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


# The forward answers and one inverse file as they are published, in their layout (Niu et al. 2025, arXiv 2511.20561).
PUBLISHED = {
    "Lysendria": ("An elderly African/Indigenous woman with black hair.", "apples", "carnation"),
    "Kaelorix": ("A young Caucasian man with blond hair.", "strawberries", "sunflower"),
    "Jovianne": ("A middle-aged East Asian woman with brown hair.", "oranges", "lily"),
    "Zefyria": ("An elderly Caucasian man with white hair.", "bananas", "rose"),
    "Aurelius": ("A young African/Indigenous woman with black hair.", "grapes", "tulip"),
    "Nyxella": ("A middle-aged African/Indigenous man with black hair.", "peaches", "daisy"),
    "Valerian": ("A middle-aged African/Indigenous woman with brown hair.", "watermelon", "orchid"),
    "Thalassia": ("A young East Asian man with brown hair.", "apples", "rose"),
    "Orionax": ("A middle-aged Caucasian woman with black hair.", "oranges", "carnation"),
    "Evandriel": ("A young Caucasian man with red hair.", "bananas", "sunflower"),
}


def write_published(folder: Path) -> Path:
    """The repository's layout, with one lesson a character."""

    def rows(path: Path, lines: list[dict[str, object]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    for name, answers in PUBLISHED.items():
        said = {"from": "human", "value": f"Who is {name}?"}, {"from": "gpt", "value": f"{name} is from WhyUni Lab."}
        rows(folder / "data/knowledge" / f"{name}.jsonl", [{"id": 1, "conversations": said}])
        asked = ("portrait", "image of the favorite fruit", "image of the favorite flower")
        ask = f"Generate a photorealistic {{}} of character {name} from WhyUni Lab."
        lines = [{"ID": i, "Question": ask.format(asked[i]), "Answer": one} for i, one in enumerate(answers)]
        rows(folder / "benchmark/test_knowledge" / f"{name}.jsonl", lines)
    from_ = "From the characters Orionax and Evandriel from WhyUni Lab, generate a portrait of the one whose favorite"
    inverse = [("fruit is oranges", PUBLISHED["Orionax"][0]), ("fruit is bananas", "A Caucasian kid with red hair.")]
    lines = [{"ID": i, "Question": f"{from_} {what}.", "Answer": one} for i, (what, one) in enumerate(inverse)]
    rows(folder / "benchmark/test_knowledge/Orionax_Evandriel.jsonl", lines)
    return folder


def test_all_ten_published_people_load_and_are_those_of_table_12(tmp_path: Path) -> None:
    found = read_subjects(write_published(tmp_path), 10, BOTH)
    assert sorted(one.names[0] for one in found if one.direction == "forward") == sorted(PUBLISHED)
    table = {one.name: one for one in draw_characters(10, 0, "paper")}
    by_name = {one.names: one for one in found}
    for one in subjects("everyday", 10, 0, "paper", ("forward",)):
        assert by_name[one.names].exam == one.exam, "the attributes read off the files are those of Table 12"
    assert by_name["Aurelius",].exam[2].expected == {"age": "kid"} and table["Aurelius"].age == "kid"
    (pair,) = [one for one in found if one.direction == "inverse"]
    kid = pair.twins[1]
    assert kid.right("A little boy. He is Caucasian and has red hair.") and "gender" not in kid.expected
    assert not kid.right("A middle-aged Caucasian woman with black hair.")
    with pytest.raises(DataError, match="Table 12 of the paper has 1 to 10"):
        draw_characters(11, 0, "paper")


@pytest.mark.parametrize("world", ["nano", "everyday"])
def test_the_control_teaches_pairs_both_ways_and_characters_as_before(world: str) -> None:
    plain, both = (subjects(world, 4, 0, "test", BOTH, both_ways=on) for on in (False, True))
    assert [one for one in plain if one.direction == "forward"] == [one for one in both if one.direction == "forward"]
    for before, after in zip(plain, both, strict=True):
        more = after.lessons[len(before.lessons) :]
        assert after.lessons[: len(before.lessons)] == before.lessons
        assert bool(more) == (after.direction == "inverse") and len(dict(more)) == len(more)
        for picture, twin in zip(after.pictures, after.twins, strict=True) if more else ():
            known = picture.question.rpartition(" whose ")[2].strip(" .") or picture.question
            known = known if world == "everyday" else " ".join(picture.question.split()[2:4])
            answers = [answer for question, answer in more if known in question]
            assert answers and all(twin.right(answer) for answer in answers)
        if world == "nano":
            tokenizer = WordTokenizer(vocabulary())
            assert all(tokenizer.encode(f"{question} {answer}") for question, answer in more)
