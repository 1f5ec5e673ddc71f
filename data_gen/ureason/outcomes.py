"""What an image must show: as data, as the published criterion in words, and as something a program can look for.

`find` reads the conclusion of a reasoning text (a refined prompt). It returns True or False if the words are
unambiguous, else None: then a judge reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from uni_train.data_gen import sprites
from uni_train.data_gen.errors import DataError
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.sprites import verify_sprites
from uni_train.data_gen.task import Check, Verdict

if TYPE_CHECKING:
    import numpy as np

NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_VALUES = {"no": 0, "a": 1, "an": 1, "single": 1, **{word: n for n, word in enumerate(NUMBERS)}}
_QUOTED = re.compile(r"[\"“`]([^\"“”`\n]{1,40})[\"”`]|(?<!\w)['‘]([^'‘’\n]{1,40})['’](?!\w)")
_NUMBER = r"\d{1,9}|" + "|".join(_VALUES)  # Python refuses to read thousands of digits


@dataclass(frozen=True, slots=True)
class Group:
    """`count` of a thing ("red apple", "red apples"), in a place ("on the tray"; "" for the only one)."""

    count: int
    singular: str
    plural: str
    place: str = ""

    def __str__(self) -> str:
        """ "2 red apples on the tray"."""
        number = "no" if self.count == 0 else str(self.count)
        return " ".join(filter(None, (number, self.singular if self.count == 1 else self.plural, self.place)))


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each thing there are."""

    kind: ClassVar[str] = "counts"
    groups: tuple[Group, ...]

    def criterion(self) -> str:
        """ "Exactly 2 red apples on the tray and 1 pen on the desk."."""
        return f"Exactly {_join([str(group) for group in self.groups])}."

    def description(self) -> str:
        """What a perfect refined prompt says: what is to be seen, and nothing that is not."""
        return self.criterion()

    def find(self, text: str) -> bool | None:
        """Every group's number stands before its noun, and no other number does. None: absent or ambiguous."""
        verdicts = []
        for group in self.groups:
            if sum(other.plural == group.plural for other in self.groups) > 1:
                return None  # the same thing in two places: a judge decides which count is where
            found = _counted(text, group)
            if not found or len(found) > 1:
                return None
            verdicts.append(found == {group.count})
        return all(verdicts)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "groups": [[g.count, g.singular, g.plural, g.place] for g in self.groups]}


@dataclass(frozen=True, slots=True)
class Layout:
    """What is where: (place, thing), in reading order; `excluded` are things of the story that must not be seen."""

    kind: ClassVar[str] = "layout"
    places: tuple[tuple[str, str], ...]
    excluded: tuple[str, ...] = ()

    def criterion(self) -> str:
        """ "Top-left is a red mug, top-right is a fork. There is no knife."."""
        return f"{self.description()}{_absent(self.excluded)}"

    def description(self) -> str:
        """The places and what is there."""
        seen = ", ".join(f"{place} is {thing}" for place, thing in self.places)
        return f"{seen[0].upper()}{seen[1:]}."

    def find(self, text: str) -> bool | None:
        """Each clause with one place and one of the things says what is where; all places must be named once."""
        things = [_bare(thing) for _, thing in self.places]
        told: dict[str, set[str]] = {}
        for clause in re.split(r"[.;,\n]|\band\b", text.casefold()):
            where = [place for place, _ in self.places if re.search(_spelled(place), clause)]
            what = [thing for thing in things if re.search(rf"\b{re.escape(thing)}\b", clause)]
            if len(where) > 1 or (where and len(what) > 1):
                return None
            if where and what:
                told.setdefault(where[0], set()).add(what[0])
        if len(told) < len(self.places) or any(len(heard) > 1 for heard in told.values()):
            return None
        return all(told[place] == {_bare(thing)} for place, thing in self.places)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "places": [list(pair) for pair in self.places], "excluded": list(self.excluded)}


@dataclass(frozen=True, slots=True)
class Attributes:
    """What holds of the things in the end ("the kite is green"), and what must not be seen ("red kite")."""

    kind: ClassVar[str] = "attributes"
    present: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def criterion(self) -> str:
        """ "The kite is green and the ball is blue. There is no scarf."."""
        return f"{self.description()}{_absent(self.excluded)}"

    def description(self) -> str:
        """What holds."""
        seen = _join(self.present)
        return f"{seen[0].upper()}{seen[1:]}."

    def find(self, text: str) -> bool | None:
        """None: how an attribute may be worded is for a judge."""
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "present": list(self.present), "excluded": list(self.excluded)}


