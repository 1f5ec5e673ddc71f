"""`summary.json`, a run in numbers, and the paper's tables on the console.

The first seven keys are a contract, and nothing else is inside `scores` and its estimates:

    recipe, model, seed, wall_seconds, peak_rss_bytes,
    scores: {before, after: {normal, cot: {math1 .. mapping3: {value, n, low, high}}}}, and further sets if asked, and
            `said` beside normal and cot where evaluation.modes has it,
    rounds: [{task, level, sampled, kept, precision, recall, updates, seconds, ...}],

and then, for the report: questions (as `Benchmark.questions` says it), after_round {round1: {normal: {...}}}, average,
per_image, one_of_two, statuses, changes, chance, strategies {math1: [{name, value, n, low, high, chance, note}, ...]}:
what trivial strategies reach, the best first. An estimate also has `distinct` where fewer expressions (or sets of
rules) than n were asked.

It is a view of the scored samples of the run's evaluations: `build` counts them as `eval` does, `write` writes, the
tables only format what is in the summary.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uni_train.data_gen.audit.shortcuts import chances
from uni_train.data_gen.reading_limits import read_json, reason
from uni_train.data_gen.registry import TASKS
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored, generated_questions
from uni_train.eval.benchmarks import unisandbox
from uni_train.eval.benchmarks.unisandbox import counting
from uni_train.eval.benchmarks.unisandbox.sets import all_sets
from uni_train.eval.results import Results, plain
from uni_train.eval.shortcuts import Trivial, best, counted
from uni_train.eval.statistics import Estimate, share
from uni_train.files import atomic_write_json

_ROUND_LABEL = re.compile(r"round([1-9]\d*)")
_PAPER = {"mapping": " (paper, Table 3)", "maths": " (paper, Table 2)"}


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far a filter can be trusted, measured against the exact verifier.

    precision: of the `kept` samples, the share that is right. recall: of the `correct` samples, the share that was
    kept. acceptance: of all samples, the share that was kept.
    """

    precision: Estimate
    recall: Estimate
    acceptance: Estimate
    n: int
    kept: int
    correct: int


def filter_reliability(
    accepted: Sequence[bool], correct: Sequence[bool], clusters: Sequence[Hashable] | None = None
) -> Reliability:
    """Precision, recall and acceptance of `accepted[i]` (the filter's judgement) against `correct[i]` (the verifier).

    clusters: what dependent samples share: the candidates of a prompt, the two of a mapping pair; None: each is alone.
    Intervals as in `eval.statistics.share`. Nothing kept, or nothing right, gives an estimate without a value. Raises
    ValueError when the lengths differ.
    """
    rows = list(zip(accepted, correct, range(len(accepted)) if clusters is None else clusters, strict=True))
    kept = [(right, cluster) for keeps, right, cluster in rows if keeps]
    right = [(keeps, cluster) for keeps, right, cluster in rows if right]
    asked = [(keeps, cluster) for keeps, _, cluster in rows]
    precision, recall, acceptance = (
        share([hit for hit, _ in some], range(len(some)), [cluster for _, cluster in some])
        for some in (kept, right, asked)
    )
    return Reliability(precision, recall, acceptance, len(rows), len(kept), len(right))


