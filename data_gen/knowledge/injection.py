"""What one model is taught, asked in text and asked to draw, when knowledge is injected (UniSandbox section 4, D).

A subject is one character (forward) or two (inverse): one model is trained for each, from the same weights. It counts
only if the model then answers every question of the `exam` right. The exam asks about each attribute in text. Every
image has a `twin`, the same question in text: a model that answers the twin and fails the image knows, and does not
draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uni_train.core.errors import DataError
from uni_train.data_gen.jsonl import read_objects
from uni_train.data_gen.knowledge.nano import (
    NanoCharacter,
    draw_nano_characters,
    nano_asked_in_text,
    nano_forward,
    nano_inverse,
    nano_inverse_lessons,
    nano_lessons,
)
from uni_train.data_gen.knowledge.people import (
    ATTRIBUTES,
    VISIBLE,
    Character,
    Direction,
    KnowledgeQuestion,
    asked_in_text,
    draw_characters,
    forward,
    inverse,
    inverse_lessons,
    lessons,
    read_test,
    stated,
)
from uni_train.data_gen.phrasing import counted


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """A question about injected knowledge, answered in text.

    expected: attribute -> the one value that a right answer gives it: attributes of `Character`; in the nano world
    "counted", a number and a singular ("3 apple").
    """

    question: str
    expected: Mapping[str, str]

    def right(self, reply: str) -> bool:
        """Whether the reply gives every expected attribute its value, and no other beside it."""
        return all(_said(reply, attribute) == {value} for attribute, value in self.expected.items())


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom one model is taught about.

    twins: of `pictures`, in their order.
    """

    names: tuple[str, ...]
    direction: Direction
    lessons: tuple[tuple[str, str], ...]
    exam: tuple[TextQuestion, ...]
    pictures: tuple[KnowledgeQuestion, ...]
    twins: tuple[TextQuestion, ...]


def subjects(
    world: str, n: int, seed: int, split: str, directions: Sequence[str], *, both_ways: bool = False
) -> list[Subject]:
    """One for each of `n` characters (forward) and for each pair of them (inverse; an odd one out has none).

    world: "nano" or "everyday". split: also "paper", the people of Table 12. directions: of "forward" and "inverse".
    both_ways: pairs are taught from a favourite to its character too, which is the control of the inverse search.

    Raises:
        DataError: the split has not so many names.
    """
    if world == "nano":
        drawn = draw_nano_characters(n, seed, split)
        drawn_subjects = [_nano((character,), seed) for character in drawn]
        drawn_subjects += [_nano(pair, seed, both_ways) for pair in zip(drawn[::2], drawn[1::2], strict=False)]
    else:
        people = draw_characters(n, seed, split)
        drawn_subjects = [_everyday((person,), seed) for person in people]
        drawn_subjects += [_everyday(pair, seed, both_ways) for pair in zip(people[::2], people[1::2], strict=False)]
    return [subject for subject in drawn_subjects if subject.direction in directions]


def read_subjects(folder: Path, n: int, directions: Sequence[str], *, both_ways: bool = False) -> list[Subject]:
    """The first `n` characters, by name, of a folder in the published layout, and the pairs among them.

        knowledge/<Name>.jsonl           the lessons: {"conversations": [{"from": "human", "value": "..."}, ...]}
        test_knowledge/<Name>.jsonl      what is asked forward, <Name>_<Name>.jsonl inversely

    In the published repository they are in data/ and benchmark/. A character's attributes are read off its forward
    answers. both_ways: as for `subjects`.

    Raises:
        DataError: a file is missing or unreadable, there are fewer characters, or an answer lacks its attribute.
    """
    tests, lessons_ = (
        next((place for place in (folder / name, folder / within / name) if place.is_dir()), folder / name)
        for name, within in (("test_knowledge", "benchmark"), ("knowledge", "data"))
    )
    files = sorted(tests.glob("*.jsonl")) if tests.is_dir() else []
    names = [path.stem for path in files if "_" not in path.stem][:n]
    if len(names) < n:
        raise DataError(f"{tests} asks about {len(names)} characters (<Name>.jsonl), and {n} were asked for")
    known = {name: _profile(tests / f"{name}.jsonl") for name in names}
    taught = {name: _lessons(lessons_ / f"{name}.jsonl") for name in names}
    groups: list[tuple[str, ...]] = [(name,) for name in names]
    groups += [tuple(path.stem.split("_")) for path in files if set(path.stem.split("_")) <= known.keys()]
    read = []
    for group in dict.fromkeys(groups):
        people = tuple(known[name] for name in group)
        pictures = tuple(read_test(tests / f"{'_'.join(group)}.jsonl"))
        rows = tuple(row for name in group for row in taught[name])
        rows += _back(people) if both_ways else ()
        read.append(Subject(group, _direction(people), rows, _exam(people), pictures, tuple(map(_twin, pictures))))
    return [subject for subject in read if subject.direction in directions]


