"""The report of an evaluation: tables of its benchmarks, causes of failures, and the samples behind each count.

Like a run's report (`eval.report.page`) it is one file without network requests, and replies of models and judges are
escaped. Images are in blocks, which the script reads when their page of the gallery is shown. So the page opens
quickly with thousands of samples.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from uni_train.data_gen.reading_limits import read_json
from uni_train.data_gen.seeds import derive_seed
from uni_train.eval.benchmark import OUTCOMES, Scored, Table
from uni_train.eval.images import Image, bytes_of, digest_of
from uni_train.eval.report import page
from uni_train.eval.report.charts import COLOURS, Dots, dots
from uni_train.eval.report.gallery import data_url, thumbnail
from uni_train.eval.report.tables import shown_table
from uni_train.eval.results import Results, unit_of
from uni_train.eval.statistics import Estimate

if TYPE_CHECKING:
    from uni_train.eval.evaluation import Evaluation, Result

REPORT = "report.html"
IMAGE_BUDGET = 12_000_000  # bytes of images in the page, as base64: some 2,500 of a large model
MOST_CARDS = 6_000
_BLOCK = 48  # images that are read at once
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


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark's share of an evaluation.

    scores: setting -> set -> Estimate.to_dict(), as `Benchmark.scores` gives it; where a cell is missing the share of
    samples that passed is shown. scored: every sample; its images may be b"". pictures: the same samples in the same
    order, with their images. without_score: (setting, set) pairs of which no share is shown. questions: what
    was asked (`Benchmark.questions`).
    """

    name: str
    revision: str
    settings: tuple[str, ...]
    sets: tuple[str, ...]
    tables: Sequence[Table]
    scores: Mapping[str, Any]
    scored: Sequence[Scored]
    pictures: Callable[[], Iterable[Scored]]
    without_score: Collection[tuple[str, str]] = ()
    questions: str = ""


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
    parts = [
        Part(
            name,
            result.revision,
            result.settings,
            result.sets,
            result.tables,
            result.scores,
            list(evaluation.scored(name)),
            partial(evaluation.scored, name, images=True),
            result.without_score,
            result.questions,
        )
        for name, result in evaluation.results.items()
    ]
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
    cards, blocks, total = gallery(parts)
    context = {
        "header": header,
        "asked": json.dumps(header.asked, indent=2, ensure_ascii=False, default=str) if header.asked else "",
        "parts": [_part(part) for part in parts],
        "cards": cards,
        "blocks": blocks,
        "total": total,
        "pictures_left_out": sum(card.get("left_out", 0) for card in cards),
        "outcome_names": OUTCOME_NAMES,
    }
    return page.write_page(path, "evaluation.html", context, ("style.css", "evaluation.css"), "evaluation.js")


# --- tables, outcomes, causes, charts -------------------------------------------------------------------------------


def _part(part: Part) -> dict[str, Any]:
    settings = [name for name in part.settings if any(one.sample.ask.setting == name for one in part.scored)]
    causes = Counter((one.cause, one.sample.ask.setting) for one in part.scored if one.outcome != "pass" and one.cause)
    names = [name for name, _ in Counter({name: 0 for name, _ in causes} | _summed(causes)).most_common()]
    return {
        "name": part.name,
        "revision": part.revision,
        "questions": part.questions,
        "settings": settings,
        "tables": [shown_table(table) for table in part.tables],
        "charts": charts(part),
        "outcomes": _outcomes(part, settings),
        "causes": [
            {
                "name": name,
                "cells": [(causes[name, s], link(part.name, setting=s, cause=name)) for s in settings],
                "total": (sum(causes[name, s] for s in settings), link(part.name, cause=name)),
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
                (outcome, found[outcome], link(part.name, set=name, setting=setting, verdict=outcome))
                for outcome in OUTCOMES
                if found[outcome]
            ],
        }
        for name in part.sets
        for setting in settings
        if (found := counts.get((name, setting), Counter()))
    ]


