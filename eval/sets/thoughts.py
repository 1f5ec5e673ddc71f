"""What a thought concludes, read by a program, so that wrong reasoning is told from wrong drawing.

The nano world ends its thoughts with "So draw 3 apples .". Elsewhere a thought is free text. Its conclusion is the last
sentence that names a count or an object of the rules. Where none does, or one sentence names several, the conclusion is
"unclear" rather than guessed. A thought of another task (mazes) concludes all that it says; it is right where it has
the words of the reference. What was taught of characters, UniSandbox reads (`READERS`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from uni_train.core.errors import UnreadableError
from uni_train.data_gen.objects import plurals_of, singular_of
from uni_train.data_gen.phrasing import counted
from uni_train.data_gen.task import Item, Status
from uni_train.eval.benchmark import Case

Conclusion = Literal["right", "wrong", "unclear"]

READERS: dict[str, Callable[[str, Case], Conclusion]] = {}
"""`task` of cases that are no items of a task -> what a thought about one concludes; who makes such cases adds it."""
_MATHS = ("maths", "maths_paper")
_READ = (*_MATHS, "mapping")  # tasks whose conclusions are read
_STATUSES: dict[Conclusion, Status] = {"right": "pass", "wrong": "fail", "unclear": "unreadable"}
_DRAW = "So draw "
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = rf"(\d{{1,9}}|{'|'.join(_NUMBERS)})"
_RESULT = re.compile(
    rf"(?:=|\b(?:is|are|equals?|gives?|makes?|becomes?|result|answer|total|to|get|leaves?|draw|count)\b)"
    rf"[\s:*]*(?:exactly\s+|just\s+)?{_NUMBER}(?![\w.]*\d)",
    re.IGNORECASE,
)
_REJECTED = re.compile(r"\b(?:not|instead of|rather than|nor|no)\s+(?:the\s+|an?\s+|any\s+)?[\w-]+", re.IGNORECASE)


def is_readable(task: str) -> bool:
    """Whether a program tells wrong conclusions about a task's cases; of other tasks a thought is right or unclear."""
    return task in (*_READ, *READERS)


def conclusion(thought: str | None, case: Case) -> Conclusion:
    """Whether the thought ends where the case's answer is."""
    if not thought:
        return "unclear"
    facts = case.facts
    if facts["task"] in READERS:
        return READERS[facts["task"]](thought, case)
    if facts["task"] not in _READ:
        return "right" if f" {_words(facts['item']['thought'])} " in f" {_words(thought)} " else "unclear"
    if facts["world"] == "nano":
        return _nano(thought, case)
    if facts["task"] in _MATHS:
        return _counted(thought, str(facts["answer"]))
    return last_named(thought, str(facts["answer"]), _objects(case))


def answer_status(reply: str, item: Item) -> Status:
    """Whether a direct answer in words is right: the count of the asked object, or the object among those of the rules.

    It asks nothing of a model's wording: "3 fish", "The answer is 3." and "@ stands for a fish" can be read. A reply
    that names no count or object, or several, is unreadable.
    """
    if "rules" not in item.facts:
        status = _counted(_as_result(reply), item.answer)
    else:
        from uni_train.eval.reading import words

        symbols = {left for left, _ in item.facts["rules"]}
        status = last_named(
            words(reply), item.answer, [right for _, right in item.facts["rules"] if right not in symbols]
        )
    return _STATUSES[status]


def reply_status(reply: str, case: Case) -> Status:
    """`answer_status` of a case; without an item of sprites its answer is read as `conclusion` reads a thought."""
    item = case.facts.get("item", {"facts": {}})
    if "object" in item["facts"]:
        return answer_status(reply, Item.from_dict(item))
    return _STATUSES[conclusion(_as_result(reply), case)]


def _as_result(reply: str) -> str:
    """A reply without thought and marks; a number alone is a result."""
    from uni_train.eval.reading import words

    text = words(reply)
    alone = re.fullmatch(rf"\W*{_NUMBER}\W*", text, re.IGNORECASE)
    return f"= {alone[1]}" if alone else text


