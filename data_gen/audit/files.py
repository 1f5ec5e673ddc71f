"""Recomputing the answers of a published file and listing the rows whose label does not hold, with the reason.

What each status means:
  ok            the label is what the question asks for
  wrong         the label is not: another number, another object, or an object where the rules lead to none
  ambiguous     the question leaves the answer open (two readings of the words, no object named, rules and request at
                odds, a pair that asks twice for the same) and the label is one of the answers
  out_of_range  the label agrees with the question, but nothing can be drawn from it: no whole number from 1 to 6, or
                no object at the end of the rules and the label says so
  unparseable   question or answer was not understood, so nothing is claimed about the label

A slip that changes no answer ("2 dog") leaves a row ok and is mentioned in its reason. Categories are only doubted
where both the object and the category are known (data_gen.objects.KINDS); an unknown word is never an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data_gen.audit.reading import (
    Chain,
    MappingQuestion,
    Reading,
    UndefinedError,
    UnreadableError,
    follow,
    read_count,
    read_mapping,
    read_maths,
)
from data_gen.jsonl import MappingRow, MathsRow, read_items, read_objects, read_published
from data_gen.objects import CATEGORY_KINDS, kinds_of, plurals_of, singular_of
from data_gen.task import Item
from data_gen.ureason import audit as ureason

Status = Literal["ok", "wrong", "out_of_range", "ambiguous", "unparseable"]
STATUSES: tuple[Status, ...] = ("ok", "wrong", "out_of_range", "ambiguous", "unparseable")
LEAST, MOST = 1, 6  # what a picture may have to show
_NO_ANSWER = {"undefined", "n/a", "na", "none", "nothing", "unknown", "null", "no answer", "-", ""}


@dataclass(frozen=True, slots=True)
class AuditRow:
    """The finding about one question.

    id: as published, with /A or /B for mapping; expected: the recomputed answer, None if there is none;
    answer: the published label; reason: why the status is not ok, or a remark on an ok row.
    """

    id: str
    status: Status
    expected: str | None
    answer: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "status": self.status, "expected": self.expected, "reason": self.reason}


def audit_file(path: Path | str) -> list[AuditRow]:
    """One finding for every question of a maths or mapping file, in its order: published, or an items.jsonl of ours; or
    of a UReason file of `data make`.

    Items of other tasks are left out: their answers are proved by their verifiers. DataError if it is no such file.
    """
    if ureason.is_ureason(Path(path)):
        return [AuditRow(*one) for one in ureason.findings(Path(path))]
    found = read_any(Path(path))
    rows = [row for item in found if isinstance(item, Item) for row in _rows_of(item)] or [
        row for row in found if not isinstance(row, Item)
    ]
    maths = [row for row in rows if isinstance(row, MathsRow)]
    if maths:
        return [audit_maths(row) for row in maths]
    return audit_pairs(row for row in rows if isinstance(row, MappingRow))


def read_any(path: Path) -> list[MathsRow] | list[MappingRow] | list[Item]:
    """Rows in the published schema, or the items that `data make` writes: the keys of the first row say which."""
    first = next(read_objects(path), None)
    return read_items(path) if first is not None and {"prompt", "facts"} <= set(first[1]) else read_published(path)


def _rows_of(item: Item) -> list[MathsRow | MappingRow]:
    if item.task == "maths":
        return [MathsRow(item.id, item.prompt, item.answer, 0)]
    if item.task == "mapping":
        return [MappingRow(item.pair or item.id, item.id[-1], item.prompt, item.answer, 0)]
    return []


def has_wrong(rows: Iterable[AuditRow]) -> bool:
    """Whether any label is wrong (the command then exits with 1)."""
    return any(row.status == "wrong" for row in rows)


def counts(rows: Iterable[AuditRow]) -> dict[Status, int]:
    """How many rows have each status; every status is present."""
    found: dict[Status, int] = dict.fromkeys(STATUSES, 0)
    for row in rows:
        found[row.status] += 1
    return found


# ------------------------------------------------------------------------------------------------------------ nouns


def _plain(noun: str) -> str:
    return re.sub(r"^(?:the|a|an|some)\s+", "", noun.strip().rstrip(".!").strip().lower())


def same_noun(one: str, other: str) -> str:
    """ "eq", "s:p" or "p:s" when both are forms of one noun (s singular, p plural), else ""."""
    one, other = _plain(one), _plain(other)
    if one == other:
        return "eq"
    if other in plurals_of(one):
        return "s:p"
    return "p:s" if one in plurals_of(other) else ""


# ------------------------------------------------------------------------------------------------------------ maths


def audit_maths(row: MathsRow) -> AuditRow:
    """Works out the expression in every sensible reading and compares number, object and range with the label."""

    def finding(status: Status, expected: str | None, *reasons: str) -> AuditRow:
        return AuditRow(row.id, status, expected, row.answer, "; ".join(reason for reason in reasons if reason))

    try:
        question = read_maths(row.question)
    except UndefinedError as error:
        return finding("wrong", None, f"the question has no answer: {error}")
    except UnreadableError as error:
        return finding("unparseable", None, str(error))
    readings = question.readings
    noun = question.noun
    value = readings[0].value
    try:
        count, labelled = read_count(row.answer)
    except UnreadableError as error:
        return finding("unparseable", _expected(readings[0], noun), str(error))
    expected = _expected(readings[0], noun, labelled)
    if all(reading.value != count for reading in readings):
        return finding("wrong", expected, _listed(readings), f"the label says {count}", _outside(readings))
    form = same_noun(labelled, noun) if noun is not None else "eq"
    if not form:
        return finding("wrong", expected, f'the label counts "{labelled}", the question asks for {noun}')
    unnamed = "" if noun is not None else "the question names no object, any would do"
    if len({(reading.value, reading.reason) for reading in readings}) > 1:
        return finding("ambiguous", expected, "the words can be read in several ways: " + _listed(readings), unnamed)
    if unnamed:
        return finding("ambiguous", expected, unnamed)
    outside = _outside(readings)
    if outside:
        return finding("out_of_range", expected, outside)
    slip = noun is not None and value is not None and _slip(labelled, noun, value.whole == 1, form)
    return finding("ok", expected, f'the label is right but reads "{row.answer}" for "{expected}"' if slip else "")


def _expected(reading: Reading, noun: str | None, labelled: str = "") -> str | None:
    if reading.value is None:
        return None
    single = reading.value.whole == 1
    if noun is None:
        thing = ""
    elif single and same_noun(labelled, noun) == "s:p":
        thing = _plain(labelled)
    else:
        thing = singular_of(_plain(noun)) if single else noun
    return f"{reading.value} {thing}".strip()


def _listed(readings: list[Reading]) -> str:
    return ", or ".join(dict.fromkeys(f"{r.text} = {r.value}" if r.value is not None else f"{r.text} has no value "
                                      f"({r.reason})" for r in readings))  # fmt: skip


def _outside(readings: list[Reading]) -> str:
    value = readings[0].value
    if value is None or (value.whole is not None and LEAST <= value.whole <= MOST):
        return ""
    return f"{value} is not a whole number from {LEAST} to {MOST}"


def _slip(labelled: str, noun: str, single: bool, form: str) -> bool:
    """Whether the label's noun is in the wrong number: singular for several, plural for one."""
    if form == "eq":
        return single and singular_of(_plain(noun)) != _plain(labelled)
    return form == "s:p" and not single


