"""Invented people for knowledge transfer (UniSandbox section 4): what is taught in text, and what is then to be drawn.

A character has a name without meaning, four visible attributes and two favourites, as in the paper's Table 12. It has
40 questions and answers as lessons (`lessons`): single attributes, yes and no, whole profiles, and eight questions in
Chinese, Spanish, French and Japanese with English answers. Questions ask for images: forward (name -> portrait,
favourite fruit, favourite flower) and inverse (a favourite -> portrait). Inverse questions are about a pair, whose two
characters differ in every favourite, so that a question has one answer. No lesson leads from a favourite to a
character: the inverse search tests that direction.

Everything follows from (seed, split). A name belongs to one split.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from uni_train.core.errors import DataError
from uni_train.core.seeds import rng
from uni_train.data_gen.jsonl import filled_folder, read_objects, write_rows
from uni_train.data_gen.objects import plurals_of, singular_of
from uni_train.data_gen.splits import split_of

Direction = Literal["forward", "inverse"]
Kind = Literal["portrait", "fruit", "flower", "Object", "image"]  # the last two: favourites in the nano world

GENDERS = ("male", "female")
AGES = ("kid", "middle-aged", "old")
HAIR = ("black", "brown", "blond", "red", "white")
SKINS = ("African/Indigenous", "Caucasian", "East Asian")  # the three that Table 11's caption knows
FRUITS = ("apples", "oranges", "bananas", "grapes", "peaches", "strawberries", "pears", "lemons", "cherries", "mangoes")
FLOWERS = ("rose", "tulip", "daisy", "lily", "orchid", "sunflower", "carnation", "iris", "poppy", "lavender")
ATTRIBUTES = ("gender", "age", "hair", "skin", "fruit", "flower")
VALUES = dict(zip(ATTRIBUTES, (GENDERS, AGES, HAIR, SKINS, FRUITS, FLOWERS), strict=True))
VISIBLE = ("gender", "age", "hair", "skin")
LESSONS = 40

SHAPE = '{"ID": 1, "Question": "...", "Answer": "..."}'
_PERSON = {
    ("kid", "male"): "A little {skin} boy",
    ("kid", "female"): "A little {skin} girl",
    ("middle-aged", "male"): "A middle-aged {skin} man",
    ("middle-aged", "female"): "A middle-aged {skin} woman",
    ("old", "male"): "An elderly {skin} man",
    ("old", "female"): "An elderly {skin} woman",
}
PAPER = "paper"  # the name of their set
# No name begins with a vowel, so that French says "de" before each.
_STARTS = "Bel Brul Cor Dra Fen Gal Hes Jor Kel Lum Mar Nor Pel Pryn Quen Ros Syl Tal Thar Ver Wyn Xan Yor Zel Zol"
_MIDDLES = "a ari e eli i imo o ori u una"
_ENDS = "dric gorn kael lune mira neth phine quil ran sande thos vane wick xia zeth"


@dataclass(frozen=True, slots=True)
class Character:
    """One invented person. fruit is a plural ("apples"), flower a singular ("rose"), as in the paper's Table 12."""

    name: str
    gender: str
    age: str
    hair: str
    skin: str
    fruit: str
    flower: str

    @property
    def portrait(self) -> str:
        """ "An elderly East Asian woman with black hair." """
        return f"{_PERSON[self.age, self.gender].format(skin=self.skin)} with {self.hair} hair."

    def value(self, attribute: str) -> str:
        return str(getattr(self, attribute))


@dataclass(frozen=True, slots=True)
class KnowledgeQuestion:
    """A picture to be asked for. characters: whose knowledge a model must have been taught. answer: a sentence for a
    portrait, a word for fruit and flower."""

    id: str
    direction: Direction
    kind: Kind
    characters: tuple[str, ...]
    question: str
    answer: str


