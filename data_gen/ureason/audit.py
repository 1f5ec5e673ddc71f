"""Recomputing the answers of a UReason file that `data make` has written.

A row of `<task>.jsonl` or `direct_<task>.jsonl` says in words what the image must show. What these words were made
from, code, events, changes, clues or rules, is in items.jsonl beside it: code is run again, stories are told again. The
published files have no such facts, so nothing is claimed about them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uni_train.core.errors import DataError, UnreadableError
from uni_train.data_gen.findings import AuditRow
from uni_train.data_gen.jsonl import read_items
from uni_train.data_gen.maths.audit import read_maths
from uni_train.data_gen.task import Item
from uni_train.data_gen.ureason import arithmetic, attribute, code, spatial, text
from uni_train.data_gen.ureason.execution import ExecutionError, html, python, sql
from uni_train.data_gen.ureason.outcomes import Attributes, Counts, Layout, Outcome, Sprites, Writing, outcome_from


def findings(path: Path) -> list[AuditRow]:
    """One for every row. DataError if the file, or items.jsonl beside it, is damaged."""
    from uni_train.data_gen.published_rows import read_rows  # pydantic takes long to import
    from uni_train.data_gen.ureason.published import SHAPE, PublishedPuzzle

    beside = path.parent / "items.jsonl"
    items = {item.id: item for item in read_items(beside)} if beside.is_file() else {}
    rows = read_rows([path], PublishedPuzzle, SHAPE)
    return [_finding(row.id, row.prompt, row.expect_en, items.get(row.id)) for _, row in rows]


def _finding(id_: str, prompt: str, label: str, item: Item | None) -> AuditRow:
    if item is None:
        reason = "items.jsonl beside the file has no item of this id: there are no facts to work the answer out from"
        return AuditRow(id_, "unparseable", None, label, reason)
    if prompt not in (item.prompt, item.facts["direct"]):
        return AuditRow(id_, "unparseable", None, label, "the prompt is not that of its item in items.jsonl")
    outcome = outcome_from(item.facts["outcome"])
    try:
        parts = worked_out(item.facts)
    except (DataError, ExecutionError, UnreadableError, KeyError, TypeError, ValueError, AttributeError) as error:
        return AuditRow(id_, "unparseable", None, label, f"the facts in items.jsonl cannot be followed: {error}")
    if not states(outcome, parts):
        answer = "; ".join(" ".join(parts) for parts in parts)
        return AuditRow(id_, "wrong", answer, label, f"the facts in items.jsonl lead to {answer}")
    if label != outcome.criterion():
        return AuditRow(id_, "wrong", outcome.criterion(), label, f'the label says "{label}"')
    return AuditRow(id_, "ok", label, label, "")


def worked_out(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What facts of an item come to: for each thing that its criterion names, in order, the words that must be said.

    Raises:
        DataError, ExecutionError, UnreadableError, KeyError, TypeError, ValueError, AttributeError: facts that cannot
            be followed.
    """
    match facts:
        case {"code": str(source), "language": "SQL"}:
            return [(str(row[0]),) for row in sql.run(source)]
        case {"code": str(source), "language": "HTML" | "CSS"}:
            cells = [cell for cells in html.render(source) for cell in cells]
            return [(cell.text, cell.color) if cell.color else (cell.text,) for cell in cells]
        case {"code": str(source), "language": language, "asks": asks}:
            program = facts.get("program")
            if program is not None and code.write(program, language) != source:
                raise DataError("the code is not what its program writes")
            if program is None and language != "Python":
                raise DataError(f"code in {language} without its program")
            value = (python.run(source) if program is None else code.run(program))[asks]
            return [(str(part),) for part in (value if isinstance(value, list) else [value])]
        case {"expression": texts}:
            return [(str(_value(part)),) for part in ([texts] if isinstance(texts, str) else texts)]
        case {"events": events, "task": "arithmetic"}:
            return [(str(number), place) for (_, place), number in arithmetic.replay(events).items() if number]
        case {"events": events, "subcategory": "Presence"}:
            return [tuple(attribute.replay_set(events)[0])]
        case {"events": events}:
            return list(attribute.replay(events).items())
        case {"clues": clues, "things": things, "columns": columns}:
            (order,) = spatial.solutions(things, clues, columns)
            return [(thing,) for thing in order]
        case {"order": order, "changes": changes, "columns": columns}:
            return [(thing,) for thing in spatial.replay(order, changes, columns)]
        case {"start": start, "rules": rules}:
            return [(text.solve(start, rules),)]
        case _:
            return [(text.shown(facts),)]


def states(outcome: Outcome, answers: Sequence[tuple[str, ...]]) -> bool:
    """Whether an outcome says what was worked out, and of as many things."""
    if isinstance(outcome, Writing):
        return [(outcome.text,)] == list(answers)
    if isinstance(outcome, Layout):
        return [(thing.partition(" ")[2],) for _, thing in outcome.places] == list(answers)
    statements = _statements(outcome)
    return len(statements) == len(answers) and all(
        f" {part} " in f" {statement} ".replace(",", " ")
        for statement, parts in zip(statements, answers, strict=True)
        for part in parts
    )


def _statements(outcome: Counts | Attributes | Sprites) -> list[str]:
    if isinstance(outcome, Counts):
        return [str(group) for group in outcome.groups]
    if isinstance(outcome, Sprites):
        return [f"{count} {name}" for name, count in outcome.groups]
    return list(outcome.present)


def _value(expression: str) -> int:
    """Of an expression in nano's notation."""
    value = read_maths(f"Draw the number of apples equal to {expression} .").readings[0].value
    if value is None or value.whole is None:
        raise DataError(f"{expression} is no whole number")
    return value.whole
