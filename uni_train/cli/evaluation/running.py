"""An evaluation that runs: its tables, its report, its row in Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uni_train.cli.evaluation.options import PROJECT, Asked
from uni_train.data_gen.reading_limits import read_yaml
from uni_train.errors import UserError

if TYPE_CHECKING:
    from uni_train.cli.progress import ConsoleProgress
    from uni_train.eval.benchmark import Table
    from uni_train.eval.evaluation import Evaluation, EvaluationPlan
    from uni_train.eval.watch import Checkpoint

_TABLES = 2  # of a benchmark on the console; the report has all


def run_evaluation(
    plan: EvaluationPlan, asked: Asked, place: Checkpoint | None, progress: ConsoleProgress
) -> Evaluation:
    """Run it, print its tables, write its report, log it. Raises UserError last, where a set could not be scored."""
    from uni_train.eval import evaluation as engine
    from uni_train.eval.report.evaluation import not_scored, report_of
    from uni_train.stages.cpu import prepare_cpu

    prepare_cpu("auto")
    done = engine.run(plan, progress)
    show(done, progress)
    page = report_of(done)
    if asked.logger == "wandb":
        _track(done, asked, place)
    progress.say(f"evaluation: {done.folder}")
    progress.say(f"report: {page}")
    broken = [f"{name}: {one}" for name, result in done.results.items() for one in not_scored(result)]
    if broken:
        raise UserError(
            "; ".join(broken), "Put it right and run the same command again (calls of the model: --retry-failed)."
        )
    return done


def show(done: Evaluation, progress: ConsoleProgress) -> None:
    """The papers' tables, with intervals, and what became of the samples."""
    from uni_train.eval.report.evaluation import OUTCOME_NAMES, header_of

    for name, result in done.results.items():
        for table in result.tables[:_TABLES]:
            print_table(table, progress)
        if len(result.tables) > _TABLES:
            progress.say(f"{name}: {len(result.tables) - _TABLES} more tables are in the report")
        totals: dict[str, int] = {}
        for by_set in result.outcomes.values():
            for counts in by_set.values():
                for outcome, count in counts.items():
                    totals[outcome] = totals.get(outcome, 0) + count
        shown = ", ".join(f"{OUTCOME_NAMES[one]} {count} ({count / result.n:.1%})" for one, count in totals.items())
        progress.say(f"{name}: {result.n} samples: {shown}")
    for note in header_of(done).notes:
        progress.note(f"note: {note}")


def print_table(table: Table, progress: ConsoleProgress) -> None:
    """A table of a benchmark on the console, scores with their intervals below; turned on its side where too wide."""
    lines = [list(table.columns), *([_console_cell(value) for value in row] for row in table.rows)]
    if _width(lines) > progress.console.width and len(lines) < len(table.columns):
        lines = [list(line) for line in zip(*lines, strict=True)]
    progress.table(f"{table.title}\n{table.questions}".rstrip(), lines[0], lines[1:], table.note)


def _console_cell(value: Any) -> str:
    from uni_train.eval.statistics import Estimate, PairedComparison

    paired = isinstance(value, PairedComparison)
    if isinstance(value, PairedComparison):
        value = value.difference
    if isinstance(value, Estimate):
        if value.value is None:
            return "–"
        if paired or value.low < 0:
            return f"{value.value:+.2f}\n" + f"{value.low:+.2f} to {value.high:+.2f}".replace("0.", ".")
        return f"{value.value:.2f}\n" + f"{value.low:.2f}–{value.high:.2f}".replace("0.", ".")
    return "–" if value is None else str(value)


def _width(lines: Sequence[Sequence[str]]) -> int:
    """Letters that the lines need side by side."""
    columns = zip(*lines, strict=True)
    return sum(1 + max(len(part) for cell in column for part in cell.split("\n")) for column in columns) + 2


def _track(done: Evaluation, asked: Asked, place: Checkpoint | None) -> None:
    """Into the W&B group of the training that the checkpoint is from, if it is from one."""
    from uni_train.eval.tracking import log_evaluation
    from uni_train.training.wandb_run import open_run

    project, group, offline = asked.project, asked.group, None
    if place is not None:
        from uni_train.config.build import build
        from uni_train.training.wandb_run import group_of

        logger = build(read_yaml(place.run / "config.yaml")).logger
        project = project if asked.project != PROJECT else logger.project
        group, offline = group or group_of(logger.group, place.run), logger.offline
    with open_run(done.folder, project=project, name=done.folder.name, group=group, offline=offline) as run:
        log_evaluation(run, done, None if place is None else place.updates)
