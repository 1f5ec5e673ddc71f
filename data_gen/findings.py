"""Recomputing the answers of a published file and listing the rows whose label does not hold, with the reason.

What each status means:

    ok            the label is what the question asks for
    wrong         the label is not: another number, another object, or an object where the rules lead to none
    ambiguous     the question leaves the answer open, and the label is one of the answers: two readings of the words,
                  no object named, rules and request at odds, a pair that asks twice for the same
    out_of_range  the label agrees with the question, but nothing can be drawn from it: no whole number from 1 to 6, or
                  no object at the end of the rules and the label says so
    unparseable   question or answer was not understood, so nothing is claimed about the label

A slip that changes no answer ("2 dog") leaves a row ok and is mentioned in its reason. Categories are only doubted
where both the object and the category are known (uni_train.data_gen.objects.KINDS); an unknown word is never an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "wrong", "out_of_range", "ambiguous", "unparseable"]
STATUSES: tuple[Status, ...] = ("ok", "wrong", "out_of_range", "ambiguous", "unparseable")


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


def has_wrong(rows: Iterable[AuditRow]) -> bool:
    """Whether any label is wrong (the command then exits with 1)."""
    return any(row.status == "wrong" for row in rows)


def counts(rows: Iterable[AuditRow]) -> dict[Status, int]:
    """How many rows have each status; every status is present."""
    numbers: dict[Status, int] = dict.fromkeys(STATUSES, 0)
    for row in rows:
        numbers[row.status] += 1
    return numbers