def charts(part: Part) -> list[Dots]:
    """Accuracy by set, and by category within each set that has several."""
    asked = {one.sample.ask.setting for one in part.scored}
    colours = {name: i % COLOURS + 1 for i, name in enumerate(name for name in part.settings if name in asked)}
    every = Results(map(unit_of, part.scored))
    sets = every.where(lambda unit: (unit.setting, unit.set) not in part.without_score).by("set", part.sets)
    by_set = {
        name: {setting: _headline(part.scores, setting, name) or found for setting, found in _shares(some).items()}
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


# --- gallery --------------------------------------------------------------------------------------------------------


def gallery(parts: Sequence[Part]) -> tuple[list[dict[str, Any]], list[list[str]], int]:
    """The cards in reading order, their images in blocks, and how many samples there are in all.

    Beyond MOST_CARDS whole cases are left out, and beyond IMAGE_BUDGET images, both by a hash of the case and not by
    how it turned out. Equal images are stored once; no more than one sample's are in memory at a time.
    """
    sizes = Counter(_case(part, one) for part in parts for one in part.scored)
    pictured = Counter({_case(part, one): 0 for part in parts for one in part.scored})
    for part in parts:
        for one in part.scored:
            pictured[_case(part, one)] += len(_pictures(one))
    ranked = sorted(sizes, key=lambda case: derive_seed("gallery", *case))
    shown = _within(ranked, sizes, MOST_CARDS)
    with_pictures = _within([case for case in ranked if case in shown], pictured, _room(parts))
    shelf = _Shelf()
    cards = [
        _card(part, one, shelf if _case(part, one) in with_pictures else None)
        for part in parts
        for one in part.pictures()
        if _case(part, one) in shown
    ]
    return cards, shelf.blocks, sum(len(part.scored) for part in parts)


class _Shelf:
    """The images of the page, each once."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, image: Image) -> int:
        """Where the image is."""
        digest = digest_of(image)
        if digest not in self._places:
            self._found.append(data_url(bytes_of(image)))
            self._places[digest] = len(self._found) - 1
        return self._places[digest]

    @property
    def blocks(self) -> list[list[str]]:
        return [self._found[i : i + _BLOCK] for i in range(0, len(self._found), _BLOCK)]


def _within(cases: Sequence[tuple[str, str]], sizes: Mapping[tuple[str, str], int], most: int) -> set[tuple[str, str]]:
    """The first cases that together have at most `most`; one at least."""
    found: set[tuple[str, str]] = set()
    for case in cases:
        most -= sizes[case]
        if most < 0 and found:
            break
        found.add(case)
    return found


def _room(parts: Sequence[Part]) -> int:
    """How many images fit, by the size of the first ones."""
    first: Iterator[Image] = (image for part in parts for one in part.pictures() for image in _pictures(one))
    sizes = [len(thumbnail(bytes_of(image))[1]) * 4 / 3 for image, _ in zip(first, range(_BLOCK), strict=False)]
    return round(IMAGE_BUDGET / (sum(sizes) / len(sizes))) if sizes else 0


def _pictures(one: Scored) -> list[Image]:
    case = one.sample.ask.case
    return [*case.images, *case.references, *one.sample.drawn[-1:]]


def _case(part: Part, one: Scored) -> tuple[str, str]:
    return part.name, one.sample.ask.case.id


def _card(part: Part, one: Scored, shelf: _Shelf | None) -> dict[str, Any]:
    """A sample as evaluation.js shows it; what is empty is left out. shelf: None leaves its images out."""
    sample, case = one.sample, one.sample.ask.case
    checks = [] if one.verdict is None else one.verdict.checks
    card: dict[str, Any] = {
        "benchmark": part.name,
        "id": case.id,
        "set": case.set,
        "category": case.category,
        "setting": sample.ask.setting,
        "k": sample.ask.k,
        "prompt": case.prompt,
        "refined": sample.prompt if sample.prompt != case.prompt else "",
        "facts": _plain(case.facts),
        "remarks": _plain(sample.facts),
        "thought": sample.thought,
        "text": sample.text,
        "given": [shelf.place(image) for image in case.images] if shelf else [],
        "references": [shelf.place(image) for image in case.references] if shelf else [],
        "image": shelf.place(sample.drawn[-1]) if shelf and sample.drawn else None,
        "outcome": one.outcome,
        "cause": one.cause,
        "note": sample.note,
        "checks": [[check.name, check.status, check.reason] for check in checks],
        "by": one.by if one.verdict is not None or one.failure else "",
        "replies": list(one.replies),
        "left_out": len(_pictures(one)) if shelf is None else None,
    }
    return {key: value for key, value in card.items() if value is not None and value not in ("", [], {})}


def _plain(facts: Mapping[str, Any]) -> dict[str, str]:
    """For showing: a line a fact, without the parts that no person reads."""
    return {
        str(key): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in facts.items()
        if value not in (None, "", [], {})
    }
