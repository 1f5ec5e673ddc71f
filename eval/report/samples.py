"""The samples of a benchmark on a page: what became of them, and their gallery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from uni_train.eval.benchmark import OUTCOMES, Scored, Table
from uni_train.eval.report.gallery import build
from uni_train.eval.report.page import Section

if TYPE_CHECKING:
    from uni_train.eval.evaluation import Result

OUTCOME_NAMES = {name: name.replace("_", " ") for name in OUTCOMES} | {
    "pass": "right", "fail": "wrong", "generation_failed": "no image", "no_skill": "no such skill",
    "unparseable": "judge unparseable", "unjudged": "not judged",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One benchmark on a page.

    Attributes:
        moments: name ("before", "after"; "" where there is one) -> its samples, in the order of asking.
        settings, sets: in the order of tables.
        scores: setting -> set -> estimate. Where it has none, the share of samples that passed is shown.
        without_score: (setting, set) pairs that are left out of the plots.
    """

    name: str
    moments: Mapping[str, Sequence[Scored]]
    tables: Sequence[Table] = ()
    settings: Sequence[str] = ()
    sets: Sequence[str] = ()
    questions: str = ""
    scores: Mapping[str, Any] = field(default_factory=dict)
    without_score: Collection[tuple[str, str]] = ()

    @classmethod
    def from_result(cls, result: Result, moments: Mapping[str, Sequence[Scored]]) -> Part:
        return cls(result.name, moments, result.tables, result.settings, result.sets, result.questions, result.scores,
                   result.without_score)  # fmt: skip


def gallery_of(parts: Sequence[Part], text: str, **limits: Any) -> Section:
    """The samples of all parts; empty without samples. limits: as in `build`."""
    gallery = build({part.name: part.moments for part in parts}, **limits)
    if len(gallery.cards) < gallery.total:
        text += f" Shown are {len(gallery.cards):,} of {gallery.total:,}: whole cases, chosen by a hash and not by how "
        text += "they turned out."
    if left_out := sum(answer.get("left_out", 0) for card in gallery.cards for answer in card["answers"].values()):
        text += f" {left_out:,} images did not fit into the page."
    if not gallery.cards:
        return Section("Gallery")
    shown = {"gallery": gallery, "moments": list(parts[0].moments), "names": OUTCOME_NAMES}
    return Section("Gallery", text, body="gallery.html", shown=shown, script="gallery.js")


def outcomes_of(part: Part) -> Section:
    """How many samples ended in what, and why they are not right; empty without samples."""
    cells = {
        (moment, setting): [answer for answer in scored if answer.sample.ask.setting == setting]
        for setting in part.settings
        for moment, scored in part.moments.items()
    }
    cells = {cell: scored for cell, scored in cells.items() if scored}
    causes = {cell: Counter(row.cause for row in some if not row.passed and row.cause) for cell, some in cells.items()}
    rows: list[dict[str, Any]] = []
    for name in part.sets:
        for (moment, setting), some in cells.items():
            counts = Counter(answer.outcome for answer in some if answer.sample.ask.case.set == name)
            if counts:
                wanted = {"set": name, "setting": setting, "moment": moment}
                links = [(outcome, counts[outcome], link(part.name, **wanted, verdict=outcome)) for outcome in OUTCOMES
                         if counts[outcome]]  # fmt: skip
                rows.append({"set": name, "setting": _cell_name(moment, setting), "n": counts.total(), "cells": links})
    return Section(
        f"{part.name}: what became of the samples, and why",
        "Nothing is dropped: what failed on the way counts as not right, under its own name. Every count leads to its "
        "samples.",
        questions=part.questions,
        id=f"outcomes-{part.name}",
        body="outcomes.html" if cells else "",
        shown={
            "columns": [_cell_name(*cell) for cell in cells],
            "causes": [
                {
                    "name": cause,
                    "total": (total, link(part.name, cause=cause) if len(part.moments) == 1 else ""),
                    "cells": [
                        (counts[cause], link(part.name, setting=setting, moment=moment, cause=cause))
                        for (moment, setting), counts in causes.items()
                    ],
                }
                for cause, total in sum(causes.values(), Counter()).most_common()
            ],
            "outcomes": rows,
            "names": OUTCOME_NAMES,
        },
    )


def _cell_name(moment: str, setting: str) -> str:
    return ", ".join(filter(None, (setting, moment)))


def link(benchmark: str, **wanted: str) -> str:
    """The address within the page at which the gallery shows the samples that are `wanted`."""
    return "#gallery?" + urlencode({"benchmark": benchmark, **{key: value for key, value in wanted.items() if value}})
