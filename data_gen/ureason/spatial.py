"""Spatial reasoning: what stands where in the end (Yang et al. 2026, arXiv 2602.08336, section 2.1).

Horizontal, Vertical and Grid start from a stated order and change it; Absolute names places and changes its mind;
Relative says where things are by each other; Constraint gives rules that leave exactly one arrangement, found by trying
all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Any

from uni_train.core.errors import DataError
from uni_train.data_gen.ureason import words
from uni_train.data_gen.ureason.outcomes import Layout
from uni_train.data_gen.ureason.puzzle import Puzzle
from uni_train.data_gen.ureason.words import article, listed

ROWS = {
    3: ("left", "middle", "right"),
    4: ("leftmost", "second from the left", "third from the left", "rightmost"),
    5: ("leftmost", "second from the left", "middle", "fourth from the left", "rightmost"),
}
SHELVES = {
    3: ("top shelf", "middle shelf", "bottom shelf"),
    4: ("top shelf", "second shelf", "third shelf", "bottom shelf"),
    5: ("top shelf", "second shelf", "third shelf", "fourth shelf", "bottom shelf"),
}
GRIDS = {
    2: ("top-left", "top-right", "bottom-left", "bottom-right"),
    3: ("top-left", "top-middle", "top-right", "bottom-left", "bottom-middle", "bottom-right"),
}
_REASONS = ("is broken", "is too heavy", "is needed elsewhere", "does not fit", "has to be repaired")

Change = tuple[Any, ...]
Clue = tuple[str, ...]


def replay(order: Sequence[str], changes: Iterable[Change | list[Any]], columns: int = 0) -> list[str]:
    """The things in reading order after the changes; `columns` of a grid. DataError for a change that is none."""
    now = list(order)
    for what, *rest in changes:
        if what == "swap":
            i, j = now.index(rest[0]), now.index(rest[1])
            now[i], now[j] = now[j], now[i]
        elif what == "first":
            now.insert(0, now.pop(now.index(rest[0])))
        elif what == "last":
            now.append(now.pop(now.index(rest[0])))
        elif what == "reverse":
            now.reverse()
        elif what == "replace":
            now[now.index(rest[0])] = rest[1]
        elif what == "swap_rows":
            now = now[columns:] + now[:columns]
        else:
            raise DataError(f"there is no change {what}")
    return now


def draw(subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    """A puzzle with `level` changes, or as many clues as it takes; None when the draw ended where it began."""
    if subcategory in ("Horizontal", "Vertical"):
        return _line(subcategory, level, random_)
    if subcategory == "Grid":
        return _grid(level, random_)
    if subcategory == "Absolute":
        return _absolute(level, random_)
    return _relative(level, random_) if subcategory == "Relative" else _constraint(level, random_)


def _line(subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    flat = subcategory == "Horizontal"
    size = random_.choice((3, 4) if level < 3 else (4, 5))
    order = words.things(size, random_)
    kinds = ("swap", "first", "last", "reverse", "replace")
    drawn = _changes(order, level, kinds, ("far left", "far right") if flat else ("top", "bottom"), 0, random_)
    if drawn is None:
        return None
    where = "in a row, from left to right" if flat else f"on {size} shelves, one on each, from top to bottom"
    start = f"{words.person(random_)} puts {listed([article(thing) for thing in order])} {where}"
    title, scene = (
        ("A row in order", "a long windowsill with a row of things")
        if flat
        else ("A rack in order", f"a narrow rack with {size} shelves")
    )
    changes, sentences = drawn
    return _layout(title, [start, *sentences], scene, (ROWS if flat else SHELVES)[size], order, changes)


def _grid(level: int, random_: random.Random) -> Puzzle | None:
    columns = 2 if level < 3 else 3
    order = words.things(2 * columns, random_)
    drawn = _changes(order, level, ("swap", "replace", "swap_rows"), ("", ""), columns, random_)
    if drawn is None:
        return None
    rows = [listed([article(thing) for thing in order[start : start + columns]]) for start in (0, columns)]
    start = (
        f"a display case has two rows of {columns} compartments; in the upper row, from left to right, are {rows[0]}, "
        f"in the lower row {rows[1]}"
    )
    scene = f"a display case with two rows of {columns} compartments, seen from the front"
    changes, sentences = drawn
    return _layout("A display case", [start, *sentences], scene, GRIDS[columns], order, changes, columns)


def _changes(
    order: list[str],
    level: int,
    kinds: tuple[str, ...],
    ends: tuple[str, str],
    columns: int,
    random_: random.Random,
) -> tuple[list[Change], list[str]] | None:
    """`level` changes of the kinds, and a sentence for each; None where one changes nothing, or all of them together.

    ends: what the sentences call the first and the last place.
    """
    spare = _others(order, level, random_)
    changes: list[Change] = []
    sentences = []
    for _ in range(level):
        now = replay(order, changes, columns)
        a, b = random_.sample(now, 2)
        kind = random_.choice(kinds)
        if (kind == "first" and now[0] == a) or (kind == "last" and now[-1] == a):
            return None
        change: Change
        match kind:
            case "swap":
                change, text = (kind, a, b), f"then the {a} and the {b} change places"
            case "swap_rows":
                change, text = (kind,), "then the upper row and the lower row change places as a whole"
            case "reverse":
                change, text = (kind,), f"then the whole order is turned round, so that the {now[0]} comes last"
            case "replace":
                new = spare.pop()
                change = kind, a, new
                text = f"the {a} {random_.choice(_REASONS)}, so {article(new)} takes its place"
            case _:
                change = kind, a
                text = f"{words.person(random_)} moves the {a} to the {ends[kind == 'last']} and the others close up"
        changes.append(change)
        sentences.append(text)
    return None if replay(order, changes, columns) == order else (changes, sentences)


def _absolute(level: int, random_: random.Random) -> Puzzle | None:
    """Places by name; `level` of them are planned otherwise first."""
    places = GRIDS[2 if level < 3 else 3]
    final = words.things(len(places), random_)
    planned = dict(zip(random_.sample(places, level), _others(final, level, random_), strict=True))
    sentences = [f"{words.person(random_)} hangs things on a wall with {len(places)} hooks in two rows"]
    by_place = list(zip(places, final, strict=True))
    random_.shuffle(by_place)
    for place, thing in by_place:
        if place not in planned:
            sentences.append(f"{article(thing)} goes to the {place}")
        elif random_.random() < 0.5:
            sentences.append(
                f"the {place} was meant for {article(planned[place])}, but {article(thing)} hangs there instead"
            )
        else:
            sentences.append(
                f"{article(planned[place])} hangs at the {place} at first; it {random_.choice(_REASONS)} and is "
                f"replaced by {article(thing)}"
            )
    changes = [("replace", old, dict(by_place)[place]) for place, old in planned.items()]
    order = [planned.get(place, thing) for place, thing in zip(places, final, strict=True)]
    scene = "a wall with hooks in two rows and one thing on each"
    return _layout("Hooks on a wall", sentences, scene, places, order, changes, len(places) // 2)


_BESIDE = {
    "right_of": ("directly to the right of", lambda i, j, c: i == j + 1 and i // c == j // c),
    "left_of": ("directly to the left of", lambda i, j, c: i == j - 1 and i // c == j // c),
    "below": ("directly below", lambda i, j, c: i == j + c),
    "above": ("directly above", lambda i, j, c: i == j - c),
}


def _relative(level: int, random_: random.Random) -> Puzzle | None:
    """One thing has a place, each other is said to be beside one that was said before (level 3: in any order)."""
    columns = 2 if level == 1 else 3
    places = GRIDS[columns]
    final = words.things(len(places), random_)
    first = random_.randrange(len(places))
    clues: list[Clue] = [("at", final[first], places[first])]
    placed = [first]
    while len(placed) < len(places):
        options = [
            (i, j, name)
            for j in placed
            for i in range(len(places))
            if i not in placed
            for name, (_, holds) in _BESIDE.items()
            if holds(i, j, columns)
        ]
        i, j, name = random_.choice(options)
        clues.append((name, final[i], final[j]))
        placed.append(i)
    if level == 3:
        random_.shuffle(clues)
    if solutions(final, clues, columns) != [tuple(final)]:
        return None
    sentences = [f"{len(final)} things lie in two rows of {columns}"]
    sentences += [
        f"the {a} is at the {b}" if name == "at" else f"the {a} is {_BESIDE[name][0]} the {b}" for name, a, b in clues
    ]
    scene = f"a table seen from above, with things in two rows of {columns}"
    return _deduced("Who lies beside whom", sentences, scene, places, final, clues, columns)


_RULES = {
    "before": "the {0} is somewhere to the left of the {1}",
    "next_to": "the {0} is right next to the {1}",
    "not_next_to": "the {0} is not next to the {1}",
    "not_at_end": "the {0} is at neither end",
    "not_first": "the {0} is not the leftmost",
    "not_last": "the {0} is not the rightmost",
    "between": "the {0} is somewhere between the {1} and the {2}",
}


def holds(clue: Clue | Sequence[str], order: Sequence[str], columns: int = 0) -> bool:
    """Whether an arrangement (reading order; `columns` of a grid) fits a clue. DataError for a clue that is none."""
    name, *names = clue
    if name == "at":
        return GRIDS[columns][order.index(names[0])] == names[1]
    at = [order.index(name) for name in names]
    if name in _BESIDE:
        return bool(_BESIDE[name][1](at[0], at[1], columns))
    first, last = at[0], len(order) - 1
    match name:
        case "before":
            return first < at[1]
        case "next_to":
            return abs(first - at[1]) == 1
        case "not_next_to":
            return abs(first - at[1]) != 1
        case "not_at_end":
            return 0 < first < last
        case "not_first":
            return first != 0
        case "not_last":
            return first != last
        case "between":
            return min(at[1:]) < first < max(at[1:])
    raise DataError(f"there is no clue {name}")


def solutions(things: Iterable[str], clues: Sequence[Clue | Sequence[str]], columns: int = 0) -> list[tuple[str, ...]]:
    """All arrangements of the things that fit every clue."""
    return [order for order in permutations(things) if all(holds(clue, order, columns) for clue in clues)]


def _constraint(level: int, random_: random.Random) -> Puzzle | None:
    """Rules about a row of 3, 4 or 5 things, as few as leave one arrangement."""
    size = level + 2
    final = words.things(size, random_)
    pool: list[Clue] = []
    for name, text in _RULES.items():
        for names in permutations(final, text.count("{")):
            mirrored = (name in ("next_to", "not_next_to") and names[0] > names[1]) or (
                name == "between" and names[1] > names[2]
            )
            if not mirrored and holds((name, *names), final):
                pool.append((name, *names))
    random_.shuffle(pool)
    left = list(permutations(final))
    clues: list[Clue] = []
    for clue in pool:
        fitting = [order for order in left if holds(clue, order)]
        if len(fitting) < len(left):
            clues.append(clue)
            left = fitting
        if len(left) == 1:
            break
    for clue in list(clues):  # a clue that the others make superfluous says nothing
        fewer = [other for other in clues if other != clue]
        if len(solutions(final, fewer)) == 1:
            clues = fewer
    sentences = [f"{listed([article(other) for other in sorted(final)])} stand in a row"]
    sentences += [_RULES[name].format(*names) for name, *names in clues]
    scene = f"a shelf with a row of {size} things"
    return _deduced("A row with rules", sentences, scene, ROWS[size], final, clues, 0)


def _layout(
    title: str,
    sentences: list[str],
    scene: str,
    places: Sequence[str],
    order: Sequence[str],
    changes: Sequence[Change],
    columns: int = 0,
) -> Puzzle:
    """The puzzle of an order that is changed."""
    *_, final = after = [replay(order, changes[:end], columns) for end in range(1, len(changes) + 1)]
    steps = [f"At first: {', '.join(order)}.", *(f"After change {i}: {', '.join(a)}." for i, a in enumerate(after, 1))]
    outcome = Layout.from_things(places, final, [thing for thing in order if thing not in final])
    facts = {"order": list(order), "changes": [list(change) for change in changes], "columns": columns}
    return Puzzle(title, words.scenario(sentences), scene, outcome, tuple(steps), facts)


def _deduced(
    title: str,
    sentences: list[str],
    scene: str,
    places: Sequence[str],
    final: Sequence[str],
    clues: Sequence[Clue],
    columns: int,
) -> Puzzle:
    """The puzzle of an arrangement that follows from clues."""
    steps = [f"The {thing} must be {place}." for place, thing in zip(places, final, strict=True)]
    facts = {"things": sorted(final), "clues": [list(clue) for clue in clues], "columns": columns}
    return Puzzle(title, words.scenario(sentences), scene, Layout.from_things(places, final), tuple(steps), facts)


def _others(known: Sequence[str], n: int, random_: random.Random) -> list[str]:
    """`n` further things, of kinds that are not there yet."""
    kinds = [kind for kind in words.THINGS if not any(thing.endswith(kind) for thing in known)]
    colours = [colour for colour in words.COLOURS if not any(thing.startswith(colour) for thing in known)]
    return [
        f"{random_.choice(colours)} {kind}" if random_.random() < 0.7 else kind for kind in random_.sample(kinds, n)
    ]
