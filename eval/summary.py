"""`summary.json`, a run in numbers, and the paper's tables of it.

The first seven keys are a contract, and nothing else is inside `scores` and its estimates:

    recipe, model, seed, wall_seconds, peak_rss_bytes,
    scores: {before, after: {normal, cot: {math1 .. mapping3: {value, n, low, high}}}}, and further sets if asked, and
            `said` beside normal and cot where evaluation.modes has it,
    rounds: [{task, level, sampled, kept, precision, recall, updates, seconds, ...}],

and then, for the report: questions (as `Benchmark.questions` says it), after_round {round1: {normal: {...}}}, average,
per_image, one_of_two, statuses, changes, chance, strategies {math1: [{name, value, n, low, high, chance, note}, ...]}:
what trivial strategies reach, the best first. An estimate also has `distinct` where fewer expressions (or sets of
rules) than n were asked.

It is a view of the scored samples of the run's evaluations: `build` counts them as `eval` does, before and after as
`eval compare`; `write` writes; `tables` only arranges what is in the summary (`eval.report.tables` prints it).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uni_train.data_gen.audit.shortcuts import chances
from uni_train.data_gen.reading_limits import read_json, reason
from uni_train.data_gen.registry import ENVIRONMENT, TASKS
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored, generated_questions, worlds_of
from uni_train.eval.benchmarks import unisandbox
from uni_train.eval.benchmarks.unisandbox import counting
from uni_train.eval.benchmarks.unisandbox.sets import all_sets
from uni_train.eval.results import Cell, Results, Table, changes, plain
from uni_train.eval.shortcuts import Trivial, best, counted
from uni_train.eval.statistics import Estimate, proportion, share, signed
from uni_train.files import atomic_write_json

_ROUND_LABEL = re.compile(r"round([1-9]\d*)")
_PAPER = {"mapping": " (paper, Table 3)", "maths": " (paper, Table 2)"}
_PUBLISHED = {"mapping": unisandbox.PAPER["Table 3"], "maths": unisandbox.PAPER["Table 2"]}


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

    asked = [one.sample.ask.case for one in results["before"]]
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
        "changes": plain(changes(units["before"], units["after"])),
        "chance": chances(),
        "strategies": {
            name: [one.to_dict() for one in found]
            for name, found in counting.strategies(results["before"], "official", named).items()
        },
        "questions": generated_questions(worlds_of(asked)),
        "split": "+".join(sorted({str(case.facts["item"]["split"]) for case in asked})),
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
    """(task, variant) of the tables: both tasks of the paper, then others. UserError: a set that is unknown."""
    known, sets = unisandbox.sources(), set(sets)
    if away := sorted(sets - known.keys()):
        raise UserError(
            f"the set {away[0]} is of a plug-in that is not here",
            f"Install the plug-in, or name its module in {ENVIRONMENT}.",
        )
    asked = sorted({(known[name].variant, known[name].task) for name in sets})
    return list(dict.fromkeys([*((task, "") for task in _PAPER), *((task, variant) for variant, task in asked)]))


def _key(task: str, variant: str) -> str:
    return f"{task}_{variant}" if variant else task


def score_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Row]]]:
    """Task, variant and rows of what was evaluated: mapping, maths, then the sets beside the six."""
    asked = {name for scores in summary["scores"].values() for by_set in scores.values() for name in by_set}
    for task, variant in _parts(asked):
        if found := rows(summary, task, variant):
            yield task, variant, found


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


def tables(summary: Mapping[str, Any], printed: bool = False) -> Iterator[Table]:
    """Tables in the paper's layout (mapping: Table 3, maths: Table 2), the answers in words, and the rounds.

    Below the model's rows: the best trivial strategy, chance, and how much was asked. printed: also the paper's rows.
    """
    for task, variant, found in score_rows(summary):
        yield _score_table(summary, task, variant, found, printed)
    if any(unisandbox.SAID in scores for scores in summary["scores"].values()):
        said = {when: by_setting.get(unisandbox.SAID, {}) for when, by_setting in summary["scores"].items()}
        known = dict.fromkeys([*unisandbox.SETS, *unisandbox.sources()])
        names = [name for name in known if any(name in by_set for by_set in said.values())]
        cells = [(when, *(_estimate(by_set.get(name)) for name in names)) for when, by_set in said.items() if by_set]
        title = "Said: the right answer in words at once, nothing drawn"
        yield Table(title, ("When", *names), tuple(cells), "95 % intervals.", str(summary.get("questions", "")))
    if summary["rounds"]:
        yield _round_table(summary["rounds"], str(summary.get("questions", "")))


def _score_table(summary: Mapping[str, Any], task: str, variant: str, found: Sequence[Row], printed: bool) -> Table:
    about, pairs = TASKS.get(task), TASKS.get(task).items_per_draw == 2
    names = [f"{about.short}{level}" for level in about.sets]
    leading = [trivial(summary, unisandbox.set_name(task, level, variant)) for level in about.sets]
    body: list[tuple[Cell, ...]] = [
        (row.name.removeprefix("after "), *row.normal, *row.cot, row.average, _change(row.delta)) for row in found
    ]
    body += [("chance", *[f"{about.chance:.2f}"] * (2 * len(names) + 1), "")]
    named = ", ".join(f"{name} {one.name}" for name, one in zip(names, leading, strict=True) if one)
    if named:
        body.append(("trivial", *[one.estimate if one else None for one in leading] * 2, "", ""))
        body.append(("n / distinct", *[counted(one.estimate) if one else None for one in leading] * 2, "", ""))
    n = " or ".join(str(n) for n in sorted({cell.n for row in found for cell in row.normal + row.cot if cell}))
    note = f"95 % intervals. n = {n} {'pairs, both right' if pairs else 'prompts'}; {about.guess} gives "
    note += f"{about.chance:.2f}. Averages and repeats are clustered by {'rules' if pairs else 'expression'}."
    note += f" Trivial strategies: {named}." if named else ""
    if theirs := _PUBLISHED.get(task, ()) if printed and not variant else ():
        body += _paper_rows(theirs)
        note += " The paper's model is BAGEL-7B, on other questions; its intervals are computed here from n = 100."
    title = about.title + (f": {about.variants[variant].said}" if variant else _PAPER.get(task, ""))
    columns = ("Model", *(f"{setting} {name}" for setting in ("Normal", "CoT") for name in names), "Average", "Change")
    return Table(title, columns, tuple(body), note, str(summary.get("questions", "")))


def _paper_rows(printed: Sequence[Mapping[str, str]]) -> Iterator[tuple[Cell, ...]]:
    """What the paper prints, which are shares of 100 pairs, and how far each average lies above the first."""
    for row in printed:
        scores = [float(row[f"{setting} {level}"]) for setting in unisandbox.SETTINGS for level in unisandbox.LEVELS]
        average = float(row["average"])
        change = None if row is printed[0] else average - float(printed[0]["average"])
        cells = (proportion(round(score * 100), 100) for score in scores)
        yield (f"{row['model']} in the paper", *cells, f"{average:.2f}", _change(change))


def _change(delta: float | None) -> str:
    return "" if delta is None else signed(delta)


def _round_table(rounds: Sequence[Mapping[str, Any]], questions: str) -> Table:
    columns = (
        "Round",
        "Task, level",
        "Filter",
        "Sampled",
        "Kept",
        "Share",
        "Precision",
        "Recall",
        "Updates",
        "Seconds",
    )
    body = tuple(
        (
            str(number),
            f"{entry['task']}, {entry['level']}",
            str(entry.get("filter", "self")),
            str(entry["sampled"]),
            str(entry["kept"]),
            _estimate(entry.get("acceptance_estimate")) or proportion(entry["kept"], entry["sampled"]),
            _reliability(entry, "precision"),
            _reliability(entry, "recall"),
            str(entry["updates"]),
            f"{entry['seconds']:.0f}",
        )
        for number, entry in enumerate(rounds, 1)
    )
    note = "Precision: of the kept images, the share that is right. Recall: of the right ones, the share that was kept."
    return Table("Rounds: what the filter kept, against the exact verifier", columns, body, note, questions, digits=3)


def _reliability(entry: Mapping[str, Any], name: str) -> Cell:
    if (estimate := _estimate(entry.get(f"{name}_estimate"))) is not None:
        return estimate
    return None if entry[name] is None else f"{entry[name]:.3f}"


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