# ---------------------------------------------------------------------------------------------------------- mapping


def audit_pairs(rows: Iterable[MappingRow]) -> list[AuditRow]:
    """Follows the rules of every question; then compares the two questions of each pair with each other."""
    listed = list(rows)
    found = [_audit_mapping(row) for row in listed]
    pairs: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(listed):
        pairs[row.id].append(index)
    for members in pairs.values():
        remark = _pair_remark([listed[i] for i in members], [found[i] for i in members])
        # Where both rules and both labels agree on one object, no row is wrong, but the pair does not tell reasoning
        # from always drawing the same thing, which is what it is for.
        pointless = "same object" in remark and all(found[i].status == "ok" for i in members)
        for i in members if remark else ():
            old = found[i]
            reason = "; ".join(part for part in (old.reason, remark) if part)
            found[i] = AuditRow(old.id, "ambiguous" if pointless else old.status, old.expected, old.answer, reason)
    return found


def _pair_remark(rows: list[MappingRow], findings: list[AuditRow]) -> str:
    if len(rows) == 1:
        return f"question {'B' if rows[0].which == 'A' else 'A'} of the pair is missing"
    labels = [row.answer for row in rows]
    if all(f.expected for f in findings) and same_noun(str(findings[0].expected), str(findings[1].expected)):
        return f"both questions of the pair ask for the same object, {findings[0].expected}"
    if same_noun(labels[0], labels[1]):
        return f'both questions of the pair have the label "{labels[0]}"'
    return ""


def _audit_mapping(row: MappingRow) -> AuditRow:
    remark = "the line holds both questions and one answer" if row.both else ""

    def finding(status: Status, expected: str | None, *reasons: str) -> AuditRow:
        reason = "; ".join(reason for reason in (*reasons, remark) if reason)
        return AuditRow(f"{row.id}/{row.which}", status, expected, row.answer, reason)

    try:
        question = read_mapping(row.question)
    except UnreadableError as error:
        return finding("unparseable", None, str(error))
    chains = follow(question)
    nouns = list(dict.fromkeys(chain.noun for chain in chains if chain.noun is not None))
    label = _plain(row.answer)
    if not nouns:
        reason = chains[0].reason
        if label in _NO_ANSWER:
            return finding("out_of_range", None, reason, f'the label "{row.answer}" agrees, but nothing can be drawn')
        return finding("wrong", None, reason, f'the label says "{row.answer}"')
    expected = " or ".join(nouns)
    fitting = [noun for noun in nouns if same_noun(label, noun)]
    if not fitting:
        return finding("wrong", expected, f'{_way(chains)}; the label says "{row.answer}"')
    if len(chains) > 1:
        several = "; ".join(chain.reason or _way([chain]) for chain in chains)
        return finding("ambiguous", expected, f"a symbol has several meanings: {several}")
    doubt = _category_doubt(question, fitting[0])
    return finding("ambiguous", expected, doubt) if doubt else finding("ok", expected)


def _way(chains: list[Chain]) -> str:
    return ", or ".join(" -> ".join(chain.steps) for chain in chains if chain.noun is not None)


def _category_doubt(question: MappingQuestion, noun: str) -> str:
    """A reason if the rules lead to something that is not what the request calls it (an animal, but apples)."""
    allowed = CATEGORY_KINDS.get(question.category)
    kinds = kinds_of(noun)
    if not allowed or not kinds or allowed & kinds:
        return ""
    others = [right for _, right, linked in question.rules if not linked and kinds_of(right) & allowed]
    meant = f"; {' or '.join(others)} would be one" if others else ""
    return f'the rules lead to {noun}, but the request is for "{question.category}"{meant}'