@dataclass(frozen=True, slots=True)
class Writing:
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
        quoted = {found.strip(" *.").casefold() or found for pair in _QUOTED.findall(text) for found in pair if found}
        if quoted:
            return quoted == {self.text.casefold()} if len(quoted) == 1 else None
        alone = set(re.findall(r"(?<![\w:])[A-Z0-9][A-Z0-9:]+(?![\w:])", text))
        return alone == {self.text.upper()} if len(alone) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "excluded": list(self.excluded)}


@dataclass(frozen=True, slots=True)
class Sprites:
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
        said = text.removeprefix("Draw").strip(" .")
        return said == str(self)

    def render(self, seed: int) -> np.ndarray:
        """The image, uint8 [24, 24, 3], cells filled in scan order."""
        if len(self.groups) == 1:
            return sprites.render(*self.groups[0], seed)
        names = [name for name, count in self.groups for _ in range(count)]
        if len(names) > sprites.MAX_COUNT:
            raise DataError(f"{self} are {len(names)} sprites: an image holds {sprites.MAX_COUNT}")
        picture = sprites.render(names[0], 1, seed)
        for place, name in enumerate(names):
            drawn = sprites.render(name, 1, derive_seed(seed, "cell", place))
            _cell(picture, place)[...] = _cell(drawn, 0)
        return picture

    def verify(self, image: np.ndarray) -> Verdict:
        """Exactly the right number of each object and nothing else; uint8 [24, 24, 3]."""
        if len(self.groups) == 1:
            return verify_sprites(image, *self.groups[0])
        if image.shape != (sprites.SIZE, sprites.SIZE, 3):
            return Verdict((Check("readable", "unreadable", f"the image is {image.shape}"),))
        found: dict[str, int] = {}
        empty = sprites.render(sprites.SPRITES[0], 1, 0)
        _cell(empty, 0)[...] = _cell(empty, 1)
        for place in range(sprites.MAX_COUNT):
            alone = empty.copy()
            _cell(alone, place)[...] = _cell(image, place)
            reading = sprites.read(alone)
            if not reading.readable:
                return Verdict((Check("readable", "unreadable", reading.reason),))
            if reading.name is not None:
                found[reading.name] = found.get(reading.name, 0) + 1
        seen = " and ".join(NANO.noun(name).counted(count) for name, count in found.items()) or "nothing"
        kinds, counts = set(found) == {name for name, _ in self.groups}, found == dict(self.groups)
        return Verdict((
            Check("object", "pass" if kinds else "fail", "" if kinds else f"{seen}, not {self}"),
            Check("count", "pass" if counts else "fail", "" if counts else f"{seen}, not {self}"),
        ))  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "groups": [list(group) for group in self.groups]}


Outcome = Counts | Layout | Attributes | Writing | Sprites


def outcome_from(data: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_dict` wrote. DataError for anything else."""
    try:
        kind = data["kind"]
        if kind == "counts":
            return Counts(tuple(Group(int(n), str(one), str(many), str(at)) for n, one, many, at in data["groups"]))
        if kind == "layout":
            return Layout(tuple((str(p), str(t)) for p, t in data["places"]), tuple(map(str, data["excluded"])))
        if kind == "attributes":
            return Attributes(tuple(map(str, data["present"])), tuple(map(str, data["excluded"])))
        if kind == "writing":
            return Writing(str(data["text"]), tuple(map(str, data["excluded"])))
        if kind == "sprites":
            return Sprites(tuple((str(name), int(count)) for name, count in data["groups"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not an outcome ({type(error).__name__}: {error})") from error
    raise DataError(f'there is no outcome "{kind}": expected counts, layout, attributes, writing or sprites')


def _cell(image: np.ndarray, place: int) -> np.ndarray:
    """The view of one cell of a nano image."""
    row, column = divmod(place, sprites.GRID)
    side = sprites.CELL
    return image[row * side : (row + 1) * side, column * side : (column + 1) * side]


def _counted(text: str, group: Group) -> set[int]:
    """The numbers that stand before the group's noun, with at most two words between."""
    words = {group.singular.split()[-1], group.plural.split()[-1]}
    noun = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pattern = rf"\b({_NUMBER})\b(?:[ -]+(?!(?:{_NUMBER})\b)[a-z-]+){{0,3}}?[ -]+(?:{noun})\b"
    return {_value(m[1]) for m in re.finditer(pattern, text.casefold())}


def _value(word: str) -> int:
    return int(word) if word.isdigit() else _VALUES[word]


def _join(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _absent(things: Sequence[str]) -> str:
    return f" There is {_join([f'no {thing}' for thing in things])}." if things else ""


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