# -------------------------------------------------------------------------------------------------- everyday world


def _everyday(people: tuple[Character, ...], seed: int, both_ways: bool = False) -> Subject:
    names = tuple(person.name for person in people)
    pictures = tuple(forward(people[0]) if len(people) == 1 else inverse(*people))
    taught = tuple(row for person in people for row in lessons(person, seed)) + (_back(people) if both_ways else ())
    return Subject(names, _direction(people), taught, _exam(people), pictures, tuple(map(_twin, pictures)))


def _back(people: Sequence[Character]) -> tuple[tuple[str, str], ...]:
    """Lessons from favourites to characters, where a group has two: of one alone nothing is asked that way."""
    return tuple(row for person in people for row in inverse_lessons(person)) if len(people) > 1 else ()


def _exam(people: Sequence[Character]) -> tuple[TextQuestion, ...]:
    return tuple(
        TextQuestion(question, {attribute: person.value(attribute)})
        for person in people
        for attribute, question in asked_in_text(person)
    )


def _twin(picture: KnowledgeQuestion) -> TextQuestion:
    """The same in text: a portrait is to be described, a favourite named."""
    if picture.kind != "portrait":
        question = f"What is {picture.characters[0]}'s favorite {picture.kind}?"
        return TextQuestion(question, {picture.kind: _only(picture.answer, picture.kind)})
    whose = picture.question.removeprefix("Generate a portrait of ")
    question = f"Describe {whose}" if whose != picture.question else f"Describe in words: {picture.question}"
    # "A Caucasian kid with red hair" is the whole published answer: of the gender nothing is asked.
    visible = [attribute for attribute in VISIBLE if _said(picture.answer, attribute)]
    if not visible:
        raise DataError(f'{picture.id}: "{picture.answer}" says nothing that can be seen')
    return TextQuestion(question, {attribute: _only(picture.answer, attribute) for attribute in visible})


def _profile(path: Path) -> Character:
    """The character that a published <Name>.jsonl asks about."""
    answers: dict[str, str] = {question.kind: question.answer for question in read_test(path)}
    for kind in ("portrait", "fruit", "flower"):
        if kind not in answers:
            raise DataError(f"{path} has no question for the {kind}")
    kinds = {attribute: "portrait" if attribute in VISIBLE else attribute for attribute in ATTRIBUTES}
    try:
        return Character(path.stem, **{a: _only(answers[kind], a) for a, kind in kinds.items()})
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _lessons(path: Path) -> list[tuple[str, str]]:
    rows = []
    for line, row in read_objects(path):
        turns = row.get("conversations")
        texts = [turn.get("value") for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
        if len(texts) != 2 or not all(isinstance(text, str) and text.strip() for text in texts):
            raise DataError(f'{path}, line {line}: no {{"conversations": [a question, an answer]}}')
        rows.append((str(texts[0]), str(texts[1])))
    if not rows:
        raise DataError(f"{path} has no rows: there is nothing to teach")
    return rows


def _only(answer: str, attribute: str) -> str:
    values = _said(answer, attribute)
    if len(values) != 1:
        raise DataError(f'"{answer}" does not say one {attribute}')
    return next(iter(values))


def _said(text: str, attribute: str) -> frozenset[str]:
    """The values that a text gives an attribute; a bare word ("black") is taken for the attribute that was asked."""
    if attribute == "counted":
        return frozenset(f"{count} {noun}" for count, noun in counted(text))
    values = stated(text, attribute)
    return values or stated(f"{text.strip(' .')} hair", attribute) if attribute == "hair" else values


# ------------------------------------------------------------------------------------------------------ nano world


def _nano(people: tuple[NanoCharacter, ...], seed: int, both_ways: bool = False) -> Subject:
    names = tuple(person.name for person in people)
    questions = nano_forward(people[0]) if len(people) == 1 else nano_inverse(*people)
    taught = tuple(row for person in people for row in nano_lessons(person, seed))
    taught += tuple(row for person in people for row in nano_inverse_lessons(person)) if both_ways else ()
    exam = tuple(_counting(*row) for person in people for row in nano_asked_in_text(person))
    pictures = tuple(question for question, _ in questions)
    twins = tuple(_counting(twin, question.answer) for question, twin in questions)
    return Subject(names, _direction(people), taught, exam, pictures, twins)


def _counting(question: str, answer: str) -> TextQuestion:
    """ "3 apples" is expected as "3 apple": as it is counted."""
    return TextQuestion(question, {"counted": next(iter(_said(answer, "counted")))})


def _direction(people: Sequence[object]) -> Direction:
    return "forward" if len(people) == 1 else "inverse"
