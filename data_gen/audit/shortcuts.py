"""Trivial strategies: what a model reaches without doing the task. On a good set all of them stay at chance.

Each strategy is a pure function from the text of a prompt to an answer, or None where it has none; the most frequent
answer alone knows the labels of the set. They read our own prompts of both worlds and the published ones (UniSandbox,
paper 004). Shortcut learning, and its audit by baselines that see part of the input: Geirhos et al. 2020 (arXiv
2004.07780), Gururangan et al. 2018 (arXiv 1803.02324).

Chance: `CHANCE["maths"]` is one count of six, because results run from 1 to 6; `CHANCE["mapping"]` is a pick of one of
two objects for each of the two questions of a pair, of which both must be right. UReason's prompts of the nano world
that ask for one kind of object are counted as maths. A maze names no answers to choose from, and has no strategy.

A task states the shortcuts that it is known to have as `known_shortcuts`: name of the strategy -> why it works. The
name may end in " (level N)" where the reason holds on that level alone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from data_gen.audit.exact import UnreadableError
from data_gen.audit.expressions import NUMBER_WORDS
from data_gen.audit.files import read_any
from data_gen.audit.findings import LEAST, MOST, same_noun
from data_gen.audit.mapping import MappingQuestion, follow, read_mapping
from data_gen.audit.maths import read_count, read_maths
from data_gen.jsonl import MappingRow, MathsRow
from data_gen.seeds import derive_seed
from data_gen.task import Item, Task, task_of
from data_gen.ureason.audit import is_ureason

CHANCE = {"maths": 1 / 6, "mapping": 1 / 4}
MARGIN = 0.05  # a strategy that beats chance by more, with its interval clear of chance, is a shortcut
LOOK_UP = "at one link this is the look-up itself"
Answer = int | str


@dataclass(frozen=True, slots=True)
class Question:
    """What a strategy is given (`text`), and what would be right.

    kind: "maths" (an answer is a count) or "mapping" (a noun). answer: None where the label cannot be read: then no
    strategy is right. unit: what counts once, a pair or the question itself. cluster: the expression or the set of
    rules; questions that share it are not independent.
    """

    kind: str
    text: str
    answer: Answer | None
    unit: str
    cluster: str


@dataclass(frozen=True, slots=True)
class Strategy:
    """answer: from the text of a prompt. look_up: with one link a chain it is no shortcut but the task itself."""

    name: str
    kind: str
    answer: Callable[[str], Answer | None]
    look_up: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """How a strategy did: right[i] of unit i, which belongs to clusters[i].

    note: why the strategy is no shortcut here although it may be right; "" for every other.
    """

    name: str
    kind: str
    right: tuple[bool, ...]
    clusters: tuple[str, ...]
    note: str = ""

    @property
    def share(self) -> float:
        """Right units of all, in [0, 1]."""
        return sum(self.right) / len(self.right)


# ------------------------------------------------------------------------------------------------------------- maths

_NUMBER = re.compile(rf"\d+|(?<![A-Za-z])(?:{'|'.join(NUMBER_WORDS)})(?![A-Za-z])", re.IGNORECASE)


def numbers(text: str) -> list[int]:
    """The numbers of a prompt as they stand there, in digits or words: "twenty-one" and "twenty one" are 21."""
    found: list[int] = []
    end = 0
    for match in _NUMBER.finditer(text):
        word = match.group().lower()
        value = NUMBER_WORDS.get(word)
        if value is not None and 0 < value < 10 and found and found[-1] >= 20 and found[-1] % 10 == 0:
            between = text[end : match.start()]
            if between in (" ", "-") and text[:end][-1:].isalpha():
                found[-1] += value
                end = match.end()
                continue
        found.append(int(word) if value is None else value)
        end = match.end()
    return found


def _count(pick: Callable[[list[int]], int], least: int = 1) -> Callable[[str], int | None]:
    """A strategy on the numbers of a prompt, clipped to what can be asked for; None below `least` numbers."""

    def answer(text: str) -> int | None:
        found = numbers(text)
        return min(max(pick(found), LEAST), MOST) if len(found) >= least else None

    return answer


# ----------------------------------------------------------------------------------------------------------- mapping


@dataclass(frozen=True, slots=True)
class _Rules:
    """mentions: (place, name, whether it is an object) in the rules, in order; ends: objects of the longest chains."""

    asked: str
    mentions: tuple[tuple[int, str, bool], ...]
    ends: tuple[str, ...]
    links: int

    @property
    def nouns(self) -> list[str]:
        return [name for _, name, noun in self.mentions if noun]

    def nouns_after(self, among: Sequence[str] | None = None) -> list[str]:
        """Objects named after the first mention of the asked symbol."""
        places = [place for place, name, noun in self.mentions if not noun and name == self.asked]
        return [
            name
            for place, name, noun in self.mentions
            if noun and places and place > places[0] and (among is None or name in among)
        ]


@lru_cache(maxsize=4096)
def _rules(text: str) -> _Rules | None:
    try:
        question = read_mapping(text)
    except UnreadableError:
        return None
    nouns = dict.fromkeys(right for _, right, linked in question.rules if not linked)
    symbols = dict.fromkeys(name for left, right, linked in question.rules for name in (left, *([right] * linked)))
    # The number of a rule ("Rule 3:") is no symbol, and the request is no rule.
    stated = re.sub(r"\bRule\s*\d+\s*[:.]", lambda match: " " * len(match.group()), text, flags=re.IGNORECASE)
    mentions = sorted(
        (match.start(), name, name in nouns)
        for name in (*nouns, *symbols)
        for match in re.finditer(_whole(name), stated)
    )
    request = [place for place, name, _ in mentions if name == question.asked]
    mentions = [one for one in mentions if not request or one[0] < request[-1]]
    depth = {noun: _depth(question, noun) for noun in nouns}
    ends = tuple(noun for noun in nouns if depth[noun] == max(depth.values()))
    links = max((len(chain.steps) - 1 for chain in follow(question)), default=0)
    return _Rules(question.asked, tuple(mentions), ends, links)


def _whole(name: str) -> str:
    """`name` as a whole word; a sign between spaces, quotes or stops."""
    if name[:1].isalnum():
        return rf"(?<!\w){re.escape(name)}(?!\w)"
    return rf"""(?<![^\s'"‘’“”`]){re.escape(name)}(?![^\s'"‘’“”`.,;:])"""


def _depth(question: MappingQuestion, noun: str) -> int:
    """Links of the longest chain that ends in `noun`."""
    above = [left for left, right, _ in question.rules if right == noun]
    seen: set[str] = set()
    depth = 0
    while above:
        depth += 1
        seen.update(above)
        above = [left for left, right, _ in question.rules if right in above and left not in seen]
    return depth


def _noun(pick: Callable[[_Rules], str | None]) -> Callable[[str], str | None]:
    def answer(text: str) -> str | None:
        rules = _rules(text)
        return pick(rules) if rules is not None and rules.nouns else None

    return answer


def _first(nouns: Sequence[str]) -> str | None:
    return nouns[0] if nouns else None


def _last(nouns: Sequence[str]) -> str | None:
    return nouns[-1] if nouns else None


def _before(rules: _Rules) -> str | None:
    places = [place for place, name, noun in rules.mentions if not noun and name == rules.asked]
    return _last([name for place, name, noun in rules.mentions if noun and places and place < places[0]])


def _nearest(rules: _Rules) -> str | None:
    """By distance in the text, from the last rule that names the asked symbol."""
    places = [place for place, name, noun in rules.mentions if not noun and name == rules.asked]
    found = [(abs(place - places[-1]), name) for place, name, noun in rules.mentions if noun and places]
    return min(found)[1] if found else None


def _coin(text: str) -> str | None:
    """One of the chain ends, by a hash of the prompt: chance, measured."""
    rules = _rules(text)
    if rules is None or not rules.ends:
        return None
    return rules.ends[derive_seed("coin", text) % len(rules.ends)]


# -------------------------------------------------------------------------------------------------------- the registry

STRATEGIES = (
    Strategy("first number", "maths", _count(lambda found: found[0])),
    Strategy("second number", "maths", _count(lambda found: found[1], least=2)),
    Strategy("last number", "maths", _count(lambda found: found[-1])),
    Strategy("largest number", "maths", _count(max)),
    Strategy("smallest number", "maths", _count(min)),
    Strategy("number of operands", "maths", _count(len)),
    Strategy("difference of the first two", "maths", _count(lambda found: abs(found[0] - found[1]), least=2)),
    Strategy("first noun after the symbol", "mapping", _noun(lambda rules: _first(rules.nouns_after())), look_up=True),
    Strategy("last noun after the symbol", "mapping", _noun(lambda rules: _last(rules.nouns_after()))),
    Strategy("next chain end", "mapping", _noun(lambda rules: _first([*rules.nouns_after(rules.ends), *rules.ends])),
             look_up=True),
    Strategy("last noun before the symbol", "mapping", _noun(_before)),
    Strategy("noun nearest to the symbol", "mapping", _noun(_nearest), look_up=True),
    Strategy("first noun", "mapping", _noun(lambda rules: _first(rules.nouns))),
    Strategy("last noun", "mapping", _noun(lambda rules: _last(rules.nouns))),  # of the rule nearest to the question
    Strategy("coin between chain ends", "mapping", _coin),
)  # fmt: skip
MOST_FREQUENT = {"maths": "most frequent count", "mapping": "most frequent noun"}


def questions_of(items: Iterable[Item]) -> list[Question]:
    """Questions of maths, of mapping, and of nano's UReason items with one kind of object; others are left out."""
    found = []
    for item in items:
        if item.task == "mapping":
            found.append(
                Question("mapping", item.prompt, item.answer, item.pair or item.id, str(item.facts["canonical"]))
            )
        elif item.task == "maths":
            count = int(item.facts["count"])
            found.append(Question("maths", item.prompt, count, item.id, str(item.facts["canonical"])))
        elif item.task == "ureason" and len(groups := item.facts["outcome"].get("groups", ())) == 1:
            found.append(Question("maths", item.prompt, int(groups[0][1]), item.id, str(item.facts["canonical"])))
    return found


def question_of_row(row: MathsRow | MappingRow) -> Question:
    """A published row, with its label as published."""
    if isinstance(row, MappingRow):
        return Question("mapping", row.question, row.answer, row.id, row.id)
    try:
        count = read_count(row.answer)[0].whole
    except UnreadableError:
        count = None
    return Question("maths", row.question, count, row.id, expression_of(row.question))


@lru_cache(maxsize=4096)
def expression_of(question: str) -> str:
    """What a published maths question works out, so that repeats are known; the question where it cannot be read."""
    try:
        return read_maths(question).readings[0].text
    except UnreadableError:
        return question


def tally_file(path: Path) -> dict[str, list[Tally]]:
    """Every strategy on each set of a published file or an items.jsonl of ours: "maths level 2" -> tallies.

    A published file is one set, named after its task. {} where no strategy has anything to say (mazes, files in
    UReason's schema). Raises DataError for a file that is neither.
    """
    if is_ureason(path):
        return {}
    sets: dict[str, list[Question]] = defaultdict(list)
    known: dict[str, dict[str, str]] = {}
    for one in read_any(path):
        if not isinstance(one, Item):
            question = question_of_row(one)
            sets[question.kind].append(question)
            continue
        name = f"{one.task} level {one.level}"
        sets[name] += questions_of([one])
        known[name] = known.get(name) or known_shortcuts(task_of(one), one.level)
    return {name: tally(questions, known.get(name)) for name, questions in sets.items() if questions}


def known_shortcuts(task: Task, level: int) -> dict[str, str]:
    """Strategy -> why it works on this level, as the task states it."""
    stated: Mapping[str, str] = getattr(task, "known_shortcuts", {})
    ending = f" (level {level})"
    return {
        name.removesuffix(ending): why for name, why in stated.items() if name.endswith(ending) or "(level " not in name
    }


def tally(questions: Sequence[Question], known: Mapping[str, str] | None = None) -> list[Tally]:
    """How every strategy does on one set, the best first; [] for no questions.

    questions: all of one kind, and of one level. known: strategy -> why it works here, for the notes. Two questions
    of mapping make a unit, and one without its partner is never right.
    """
    if not questions:
        return []
    kind = questions[0].kind
    size = 2 if kind == "mapping" else 1
    strategies = [one for one in STRATEGIES if one.kind == kind]
    links: Counter[int] = Counter()
    given: dict[str, list[Answer | None]] = {one.name: [] for one in strategies}
    for question in questions:  # the prompts in the outer loop, so that each is read once
        for one in strategies:
            given[one.name].append(one.answer(question.text))
        if kind == "mapping" and (rules := _rules(question.text)) is not None:
            links[rules.links] += 1
    frequent = Counter(_plain(q.answer) for q in questions if q.answer is not None).most_common(1)
    given[MOST_FREQUENT[kind]] = [frequent[0][0] if frequent else None] * len(questions)
    notes = dict(known or {})
    if links and links.most_common(1)[0][0] == 1:
        notes |= {one.name: LOOK_UP for one in strategies if one.look_up}
    found = []
    for name, answers in given.items():
        marks: dict[str, list[bool]] = defaultdict(list)
        clusters: dict[str, str] = {}
        for question, answer in zip(questions, answers, strict=True):
            marks[question.unit].append(_right(answer, question.answer))
            clusters[question.unit] = question.cluster
        right = tuple(len(marks[unit]) == size and all(marks[unit]) for unit in clusters)
        found.append(Tally(name, kind, right, tuple(clusters.values()), notes.get(name, "")))
    return sorted(found, key=lambda one: -one.share)


def _plain(answer: Answer) -> Answer:
    return answer if isinstance(answer, int) else answer.strip().rstrip(".!").lower()


def _right(given: Answer | None, wanted: Answer | None) -> bool:
    if given is None or wanted is None:
        return False
    if isinstance(given, int) or isinstance(wanted, int):
        return given == wanted
    return bool(same_noun(given, wanted))
