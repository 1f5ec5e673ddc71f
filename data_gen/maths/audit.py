"""Maths questions and answers of other people: read, worked out, and compared with their labels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from uni_train.core.errors import DataError, UnreadableError
from uni_train.data_gen.findings import AuditRow, Status
from uni_train.data_gen.jsonl import MathsRow
from uni_train.data_gen.maths.exact import Exact, UndefinedError, read_count
from uni_train.data_gen.maths.reading import Reading, read_expression
from uni_train.data_gen.objects import LEAST, MOST, plain, same_noun, singular_of

_VERB = (
    r"(?:please\s+)?(?:generate|produce|show|create|provide|give|make|draw|paint|display|render|illustrate|depict|"
    r"compute|sketch)(?:\s+(?:me|us))?(?:\s+(?:a|an|one)\s+(?:picture|image|drawing|scene)\s+(?:of|with|showing))?"
)
_OBJECT = r"(?P<object>[a-z][a-z' -]*?)"
_AMOUNT = r"(?:number|quantity|amount|count)"
_FRAMES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:work\s+out|compute|calculate|evaluate|find)\s+(?P<expression>.+?)(?:,|\s)\s*(?:and|then)\s+{_VERB}\s+that\s+"
        rf"many\s+{_OBJECT}",
        rf"how\s+(?:much|many)\s+is\s+(?P<expression>.+?)\?\s*{_VERB}\s+(?:that|so|as)\s+many\s+{_OBJECT}",
        rf"{_VERB}\s+{_OBJECT}\s*[:,]\s*as\s+many(?:\s+of\s+them)?\s+as\s+(?P<expression>.+)",
        rf"(?:{_VERB}|(?:the|your|this)\s+(?:picture|image)\s+(?:must|should|has\s+to)\s+(?:show|have|contain))\s+"
        rf"(?:exactly\s+|just\s+)?as\s+many\s+{_OBJECT}\s+as\s+(?P<expression>.+)",
        rf"{_VERB}\s+(?:an?\s+|the\s+)?(?:same\s+|equivalent\s+|exact\s+|equal\s+)?{_AMOUNT}\s+of\s+(?:the\s+)?{_OBJECT}\s+"
        r"(?P<expression>(?:as|equal\s+to|equals|equivalent\s+to|matching|that|which|given)\s+.+)",
        rf"{_VERB}\s+{_OBJECT}\s*,?\s+equal\s+in\s+number\s+to\s+(?P<expression>.+)",
        rf"{_VERB}\s+(?:exactly\s+|just\s+)?(?P<expression>(?:\d|[(√]).*[\d)²³])\s+{_OBJECT}",
        rf"{_VERB}\s+(?P<expression>the\s+(?:outcome|result|value|number)\s+(?:of|equal\s+to)\s+.+)",
    )
]
_LEADING = re.compile(
    r"^(?:as|that|which|you\s+get\s+from|(?:is\s+|are\s+)?equal\s+to|equals|equal|equivalent\s+to|matching|matches|match|"
    r"(?:is\s+|as\s+)?(?:calculated|given|computed|determined)\s+by|obtained\s+from|comes?\s+from|is|are|"
    r"the\s+(?:result|outcome|value|answer|number)\s+(?:of|from|equal\s+to))\s+",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"\s+(?:equals|gives|is|makes|yields|comes\s+to|evaluates\s+to|results\s+in)$", re.IGNORECASE)
_ROUNDED = re.compile(
    r",?\s+(?:(?:and\s+)?then\s+|and\s+)?rounded\s+(down|up|to\s+the\s+nearest(?:\s+(?:whole\s+number|integer))?)$",
    re.IGNORECASE,
)
_WHERE = re.compile(r",?\s+(?:where|with|if|for|when)\s+(?P<names>[A-Za-z]\s*(?:=|is|equals)\s*.+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MathsQuestion:
    """noun: the object as written (mostly plural), None if the question names none; readings: of its expression."""

    noun: str | None
    expression: str
    readings: list[Reading] = field(default_factory=list)


def read_maths(question: str) -> MathsQuestion:
    """A maths question taken apart. UnreadableError when no known frame or expression fits."""
    text = re.sub(r"\s+", " ", question).strip()
    text = re.sub(r"\s*(?:\.|(?<=[A-Za-z])!|=(?:\s*\?)?)$", "", text).strip()
    for frame in _FRAMES:
        match = frame.fullmatch(text)
        if match is None:
            continue
        expression = match.group("expression").strip()
        noun = match.groupdict().get("object")
        return MathsQuestion(noun, expression, _read_framed(expression))
    raise UnreadableError('the question asks for no number of objects in a way known here ("as many ... as ...")')


def _read_framed(expression: str) -> list[Reading]:
    variables: dict[str, Exact] = {}
    if where := _WHERE.search(expression):
        expression = expression[: where.start()]
        for part in re.split(r",\s*|\s+and\s+", where.group("names")):
            assignment = re.fullmatch(r"([A-Za-z])\s*(?:=|is|equals)\s*(.+)", part.strip(), re.IGNORECASE)
            if assignment is None:
                raise UnreadableError(f'"where {part}" sets no letter to a number')
            value = read_expression(assignment.group(2))[0].value
            if value is None:
                raise UnreadableError(f'"where {part}" sets no letter to a number')
            variables[assignment.group(1)] = value
    direction = None
    if rounding := _ROUNDED.search(expression):
        direction = rounding.group(1).lower()
        expression = expression[: rounding.start()]
    expression = _TRAILING.sub("", expression.strip())
    while shorter := _LEADING.match(expression):
        expression = expression[shorter.end() :]
    readings = read_expression(expression, variables)
    if direction is None:
        return readings
    direction = "to the nearest" if direction.startswith("to") else direction
    return [
        Reading(
            f"{r.text}, rounded {direction}",
            r.value and r.value.rounded(direction),
            r.reason,
            f"{r.canonical}, rounded {direction}",
        )
        for r in readings
    ]


@lru_cache(maxsize=4096)
def expression_of(question: str) -> str:
    """What a published question works out, so that repeats are known; the question where it cannot be read."""
    try:
        return read_maths(question).readings[0].text
    except UnreadableError:
        return question


# -------------------------------------------------------------------------------------------------------------- labels


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
        thing = plain(labelled)
    else:
        thing = singular_of(plain(noun)) if single else noun
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
        return single and singular_of(plain(noun)) != plain(labelled)
    return form == "s:p" and not single


def right_count(row: MathsRow, audit: AuditRow) -> tuple[str | None, str]:
    """The label that holds, in the published form; without one, None and the reason.

    Words leave precedence open; where exactly one of the readings can be drawn (a whole number from 1 to 6), that one
    is the answer.
    """
    if audit.status in ("ok", "unparseable"):
        return row.answer, ""
    try:
        question = read_maths(row.question)
        _, labelled = read_count(row.answer)
    except DataError:
        return None, audit.reason
    values = {reading.value.whole for reading in question.readings if reading.value is not None}
    drawable = sorted(value for value in values if value is not None and LEAST <= value <= MOST)
    if len(drawable) != 1 or question.noun is None:
        return None, audit.reason
    count = drawable[0]
    value, _ = read_count(row.answer)
    if value.whole == count and same_noun(labelled, question.noun):
        return row.answer, ""
    noun = singular_of(question.noun.lower()) if count == 1 else question.noun.lower()
    return f"{count} {noun}", ""
