"""Text reasoning: what has to be written, worked out by rules (Yang et al. 2026, arXiv 2602.08336, section 2.1).

Character asks for one letter, Word for a word made from others. Number asks for the result of a small calculation,
Symbol for a sign. `solve` computes the answer from the facts of a puzzle, whatever its sentences say.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from uni_train.core.errors import DataError
from uni_train.data_gen.ureason import words
from uni_train.data_gen.ureason.outcomes import Writing
from uni_train.data_gen.ureason.puzzle import Puzzle
from uni_train.data_gen.ureason.words import listed

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh")
_WORDS = (
    "FIREWALL", "SUNFLOWER", "NOTEBOOK", "RAINBOW", "STARFISH", "KEYBOARD", "DOORBELL", "MOONLIGHT", "SNOWMAN",
    "TEASPOON", "BLUEBIRD", "CUPCAKE", "EARRING", "NEWSPAPER", "PANCAKE", "SANDBOX", "WATERFALL", "FOOTBALL",
    "GOLDFISH", "HANDBAG", "LADYBUG", "BUTTERFLY", "WINDMILL", "AIRPORT", "BACKPACK", "BEDROOM", "CAMPFIRE", "SEAHORSE",
    "TEAPOT",
)  # fmt: skip
_NAMES = (
    "Amber", "Brook", "Cedar", "Dune", "Ember", "Fjord", "Grove", "Harbor", "Island", "Jasmine", "Lagoon", "Meadow",
    "Nectar", "Orchid", "Pebble", "Quartz", "River", "Saffron", "Tundra", "Valley", "Willow", "Zephyr",
)  # fmt: skip
_SIGNS = ("+", "-", "=", "?", "!", "%", "&", "#", "*")
_PLACES = (
    ("sign", "a wooden sign on a post"), ("label", "a glass jar with a label"), ("badge", "a round badge on a jacket"),
    ("screen", "a small screen on a desk"), ("banner", "a banner between two trees"),
    ("tag", "a paper tag on a string"), ("door plate", "a door with a metal plate"), ("stamp", "a parcel with a stamp"),
)  # fmt: skip

Rule = Sequence[Any]


def solve(start: str | Sequence[str], rules: Sequence[Rule]) -> str:
    """The text after the rules, applied to a word or to a list of names. DataError for a rule that is none.

    ("pick", i): the i-th of a list, from 0. ("longest",), ("last_by_alphabet",): of a list. ("letter", i): of a word.
    ("first", n), ("last", n): that many letters. ("drop", i, ...): without these letters. ("reverse",), ("swap_ends",),
    ("next",): each letter's follower in the alphabet (Z: A).
    """
    now: str | Sequence[str] = start
    for name, *rest in rules:
        if isinstance(now, str):
            now = _applied(now, name, rest)
        elif name == "pick":
            now = now[rest[0]]
        elif name == "longest":
            now = max(now, key=len)
        elif name == "last_by_alphabet":
            now = max(now)
        else:
            raise DataError(f"the rule {name} is for a word, not for a list")
    if not isinstance(now, str):
        raise DataError("the rules end with a list")
    return now.upper()


def _applied(word: str, name: str, rest: Sequence[int]) -> str:
    if name == "letter":
        return word[rest[0]]
    if name == "first":
        return word[: rest[0]]
    if name == "last":
        return word[-rest[0] :]
    if name == "drop":
        return "".join(letter for i, letter in enumerate(word) if i not in rest)
    if name == "reverse":
        return word[::-1]
    if name == "swap_ends":
        return word[-1] + word[1:-1] + word[0]
    if name == "next":
        return "".join(chr((ord(letter) - ord("A") + 1) % 26 + ord("A")) for letter in word.upper())
    raise DataError(f"there is no rule {name} for a word")


def draw(subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    """A puzzle with `level` rules or steps; None when the answer is what was given."""
    what, scene = random_.choice(_PLACES)
    if subcategory == "Character":
        return _character(level, what, scene, random_)
    if subcategory == "Word":
        return _word(level, what, scene, random_)
    return (_number if subcategory == "Number" else _symbol)(level, what, scene, random_)


def _character(level: int, what: str, scene: str, random_: random.Random) -> Puzzle:
    names = random_.sample(_NAMES, random_.randint(3, 5))
    first = random_.choice((("pick", random_.randrange(len(names))), ("last_by_alphabet",)))
    chosen = solve(names, [first])
    rules: list[Rule] = [first, ("letter", 0 if level == 1 else random_.randrange(1, min(4, len(chosen))))]
    if level == 3:
        rules.append(("next",))
    answer = solve(names, rules)
    which = "the one that comes last in the alphabet" if len(first) == 1 else f"the {ORDINALS[first[1]]} of them"
    letter = "initial" if rules[1][1] == 0 else f"{ORDINALS[rules[1][1]]} letter"
    sentences = [f"{words.person(random_)} has a list of names: {', '.join(names)}"]
    if level < 3:
        sentences.append(f"a {what} shall show only the {letter} of {which}")
    else:
        sentences.append(
            f"take the {letter} of {which}; a {what} shall show only the letter that follows it in the alphabet"
        )
    steps = [f"The name is {chosen.capitalize()}.", f"The letter to be shown is {answer}."]
    return _puzzle("One letter", sentences, what, scene, answer, (), steps, {"start": names, "rules": rules})


def _word(level: int, what: str, scene: str, random_: random.Random) -> Puzzle | None:
    word = random_.choice(_WORDS)
    rules: list[Rule] = []
    sentences = [f"{words.person(random_)} starts from the word {word}"]
    for _ in range(level):
        now = solve(word, rules)
        if len(now) < 4:
            return None
        kind = random_.choice(("first", "last", "drop", "reverse", "swap_ends"))
        if rules and kind == rules[-1][0]:
            return None
        if kind in ("first", "last"):
            n = random_.randint(3, min(5, len(now) - 1))
            rules.append((kind, n))
            sentences.append(f"only the {kind} {n} letters are kept")
        elif kind == "drop":
            places = sorted(random_.sample(range(len(now)), 2))
            rules.append((kind, *places))
            sentences.append(f"the {' and the '.join(ORDINALS[i] for i in places)} letter fall out")
        else:
            rules.append((kind,))
            sentences.append(
                "the word is written backwards" if kind == "reverse" else "the outer two letters change places"
            )
    answer = solve(word, rules)
    if answer == word or not 3 <= len(answer) <= 7:
        return None
    sentences.append(f"what is left is written on a {what}")
    steps = [f"After rule {end}: {solve(word, rules[:end])}." for end in range(1, level + 1)]
    return _puzzle("A word by rules", sentences, what, scene, answer, (word,), steps, {"start": word, "rules": rules})


def _number(level: int, what: str, scene: str, random_: random.Random) -> Puzzle | None:
    if random_.random() < 0.5:
        return _clock(level, what, scene, random_)
    value = random_.randint(4, 60)
    sentences = [f"a counter stands at {value}"]
    steps, changes = [], []
    for _ in range(level):
        sign, n = random_.choice(("+", "-", "*")), random_.randint(2, 9)
        before, value = value, {"+": value + n, "-": value - n, "*": value * n}[sign]
        if not 1 <= value <= 200:
            return None
        sentences.append(
            {"+": f"it goes up by {n}", "-": f"it goes down by {n}", "*": f"it is multiplied by {n}"}[sign]
        )
        steps.append(f"{before} {sign} {n} = {value}.")
        changes.append([sign, n])
    if str(value) in " ".join(sentences).replace(".", " ").split():
        return None
    start = int(sentences[0].split()[-1])
    sentences.append(f"a {what} shall show the number that the counter has in the end, in digits, and nothing else")
    return _puzzle(
        "A counter", sentences, what, scene, str(value), (str(start),), steps, {"number": start, "changes": changes}
    )


def _clock(level: int, what: str, scene: str, random_: random.Random) -> Puzzle | None:
    start = random_.randrange(6 * 60, 20 * 60, 5)
    sentences = [f"a bus is due at {_time(start)}"]
    now, steps, changes = start, [], []
    for _ in range(level):
        late, minutes = random_.random() < 0.7, random_.randrange(5, 60, 5)
        now += minutes if late else -minutes
        sentences.append(f"then it is announced {minutes} minutes {'later' if late else 'earlier'} than before")
        steps.append(f"That makes it {_time(now)}.")
        changes.append(["+" if late else "-", minutes])
    if now == start:
        return None
    sentences.append(f"a {what} shall show the time that holds in the end, in the same form")
    facts = {"minutes": start, "changes": changes}
    return _puzzle("A timetable", sentences, what, scene, _time(now), (_time(start),), steps, facts)


def _symbol(level: int, what: str, scene: str, random_: random.Random) -> Puzzle | None:
    if level == 1 and random_.random() < 0.5:
        a, b, c = (random_.randint(1, 9) for _ in range(3))
        total = a + b
        answer = "<" if total < c else ">" if total > c else "="
        sentences = [
            f"on a {what} stands one sign only: the one of <, = and > that belongs between {a} + {b} and {c}, read "
            "from left to right"
        ]
        others = tuple(sign for sign in "<=>" if sign != answer)
        steps = [f"{a} + {b} = {total}, and {total} {answer} {c}."]
        return _puzzle("A sign", sentences, what, scene, answer, others, steps, {"compare": [a, b, c]})
    states = random_.sample(("calm", "busy", "closed", "open", "full", "empty"), 3)
    signs = random_.sample(_SIGNS, 3)
    path = [random_.choice(states)]
    for _ in range(level):
        path.append(random_.choice([state for state in states if state != path[-1]]))
    answer = signs[states.index(path[-1])]
    code = listed([f"{sign} for {state}" for sign, state in zip(signs, states, strict=True)])
    sentences = [f"a café shows its state by one sign on a {what}: {code}", f"in the morning it is {path[0]}"]
    sentences += [f"then it becomes {state}" for state in path[1:]]
    sentences.append(f"the {what} shows the sign of the last state and nothing else")
    steps = [f"The last state is {path[-1]}, and its sign is {answer}."]
    others = tuple(sign for sign in signs if sign != answer)
    facts = {"signs": dict(zip(states, signs, strict=True)), "path": path}
    return _puzzle("A sign for a state", sentences, what, scene, answer, others, steps, facts)


def _puzzle(
    title: str,
    sentences: Sequence[str],
    what: str,
    scene: str,
    answer: str,
    excluded: Sequence[str],
    steps: Sequence[str],
    facts: Mapping[str, Any],
) -> Puzzle:
    return Puzzle(
        title,
        words.scenario(sentences),
        f"{scene}, with what has to be on the {what}",
        Writing(answer, tuple(text for text in excluded if text not in answer)),
        tuple(steps),
        dict(facts),
    )


def shown(facts: Mapping[str, Any]) -> str:
    """The number, time or sign that the facts of such a puzzle lead to. KeyError where they are of another one."""
    if "compare" in facts:
        a, b, c = facts["compare"]
        return "<" if a + b < c else ">" if a + b > c else "="
    if "path" in facts:
        return str(facts["signs"][facts["path"][-1]])
    now = facts["minutes"] if "minutes" in facts else facts["number"]
    for sign, n in facts["changes"]:
        now = {"+": now + n, "-": now - n, "*": now * n}[sign]
    return _time(now) if "minutes" in facts else str(now)


def _time(minutes: int) -> str:
    """ "14:05"."""
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"
