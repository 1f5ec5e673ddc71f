"""Pages of evaluations: tables, what became of the samples and why, and the samples behind each count.

A page has a part (samples.py) for each benchmark. Its samples stand alone, or several moments of them beside each
other: before and after a training, or two evaluations.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.reading_limits import read_json
from uni_train.eval.report.charts import COLOURS, Dots, dots
from uni_train.eval.report.page import Page, Section, about, write_page
from uni_train.eval.report.samples import Part, gallery_of, outcomes_of
from uni_train.eval.results import Results, unit_of
from uni_train.eval.statistics import Estimate

if TYPE_CHECKING:
    from uni_train.eval.compare import Comparison
    from uni_train.eval.evaluation import Evaluation, Result

REPORT = "report.html"
INTERVALS = (
    "95 % intervals are clustered by case or pair; comparisons have McNemar's exact test. A negative lower end marks a "
    "difference."
)


def report_of(evaluation: Evaluation) -> Path:
    """Write the report.html of a finished evaluation into its folder and return its path.

    Raises:
        UserError: it cannot be written. DamagedShard: a file of scored samples is not what was written.
    """
    asked, results = evaluation.asked, evaluation.results
    parts = [Part.from_result(result, {"": list(evaluation.scored(name))}) for name, result in results.items()]
    last = about(
        "About this evaluation",
        shlex.join(asked.get("command") or []),
        [*(f"{name}, revision {result.revision}" for name, result in results.items()), INTERVALS],
        json.dumps(asked, indent=2, ensure_ascii=False, default=str),
    )
    page = header_of(evaluation)
    return write_page(evaluation.folder / REPORT, replace(page, sections=[*sections_of(parts), last]))


def header_of(evaluation: Evaluation) -> Page:
    """The head of its page: model, judge, seed and notes."""
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
            sets = ", ".join(f"{set_name} ({setting})" for setting, set_name in result.unjudged)
            notes.append(
                f"{name}: no score for {sets}: no program can check these images, and no judge was given. "
                "Add judge.model=MODEL; nothing is generated again."
            )
        notes += [f"{name}: {remark}" for remark in not_scored(result)]
    if "redraw" in asked["options"]:
        from uni_train.eval.report.redraw import costs

        notes += costs(evaluation)
    notes += judge_notes(evaluation)
    return Page(title=f"{', '.join(evaluation.results)} · {evaluation.model}", facts=facts, notes=notes)


def not_scored(result: Result) -> list[str]:
    """A sentence for each reason for which sets of a benchmark have no score though they were asked."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for setting, name, why in result.not_scored:
        reasons[why].append(f"{name} ({setting})")
    return [f"not scored: {why}: {', '.join(cells)}" for why, cells in reasons.items()]


def without_number(evaluation: Evaluation) -> str:
    """Why no benchmark of an evaluation has a score, and which lack it for what reason; "" where any set has one."""
    reasons: dict[str, dict[str, None]] = defaultdict(dict)
    for name, result in evaluation.results.items():
        if any(
            (setting, set_name) not in result.without_score
            for setting, sets in result.outcomes.items()
            for set_name in sets
        ):
            return ""
        whys = [*(why for *_, why in result.no_skill), *["images that no program can check"] * bool(result.unjudged)]
        for why in whys:
            reasons[why][name] = None
    return "; ".join(f"{why} ({', '.join(names)})" for why, names in reasons.items())


def judge_notes(evaluation: Evaluation) -> list[str]:
    """The judge of each benchmark, its calibration and its cost: one sentence a benchmark."""
    notes = []
    for name, result in evaluation.results.items():
        if result.judge is None:
            continue
        from uni_train.eval.judges.agreement import sentence_of

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
    parts = []
    for file in (folder / "judge" / "record.json", *sorted(folder.glob("small/*/judge/record.json"))):
        try:
            parts += list(read_json(file)["parts"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return parts


# --- sections -------------------------------------------------------------------------------------------------------


def sections_of(
    parts: Sequence[Part],
    text: str = "Every sample with what was asked, what came back and what was made of it.",
    **limits: Any,
) -> Iterator[Section]:
    """Scores and outcomes of each part, then the gallery of all. text: above the gallery. limits: as in `build`."""
    for part in parts:
        yield _scores(part)
        yield outcomes_of(part)
    yield gallery_of(parts, text, **limits)


def _scores(part: Part) -> Section:
    samples = [answer for scored in part.moments.values() for answer in scored]
    judges = Counter(sample.by for sample in samples if sample.verdict is not None)
    by = f"; verdicts by {', '.join(f'{judge} ({count:,})' for judge, count in sorted(judges.items()))}"
    note = "Whiskers: 95 % intervals. By category: the share of samples that are right."
    plots = charts(part) if len(part.moments) == 1 else []
    return Section(
        part.name, f"{len(samples):,} samples{by if judges else ''}.", part.tables, plots, note=note if plots else "",
        questions=part.questions, id=f"scores-{part.name}",
    )  # fmt: skip


def charts(part: Part) -> list[Dots]:
    """Accuracy by set, and by category within each set that has several."""
    every = Results(unit_of(answer) for scored in part.moments.values() for answer in scored)
    there = every.by("setting")
    colours = {name: i % COLOURS + 1 for i, name in enumerate(part.settings) if name in there}
    sets = every.where(lambda unit: (unit.setting, unit.set) not in part.without_score).by("set", part.sets)
    by_set = {
        name: {s: _headline(part.scores, s, name) or share for s, share in _shares(some).items()}
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
    score = scores.get(setting)
    cell = score.get(name) if isinstance(score, Mapping) else None
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
    first, second = comparison.names
    flips = Counter(flip.direction for flip in comparison.flips)
    text = "Every sample of both, those that flipped first."
    page = Page(
        title=f"{second} against {first}",
        lead=f"The same questions with the same seeds: {flips['wrong to right']:,} became right, "
        f"{flips['right to wrong']:,} are no longer right.",
        facts=[("First", str(comparison.first.folder)), ("Second", str(comparison.second.folder))],
        notes=comparison.notes,
        sections=[*sections_of(parts_of(comparison), text, cards=MOST_PAIRS, changed_first=True)],
    )
    return write_page(path, page)


def parts_of(comparison: Comparison) -> list[Part]:
    """The benchmarks that both have, with the tables of their differences."""
    both = dict(zip(comparison.names, (comparison.first, comparison.second), strict=True))
    benchmarks = dict.fromkeys(row.benchmark for row in comparison.rows)
    return [
        replace(
            Part.from_result(
                comparison.first.results[name], {who: list(evaluation.scored(name)) for who, evaluation in both.items()}
            ),
            tables=[table],
        )
        for name, table in zip(benchmarks, comparison.tables(), strict=True)
    ]
