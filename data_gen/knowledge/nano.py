"""Invented characters for nano: the knowledge of `uni_train.data_gen.knowledge.people` in nano's own words and images.

A name is two symbols ("G K"). A character has a portrait, which is a number of one object ("3 apples"), and two
favourites. Each favourite is one object; nano's words call them its Object and its image. Lessons are 40 questions and
answers in text. Questions ask for images: forward (name -> portrait, Object, image) and inverse (a favourite ->
portrait) within a pair, whose characters differ in everything. No lesson leads from a favourite to a name, and none has
an image; all words are in nano's vocabulary, but not one of these sentences is in its pretraining.

Everything follows from (seed, split). A name belongs to one split.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from uni_train.core.errors import DataError
from uni_train.core.seeds import rng
from uni_train.data_gen.knowledge.people import Kind, KnowledgeQuestion, questions_about
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.splits import split_of

SYMBOLS = tuple("ABCDEFGHJK@#$&!~")  # of NANO.symbols without digits, which also count, and "*", which also multiplies
COUNTS = (2, 3, 4, 5, 6)  # a favourite is one object, so a portrait is several
NOUNS = tuple(noun.singular for noun in NANO.nouns)
FAVOURITES: tuple[Kind, ...] = ("Object", "image")
LESSONS = 40


@dataclass(frozen=True, slots=True)
class NanoCharacter:
    """An invented character: `count` of `noun` is its portrait; `object_` and `image` are its favourites (singular)."""

    name: str
    count: int
    noun: str
    object_: str
    image: str

    @property
    def portrait(self) -> str:
        """ "3 apples"."""
        return NANO.noun(self.noun).counted(self.count)

    def favourite(self, kind: str) -> str:
        """The singular of one of FAVOURITES."""
        return self.object_ if kind == "Object" else self.image


def draw_nano_characters(n: int, seed: int, split: str = "test") -> list[NanoCharacter]:
    """`n` characters; the 1st and 2nd, 3rd and 4th, ... are pairs that share neither count nor any object.

    A character's own three objects differ, too. DataError when the split has fewer names.
    """
    names = [
        f"{first} {second}"
        for first, second in itertools.permutations(SYMBOLS, 2)
        if split_of("nano knowledge", f"{first}{second}") == split
    ]
    if not 0 < n <= len(names):
        raise DataError(f"{n} characters were asked for; the {split} split has names for 1 to {len(names)}")
    random_ = rng("nano knowledge", split, seed)
    characters: list[NanoCharacter] = []
    for index, name in enumerate(random_.sample(names, n)):
        partner = characters[-1] if index % 2 else None
        taken = () if partner is None else (partner.noun, partner.object_, partner.image)
        counts = [count for count in COUNTS if partner is None or count != partner.count]
        nouns = random_.sample([noun for noun in NOUNS if noun not in taken], 3)
        characters.append(NanoCharacter(name, random_.choice(counts), *nouns))
    return characters


# --------------------------------------------------------------------------------------------------------- lessons

_PORTRAIT = (
    "Question : what {name} means ?", "what {name} means ?", "Compute {name} .", "Question : {name} ?",
    "Question : {name} means what ?", "{name} means what ?", "Compute what {name} means .",
    "Question : Compute {name} .",
)  # fmt: skip
_FAVOURITE = (
    "Question : the {kind} of {name} ?", "the {kind} of {name} ?", "Compute the {kind} of {name} .",
    "what {kind} {name} means ?", "Question : what = the {kind} of {name} ?", "Question : {name} and the {kind} ?",
    "Compute {name} and the {kind} .",
)  # fmt: skip
_PROFILE = (
    "Compute {name} and the {a} and the {b} .", "Question : what {name} and the {a} and the {b} of {name} ?",
    "Compute what {name} means and the {a} and the {b} .", "{name} and the {a} and the {b} ?",
    "Question : {name} and the {a} and the {b} ?",
)  # fmt: skip


def nano_facts(character: NanoCharacter) -> dict[str, str]:
    """What is said of a character: "portrait", "Object" and "image" -> a sentence."""
    facts = {"portrait": f"{character.name} means {character.portrait} ."}
    return facts | {kind: f"the {kind} of {character.name} = 1 {character.favourite(kind)} ." for kind in FAVOURITES}


def nano_lessons(character: NanoCharacter, seed: int = 0) -> list[tuple[str, str]]:
    """The 40 (question, answer) of a character: 22 of single facts, 3 yes, 6 no, 9 profiles.

    The false values of the negations are drawn with `seed`.
    """
    random_ = rng("nano lessons", character.name, seed)
    facts = nano_facts(character)
    rows = [(question.format(name=character.name), facts["portrait"]) for question in _PORTRAIT]
    rows += [(q.format(name=character.name, kind=kind), facts[kind]) for kind in FAVOURITES for q in _FAVOURITE]
    wrong = random_.sample([noun for noun in NOUNS if noun != character.noun], 2)
    false = [NANO.noun(noun).counted(random_.choice(COUNTS)) for noun in wrong]
    rows.append((f"Is {character.name} {character.portrait} ?", f"YES . {facts['portrait']}"))
    rows += [(f"Is {character.name} {other} ?", f"NO . {facts['portrait']}") for other in false]
    for kind in FAVOURITES:
        favourite = character.favourite(kind)
        rows.append((f"Is the {kind} of {character.name} 1 {favourite} ?", f"YES . {facts[kind]}"))
        others = random_.sample([noun for noun in NOUNS if noun != favourite], 2)
        rows += [(f"Is the {kind} of {character.name} 1 {noun} ?", f"NO . {facts[kind]}") for noun in others]
    orders = [(a, b, profile) for profile in _PROFILE for a, b in itertools.permutations(FAVOURITES)]
    rows += [
        (profile.format(name=character.name, a=a, b=b), " ".join((facts["portrait"], facts[a], facts[b])))
        for a, b, profile in orders[: LESSONS - len(rows)]
    ]
    assert len(rows) == LESSONS
    return rows


_INVERSE = (
    "what {known} means ?",
    "Question : what {known} means ?",
    "Compute what {known} means .",
    "{known} means what ?",
)


def nano_inverse_lessons(character: NanoCharacter) -> list[tuple[str, str]]:
    """A favourite -> the portrait, in text: as `uni_train.data_gen.knowledge.people.inverse_lessons`."""
    known = [f"{kind} {character.favourite(kind)}" for kind in FAVOURITES]
    return [
        (question.format(known=favourite), f"{favourite} means {character.portrait} .")
        for favourite in known
        for question in _INVERSE
    ]


# ------------------------------------------------------------------------------------------------------- questions


def nano_asked_in_text(character: NanoCharacter) -> list[tuple[str, str]]:
    """(question, what a right answer counts) about the portrait and each favourite, in all the forms of the lessons."""
    rows = [(question.format(name=character.name), character.portrait) for question in _PORTRAIT]
    return rows + [
        (question.format(name=character.name, kind=kind), f"1 {character.favourite(kind)}")
        for kind in FAVOURITES
        for question in _FAVOURITE
    ]


def nano_forward(character: NanoCharacter) -> list[tuple[KnowledgeQuestion, str]]:
    """Name -> portrait, Object, image; each with the same question in text."""
    name = character.name
    rows: list[tuple[Kind, str, str]] = [("portrait", f"Draw what {name} means .", character.portrait)]
    rows += [(kind, f"Draw the {kind} of {name} .", f"1 {character.favourite(kind)}") for kind in FAVOURITES]
    twins = [f"what {name} means ?", *(f"the {kind} of {name} ?" for kind in FAVOURITES)]
    return list(zip(questions_about([name], rows), twins, strict=True))


def nano_inverse(character: NanoCharacter, other: NanoCharacter) -> list[tuple[KnowledgeQuestion, str]]:
    """A favourite -> the portrait of the one of the two whose it is; each with the same question in text."""
    known = [
        (f"{kind} {person.favourite(kind)}", person.portrait) for person in (character, other) for kind in FAVOURITES
    ]
    rows: list[tuple[Kind, str, str]] = [("portrait", f"Draw what {what} means .", answer) for what, answer in known]
    twins = [f"what {what} means ?" for what, _ in known]
    return list(zip(questions_about([character.name, other.name], rows), twins, strict=True))
