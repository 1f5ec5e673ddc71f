"""The report of an evaluation: tables of its benchmarks, causes of failures, and the samples behind each count.

Like a run's report (`eval.report.page`) it is one file without network requests, and replies of models and judges are
escaped. Images are in blocks, which the script reads when their page of the gallery is shown. So the page opens
quickly with thousands of samples.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from uni_train.data_gen.reading_limits import read_json
from uni_train.eval.benchmark import OUTCOMES, Scored
from uni_train.eval.compare import names
from uni_train.eval.report import page
from uni_train.eval.report.charts import COLOURS, Dots, dots
from uni_train.eval.report.gallery import Gallery, Read, alone, beside, build
from uni_train.eval.report.tables import shown_table
from uni_train.eval.results import Results, unit_of
from uni_train.eval.statistics import Estimate

if TYPE_CHECKING:
    from uni_train.eval.compare import Comparison
    from uni_train.eval.evaluation import Evaluation, Result

REPORT = "report.html"
OUTCOME_NAMES = {
    "pass": "right",
    "fail": "wrong",
    "unreadable": "unreadable",
    "generation_failed": "no image",
    "no_skill": "no such skill",
    "not_extracted": "not extracted",
    "cue_missing": "cue missing",
    "judge_failed": "judge failed",
    "judge_blank": "judge blank",
    "judge_refused": "judge refused",
    "judge_filtered": "judge filtered",
    "unparseable": "judge unparseable",
    "missing": "missing",
    "unjudged": "not judged",
}


@dataclass(frozen=True)
class Part:
    """One benchmark's share of an evaluation: its result, and its samples.

    Where `result.scores` has no cell setting -> set, the share of samples that passed is shown.
    """

    result: Result
    read: Read

    @cached_property
    def scored(self) -> list[Scored]:
        """Every sample; its images may be b""."""
        return list(self.read(False))


@dataclass(frozen=True, slots=True)
class Header:
    """What stands above and below the results: facts (name, value), notes (whole sentences), and what was asked."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    command: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)


def report_of(evaluation: Evaluation) -> Path:
    """Write the report.html of a finished evaluation into its folder and return its path.

    Raises:
        UserError: it cannot be written. DamagedShard: a file of scored samples is not what was written.
    """
    parts = [Part(result, partial(evaluation.scored, name)) for name, result in evaluation.results.items()]
    return write_evaluation_report(evaluation.folder / REPORT, header_of(evaluation), parts)


def header_of(evaluation: Evaluation) -> Header:
    """Model, judge, seed and notes of an evaluation."""
    asked = evaluation.asked
    model, judge = asked["model"], asked.get("judge")
    samples = sum(result.n for result in evaluation.results.values())
    facts = [("Model", evaluation.model), ("Content", str(model["content"])[:16]), ("Samples", f"{samples:,}")]
    facts += [("Draws of each", str(asked["k"]))] if asked["k"] > 1 else []
    facts += [("Subset", f"about {asked['subset']} cases")] if asked["subset"] else []
    facts += [("Seed", str(asked["seed"])), ("Judge", str(judge["model"]) if judge else "none: programs alone")]
    facts += [("Started", str(asked["started"])[:16].replace("T", " "))]
    notes = []
    for name, result in evaluation.results.items():
        if result.unjudged:
            sets = ", ".join(f"{one} ({setting})" for setting, one in result.unjudged)
            notes.append(
                f"{name}: no score for {sets}: no program can check these images, and no judge was given. "
                "Add judge.model=MODEL; nothing is generated again."
            )
        notes += [f"{name}: {one}" for one in not_scored(result)]
    notes += judge_notes(evaluation)
    return Header(
        f"{', '.join(evaluation.results)} · {evaluation.model}",
        facts,
        notes,
        shlex.join(asked.get("command") or []),
        asked,
    )


