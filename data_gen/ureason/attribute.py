"""Attribute reasoning: what things look like after they were changed (Yang et al. 2026, arXiv 2602.08336, section 2.1).

Color, Shape, Texture and Position follow one value of a thing through changes. Some changes are only planned, others
are undone. Presence follows a set: what is put on or taken off.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from uni_train.core.errors import DataError
from uni_train.data_gen.ureason import words
from uni_train.data_gen.ureason.outcomes import Attributes
from uni_train.data_gen.ureason.puzzle import Puzzle
from uni_train.data_gen.ureason.words import article, listed, sentence

# subcategory -> (things, values, how a thing with a value reads, how it is changed, how it is nearly changed).
_VALUED: dict[str, tuple[tuple[str, ...], tuple[str, ...], str, tuple[str, ...], tuple[str, ...]]] = {
    "Color": (
        ("door", "bicycle", "bench", "kite", "bowl", "toy boat", "letter box", "chair", "lantern", "umbrella"),
        words.COLOURS,
        "the {thing} is {value}",
        ("{who} paints the {thing} {value}", "the {thing} gets a new coat of {value} paint"),
        ("{who} buys {value} paint for the {thing} but never opens the tin",
         "{who} thinks about painting the {thing} {value} and decides not to"),
    ),
    "Shape": (
        ("lump of clay", "piece of dough", "block of wax", "heap of wet sand", "piece of modelling clay"),
        ("ball", "cube", "cone", "flat disc", "ring", "star", "heart", "cylinder", "pyramid"),
        "the {thing} has the shape of a {value}",
        ("{who} forms the {thing} into a {value}", "the {thing} is pressed into the shape of a {value}"),
        ("{who} wants to turn the {thing} into a {value} but is called away",
         "a {value} is planned for the {thing}, and the plan is dropped"),
    ),
    "Texture": (
        ("gift box", "cushion", "vase", "wall", "blanket", "notebook cover", "curtain"),
        ("striped", "dotted", "checked", "furry", "cracked", "shiny metallic", "woven", "wooden", "flowery"),
        "the {thing} has a {value} surface",
        ("{who} gives the {thing} a {value} surface", "the {thing} is covered anew and has a {value} surface now"),
        ("{who} holds {value} material against the {thing} and puts it away again",
         "a {value} surface is considered for the {thing}, but nobody likes it"),
    ),
    "Position": (
        ("cat", "red ball", "backpack", "teddy bear", "pair of boots", "toy train", "basket"),
        ("on the table", "under the table", "on the chair", "under the chair", "in front of the sofa",
         "behind the sofa", "on the sofa", "next to the door", "on the windowsill"),
        "the {thing} is {value}",
        ("{who} puts the {thing} {value}", "the {thing} ends up {value}"),
        ("{who} wants the {thing} to be {value} but finds no room there",
         "{who} looks for the {thing} {value}, where it is not"),
    ),
}  # fmt: skip
_BACK = (
    "that is taken back, and the {thing} is as it was just before",
    "{who} does not like it and undoes the last change of the {thing}",
)
_SCENES = {
    "Color": "the {things} in front of a plain wall",
    "Shape": "the {things} on a workbench",
    "Texture": "the {things}, seen close",
    "Position": "a living room with a table, a chair, a sofa, a door and a windowsill, and the {things}",
}
# who or what carries things -> (the things, how they are put on, how they are taken off, the scene)
_CARRIERS: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    "snowman": (
        ("carrot nose", "top hat", "striped scarf", "pair of gloves", "broom", "row of coal buttons"),
        "the children give the snowman {a}", "the {thing} is taken from the snowman again",
        "the snowman as it stands there in the end",
    ),
    "hiker": (
        ("straw hat", "backpack", "pair of sunglasses", "yellow raincoat", "walking stick", "camera round the neck"),
        "the hiker takes {a}", "the hiker leaves the {thing} behind", "the hiker when the walk begins",
    ),
    "breakfast tray": (
        ("boiled egg", "glass of orange juice", "slice of toast", "cup of coffee", "banana", "bowl of cereal"),
        "{a} is put on the breakfast tray", "the {thing} is taken off the breakfast tray",
        "the breakfast tray as it is served",
    ),
    "bicycle": (
        ("basket", "bell", "water bottle", "child seat", "front lamp", "flag"),
        "{a} is mounted on the bicycle", "the {thing} is taken off the bicycle", "the bicycle, ready to be ridden",
    ),
    "birthday cake": (
        ("candle", "sugar rose", "strawberry", "chocolate bar", "paper flag", "marzipan pig"),
        "the baker puts {a} on the birthday cake", "the {thing} is removed from the birthday cake",
        "the birthday cake when it is brought in",
    ),
}  # fmt: skip

Event = tuple[str, ...]


def replay(events: Iterable[Event | list[Any]]) -> dict[str, str]:
    """thing -> its value after ("set", thing, value), ("plan", ...) and ("back", thing). DataError if there is none."""
    past: dict[str, list[str]] = {}
    for what, thing, *rest in events:
        values = past.setdefault(thing, [])
        if what == "set":
            values.append(rest[0])
        elif what == "back" and len(values) > 1:
            values.pop()
        elif what != "plan":
            raise DataError(f"{what} is impossible for {thing}")
    return {thing: values[-1] for thing, values in past.items()}


def replay_set(events: Iterable[Event | list[Any]]) -> tuple[list[str], list[str]]:
    """What is there after ("on", thing) and ("off", thing), and what was there or was meant to be ("plan", thing)."""
    there: list[str] = []
    gone: list[str] = []
    for what, thing in events:
        if what == "on":
            there.append(thing)
            gone = [other for other in gone if other != thing]
        elif what == "off" and thing in there:
            there.remove(thing)
            gone.append(thing)
        elif what == "plan":
            gone.append(thing)
        else:
            raise DataError(f"{what} is impossible for {thing}")
    return there, gone


def draw(subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    """A puzzle with `level` changes a thing; None when the end is as the beginning."""
    return _presence(level, random_) if subcategory == "Presence" else _valued(subcategory, level, random_)


def _valued(subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    kinds, values, reads, sets, plans = _VALUED[subcategory]
    chosen = random_.sample(kinds, 2 if level == 3 else 1)
    events: list[Event] = []
    sentences: list[str] = []
    for thing in chosen:
        fresh = random_.sample(values, level + 2)
        events.append(("set", thing, fresh.pop()))
        sentences.append("at first " + reads.format(thing=thing, value=events[-1][2]))
        changes = ["set", *(random_.choice(("set", "plan", "back")) for _ in range(level))]
        random_.shuffle(changes)
        for before, what in zip(["", *changes], changes, strict=False):
            if what == "back" and before != "set":  # "that" must be a change
                return None
            templates = {"set": sets, "plan": plans, "back": _BACK}[what]
            value = fresh.pop() if what != "back" else ""
            events.append((what, thing, value) if value else (what, thing))
            sentences.append(random_.choice(templates).format(thing=thing, value=value, who=words.person(random_)))
    final = replay(events)
    starts = {event[1]: event[2] for event in reversed(events) if event[0] == "set"}
    if any(final[thing] == starts[thing] for thing in chosen):
        return None
    steps = [sentence(f"in the end {reads.format(thing=thing, value=final[thing])}") for thing in chosen]
    return Puzzle(
        f"The {listed(chosen)}",
        words.scenario(sentences),
        _SCENES[subcategory].format(things=listed([chosen[0], *(f"the {thing}" for thing in chosen[1:])])),
        Attributes(tuple(reads.format(thing=thing, value=final[thing]) for thing in chosen)),
        tuple(steps),
        {"events": [list(event) for event in events]},
    )


def _presence(level: int, random_: random.Random) -> Puzzle | None:
    carrier = random_.choice(list(_CARRIERS))
    kinds, on, off, scene = _CARRIERS[carrier]
    fresh = random_.sample(kinds, len(kinds))
    events: list[Event] = [("on", fresh.pop()) for _ in range(random_.randint(2, 3))]
    for _ in range(level):
        there, gone = replay_set(events)
        what = random_.choice(("off", "off", "on", "plan"))
        if what == "off":
            events.append(("off", random_.choice(there)))
        elif what == "on" and gone and random_.random() < 0.4:
            events.append(("on", random_.choice(gone)))
        elif not fresh:
            return None
        else:
            events.append((what, fresh.pop()))
        if not replay_set(events)[0]:
            return None
    there, gone = replay_set(events)
    if not gone:
        return None
    sentences = []
    for what, thing in events:
        template = {
            "on": on,
            "off": off,
            "plan": "{a} for the " + carrier + " is talked about, but it comes to nothing",
        }[what]
        sentences.append(template.format(a=article(thing), thing=thing))
    shown = Attributes((f"the {carrier} has {listed([article(thing) for thing in there])}",), tuple(gone))
    return Puzzle(
        f"The {carrier}",
        words.scenario(sentences),
        scene,
        shown,
        (f"What is there in the end: {listed(there)}.", f"What is not: {listed(gone)}."),
        {"events": [list(event) for event in events]},
    )