def concluded(text: str | None, case: Case) -> str | None:
    """What a thought or an answer in words concludes; None where that is unclear.

    Conclusions about one case can be compared. Of the case's answer it uses only which object is to be counted.
    """
    if not text:
        return None
    if not is_readable(case.facts["task"]):
        return _words(text) or None
    if case.facts["world"] == "nano":
        counts = counted(text.rpartition(_DRAW)[2])
        return " ".join(map(str, next(iter(counts)))) if len(counts) == 1 else None
    if case.facts["task"] in _MATHS:
        return _last_number(text, str(case.facts["answer"]))
    named = _named_at_the_end(text, {singular_of(noun.lower()) for noun in _objects(case)})
    return named.pop() if len(named) == 1 else None


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _last_number(text: str, answer: str) -> str | None:
    """The last number before the object that is asked for, else the last that is called a result."""
    from uni_train.data_gen.maths.exact import read_count

    try:
        _, noun = read_count(answer)
    except UnreadableError:
        return None
    return _last_count(text, noun, one_counts=False)


def _nano(thought: str, case: Case) -> Conclusion:
    item = case.facts["item"]["facts"]
    count = int(item["count"])
    _, marker, ending = thought.rpartition(_DRAW)
    if not marker:
        return "unclear"
    expected = f"{count} {item['object'] if count == 1 else item['plural']}"
    return "right" if ending.rstrip(" .") == expected else "wrong"


def _counted(thought: str, answer: str) -> Conclusion:
    """Whether the last number before the object, or else the last that is called a result, is the answer's."""
    from uni_train.data_gen.maths.exact import read_count

    try:
        value, noun = read_count(answer)
    except UnreadableError:
        return "unclear"
    last = _last_count(thought, noun, one_counts=value.whole == 1)
    return "unclear" if last is None else "right" if int(last) == value.whole else "wrong"


def _last_count(text: str, noun: str, one_counts: bool) -> str | None:
    """The digits of the last number before the object; without one, of the last number that is called a result.

    The word "one" is mostly no count ("one chair leans on the wall"): beside other numbers it is only believed where
    one object is the answer (one_counts).
    """
    object_ = "|".join(map(re.escape, _forms(noun)))
    named = re.findall(rf"\b{_NUMBER}\s+(?:[a-z-]+\s+){{0,2}}(?:{object_})\b", text, re.IGNORECASE)
    others = [] if one_counts else [number for number in named if number.lower() != "one"]
    last = (others or named or _RESULT.findall(text) or [None])[-1]
    if last is None:
        return None
    return str(_NUMBERS.index(last.lower())) if last.lower() in _NUMBERS else last


def last_named(thought: str, answer: str, candidates: Iterable[str]) -> Conclusion:
    """The last sentence that names a candidate must name the answer and no other."""
    expected = singular_of(answer.strip(" .").lower())
    named = _named_at_the_end(thought, {singular_of(candidate.lower()) for candidate in candidates} | {expected})
    return "unclear" if len(named) != 1 else "right" if named == {expected} else "wrong"


def _named_at_the_end(text: str, nouns: Iterable[str]) -> set[str]:
    """Those of the nouns that the last sentence with any of them names."""
    patterns = {noun: re.compile(rf"\b(?:{'|'.join(map(re.escape, _forms(noun)))})\b") for noun in nouns}
    for sentence in reversed(re.split(r"(?<=[.!?])\s+|\n+", text.strip())):
        meant = _REJECTED.sub(" ", sentence.lower())
        if named := {noun for noun, pattern in patterns.items() if pattern.search(meant)}:
            return named
    return set()


def _objects(case: Case) -> list[str]:
    from uni_train.data_gen.mapping.reading import read_mapping

    try:
        return [right for _, right, linked in read_mapping(case.prompt).rules if not linked]
    except UnreadableError:
        return []


def _forms(noun: str) -> tuple[str, ...]:
    single = singular_of(noun.strip(" .").lower())
    return tuple(sorted({single, *plurals_of(single), noun.strip(" .").lower()}, key=len, reverse=True))