def not_scored(result: Result) -> list[str]:
    """A sentence for each reason for which sets of a benchmark have no score though they were asked."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for setting, name, why in result.not_scored:
        reasons[why].append(f"{name} ({setting})")
    return [f"not scored: {why}: {', '.join(cells)}" for why, cells in reasons.items()]


def judge_notes(evaluation: Evaluation) -> list[str]:
    """The judge of each benchmark, its calibration and its cost: one sentence a benchmark."""
    from uni_train.eval.judges.agreement import sentence_of

    notes = []
    for name, result in evaluation.results.items():
        if result.judge is None:
            continue
        parts = [part for part in _judged_parts(evaluation.folder) if part["benchmark"] == name]
        tokens = sum(part["input_tokens"] + part["output_tokens"] for part in parts)
        dollars = [part["dollars"] for part in parts]
        cost = "" if None in dollars else f", {sum(dollars):.2f} dollars"
        asked = sum(part["questions"] for part in parts)
        by = result.judge.get("by", {})
        who = f" ({', '.join(f'{judge} {count:,}' for judge, count in by.items())})" if len(by) > 1 else ""
        about = sentence_of(result.judge["calibration"])
        judge = f"{result.judge['name']}{who}"
        notes.append(f"{name}: judged by {judge}. {about} It was asked {asked:,} questions, {tokens:,} tokens{cost}.")
    return notes


def _judged_parts(folder: Path) -> list[dict[str, Any]]:
    """Of all judges of an evaluation, what record.json says; [] where nothing had to be judged."""
    found = []
    for file in (folder / "judge" / "record.json", *sorted(folder.glob("small/*/judge/record.json"))):
        try:
            found += list(read_json(file)["parts"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def write_evaluation_report(path: Path, header: Header, parts: Sequence[Part]) -> Path:
    """Write the page to `path` and return it. Raises UserError where it cannot be written."""
    gallery = build({part.result.name: {"": part.read} for part in parts}, alone)
    context = {
        "header": header,
        "asked": json.dumps(header.asked, indent=2, ensure_ascii=False, default=str) if header.asked else "",
        "parts": [_part(part) for part in parts],
        "gallery": gallery,
        "pictures_left_out": sum(card.get("left_out", 0) for card in gallery.cards),
        "outcome_names": OUTCOME_NAMES,
    }
    return page.write_page(
        path, "evaluation.html", context, ("style.css", "evaluation.css"), ("paging.js", "evaluation.js")
    )


# --- tables, outcomes, causes, charts -------------------------------------------------------------------------------


def _part(part: Part) -> dict[str, Any]:
    result = part.result
    settings = [name for name in result.settings if any(one.sample.ask.setting == name for one in part.scored)]
    causes = Counter((one.cause, one.sample.ask.setting) for one in part.scored if one.outcome != "pass" and one.cause)
    names = [name for name, _ in Counter({name: 0 for name, _ in causes} | _summed(causes)).most_common()]
    return {
        "name": result.name,
        "revision": result.revision,
        "questions": result.questions,
        "settings": settings,
        "tables": [shown_table(table) for table in result.tables],
        "charts": charts(part),
        "outcomes": _outcomes(part, settings),
        "causes": [
            {
                "name": name,
                "cells": [(causes[name, s], link(result.name, setting=s, cause=name)) for s in settings],
                "total": (sum(causes[name, s] for s in settings), link(result.name, cause=name)),
            }
            for name in names
        ],
        "judged_by": sorted(Counter(one.by for one in part.scored if one.verdict is not None).items()),
        "n": len(part.scored),
    }


def _summed(causes: Mapping[tuple[str, str], int]) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for (name, _), count in causes.items():
        totals[name] += count
    return totals


def link(benchmark: str, **wanted: str) -> str:
    """The address within the page at which the gallery shows the samples that are `wanted`."""
    return "#gallery?" + urlencode({"benchmark": benchmark, **{key: value for key, value in wanted.items() if value}})


def _outcomes(part: Part, settings: Sequence[str]) -> list[dict[str, Any]]:
    """One row a set and setting: how many samples ended in what."""
    cells = Results(map(unit_of, part.scored)).by(lambda unit: (unit.set, unit.setting))
    counts = {cell: Counter(one.outcome for one in some.scored) for cell, some in cells.items()}
    return [
        {
            "set": name,
            "setting": setting,
            "n": found.total(),
            "cells": [
                (outcome, found[outcome], link(part.result.name, set=name, setting=setting, verdict=outcome))
                for outcome in OUTCOMES
                if found[outcome]
            ],
        }
        for name in part.result.sets
        for setting in settings
        if (found := counts.get((name, setting), Counter()))
    ]


def charts(part: Part) -> list[Dots]:
    """Accuracy by set, and by category within each set that has several."""
    asked = {one.sample.ask.setting for one in part.scored}
    colours = {name: i % COLOURS + 1 for i, name in enumerate(name for name in part.result.settings if name in asked)}
    every, without = Results(map(unit_of, part.scored)), part.result.without_score
    sets = every.where(lambda unit: (unit.setting, unit.set) not in without).by("set", part.result.sets)
    by_set = {
        name: {s: _headline(part.result.scores, s, name) or found for s, found in _shares(some).items()}
        for name, some in sets.items()
    }
    drawn = [dots("By set", by_set, colours)] if by_set else []
    for name, some in sets.items():
        categories = some.where(lambda unit: bool(unit.case.category)).by(lambda unit: unit.case.category)
        if len(categories) > 1:
            values = {category: _shares(categories[category]) for category in sorted(categories)}
            drawn.append(dots(f"{name}, by category", values, colours))
    return drawn


def _headline(scores: Mapping[str, Any], setting: str, name: str) -> Estimate | None:
    found = scores.get(setting)
    cell = found.get(name) if isinstance(found, Mapping) else None
    return (
        Estimate.from_dict(cell) if isinstance(cell, Mapping) and {"value", "n", "low", "high"} <= set(cell) else None
    )


def _shares(some: Results) -> dict[str, Estimate]:
    """setting -> the share of samples that passed, clustered by case where one was asked several times."""
    return {setting: part.mean(unit="cluster") for setting, part in some.by("setting").items()}


# --- two evaluations ------------------------------------------------------------------------------------------------

MOST_PAIRS = 1_000


def write_comparison(path: Path, comparison: Comparison) -> Path:
    """Write the page of two evaluations to `path` and return it: paired tables, and both answers, flips first.

    All samples that flipped are shown, and of the others so many as fit, chosen by a hash. Raises UserError where the
    page cannot be written, DamagedShard where a sample cannot be read.
    """
    gallery = pairs_of(comparison)
    first, second = names(comparison.first, comparison.second)
    context = {
        "first": first,
        "second": second,
        "folders": [str(comparison.first.folder), str(comparison.second.folder)],
        "tables": [shown_table(table) for table in comparison.tables()],
        "notes": comparison.notes,
        "flips": Counter(flip.direction for flip in comparison.flips),
        "gallery": gallery,
        "sets": list(dict.fromkeys(card["set"] for card in gallery.cards)),
        "settings": list(dict.fromkeys(card["setting"] for card in gallery.cards)),
        "outcome_names": OUTCOME_NAMES,
    }
    return page.write_page(
        path, "comparison.html", context, ("style.css", "evaluation.css"), ("paging.js", "gallery.js")
    )


def pairs_of(comparison: Comparison) -> Gallery:
    """The samples that both have, those whose own verdict flipped first."""
    both = {"before": comparison.first, "after": comparison.second}
    parts = {
        name: {moment: partial(one.scored, name) for moment, one in both.items()}
        for name in dict.fromkeys(row.benchmark for row in comparison.rows)
    }
    return build(parts, beside, MOST_PAIRS, together=lambda one: one.sample.identity,
                 first=lambda slot: slot["before"].passed != slot["after"].passed)  # fmt: skip
