"""`uni_train eval calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.evaluation.options import config_of, evaluation_options, overrides_of
from uni_train.cli.numbers import NAMES
from uni_train.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from uni_train.config.schema import EvalConfig, JudgeConfig
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.benchmark import Benchmark
    from uni_train.eval.evaluation import Evaluation
    from uni_train.eval.judges.agreement import Agreement, Calibration
    from uni_train.eval.judges.calibrate import Anchor

_NAMES = {
    "sensitivity": "of the right ones, passed",
    "specificity": "of the wrong ones, failed",
    "always_no": "accuracy of always no",
    "mae": "mean absolute error",
    "bins": "same of three bins",
}


@click.command("calibrate")
@click.option("--checkpoint", "-c", metavar="PATH|NAME|URL#MODEL", help="The model whose samples have known truth.")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Labels of people, CSV or JSON lines: docs/judges.md.",
)
@click.option(
    "--references",
    metavar="drawn|DIR|none",
    help="Right images: of the renderer, or files named after their cases.  [default: drawn; none with --labels]",
)
@click.option(
    "--anchors", type=click.IntRange(2, 100_000), default=200, show_default=True, help="At most so many of each kind."
)
@click.option("--ways", type=NAMES, default="", help="Several ways of asking, in the place of judge.way.")
@click.option(
    "--reruns", type=click.IntRange(0, 100), default=0, show_default=True, help="Ask all again, to count flips."
)
@click.option("--changes", type=NAMES, default="", help="jpeg,resize: ask about changed images, to count flips.")
@evaluation_options()
def calibrate(
    checkpoint: str | None,
    labels: Path | None,
    references: str | None,
    anchors: int,
    ways: tuple[str, ...],
    reruns: int,
    changes: tuple[str, ...],
    words: tuple[str, ...],
    **options: Any,
) -> None:
    """Measure how far a judge agrees with what is known.

    The judge rates samples that people have labelled (--labels) and images that a program has read (--checkpoint). It
    also rates references, which it must pass, and references of other cases, which it must fail. Evaluations with this
    judge cite the record. Other judges of the same samples are shown beside it.

    \b
    Examples:
      uni_train eval calibrate -c shipped judge.model=http://127.0.0.1:8000/v1#nano judge.dialect=nano
      uni_train eval calibrate -b ureason data.ureason=UReason --labels people.csv judge.model=openai/gpt-4o --reruns 2
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval import evaluation as engine
    from uni_train.eval.configured import benchmarks_of, plan_of
    from uni_train.eval.judges.agreement import comparable
    from uni_train.eval.judges.calibrate import calibrate as measured
    from uni_train.eval.judges.ways import CHANGES
    from uni_train.eval.respondent import fetched

    overrides, progress = overrides_of(words, options), ConsoleProgress()
    config = config_of(overrides)
    references = references or ("drawn" if labels is None else "none")
    for change in changes:
        if change not in CHANGES:
            raise UsageError(f"--changes {change}: no such change", did_you_mean(change, CHANGES, "changes"))
    each = [[f"judge.way={way}"] for way in ways] or [[]]
    judges = [judge for way in each for judge in _judges(config_of([*overrides, *way]))]
    if checkpoint is None and labels is None and references == "none":
        raise UsageError("there is nothing to compare the judge with", "Give --checkpoint, --labels or --references.")
    if labels is not None and len(config.benchmarks) != 1:
        raise UsageError("--labels are of one benchmark", "Name it with --benchmark.")
    done: Evaluation | None = None
    if checkpoint is not None:
        checkpoint = fetched(checkpoint)
        done = engine.run(plan_of(checkpoint, replace(config, judge=None, verifier="program")), progress)
    store = Path(config.store_folder)
    for benchmark in benchmarks_of(checkpoint or "shipped", config):
        found = _anchors(benchmark, config.seed, done, labels, references, anchors)
        folder = Path(config.out) / "calibrations" / benchmark.name
        for judge in judges:
            result = measured(found, benchmark, judge, folder, progress, store=store, reruns=reruns, changes=changes)
            _print(result, progress)
        _print_comparison(comparable(store, result), progress)


def _judges(config: EvalConfig) -> list[JudgeConfig]:
    """The judge; of a cascade also its parts, each alone."""
    from uni_train.eval.configured import judge_of

    judge = judge_of(config)
    if judge is None:
        raise UsageError("the judge is missing", "Name the one that is to be calibrated: judge.model=openai/gpt-4o.")
    return [*judge.small, replace(judge, small=()), judge] if judge.small else [judge]