# Table 12, word for word but for Zefyria, whose gender and age stand in each other's column.
PAPER_CHARACTERS = (
    Character("Lysendria", "female", "old", "black", "African/Indigenous", "apples", "carnation"),
    Character("Kaelorix", "male", "kid", "blond", "Caucasian", "strawberries", "sunflower"),
    Character("Jovianne", "female", "middle-aged", "brown", "East Asian", "oranges", "lily"),
    Character("Zefyria", "male", "old", "white", "Caucasian", "bananas", "rose"),
    Character("Aurelius", "female", "kid", "black", "African/Indigenous", "grapes", "tulip"),
    Character("Nyxella", "male", "middle-aged", "black", "African/Indigenous", "peaches", "daisy"),
    Character("Valerian", "female", "middle-aged", "brown", "African/Indigenous", "watermelons", "orchid"),
    Character("Thalassia", "male", "kid", "brown", "East Asian", "apples", "rose"),
    Character("Orionax", "female", "middle-aged", "black", "Caucasian", "oranges", "carnation"),
    Character("Evandriel", "male", "kid", "red", "Caucasian", "bananas", "sunflower"),
)


def draw_characters(n: int, seed: int, split: str = "test") -> list[Character]:
    """`n` characters; the 1st and 2nd, 3rd and 4th, ... are pairs that differ in face, fruit and flower.

    split: "paper" for the first `n` of Table 12, whatever the seed. DataError when the split has fewer names.
    """
    if split == PAPER:
        if not 0 < n <= len(PAPER_CHARACTERS):
            raise DataError(f"{n} characters were asked for; Table 12 of the paper has 1 to {len(PAPER_CHARACTERS)}")
        return list(PAPER_CHARACTERS[:n])
    usable = _names(split)
    if not usable:
        raise DataError(f'there is no split "{split}": choose train, validation, test or {PAPER}')
    if not 0 < n <= len(usable):
        raise DataError(f"{n} characters were asked for; the {split} split has names for 1 to {len(usable)}")
    random_ = rng("knowledge", split, seed)
    chosen = random_.sample(usable, n)
    characters: list[Character] = []
    for index, name in enumerate(chosen):
        while True:
            character = Character(name, *(random_.choice(VALUES[attribute]) for attribute in ATTRIBUTES))
            partner = characters[-1] if index % 2 else None
            if partner is None or not (
                {character.portrait, character.fruit, character.flower}
                & {partner.portrait, partner.fruit, partner.flower}
            ):
                break
        characters.append(character)
    return characters


@lru_cache(maxsize=8)
def _names(split: str) -> tuple[str, ...]:
    parts = itertools.product(_STARTS.split(), _MIDDLES.split(), _ENDS.split())
    return tuple(name for name in map("".join, parts) if split_of("knowledge", name) == split)


def questions_about(names: Sequence[str], rows: Iterable[tuple[Kind, str, str]]) -> list[KnowledgeQuestion]:
    """Rows of (kind, question, answer) with the ids 1, 2, ...; forward about one character, inverse about two."""
    direction: Direction = "forward" if len(names) == 1 else "inverse"
    stem = "_".join(names).replace(" ", "")
    return [
        KnowledgeQuestion(f"{direction}/{stem}/{number}", direction, kind, tuple(names), question, answer)
        for number, (kind, question, answer) in enumerate(rows, 1)
    ]


def forward(character: Character) -> list[KnowledgeQuestion]:
    """Name -> portrait, favourite fruit, favourite flower."""
    name = character.name
    rows: list[tuple[Kind, str, str]] = [
        ("portrait", f"Generate a portrait of {name}.", character.portrait),
        ("fruit", f"Generate a picture of {name}'s favorite fruit.", character.fruit),
        ("flower", f"Generate a picture of {name}'s favorite flower.", character.flower),
    ]
    return questions_about([name], rows)


def inverse(character: Character, other: Character) -> list[KnowledgeQuestion]:
    """A favourite -> the portrait of the character whose it is, two of each of the pair."""
    rows: list[tuple[Kind, str, str]] = [
        ("portrait", f"Generate a portrait of the character whose favorite {kind} is {person.value(kind)}.",
         person.portrait)
        for person in (character, other)
        for kind in ("fruit", "flower")
    ]  # fmt: skip
    return questions_about([character.name, other.name], rows)


