"""Arithmetic reasoning: how many are left where, after some events (Yang et al. 2026, arXiv 2602.08336, section 2.1).

A story is a list of events; numbers are what replaying them gives. Add, Subtract, Multiply and Divide use one operation
each, Single-Type any of them. Multi-Type has several kinds of things at once, Transfer two places with moves between
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from uni_train.core.errors import DataError
from uni_train.data_gen.objects import Noun
from uni_train.data_gen.ureason import words
from uni_train.data_gen.ureason.outcomes import Counts, Group
from uni_train.data_gen.ureason.puzzle import Puzzle

# Of a thing in the image, alone and beside others: larger numbers say more about drawing than about reasoning.
MOST = 8
MOST_OF_SEVERAL = 4
_MOST_BETWEEN = 16
_TIMES = {2: "twice", 3: "three times", 4: "four times"}
_OPERATIONS = {
    "Add": ("add",), "Subtract": ("remove",), "Multiply": ("multiply",), "Divide": ("divide",),
    "Single-Type": ("add", "remove", "multiply", "divide"), "Multi-Type": ("add", "remove"),
}  # fmt: skip

Event = tuple[Any, ...]  # (what, thing, place, number), and for "move" the second place behind


def replay(events: Iterable[Event | list[Any]]) -> dict[tuple[str, str], int]:
    """(thing, place) -> how many in the end. DataError for an event that cannot happen."""
    held: dict[tuple[str, str], int] = {}
    for what, thing, place, number, *rest in events:
        before = held.get((thing, place), 0)
        if what == "start":
            held[thing, place] = number
        elif what == "add":
            held[thing, place] = before + number
        elif what == "remove" and before >= number:
            held[thing, place] = before - number
        elif what == "multiply":
            held[thing, place] = before * number
        elif what == "divide" and before % number == 0:
            held[thing, place] = before // number
        elif what == "move" and before >= number:
            held[thing, place] = before - number
            held[thing, rest[0]] = held.get((thing, rest[0]), 0) + number
        else:
            raise DataError(f"{what} {number} is impossible with {before} of {thing}")
    return held


def draw(subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    """A story with `level` events a thing (Transfer: moves); None when the numbers came out badly."""
    place, scene = random_.choice(words.SURFACES)
    if subcategory == "Transfer":
        return _transfer(level, random_)
    kinds = words.small_things(2 + (level == 3) if subcategory == "Multi-Type" else 1, random_)
    most = MOST if len(kinds) == 1 else MOST_OF_SEVERAL
    events: list[Event] = []
    for noun in kinds:
        drawn = _events(noun, place, level, _OPERATIONS[subcategory], most, random_)
        if drawn is None or (subcategory == "Single-Type" and level > 1 and len({what for what, *_ in drawn[1:]}) == 1):
            return None
        events += drawn
    if len(kinds) > 1:  # the stories of the kinds are told in turn
        starts, later = events[:: level + 1], [event for event in events if event[0] != "start"]
        events = [*starts, *(event for i in range(level) for event in later[i::level])]
    return _puzzle(subcategory, level, events, {noun.singular: noun for noun in kinds}, {place: scene}, random_)


def _events(
    noun: Noun, place: str, level: int, operations: tuple[str, ...], most: int, random_: random.Random
) -> list[Event] | None:
    """A start and `level` operations that end in 1 to `most`; None if these do not."""
    wide = {"remove": (level + 2, _MOST_BETWEEN - 2), "divide": (4, 24), "multiply": (1, 3)}
    count = random_.randint(*wide.get(operations[0] if len(operations) == 1 else "", (1, 8)))
    events: list[Event] = [("start", noun.singular, place, count)]
    for _ in range(level):
        what = random_.choice(operations)
        if what == "divide":
            parts = [k for k in (2, 3, 4) if count % k == 0 and count > k]
            if not parts:
                return None
            number = random_.choice(parts)
        else:
            number = random_.randint(2, 3) if what == "multiply" else random_.randint(1, 4)
        before, count = count, {
            "add": count + number, "remove": count - number, "multiply": count * number, "divide": count // number,
        }[what]  # fmt: skip
        if not 0 < count <= _MOST_BETWEEN or (what == "remove" and before == number):
            return None
        events.append((what, noun.singular, place, number))
    return events if count <= most else None


def _transfer(level: int, random_: random.Random) -> Puzzle | None:
    """Two places; `level` + 1 moves, some of them back."""
    (noun,) = words.small_things(1, random_)
    (one, first), (two, second) = random_.sample(words.SURFACES, 2)
    held = {one: random_.randint(2, 7), two: random_.randint(0, 3)}
    events: list[Event] = [("start", noun.singular, one, held[one])]
    if held[two]:
        events.append(("start", noun.singular, two, held[two]))
    for step in range(level + 1):
        source, target = (one, two) if step % 2 == 0 or random_.random() < 0.4 else (two, one)
        if held[source] < 1:
            return None
        number = random_.randint(1, min(4, held[source]))
        held[source], held[target] = held[source] - number, held[target] + number
        events.append(("move", noun.singular, source, number, target))
    if not all(1 <= count <= MOST for count in held.values()):
        return None
    return _puzzle("Transfer", level, events, {noun.singular: noun}, {one: first, two: second}, random_)


def _puzzle(
    subcategory: str,
    level: int,
    events: list[Event],
    nouns: Mapping[str, Noun],
    scenes: Mapping[str, str],
    random_: random.Random,
) -> Puzzle:
    final = replay(events)
    groups = tuple(Group(n, nouns[t].singular, nouns[t].plural, f"on the {place}") for (t, place), n in final.items())
    sentences = [_tell(event, nouns, len(nouns) > 1, random_) for event in events]
    if level == 3 and subcategory != "Transfer":
        noun = random_.choice(list(nouns.values()))
        sentences.insert(
            random_.randint(1, len(sentences)), f"{random_.randint(2, 9)} more {noun.plural} stay in a closed box."
        )
    scene = words.listed(list(dict.fromkeys(scenes.values())))
    return Puzzle(
        f"{words.listed([noun.plural for noun in nouns.values()]).capitalize()} on the {next(iter(scenes))}",
        f"Scenario: {' '.join(sentences)}",
        f"{scene}, with the {words.listed([noun.plural for noun in nouns.values()])} there",
        Counts(groups),
        tuple(_steps(events, nouns)),
        {"events": [list(event) for event in events]},
    )


def _tell(event: Event, nouns: Mapping[str, Noun], several: bool, random_: random.Random) -> str:
    """One sentence for an event."""
    what, thing, place, number, *rest = event
    noun = nouns[thing]
    amount, part = noun.counted(number), f"{number} of the {noun.plural}"
    who = words.person(random_)
    there = f"on the {place}"
    be, come = ("is", "comes") if number == 1 else ("are", "come")
    more = f"{number} more {noun.plural}" if number > 1 else f"another {noun.singular}"
    choices: dict[str, tuple[str, ...]] = {
        "start": (f"there {be} {amount} {there}", f"{who} lays {amount} {there}"),
        "add": (f"{who} puts {more} {there}", f"{more} {come} from the kitchen and {be} put {there}"),
        "remove": (f"{who} takes {part} away", f"{part} {be} given to {who}"),
        "multiply": (
            f"{who} brings more, until there are {_TIMES.get(number, '')} as many {noun.plural} {there} as before",
            f"the number of {noun.plural} {there} grows to {_TIMES.get(number, '')} what it was",
        ),
        "divide": (
            f"{who} makes {number} equal heaps of the {noun.plural} and leaves just one of these heaps {there}",
            f"the {noun.plural} {there} are shared out in {number} equal parts, of which only one stays {there}",
        ),
        "move": (f"{who} moves {amount} from the {place} to the {(rest or [''])[0]}",),
    }
    return words.sentence(random_.choice(choices[what]))


def _steps(events: list[Event], nouns: Mapping[str, Noun]) -> Iterable[str]:
    """The count after each event, in words."""
    for end, event in enumerate(events, 1):
        _, thing, place, _, *rest = event
        held = replay(events[:end])
        now = [f"{nouns[thing].counted(held[thing, where])} on the {where}" for where in (place, *rest)]
        yield f"After step {end} there {'is' if held[thing, place] == 1 else 'are'} {words.listed(now)}."