def _anchors(
    benchmark: Benchmark, seed: int, done: Evaluation | None, labels: Path | None, references: str, most: int
) -> list[Anchor]:
    """All that is known of samples of a benchmark."""
    from uni_train.eval.generation import cases_of
    from uni_train.eval.judges import calibrate as known
    from uni_train.eval.judges.calibrate import read_labels

    found: list[Anchor] = []
    if labels is not None:
        listed = read_labels(labels, benchmark)
        found += known.anchors_from_labels(listed, benchmark, done.scored(benchmark.name, images=True) if done else ())
    elif done is not None:
        found += known.anchors_from_programs(done.scored(benchmark.name, images=True), most, seed)
    if references != "none":
        image = benchmark.reference if references == "drawn" else known.from_folder(Path(references))
        cases = cases_of(benchmark, subset=most, seed=seed)
        found += known.anchors_from_references(benchmark, cases, image, seed=seed)
    return found


def _print(found: Calibration, progress: ConsoleProgress) -> None:
    from uni_train.eval.statistics import Estimate

    numbers = _numbers(found.overall, found.by_sample is not None or _is_graded(found.overall))
    numbers |= {f"accuracy on {kind} anchors": one.accuracy for kind, one in found.by_kind.items()}
    for setting, one in found.by_setting.items():
        numbers |= {f"accuracy, {setting}": one.accuracy, f"kappa, {setting}": one.kappa}
    if found.by_sample is not None:
        numbers |= {"Pearson of whole samples": found.by_sample.pearson, "error of whole samples": found.by_sample.mae}
    if found.people is not None:
        numbers |= {f"people among themselves, {name}": one for name, one in _numbers(found.people, False).items()}
    numbers |= found.stability
    if found.cascade is not None:
        about = {"asked": "the large judge was asked about", "bias": "bias over the large judge alone"}
        about |= {"error": "bias over the truth", "large_error": "bias of the large judge over the truth"}
        numbers |= {words: Estimate.from_dict(found.cascade[name]) for name, words in about.items()}
    rows = [[name, *str(estimate).rsplit(" n=", 1)] for name, estimate in numbers.items()]
    progress.table(f"{found.benchmark}: the judge {found.judge['model']}, {found.way}", ["", "value", "n"], rows)
    unanswered = sum(side["none"] for kind in found.counts.values() for side in kind.values())
    if unanswered:
        progress.say(f"{unanswered} of {found.n} got no answer, which counts as disagreement")
    if found.split:
        progress.say(f"{found.split} are left out: as many people say pass as fail")
    for shown in found.disagreements[:5]:
        check = f", {shown['check']}" if shown["check"] else ""
        truth = "right" if shown["truth"] > 0.5 else "wrong"
        progress.say(f"  {shown['kind']}, {truth}, judged {shown['judged']}: {shown['id']} ({shown['setting']}{check})")


def _numbers(found: Agreement, graded: bool) -> dict[str, Any]:
    """Name -> estimate; errors and correlations where there are grades."""
    names = [field.name for field in fields(found)]
    shown = names if graded else [name for name in names if name not in ("mae", "pearson", "spearman", "bins")]
    return {_NAMES.get(name, name.replace("_", " ")): getattr(found, name) for name in shown}


def _is_graded(found: Agreement) -> bool:
    """Whether there is more to values than pass and fail: else the error is that of accuracy."""
    return found.mae.value is not None and abs(found.mae.value - 1 + (found.accuracy.value or 0)) > 1e-9


def _print_comparison(found: Sequence[Calibration], progress: ConsoleProgress) -> None:
    """All judges and ways of the same samples (UFO, Tables 6 and 7)."""
    if len(found) < 2:
        return
    rows = [
        [f"{one.judge['model']}, {one.way}", *(_short(getattr(one.overall, name)) for name in _COMPARED)]
        for one in found
    ]
    people = next((one.people for one in found if one.people is not None), None)
    if people is not None:
        rows.append(["people among themselves", *(_short(getattr(people, name)) for name in _COMPARED)])
    rows.append(["always no", _short(found[0].overall.always_no), "0.50", "0.00", "0.00", "1.00"])
    columns = ["judge", *(name.replace("_", " ") for name in _COMPARED)]
    progress.table(f"{found[0].benchmark}: judges and ways, on the same samples", columns, rows)


_COMPARED = ("accuracy", "balanced_accuracy", "kappa", "sensitivity", "specificity")


def _short(estimate: Any) -> str:
    return str(estimate).rsplit(" n=", 1)[0]