@dataclass(frozen=True, slots=True)
class Round:
    """One round of STARS: what was sampled, what the filter kept and how reliably, and how long training took.

    task: "maths", "mapping" or, where a round mixes them, "maths+mapping". level: the one level, or e.g. "1+2+3".
    sampled, kept: images. reliability: of the filter against the verifier, None where no verifier can read the images.
    calls: what the round asked of models: "thoughts", "answers" by which it filters, finished "images", "velocities" of
    the teacher (a guided one counts once), and, in think-distillation, "rollout": of the student on its own way.
    """

    task: str
    level: int | str
    sampled: int
    kept: int
    updates: int
    seconds: float
    reliability: Reliability | None = None
    filter: str = "self"
    calls: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        precision = self.reliability.precision if self.reliability else None
        recall = self.reliability.recall if self.reliability else None
        return {
            "task": self.task,
            "level": self.level,
            "sampled": self.sampled,
            "kept": self.kept,
            "precision": precision.value if precision else None,
            "recall": recall.value if recall else None,
            "updates": self.updates,
            "seconds": self.seconds,
            "filter": self.filter,
            "calls": dict(self.calls),
            "precision_estimate": precision.to_dict() if precision else None,
            "recall_estimate": recall.to_dict() if recall else None,
            "acceptance_estimate": self.reliability.acceptance.to_dict() if self.reliability else None,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A row of Table 2 or 3: six accuracies, their average, and how far it lies above the base."""

    name: str
    normal: tuple[Estimate | None, ...]
    cot: tuple[Estimate | None, ...]
    average: Estimate | None
    delta: float | None


def build(
    *,
    recipe: str,
    model: str,
    seed: int,
    wall_seconds: float,
    peak_rss_bytes: int,
    evaluations: Mapping[str, Iterable[Scored]],
    rounds: Sequence[Round] = (),
) -> dict[str, Any]:
    """The summary of a run.

    evaluations: label -> its samples, labels "before", "round1", "round2", ..., "after". "after" may be left out:
    then the last round is taken for it. A run without training has "before" only; its `after` is empty. Raises
    ValueError for other labels or when "before" is missing.
    """
    results = {label: list(samples) for label, samples in evaluations.items()}
    unknown = [label for label in results if label not in ("before", "after") and not _ROUND_LABEL.fullmatch(label)]
    if unknown or "before" not in results:
        raise ValueError(f"evaluations must be before, round1, round2, ..., after; got {', '.join(results) or 'none'}")
    round_labels = sorted((label for label in results if label.startswith("round")), key=_round_number)
    if "after" not in results:
        results["after"] = results[round_labels[-1]] if round_labels else []

    asked = [one.sample.ask.case.facts for one in results["before"]]
    units = {label: counting.units(found, "official") for label, found in results.items()}
    named = list(units["before"].by("set", all_sets()))

    def each(value: Any, labels: Sequence[str] = ("before", "after")) -> dict[str, Any]:
        return {label: plain(_asked(counting.by_cell(units[label], value))) for label in labels}

    summary: dict[str, Any] = {
        "recipe": recipe,
        "model": model,
        "seed": seed,
        "wall_seconds": round(wall_seconds, 3),
        "peak_rss_bytes": int(peak_rss_bytes),
        "scores": each(counting.accuracy),
        "rounds": [entry.to_dict() for entry in rounds],
        "after_round": each(counting.accuracy, round_labels),
        "average": {
            label: {
                _key(task, variant): counting.average(units[label], task, variant).to_dict()
                for task, variant in _parts(named)
            }
            for label in ("before", *round_labels, "after")
            if results[label]
        },
        "per_image": each(counting.per_image),
        "one_of_two": {
            label: plain(_asked(counting.by_cell(units[label], counting.one_of_two, sets=counting.pairs_of(named))))
            for label in ("before", "after")
        },
        "statuses": each(_statuses),
        "changes": plain(counting.compare(units["before"], units["after"])) if results["after"] else {},
        "chance": chances(),
        "strategies": {
            name: [one.to_dict() for one in found]
            for name, found in counting.strategies(results["before"], "official", named).items()
        },
        "questions": generated_questions("+".join(sorted({str(facts["world"]) for facts in asked}))),
        "split": "+".join(sorted({str(facts["item"]["split"]) for facts in asked})),
    }
    return summary


def write(run_dir: Path, summary: Mapping[str, Any]) -> Path:
    """Write run_dir/summary.json, atomically. Raises UserError when the file cannot be written."""
    path = Path(run_dir) / "summary.json"
    try:
        atomic_write_json(path, summary)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error})", "Check the folder and the disk."
        ) from error
    return path


def read(run_dir: Path) -> dict[str, Any]:
    """The summary of a finished run. Raises UserError when it is missing, damaged or lacks a key of the contract."""
    path = Path(run_dir) / "summary.json"
    try:
        summary = read_json(path)
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: there is no summary yet", "It is written when the run ends: run its command again."
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read ({reason(error)})", "Delete it and run the same command again."
        ) from error
    contract = ("recipe", "model", "seed", "wall_seconds", "peak_rss_bytes", "scores", "rounds")
    absent = [key for key in contract if not isinstance(summary, dict) or key not in summary]
    if absent:
        raise UserError(f"{path}: lacks {', '.join(absent)}", "Delete it and run the same command again.")
    odd = [key for key, kind in _KINDS.items() if key in summary and not _is(summary[key], kind)]
    odd += ["rounds"] if "rounds" not in odd and not all(isinstance(one, dict) for one in summary["rounds"]) else []
    if odd:
        raise UserError(f"{path}: {odd[0]} is not what a run writes there", "Delete it and run the same command again.")
    return summary


_SECTIONS = ("after_round", "average", "changes", "one_of_two", "per_image", "scores", "statuses", "strategies")
_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("wall_seconds", "peak_rss_bytes"), int | float), **dict.fromkeys(_SECTIONS, dict), "rounds": list,
}  # fmt: skip
"""What values of a summary are, at its top."""


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _parts(sets: Iterable[str]) -> list[tuple[str, str]]:
    """(task, variant) of the tables: both tasks of the paper, then the other tasks and the variants among `sets`."""
    known = unisandbox.sources()
    asked = sorted({(known[name].variant, known[name].task) for name in sets})
    return list(dict.fromkeys([*((task, "") for task in _PAPER), *((task, variant) for variant, task in asked)]))


def _key(task: str, variant: str) -> str:
    return f"{task}_{variant}" if variant else task


@dataclass(frozen=True, slots=True)
class Scores:
    """What a table shows. task, variant: as in `data_gen.registry.Source`. trivial: the best strategy of a set."""

    task: str
    variant: str
    title: str
    columns: tuple[str, ...]
    rows: list[Row]
    trivial: list[Trivial | None]


def score_tables(summary: Mapping[str, Any]) -> Iterator[Scores]:
    """The tables of what was evaluated: mapping, maths, then the sets beside the six."""
    asked = {name for scores in summary["scores"].values() for by_set in scores.values() for name in by_set}
    for task, variant in _parts(asked):
        about = TASKS.get(task)
        title = about.title + (f": {about.variants[variant].said}" if variant else _PAPER.get(task, ""))
        columns = tuple(f"{about.short}{level}" for level in about.sets)
        found = rows(summary, task, variant)
        if found:
            sets = [unisandbox.set_name(task, level, variant) for level in about.sets]
            yield Scores(task, variant, title, columns, found, [trivial(summary, name) for name in sets])


def rows(summary: Mapping[str, Any], task: str, variant: str = "") -> list[Row]:
    """The table of one task: the base, then the model after each round; empty when the task was not evaluated."""
    labelled = [("before", str(summary["model"]), summary["scores"].get("before") or {})]
    later = dict(summary.get("after_round") or {})
    names = {label: f"after round {_round_number(label)}" for label in sorted(later, key=_round_number)}
    after = summary["scores"].get("after") or {}
    # The last round is evaluated under the label "after" only; without its own number it is simply the end.
    number = len(summary["rounds"])
    if after and not (f"round{number}" in later or (not number and after in later.values())):
        later["after"] = after
        names["after"] = f"after round {number}" if number == len(names) + 1 else "after"
    labelled += [(label, name, later[label]) for label, name in names.items()]

    table: list[Row] = []
    sets = [unisandbox.set_name(task, level, variant) for level in TASKS.get(task).sets]
    for label, name, scores in labelled:
        cells = {
            setting: tuple(_estimate(scores.get(setting, {}).get(set_name)) for set_name in sets)
            for setting in unisandbox.SETTINGS
        }
        mean = _estimate((summary.get("average") or {}).get(label, {}).get(_key(task, variant)))
        delta = None
        if table and mean and mean.value is not None and table[0].average and table[0].average.value is not None:
            delta = mean.value - table[0].average.value
        table.append(Row(name, cells["normal"], cells["cot"], mean, delta))
    return table if any(cell for row in table for cell in row.normal + row.cot) else []


def trivial(summary: Mapping[str, Any], name: str) -> Trivial | None:
    """The best trivial strategy on a set, whose estimate also says how much was asked; None in an older summary."""
    return best([Trivial.from_dict(raw) for raw in (summary.get("strategies") or {}).get(name, ())])


Printed = tuple[str, list[str], list[list[str]], str]
"""Title, columns, rows and note of a table, for a progress that prints it."""


def console_tables(summary: Mapping[str, Any]) -> Iterator[Printed]:
    """Tables in the paper's layout (mapping: Table 3, maths: Table 2) for what was evaluated, and the rounds.

    Below the model's rows: the best trivial strategy, chance, and how much was asked. They fit into 80 columns with
    their intervals.
    """
    for shown in score_tables(summary):
        task, body, plain = shown.task, shown.rows, shown.trivial
        n = " or ".join(str(n) for n in sorted({cell.n for row in body for cell in row.normal + row.cot if cell}))
        about = TASKS.get(task)
        units = f"{'pairs, both right' if about.items_per_draw == 2 else 'prompts'}; {about.guess}"
        named = ", ".join(
            f"{column} {strategy.name}" for column, strategy in zip(shown.columns, plain, strict=True) if strategy
        )
        rows = [
            [
                row.name.removeprefix("after "),
                *map(_cell, (*row.normal, *row.cot)),
                _cell(row.average) + ("" if row.delta is None else f"\n{round(row.delta, 2) + 0.0:+.2f}"),
            ]
            for row in body
        ]
        if named:
            rows.append(["trivial", *[_cell(strategy.estimate if strategy else None) for strategy in plain] * 2])
            rows.append(["chance", *[f"{about.chance:.2f}"] * 2 * len(shown.columns)])
            rows.append(["n / distinct", *[counted(one.estimate) if one else "-" for one in plain] * 2])
        columns = ["Model", *(f"{setting} {name}" for setting in ("Normal", "CoT") for name in shown.columns)]
        columns += ["Average, change"]
        note = f"Below: 95 % intervals. n = {n} {units} gives {about.chance:.2f}."
        note += f" Trivial strategies: {named}." if named else ""
        filled = [row + [""] * (len(columns) - len(row)) for row in rows]
        yield _titled(shown.title, summary), columns, filled, note
    if any(unisandbox.SAID in scores for scores in summary["scores"].values()):
        found = {when: by_setting.get(unisandbox.SAID, {}) for when, by_setting in summary["scores"].items()}
        names = [
            n for n in dict.fromkeys([*unisandbox.SETS, *unisandbox.sources()]) if any(n in by for by in found.values())
        ]
        rows = [[when, *(_cell(_estimate(by.get(name))) for name in names)] for when, by in found.items() if by]
        title = _titled("Said: the right answer in words at once, nothing drawn", summary)
        yield title, ["When", *names], rows, "Below: 95 % intervals."
    if summary["rounds"]:
        columns = ["Round", "Task, level", "Sampled", "Kept", "Precision", "Recall", "Updates", "Seconds"]
        rows = [
            [
                str(number),
                f"{entry['task']}, {entry['level']}",
                str(entry["sampled"]),
                f"{entry['kept']}\n{entry['kept'] / entry['sampled']:.0%}" if entry["sampled"] else "0",
                _reliability_cell(entry, "precision"),
                _reliability_cell(entry, "recall"),
                str(entry["updates"]),
                f"{entry['seconds']:.0f}",
            ]
            for number, entry in enumerate(summary["rounds"], 1)
        ]
        yield "Rounds: what the filter kept, against the exact verifier", columns, rows, "Below: 95 % intervals."


def _titled(title: str, summary: Mapping[str, Any]) -> str:
    """With what was asked below."""
    return f"{title}\n{summary.get('questions', '')}".rstrip()


def _reliability_cell(entry: Mapping[str, Any], name: str) -> str:
    estimate = _estimate(entry.get(f"{name}_estimate"))
    if estimate is not None:
        return _cell(estimate, digits=3)
    return "-" if entry[name] is None else f"{entry[name]:.3f}"


def _cell(estimate: Estimate | None, digits: int = 2) -> str:
    if estimate is None or estimate.value is None:
        return "-"
    low, high = (_short(end, digits) for end in (estimate.low, estimate.high))
    return f"{estimate.value:.{digits}f}\n{low}-{high}"


def _short(value: float, digits: int) -> str:
    """.25 and 1.0, so that eight columns of intervals fit beside each other."""
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0") else text[: digits + 1]


def _estimate(raw: Mapping[str, Any] | None) -> Estimate | None:
    return None if raw is None else Estimate.from_dict(raw)


def _round_number(label: str) -> int:
    found = _ROUND_LABEL.fullmatch(label)
    if found is None:
        raise ValueError(f"{label} is no label of a round (round1, round2, ...)")
    return int(found[1])


def _asked(by_setting: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Without the settings that were not asked."""
    return {setting: dict(by_set) for setting, by_set in by_setting.items() if by_set}


def _statuses(some: Results) -> dict[str, Estimate]:
    """Shares of what became of the images; of the rarer outcomes those that occurred."""
    shares = counting.outcome_shares(some)
    return {name: one for name, one in shares.items() if one.value or name in ("pass", "fail", "unreadable")}
