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

It is a view of the scored samples of the run's evaluations: `eval.sets.training_run` counts them as `eval`
does, before and after as `eval compare`, and arranges them in tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json, disk_errors
from uni_train.core.reading_limits import read_json, reason
from uni_train.eval.results import Table
from uni_train.eval.statistics import Estimate, proportion, share


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far a filter can be trusted, measured against the exact verifier.

    precision: of the `kept` samples, the share that is right. unfiltered: of all samples, which is the precision of
    keeping everything. recall: of the `correct` samples, the share that was kept. specificity: of the wrong ones, the
    share that was refused. acceptance: of all samples, the share that was kept.
    """

    precision: Estimate
    unfiltered: Estimate
    recall: Estimate
    specificity: Estimate
    acceptance: Estimate
    n: int
    kept: int
    correct: int
    kept_correct: int

    @property
    def refused(self) -> str:
        """What was refused of the wrong and of the right samples, in words."""
        wrong = self.n - self.correct
        return (
            f"it refused {wrong - self.kept + self.kept_correct:,} of {wrong:,} wrong samples "
            f"and {self.correct - self.kept_correct:,} of {self.correct:,} right ones"
        )

    def warning(self, filter: str) -> str | None:
        """That the filter decides nothing: it keeps at least `KEPT` of the samples, and most of the wrong ones.

        Of a filter that rejects early ("self+early_rejection") this says nothing: it has decided before.
        """
        wrong, kept_wrong = self.n - self.correct, self.kept - self.kept_correct
        if filter == "none" or "+" in filter or self.kept < KEPT * self.n or kept_wrong <= wrong / 2:
            return None
        return f"filter={filter} decides nothing here: it kept {self.kept / self.n:.1%} of the samples; {self.refused}"


KEPT = 0.98
"""A filter that keeps this share of the samples, and most wrong ones, changes nothing of what is learned."""


def filter_reliability(
    accepted: Sequence[bool], correct: Sequence[bool], clusters: Sequence[Hashable] | None = None
) -> Reliability:
    """How far `accepted[i]` (the filter's judgement) agrees with `correct[i]` (the verifier's).

    clusters: what dependent samples share: the candidates of a prompt, the two of a mapping pair; None: each is alone.
    Intervals as in `eval.statistics.share`. An estimate over no samples, such as of nothing kept, has no value. Raises
    ValueError when the lengths differ.
    """
    rows = list(zip(accepted, correct, range(len(accepted)) if clusters is None else clusters, strict=True))
    kept = [(right, cluster) for keeps, right, cluster in rows if keeps]
    right = [(keeps, cluster) for keeps, right, cluster in rows if right]
    wrong = [(not keeps, cluster) for keeps, right, cluster in rows if not right]
    asked = [(keeps, cluster) for keeps, _, cluster in rows]
    unfiltered = [(right, cluster) for _, right, cluster in rows]
    precision, base, recall, specificity, acceptance = (
        share([hit for hit, _ in some], range(len(some)), [cluster for _, cluster in some])
        for some in (kept, unfiltered, right, wrong, asked)
    )
    counts = len(rows), len(kept), len(right), sum(right for right, _ in kept)
    return Reliability(precision, base, recall, specificity, acceptance, *counts)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of STARS: what was sampled, what the filter kept and how reliably, and how long training took.

    task: "maths", "mapping" or, where a round mixes them, "maths+mapping". level: the one level, or e.g. "1+2+3".
    sampled, kept: images. distinct: canonical forms of the sampled images' questions. reliability: of the filter
    against the verifier, None where no verifier can read the images. calls: what the round asked of models. "answers"
    are those by which it filters, "images" finished ones, "velocities" the teacher's (a guided one counts once).
    "rollout" is of the student, in think-distillation. anchors: what the filter refused of known images before.
    teachers: identities of other models that taught, by their keys.
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
    distinct: int | None = None
    anchors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    teachers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        names = ("precision", "recall", "unfiltered", "specificity", "acceptance")
        measured = {name: getattr(self.reliability, name) for name in names} if self.reliability else {}
        return {
            **{key.name: getattr(self, key.name) for key in fields(self) if key.name != "reliability"},
            **{name: measured[name].value if measured else None for name in names[:2]},
            **{f"{name}_estimate": measured[name].to_dict() if measured else None for name in names},
            "warning": self.reliability.warning(self.filter) if self.reliability else None,
        }


def described(filter: str, anchors: Mapping[str, Mapping[str, int]]) -> str:
    """What a filter refused of each kind of known images, in words."""
    counts = ", ".join(f"{count['refused']} of {count['n']} {kind}" for kind, count in anchors.items())
    return f"filter={filter} refused {counts} ones" if counts else f"none for filter={filter}"


def write(run_dir: Path, summary: Mapping[str, Any]) -> Path:
    """Write run_dir/summary.json, atomically. Raises UserError when the file cannot be written."""
    path = Path(run_dir) / "summary.json"
    with disk_errors(path):
        atomic_write_json(path, summary)
    return path


def read(run_dir: Path) -> dict[str, Any]:
    """The summary of a finished run. Raises UserError when it is missing, damaged or lacks a key of the contract."""
    path, hint = Path(run_dir) / "summary.json", "Delete it and run the same command again."
    try:
        summary = read_json(path)
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: there is no summary yet", "It is written when the run ends: run its command again."
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({reason(error)})", hint) from error
    contract = ("recipe", "model", "seed", "wall_seconds", "peak_rss_bytes", "scores", "rounds")
    absent = [key for key in contract if not isinstance(summary, dict) or key not in summary]
    if absent:
        raise UserError(f"{path}: lacks {', '.join(absent)}", hint)
    odd = [key for key, kind in _KINDS.items() if key in summary and not _is(summary[key], kind)]
    if "rounds" not in odd and not all(isinstance(round_, dict) for round_ in summary["rounds"]):
        odd.append("rounds")
    if odd:
        raise UserError(f"{path}: {odd[0]} is not what a run writes there", hint)
    return summary


_SECTIONS = ("after_round", "average", "changes", "one_of_two", "per_image", "scores", "statuses", "strategies")
_KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("wall_seconds", "peak_rss_bytes"), int | float), **dict.fromkeys(_SECTIONS, dict), "rounds": list,
}  # fmt: skip
"""What values of a summary are, at its top."""


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def round_table(rounds: Sequence[Mapping[str, Any]], questions: str) -> Table:
    """The rounds of a summary: what was sampled and kept, and how far the filter can be trusted."""
    columns = ("Round", "Task, level", "Filter", "Sampled", "Distinct", "Kept", "Share", "Precision",
               "Unfiltered", "Recall", "Specificity", "Updates", "Seconds")  # fmt: skip
    measures = ("precision", "unfiltered", "recall", "specificity")
    body = tuple(
        (
            str(number),
            f"{entry['task']}, {entry['level']}",
            str(entry.get("filter", "self")),
            str(entry["sampled"]),
            None if entry.get("distinct") is None else str(entry["distinct"]),
            str(entry["kept"]),
            estimate_of(entry.get("acceptance_estimate")) or proportion(entry["kept"], entry["sampled"]),
            *(estimate_of(entry.get(f"{name}_estimate")) for name in measures),
            str(entry["updates"]),
            f"{entry['seconds']:.0f}",
        )
        for number, entry in enumerate(rounds, 1)
    )
    note = ""
    for number, entry in enumerate(rounds, 1):
        if entry.get("warning"):
            note += f"Round {number}: {entry['warning']}. "
        if entry.get("anchors"):
            note += f"Before round {number}, of known images: {described(entry['filter'], entry['anchors'])}. "
        for key, model in (entry.get("teachers") or {}).items():
            note += f"Round {number}, {key}: {model['name']} ({model['content']}). "
    note += (
        "Distinct: different expressions, sets of rules or puzzles among the sampled images. "
        "Precision: of the kept images, the share that is right. Unfiltered: of all images, the precision without the "
        "filter. Recall: of the right ones, the share that was kept. "
        "Specificity: of the wrong ones, the share that was refused; a filter that accepts everything has 0."
    )
    title = "Rounds: what the filter kept, against the exact verifier"
    return Table(title, columns, body, note, questions, digits=3)


def estimate_of(raw: Mapping[str, Any] | None) -> Estimate | None:
    """An estimate of a summary; None where it has none."""
    return None if raw is None else Estimate.from_dict(raw)
