"""What else a training has changed: what it does not train, as `uni_train.stages.retention` has measured it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from uni_train.core.reading_limits import read_json
from uni_train.eval.benchmark import Table
from uni_train.eval.compare import compare
from uni_train.eval.report.flow_grpo import held_out
from uni_train.eval.report.page import Section
from uni_train.eval.report.run import Line, read_lines, run_section
from uni_train.eval.results import Cell
from uni_train.eval.row_losses import changed, losses_of, mean_loss
from uni_train.eval.validation import finished

FOLDER, START, FACTS, LOSSES = "retention", "start", "retention.json", "losses.jsonl"


@run_section("retention")
def sections(run: Path) -> Iterator[Section]:
    """Tables and images. Raises UserError: a file of them cannot be read."""
    text = "The model that the run starts from (first) and the one that it ends with (second)."
    yield Section("What else changed", text, tables(run))
    for section in held_out(run / FOLDER, finished(run / FOLDER / "held_out")):
        yield replace(section, title=f"What else changed: {section.title[0].lower()}{section.title[1:]}")


def tables(run: Path) -> list[Table]:
    """Sets and rows of both models, compared item by item. Raises UserError: a file of them cannot be read."""
    file = run / FOLDER / FACTS
    facts = read_json(file) if file.exists() else {}
    if not facts.get("done"):
        return []
    sets = _sets(run, facts["trained"]) if "sets" in facts else []
    lines = read_lines(run / FOLDER / LOSSES) if "rows" in facts else []
    return [*sets, *([_rows(lines[0], lines[-1])] if lines else [])]


def _rows(first: Line, last: Line) -> Table:
    cells: list[tuple[Cell, ...]] = [
        (name, mean_loss(before), mean_loss(after), changed(before, after), str(len(before)))
        for name, (before, after) in by_kind(first, last).items()
    ]
    note = "Text: cross-entropy, nats a token. Images: squared error of the velocity, the mean over noise levels. "
    note += "95 % intervals over rows: Student's t, of the change row by row."
    return Table(
        "Loss of rows, before and after", ("Rows", "First", "Second", "Change", "n"), tuple(cells), note, digits=3
    )


def by_kind(first: Line, last: Line) -> dict[str, tuple[list[float], list[float]]]:
    """Kind of row and what of it is learned ("caption, text") -> a loss a row, in two lines of LOSSES."""
    losses = {}
    for kind in dict.fromkeys(row.partition("/")[0] for row in first["ids"]["held_out"]):
        before, after = (losses_of(_of_kind(line, kind), "held_out") for line in (first, last))
        for part in (part for part in before if part in ("text", "image, mean")):
            losses[", ".join(filter(None, (kind, part)))] = before[part], after[part]
    return losses


def _of_kind(line: Line, kind: str) -> Line:
    places = [i for i, row in enumerate(line["ids"]["held_out"]) if row.partition("/")[0] == kind]
    rows = {name: [values[i] for i in places] for name, values in line["rows"]["held_out"].items()}
    return {**line, "rows": {"held_out": rows}}


def _sets(run: Path, trained: str) -> list[Table]:
    comparison = compare(run / FOLDER / START, run / FOLDER / trained)
    shown = tuple(row for row in comparison.rows if row.first or row.second)
    none = sorted({row.set for row in comparison.rows} - {row.set for row in shown})
    note = "The same items with the same seeds. p: McNemar's exact test."
    note += f" Neither model has an item right in {len(none)} sets: {', '.join(none)}." if none else ""
    title = "Sets, before and after"
    tables = replace(comparison, rows=shown).tables()
    return [replace(table, title=title, note=note) for table in tables] or [Table(title, ("Set",), (), note)]
