"""A benchmark of published files: two sets, two settings, and two tables with the numbers of a (made-up) paper.

    data.shade_naming=FOLDER        with FOLDER/test.jsonl: {"id": 1, "set": "mixed", "prompt": "...", "tenths": 3}

Its tables stand in `specs`, what the paper prints in paper.csv beside this file. All else is the base's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from uni_train.core.errors import UsageError
from uni_train.data_gen.published_rows import PublishedRow, Text, read_rows
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Benchmark, Case, Option, Sample, Source, benchmark, verdict_of
from uni_train.eval.images import pixels
from uni_train.eval.paper import Column, TableSpec, mean_of
from uni_train.eval.results import Results, Unit

PROTOCOL = "shade_naming/1"  # what is asked; a change makes another revision
QUESTIONS = range(1, 201)  # ids in the paper
LIGHTNESS = ("dark", "middle", "light")


class Question(PublishedRow):
    """A row of test.jsonl. tenths: of white, from 0 to 10."""

    set: Literal["named", "mixed"]
    prompt: Text
    tenths: int


@benchmark("shade_naming")
class ShadeNaming(Benchmark):
    """Shades of grey by their names. tolerance: how many tenths of white an image may be off."""

    name, title = "shade_naming", "Shade Naming"
    known_sets = ("named", "mixed")
    options = (Option("tolerance", 0.5, "how many tenths of white an image may be off"),)

    def __init__(self, source: Source, *, tolerance: float = 0.5) -> None:
        if source.data is None:
            raise UsageError("Shade Naming has no questions of its own", "Name its files: data.shade_naming=FOLDER.")
        self.tolerance = tolerance
        rows = [row for _, row in read_rows([source.data / "test.jsonl"], Question)]
        cases = [
            Case(row.id, row.set, row.prompt, facts={"tenths": row.tenths})
            for row in rows
            if row.set in (source.sets or self.known_sets)
        ]
        super().__init__(source, cases, settings=("normal", "cot"), asked=(PROTOCOL, tolerance))
        self.set_origin(source.data, (row.id for row in rows), QUESTIONS)
        self.total_cases = len(rows)

    def check(self, sample: Sample) -> Verdict | None:
        tenths, right = pixels(sample.drawn[-1]).mean() / 25.5, sample.ask.case.facts["tenths"]
        return verdict_of("shade", abs(tenths - right) <= self.tolerance, f"{tenths:.1f} tenths, right is {right}")

    def specs(self, results: Results) -> Sequence[TableSpec]:
        by_set = [Column(name.capitalize(), mean_of("set", name), name) for name in self.known_sets]
        average = Column("Average", self.overall, "average")
        by_lightness = [Column(name.capitalize(), mean_of(_lightness, name), name) for name in LIGHTNESS]
        return [
            TableSpec(
                "Accuracy (Table 1)", [*by_set, average], paper="Table 1", label="{model} in the paper, {setting}"
            ),
            TableSpec("Accuracy by lightness (Table 2)", by_lightness, paper="Table 2"),
        ]


def _lightness(unit: Unit) -> str:
    return LIGHTNESS[min(unit.case.facts["tenths"] // 4, 2)]
