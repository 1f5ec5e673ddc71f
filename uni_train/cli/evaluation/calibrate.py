"""`uni_train eval calibrate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.evaluation.options import config_of, evaluation_options, overrides_of
from uni_train.cli.numbers import Names
from uni_train.core.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from uni_train.eval.benchmark import Benchmark
    from uni_train.eval.evaluation import Evaluation
    from uni_train.eval.results import Table


@click.command("calibrate")
@click.option("--checkpoint", "-c", metavar="PATH|NAME|URL#MODEL", help="The model whose samples have known truth.")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="People's labels as CSV or JSON lines (docs/judges.md).",
)
@click.option(
    "--references",
    metavar="drawn|DIR|none",
    help="Right images: of the renderer, or files named after their cases.  [default: drawn; none with --labels]",
)
@click.option(
    "--anchors",
    "most",
    type=click.IntRange(2, 100_000),
    default=200,
    show_default=True,
    help="Most samples of each kind.",
)
@click.option("--ways", type=Names(), default="", help="Several protocols, instead of judge.way.")
@click.option(
    "--reruns",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="Repeat all questions so often, to count flipped verdicts.",
)
@click.option(
    "--changes", type=Names(), default="", help="jpeg,resize: also ask about changed images, to count flipped verdicts."
)
@click.option("--filter", "by_filter", is_flag=True, help="Ask what filter=judge asks: YES or NO, without the answer.")
@evaluation_options()
def calibrate(
    checkpoint: str | None,
    labels: Path | None,
    references: str | None,
    most: int,
    ways: tuple[str, ...],
    reruns: int,
    changes: tuple[str, ...],
    by_filter: bool,
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
      uni_train eval calibrate --filter --sets math1 judge.model=http://127.0.0.1:8000/v1#my_judge
      uni_train eval calibrate -b ureason data.ureason=UReason --labels people.csv judge.model=openai/gpt-4o --reruns 2
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval import evaluation as engine
    from uni_train.eval.configured import benchmarks_of, judges_of, plan_of
    from uni_train.eval.judges import tables
    from uni_train.eval.judges.agreement import comparable
    from uni_train.eval.judges.calibrate import anchors_of
    from uni_train.eval.judges.calibrate import calibrate as measured
    from uni_train.eval.judges.ways import CHANGES
    from uni_train.models.checkpoint import resolve

    overrides, progress = overrides_of(words, options), ConsoleProgress()
    config = config_of(overrides)
    references = references or ("drawn" if labels is None else "none")
    for change in changes:
        if change not in CHANGES:
            raise UsageError(f"--changes {change}: no such change", did_you_mean(change, CHANGES, "changes"))
    each = [[f"judge.way={way}"] for way in ways] or [[]]
    judges = [judge for way in each for judge in judges_of(config_of([*overrides, *way]))]
    if checkpoint is None and labels is None and references == "none":
        raise UsageError("there is nothing to compare the judge with", "Give --checkpoint, --labels or --references.")
    if labels is not None and len(config.benchmarks) != 1:
        raise UsageError("--labels are of one benchmark", "Name it with --benchmark.")
    done: Evaluation | None = None
    if checkpoint is not None:
        checkpoint = resolve(checkpoint)
        done = engine.run(plan_of(checkpoint, replace(config, judge=None, verifier="program")), progress)
    store = Path(config.store_folder)

    def show(table: Table) -> None:
        progress.table(table.title, table.columns, table.rows)

    for benchmark in benchmarks_of(checkpoint or "shipped", config):
        scored = None if done is None else done.scored(benchmark.name)
        anchors = anchors_of(benchmark, scored, labels, references, most, seed=config.seed)
        if by_filter:
            benchmark = _filter_question(benchmark)
        folder = Path(config.out) / "calibrations" / benchmark.name
        for judge in judges:
            result = measured(anchors, benchmark, judge, folder, progress, store=store, reruns=reruns, changes=changes)
            show(tables.calibration_table(result))
            for remark in tables.remarks_of(result):
                progress.say(remark)
        if len(others := comparable(store, result)) > 1:
            show(tables.comparison_table(others))


def _filter_question(benchmark: Benchmark) -> Benchmark:
    from uni_train.eval.filter_question import FilterQuestion
    from uni_train.eval.task_benchmark import TaskBenchmark

    if not isinstance(benchmark, TaskBenchmark):
        raise UsageError(f"--filter: {benchmark.name} has no questions of our tasks", "Leave it out, or -b unisandbox.")
    return FilterQuestion(list(benchmark.cases()))
