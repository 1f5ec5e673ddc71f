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
from uni_train.eval.report.run import run_section
from uni_train.eval.validation import finished

FOLDER, START, FACTS = "retention", "start", "retention.json"


@run_section("retention")
def sections(run: Path) -> Iterator[Section]:
    """Tables and images. Raises UserError: a file of them cannot be read."""
    text = "What the run does not train, with the weights that it starts from (first) and those that it ends with."
    yield Section("What else changed", text, tables(run))
    for section in held_out(run / FOLDER, finished(run / FOLDER / "held_out")):
        yield replace(section, title=f"What else changed: {section.title[0].lower()}{section.title[1:]}")


def tables(run: Path) -> list[Table]:
    """The sets of both models, compared item by item. Raises UserError: a file of them cannot be read."""
    file = run / FOLDER / FACTS
    facts = read_json(file) if file.exists() else {}
    if not facts.get("done") or not facts["retention"]["sets"]:
        return []
    comparison = compare(run / FOLDER / START, run / FOLDER / facts["trained"])
    shown = tuple(row for row in comparison.rows if row.first or row.second)
    none = sorted({row.set for row in comparison.rows} - {row.set for row in shown})
    note = "The same items with the same seeds. p: McNemar's exact test."
    note += f" Neither model has an item right in {len(none)} sets: {', '.join(none)}." if none else ""
    title = "Sets that are not trained"
    tables = replace(comparison, rows=shown).tables()
    return [replace(table, title=title, note=note) for table in tables] or [Table(title, ("Set",), (), note)]
