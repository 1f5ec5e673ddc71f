"""`uni_train eval calibrate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.evaluation.options import Asked, evaluation_options
from uni_train.cli.evaluation.plans import benchmarks_of, folder_of, judge_of, loadable, plan_of
from uni_train.errors import UsageError

if TYPE_CHECKING:
    from eval.evaluation import Evaluation
    from eval.judges.calibration import Calibration
    from uni_train.cli.progress import ConsoleProgress


@click.command("calibrate")
@click.option(
    "--checkpoint", "-c", metavar="PATH|NAME|URL#MODEL", help="Whose pictures, read by programs, are anchors."
)
@click.option(
    "--references",
    default="drawn",
    show_default=True,
    metavar="drawn|DIR|none",
    help="Right pictures: of the renderer, or files named after their cases.",
)
@click.option("--anchors", type=click.IntRange(2), default=200, show_default=True, help="At most so many of each kind.")
@evaluation_options
def calibrate(checkpoint: str | None, references: str, anchors: int, **options: Any) -> None:
    """Measure how far a judge agrees with what is known.

    The judge is asked about pictures that a program has read as right or wrong (--checkpoint), about references, which
    it must pass, and about references of other cases, which it must fail. Evaluations with this judge cite the record.

    \b
    Example:
      uni_train eval calibrate -c shipped --judge nano --judge-base-url http://127.0.0.1:8000/v1 --judge-dialect nano
    """
    from eval import evaluation as engine
    from eval.generation import cases_of
    from eval.judges import anchors as known
    from eval.judges.calibrating import calibrate as measured
    from uni_train.cli.progress import ConsoleProgress

    asked, progress = Asked(**options), ConsoleProgress()
    judge = judge_of(asked)
    if judge is None:
        raise UsageError("--judge is missing", "Name the judge that is to be calibrated.")
    if checkpoint is None and references == "none":
        raise UsageError("there is nothing to compare the judge with", "Give --checkpoint, --references, or both.")
    store = asked.store if asked.store is not None else folder_of(asked) / "store"
    from_files = None if references in ("drawn", "none") else known.from_folder(Path(references))
    done: Evaluation | None = None
    by_program = replace(asked, judge="none", verifier="program")
    if checkpoint is not None:
        with loadable(checkpoint, asked, progress) as (path, _):
            done = engine.run(plan_of(path, by_program), progress)
    for benchmark in benchmarks_of(checkpoint or "shipped", asked):
        found: list[known.Anchor] = []
        if done is not None:
            scored = done.scored(benchmark.name, images=True)
            found += known.anchors_from_programs(scored, anchors, asked.seed)
        picture = benchmark.reference if references == "drawn" else from_files
        if picture is not None:
            cases = cases_of(benchmark, subset=anchors, seed=asked.seed)
            found += known.anchors_from_references(benchmark, cases, picture, seed=asked.seed)
        folder = folder_of(asked) / "calibrations" / benchmark.name
        result = measured(found, benchmark, judge, folder, progress, store=store)
        _print_calibration(result, progress)


def _print_calibration(found: Calibration, progress: ConsoleProgress) -> None:
    numbers = {
        "kappa": found.kappa,
        "accuracy": found.accuracy,
        "balanced accuracy": found.balanced_accuracy,
        "of the right ones, passed": found.sensitivity,
        "of the wrong ones, failed": found.specificity,
        **{f"accuracy on {kind} anchors": estimate for kind, estimate in found.by_kind.items()},
    }
    rows = [[name, *str(estimate).rsplit(" n=", 1)] for name, estimate in numbers.items()]
    progress.table(f"{found.benchmark}: the judge {found.judge['model']}", ["", "value", "n"], rows)
    unanswered = sum(side["none"] for kind in found.counts.values() for side in kind.values())
    if unanswered:
        progress.say(f"{unanswered} of {found.n} got no answer, which counts as disagreement")
    for one in found.disagreements[:5]:
        truth = "right" if one["right"] else "wrong"
        progress.say(f"  {one['kind']}, {truth}, judged {one['judged']}: {one['id']} ({one['setting']})")
