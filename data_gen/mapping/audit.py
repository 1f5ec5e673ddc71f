"""Labels of mapping questions of other people, compared with what their rules lead to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from uni_train.core.errors import UnreadableError
from uni_train.data_gen.findings import AuditRow, Status
from uni_train.data_gen.jsonl import MappingRow
from uni_train.data_gen.mapping.reading import Chain, MappingQuestion, follow, read_mapping
from uni_train.data_gen.objects import CATEGORY_KINDS, kinds_of, plain, same_noun

_NO_ANSWER = {"undefined", "n/a", "na", "none", "nothing", "unknown", "null", "no answer", "-", ""}


def audit_pairs(rows: Iterable[MappingRow]) -> list[AuditRow]:
    """Follows the rules of every question; then compares the two questions of each pair with each other."""
    listed = list(rows)
    findings = [_audit_mapping(row) for row in listed]
    pairs: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(listed):
        pairs[row.id].append(index)
    for members in pairs.values():
        remark = _pair_remark([listed[i] for i in members], [findings[i] for i in members])
        # Where both rules and both labels agree on one object, no row is wrong, but the pair does not tell reasoning
        # from always drawing the same thing, which is what it is for.
        pointless = "same object" in remark and all(findings[i].status == "ok" for i in members)
        for i in members if remark else ():
            old = findings[i]
            reason = "; ".join(part for part in (old.reason, remark) if part)
            findings[i] = AuditRow(old.id, "ambiguous" if pointless else old.status, old.expected, old.answer, reason)
    return findings


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
    label = plain(row.answer)
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


def right_objects(pair: Sequence[tuple[MappingRow, AuditRow]]) -> tuple[list[str | None], str]:
    """The labels of a pair's questions that hold, in the published form; if one has none, Nones and the reason."""
    right = [_right_object(row, audit) for row, audit in pair]
    reasons = [f"{row.which}: {audit.reason}" for (row, audit), label in zip(pair, right, strict=True) if label is None]
    if len(pair) == 1:
        reasons = [f"question {'B' if pair[0][0].which == 'A' else 'A'} is missing"]
    elif not reasons and same_noun(str(right[0]), str(right[1])):
        reasons = [f"both questions ask for {right[0]}"]
    return ([None] * len(pair), "; ".join(reasons)) if reasons else (right, "")


def _right_object(row: MappingRow, audit: AuditRow) -> str | None:
    if audit.status in ("ok", "unparseable"):
        return row.answer
    if audit.status == "wrong" and audit.expected is not None and " or " not in audit.expected:
        return audit.expected.capitalize()
    # An object that is the same in both questions of a pair: `right_objects` says so of the pair.
    return row.answer if audit.status == "ambiguous" and "same object" in audit.reason else None