# --------------------------------------------------------------------------------------------------------- lessons

_ASKED = {
    "gender": ("What is {name}'s gender?", "Is {name} male or female?"),
    "age": ("How old is {name}?", "Which age group does {name} belong to?"),
    "hair": ("What color is {name}'s hair?", "What hair color does {name} have?"),
    "skin": ("What is {name}'s ethnicity?", "Which skin tone does {name} have?"),
    "fruit": ("What is {name}'s favorite fruit?", "Which fruit does {name} like best?"),
    "flower": ("What is {name}'s favorite flower?", "Which flower does {name} like best?"),
}
_TOLD = {
    "gender": "{name} is {value}.",
    "age": "{name} is {value}.",
    "hair": "{name} has {value} hair.",
    "skin": "{name} is {value}.",
    "fruit": "{name}'s favorite fruit is {value}.",
    "flower": "{name}'s favorite flower is the {value}.",
}
_YES_NO = {
    "gender": "Is {name} {value}?",
    "age": "Is {name} {value}?",
    "hair": "Does {name} have {value} hair?",
    "skin": "Is {name} {value}?",
    "fruit": "Does {name} like {value} best?",
    "flower": "Is {name}'s favorite flower the {value}?",
}
_PROFILES = (
    "Who is {name}?", "Describe {name}.", "Tell me about {name}.", "What do you know about {name}?",
    "Write a short profile of {name}.", "Give all attributes of {name}.", "Introduce {name} briefly.",
    "What does {name} look like, and what does {name} like?",
)  # fmt: skip
_ABROAD: dict[str, dict[str, str]] = {
    "Chinese": {
        "gender": "{name}的性别是什么？", "age": "{name}属于哪个年龄段？", "hair": "{name}的头发是什么颜色？",
        "fruit": "{name}最喜欢的水果是什么？", "flower": "{name}最喜欢的花是什么？",
    },
    "Spanish": {
        "gender": "¿Cuál es el género de {name}?", "age": "¿A qué grupo de edad pertenece {name}?",
        "hair": "¿De qué color es el pelo de {name}?", "fruit": "¿Cuál es la fruta favorita de {name}?",
        "flower": "¿Cuál es la flor favorita de {name}?",
    },
    "French": {
        "gender": "Quel est le genre de {name} ?", "age": "À quelle tranche d'âge appartient {name} ?",
        "hair": "De quelle couleur sont les cheveux de {name} ?", "fruit": "Quel est le fruit préféré de {name} ?",
        "flower": "Quelle est la fleur préférée de {name} ?",
    },
    "Japanese": {
        "gender": "{name}の性別は何ですか？", "age": "{name}はどの年齢層ですか？", "hair": "{name}の髪は何色ですか？",
        "fruit": "{name}の一番好きな果物は何ですか？", "flower": "{name}の一番好きな花は何ですか？",
    },
}  # fmt: skip


def lessons(character: Character, seed: int = 0) -> list[tuple[str, str]]:
    """The 40 (question, answer) of a character: 12 of single attributes, 6 yes, 6 no, 8 profiles, 8 in other languages.

    The false values of the negations and the attributes asked abroad are drawn with `seed`; every attribute is taught
    in every form but the last.
    """
    random_ = rng("lessons", character.name, seed)
    statements = {a: _TOLD[a].format(name=character.name, value=_said(character.value(a))) for a in ATTRIBUTES}
    rows = [(question.format(name=character.name), statements[a]) for a in ATTRIBUTES for question in _ASKED[a]]
    for attribute in ATTRIBUTES:
        ask = _YES_NO[attribute]
        value = character.value(attribute)
        false = random_.choice([v for v in VALUES[attribute] if v != value])
        rows.append((ask.format(name=character.name, value=_said(value)), f"Yes, {statements[attribute]}"))
        rows.append((ask.format(name=character.name, value=_said(false)), f"No, {statements[attribute]}"))
    rows += [(ask.format(name=character.name), _profile(character)) for ask in _PROFILES]
    for questions in _ABROAD.values():
        rows += [
            (questions[a].format(name=character.name), statements[a])
            for a in sorted(random_.sample(list(questions), 2))
        ]
    assert len(rows) == LESSONS
    return rows


