"""What an image must show: as data, as the published criterion in words, and as something a program can look for.

`find` reads the conclusion of a reasoning text (a refined prompt). It returns True or False if the words are
unambiguous, else None: then a judge reads them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from uni_train.core.errors import DataError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.sprites import verify_sprites
from uni_train.data_gen.task import Check, Verdict
from uni_train.data_gen.ureason.words import article, listed

if TYPE_CHECKING:
    import numpy as np
    from pydantic import TypeAdapter

NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_VALUES = {"no": 0, "a": 1, "an": 1, "single": 1, **{word: n for n, word in enumerate(NUMBERS)}}
_QUOTED = re.compile(r"[\"“`]([^\"“”`\n]{1,40})[\"”`]|(?<!\w)['‘]([^'‘’\n]{1,40})['’](?!\w)")
_NUMBER = r"\d{1,9}|" + "|".join(_VALUES)  # Python refuses to read thousands of digits


class Group(NamedTuple):
    """`count` of a thing ("red apple", "red apples"), in a place ("on the tray"; "" for the only one)."""

    count: int  # type: ignore[assignment]  # not the method of tuples
    singular: str
    plural: str
    place: str = ""

    def __str__(self) -> str:
        """ "2 red apples on the tray"."""
        number = "no" if self.count == 0 else str(self.count)
        return " ".join(filter(None, (number, self.singular if self.count == 1 else self.plural, self.place)))


class _Outcome:
    """What all outcomes share; each is a frozen dataclass.

    criterion: what the published files say, "Exactly 2 red apples on the tray and 1 pen on the desk.".
    description: what a perfect refined prompt says: what is to be seen, and nothing that is not.
    """

    kind: ClassVar[str]
    excluded: tuple[str, ...] = ()

    def description(self) -> str:
        raise NotImplementedError

    def criterion(self) -> str:
        absent = f" There is {listed([f'no {thing}' for thing in self.excluded])}." if self.excluded else ""
        return f"{self.description()}{absent}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: "kind" and the fields."""
        return {"kind": self.kind} | {field.name: _as_lists(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Counts(_Outcome):
    """How many of each thing there are."""

    kind: ClassVar[str] = "counts"
    groups: tuple[Group, ...]

    def description(self) -> str:
        """ "Exactly 2 red apples on the tray and 1 pen on the desk."."""
        return f"Exactly {listed([str(group) for group in self.groups])}."

    def find(self, text: str) -> bool | None:
        """Every group's number stands before its noun, and no other number does. None: absent or ambiguous."""
        verdicts = []
        for group in self.groups:
            if sum(other.plural == group.plural for other in self.groups) > 1:
                return None  # the same thing in two places: a judge decides which count is where
            numbers = _counted(text, group)
            if not numbers or len(numbers) > 1:
                return None
            verdicts.append(numbers == {group.count})
        return all(verdicts)


@dataclass(frozen=True, slots=True)
class Layout(_Outcome):
    """What is where: (place, thing), in reading order; `excluded` are things of the story that must not be seen."""

    kind: ClassVar[str] = "layout"
    places: tuple[tuple[str, str], ...]
    excluded: tuple[str, ...] = ()

    @classmethod
    def from_things(cls, places: Sequence[str], things: Sequence[str], excluded: Sequence[str] = ()) -> Layout:
        """A thing without an article at each place."""
        return cls(tuple((place, article(thing)) for place, thing in zip(places, things, strict=True)), tuple(excluded))

    def description(self) -> str:
        """ "Top-left is a red mug, top-right is a fork."."""
        seen = ", ".join(f"{place} is {thing}" for place, thing in self.places)
        return f"{seen[0].upper()}{seen[1:]}."

    def find(self, text: str) -> bool | None:
        """Each clause with one place and one of the things says what is where; all places must be named once."""
        things = [_bare(thing) for _, thing in self.places]
        things_at: dict[str, set[str]] = {}
        for clause in re.split(r"[.;,\n]|\band\b", text.casefold()):
            where = [place for place, _ in self.places if re.search(_spelled(place), clause)]
            what = [thing for thing in things if re.search(rf"\b{re.escape(thing)}\b", clause)]
            if len(where) > 1 or (where and len(what) > 1):
                return None
            if where and what:
                things_at.setdefault(where[0], set()).add(what[0])
        if len(things_at) < len(self.places) or any(len(heard) > 1 for heard in things_at.values()):
            return None
        return all(things_at[place] == {_bare(thing)} for place, thing in self.places)


@dataclass(frozen=True, slots=True)
class Attributes(_Outcome):
    """What holds of the things in the end ("the kite is green"), and what must not be seen ("red kite")."""

    kind: ClassVar[str] = "attributes"
    present: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def description(self) -> str:
        """ "The kite is green and the ball is blue."."""
        seen = listed(self.present)
        return f"{seen[0].upper()}{seen[1:]}."

    def find(self, text: str) -> bool | None:
        """None: how an attribute may be worded is for a judge."""
        return None


@dataclass(frozen=True, slots=True)
class Writing(_Outcome):
    """The text that is written in the image; `excluded` are texts that must not be."""

    kind: ClassVar[str] = "writing"
    text: str
    excluded: tuple[str, ...] = ()

    def criterion(self) -> str:
        """ "The text "FIRE" can be read in the picture, and "FIREWALL" cannot (case does not matter)."."""
        without = "".join(f', and "{text}" cannot' for text in self.excluded)
        return f'The text "{self.text}" can be read in the picture{without} (case does not matter).'

    def description(self) -> str:
        """The text in quotes."""
        return f'It reads "{self.text}".'

    def find(self, text: str) -> bool | None:
        """The quoted text decides, where there is one; else the only word in capitals or digits."""
        quoted = {name.strip(" *.").casefold() or name for pair in _QUOTED.findall(text) for name in pair if name}
        if quoted:
            return quoted == {self.text.casefold()} if len(quoted) == 1 else None
        alone = set(re.findall(r"(?<![\w:])[A-Z0-9][A-Z0-9:]+(?![\w:])", text))
        return alone == {self.text.upper()} if len(alone) == 1 else None


@dataclass(frozen=True, slots=True)
class Sprites(_Outcome):
    """Numbers of nano's sprites; the one outcome that a program can also see in an image."""

    kind: ClassVar[str] = "sprites"
    groups: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        """ "5 apples", "3 apples and 2 cups", in nano's words."""
        return " and ".join(NANO.noun(name).counted(count) for name, count in self.groups)

    def criterion(self) -> str:
        return f"Exactly {self}, and nothing else."

    def description(self) -> str:
        """ "5 apples ."."""
        return f"{self} ."

    def find(self, text: str) -> bool | None:
        """Whether the conclusion ("Draw 5 apples .") asks for exactly this."""
        conclusion = text.removeprefix("Draw").strip(" .")
        return conclusion == str(self)

    def render(self, seed: int) -> np.ndarray:
        """The image, uint8 [24, 24, 3], cells filled in scan order."""
        if len(self.groups) == 1:
            return sprites.render(*self.groups[0], seed)
        names = [name for name, count in self.groups for _ in range(count)]
        if len(names) > sprites.MAX_COUNT:
            raise DataError(f"{self} are {len(names)} sprites: an image holds {sprites.MAX_COUNT}")
        image = sprites.empty()
        for place, name in enumerate(names):
            drawn = sprites.render(name, 1, derive_seed(seed, "cell", place))
            sprites.cell(image, place)[...] = sprites.cell(drawn, 0)
        return image

    def verify(self, image: np.ndarray) -> Verdict:
        """Exactly the right number of each object and nothing else; uint8 [24, 24, 3]."""
        if len(self.groups) == 1:
            return verify_sprites(image, *self.groups[0])
        reading = sprites.read(image)
        if not reading.readable:
            return Verdict((Check("readable", "unreadable", reading.reason),))
        seen, expected = Counter(reading.objects), dict(self.groups)
        reason = f"{' and '.join(NANO.noun(name).counted(n) for name, n in seen.items()) or 'nothing'}, not {self}"
        checks = (("object", seen.keys() == expected.keys()), ("count", seen == expected))
        return Verdict(tuple(Check(name, "pass" if ok else "fail", "" if ok else reason) for name, ok in checks))


Outcome = Counts | Layout | Attributes | Writing | Sprites


_KINDS: dict[str, type[Outcome]] = {cls.kind: cls for cls in (Counts, Layout, Attributes, Writing, Sprites)}


def outcome_from(data: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_dict` wrote. DataError for anything else."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if kind not in _KINDS:
        raise DataError(f'there is no outcome "{kind}": expected {", ".join(_KINDS)}')
    try:
        return _adapter(kind).validate_python(data)
    except ValueError as error:  # pydantic's
        raise DataError(f"not an outcome ({error})") from error


@cache
def _adapter(kind: str) -> TypeAdapter[Outcome]:
    from pydantic import TypeAdapter

    return TypeAdapter(_KINDS[kind])


def _as_lists(value: Any) -> Any:
    return [_as_lists(part) for part in value] if isinstance(value, tuple) else value


def _counted(text: str, group: Group) -> set[int]:
    """The numbers that stand before the group's noun, with at most two words between."""
    words = {group.singular.split()[-1], group.plural.split()[-1]}
    noun = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pattern = rf"\b({_NUMBER})\b(?:[ -]+(?!(?:{_NUMBER})\b)[a-z-]+){{0,3}}?[ -]+(?:{noun})\b"
    return {_value(m[1]) for m in re.finditer(pattern, text.casefold())}


def _value(word: str) -> int:
    return int(word) if word.isdigit() else _VALUES[word]


def _bare(thing: str) -> str:
    """Without its article, in small letters."""
    return re.sub(r"^(?:an?|the)\s+", "", thing.casefold())


def _spelled(place: str) -> str:
    """ "top-left" may be written "top left" or "upper-left"; words are whole."""
    parts = [{"top": "(?:top|upper)", "bottom": "(?:bottom|lower)", "middle": "(?:middle|center|centre)",
              "center": "(?:middle|center|centre)"}.get(word, re.escape(word))
             for word in re.split(r"[- ]", place.casefold())]  # fmt: skip
    pattern = "[- ]".join(parts)
    # "left" alone must not be found in "top-left".
    return (
        rf"(?<![\w-]){pattern}(?![\w-])" if len(parts) > 1 else rf"(?<![\w-]){pattern}(?![\w-])(?![- ](?:left|right))"
    )