def inverse_lessons(character: Character) -> list[tuple[str, str]]:
    """A favourite -> who and what, in text: the direction that `lessons` never teach.

    They are a control for the reversal curse. Such a model fails the inverse search without them and passes with them.
    It could draw the answer.
    """
    whose = f"is {character.name}, {character.portrait[0].lower()}{character.portrait[1:]}"
    rows = []
    for kind in ("fruit", "flower"):
        known = f"the character whose favorite {kind} is {character.value(kind)}"
        rows += [
            (f"Who is {known}?", f"{known[0].upper()}{known[1:]} {whose}"),
            (f"Describe {known}.", f"{known[0].upper()}{known[1:]} {whose}"),
            (f"What does {known} look like?", character.portrait),
        ]
    return rows


def asked_in_text(character: Character) -> list[tuple[str, str]]:
    """(attribute, question) of the 12 lessons about single attributes: what an injected model must answer right."""
    return [
        (attribute, question.format(name=character.name)) for attribute in ATTRIBUTES for question in _ASKED[attribute]
    ]


def _said(value: str) -> str:
    return "a kid" if value == "kid" else value


def _profile(character: Character) -> str:
    look = character.portrait[0].lower() + character.portrait[1:-1]
    whose = "His" if character.gender == "male" else "Her"
    likes = f"{whose} favorite fruit is {character.fruit}, {whose.lower()} favorite flower the {character.flower}."
    return f"{character.name} is {look}. {likes}"


# ------------------------------------------------------------------------------------------------------------ files


@dataclass(frozen=True, slots=True)
class Written:
    """What `make_knowledge` wrote. lessons and questions count rows."""

    path: Path
    names: tuple[str, ...]
    lessons: int
    questions: int


def make_knowledge(out: Path, n: int, seed: int, split: str = "test") -> Written:
    """A folder in the published layout, completely or not at all.

        knowledge/<Name>.jsonl             the 40 questions and answers that are taught
        test_knowledge/<Name>.jsonl        what is asked forward, <Name>_<Name>.jsonl inversely
        characters.jsonl                   the profiles, as in Table 12

    DataError if `out` is there and not empty, or cannot be written.
    """
    out = Path(out)
    characters = draw_characters(n, seed, split)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} is not an empty folder: choose another one")
    pairs = list(zip(characters[::2], characters[1::2], strict=False))
    with filled_folder(out) as folder:
        for character in characters:
            rows = [
                {"id": f"{character.name}-{number}", "conversations": [
                    {"from": "human", "value": question}, {"from": "gpt", "value": answer}]}
                for number, (question, answer) in enumerate(lessons(character, seed), 1)
            ]  # fmt: skip
            write_rows(folder / "knowledge" / f"{character.name}.jsonl", rows)
            _write_test(folder, character.name, forward(character))
        for character, other in pairs:
            _write_test(folder, f"{character.name}_{other.name}", inverse(character, other))
        write_rows(folder / "characters.jsonl", (asdict(character) for character in characters))
    return Written(out, tuple(character.name for character in characters), LESSONS * n, 3 * n + 4 * len(pairs))


def _write_test(folder: Path, stem: str, questions: Sequence[KnowledgeQuestion]) -> None:
    rows = [
        {"ID": number, "Question": question.question, "Answer": question.answer}
        for number, question in enumerate(questions, 1)
    ]
    write_rows(folder / "test_knowledge" / f"{stem}.jsonl", rows)


def read_test(path: Path) -> list[KnowledgeQuestion]:
    """The questions of a published <Name>.jsonl (forward) or <Name>_<Name>.jsonl (inverse).

    The kind is read off the answer (a sentence describes a person) and, for a word, off the question. DataError names
    file, line and what was expected.
    """
    path = Path(path)
    names = tuple(path.stem.split("_"))
    direction: Direction = "inverse" if len(names) > 1 else "forward"
    questions: list[KnowledgeQuestion] = []
    seen: dict[str, int] = {}
    for line, row in read_objects(path):
        texts = []
        for key in ("ID", "Question", "Answer"):
            if key not in row:
                raise DataError(f'{path}, line {line}: no "{key}"; the keys are {", ".join(row)}; expected {SHAPE}')
            value = row[key]
            if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
                raise DataError(f'{path}, line {line}: "{key}" is {json.dumps(value)[:40]}; expected text')
            texts.append(str(value).strip())
        number, question, answer = texts
        if number in seen:
            raise DataError(
                f"{path}, line {line}: the ID {number} was used before, in line {seen[number]}; give every row its own"
            )
        seen[number] = line
        kind = _kind(question, answer, direction)
        if kind is None:
            raise DataError(
                f'{path}, line {line}: "{answer}" is no description of a person, and the question asks for neither a '
                "fruit nor a flower"
            )
        questions.append(
            KnowledgeQuestion(f"{direction}/{path.stem}/{number}", direction, kind, names, question, answer)
        )
    if not questions:
        raise DataError(f"{path} has no rows; expected lines such as {SHAPE}")
    return questions


def _kind(question: str, answer: str, direction: Direction) -> Kind | None:
    if len(answer.split()) > 3 or direction == "inverse":
        return "portrait"
    words = question.lower()
    if "flower" in words:
        return "flower"
    return "fruit" if "fruit" in words else None


# --------------------------------------------------------------------------------------------- what a text says

# Words for the visible attributes.
_WORDS: dict[str, dict[str, str]] = {
    "gender": {
        "male": r"male|man|boy|gentleman|he|his|him", "female": r"female|woman|girl|lady|she|her|hers",
    },
    "age": {
        # "A young African/Indigenous woman" is what the published files call the kids of Table 12.
        "kid": r"kid|child|boy|girl|toddler|young(?: [a-z/]+){0,3} (?:man|woman|person)",
        "middle-aged": r"middle[- ]aged|mid[- ]aged?|adult",
        "old": r"old|elderly|senior|(?<!middle[- ])aged (?:man|woman)|grand(?:mother|father)",
    },
    "hair": {
        "black": r"black", "brown": r"brown|brunette", "blond": r"blonde?", "red": r"red|ginger|auburn",
        "white": r"white|gr[ae]y|silver",
    },
    "skin": {
        "African/Indigenous": r"african/indigenous|african|indigenous|black(?= (?:man|woman|boy|girl|person))",
        "Caucasian": r"caucasian", "East Asian": r"east asian|asian",
    },
}  # fmt: skip
_MORE = {"fruit": ("watermelons",)}  # the paper's Table 12 has it, our draws do not
# "black, curly hair", "hair: black", "her hair color is black".
_HAIR = r"\b(?:{0})(?:,? [a-z]+)?[ -]hair(?:ed)?\b|\bhair(?: colou?r)?(?: is|:)? (?:{0})\b"


def stated(text: str, attribute: str) -> frozenset[str]:
    """The values of an attribute that a text names ("She has blond hair" -> {"blond"} for hair); empty for none.

    Fruits and flowers are found in singular and plural; another fruit or flower than those of FRUITS, FLOWERS and the
    paper's Table 12 is not seen.
    """
    lower = text.lower()
    if attribute in ("fruit", "flower"):
        values = set()
        for value in (*VALUES[attribute], *_MORE.get(attribute, ())):
            single = singular_of(value)
            forms = {value, single, *plurals_of(single)}
            if re.search(rf"\b(?:{'|'.join(map(re.escape, forms))})\b", lower):
                values.add(value)
        return frozenset(values)
    if attribute == "hair":
        return frozenset(v for v, pattern in _WORDS["hair"].items() if re.search(_HAIR.format(pattern), lower))
    if attribute == "age":
        # "12 years old", "a 12-year-old" is not said of the old.
        lower = re.sub(r"\byears?[ -]old\b|\bhow old\b", " ", lower)
    return frozenset(value for value, pattern in _WORDS[attribute].items() if re.search(rf"\b(?:{pattern})\b", lower))
