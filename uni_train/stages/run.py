"""A recipe from its first stage to its report. Running it again continues where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uni_train.config.kinds import PlannedStage, Stages, judge_of, kind_of, stage_list
from uni_train.config.schema import RunConfig
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.eval import summary
from uni_train.eval.report.run import write_report
from uni_train.eval.report.tables import print_table
from uni_train.models.load import expect_keys, expect_precision
from uni_train.run_folder import RunFolder
from uni_train.stages.cpu import prepare_cpu
from uni_train.stages.data import expect_same_data
from uni_train.stages.work import MODEL, PEAK, StageRun, Work, peak_rss

if TYPE_CHECKING:
    from uni_train.console.progress import ConsoleProgress


def expect(config: RunConfig, progress: ConsoleProgress) -> None:
    """Check keys of the model, sets, rewards and data before anything is written.

    Raises:
        UserError: the first such thing.
    """
    expect_keys(config.model)
    expect_precision(config.model, config.strategy.precision)
    kind_of(config).prepare(expect_items(config, progress))


def expect_items(config: RunConfig, progress: ConsoleProgress) -> Work[Any]:
    """Check that tasks have the items that stages and validations ask for; no file is read.

    Raises:
        UserError: a task has too few.
    """
    work: Work[Any] = Work(config, RunFolder(config.out, config.recipe, config.run_name), progress)
    if any(one.kind == "evaluate" for one in stage_list(config)):
        from uni_train.stages import evaluate

        evaluate.benchmark(work)
    kind_of(config).expect_items(work)
    return work


def fit(config: RunConfig, folder: RunFolder, progress: ConsoleProgress, ranks: Ranks = ALONE) -> None:
    """Run all stages of a recipe that are not finished yet, then write summary.json and report.html.

    Args:
        folder: locked by the first of `ranks`, which all call this.

    Raises:
        UserError: for everything that a person can put right.
    """
    prepare_cpu(config.model.threads, ranks.local_world_size)
    work: Work[Any] = Work(config, folder, progress, ranks=ranks)
    kind, planned = kind_of(config), stage_list(config)
    runs: list[tuple[PlannedStage, StageRun]] = []
    seen = False  # its data
    for step in planned:
        with work.stage(step, len(planned)) as stage:
            if not (seen or stage.done or step.kind == "evaluate"):
                ranks.from_main(lambda: expect_same_data(work))
                seen = True
            if not stage.done:
                if judge_of(config) is not None or kind.servers(config):
                    from uni_train.stages import judging

                    judging.ready(work)
                if step.kind == "evaluate":
                    from uni_train.stages import evaluate

                    evaluate.run(work, stage, step.name.removeprefix("evaluate-"))
                else:
                    kind.run(work, step, stage, runs)
        if step.base and (stage.path / MODEL).is_dir():
            work.weights = stage.path / MODEL
        runs.append((step, stage))
    ranks.from_main(lambda: _conclude(work, runs))


def _conclude(work: Work[Any], runs: Stages) -> None:
    folder, kind = work.folder, kind_of(work.config)
    evaluated = any(one.kind == "evaluate" for one, _ in runs)
    concluded = kind.conclude(work, runs)
    summarised = evaluated or concluded is not None
    if not _concluded(folder, runs, ("summary.json", "report.html") if summarised else ("report.html",)):
        if concluded is not None:
            summary.write(folder.path, {**_about(work, runs), "rounds": [], **concluded[0]})
        elif evaluated:
            from uni_train.stages import evaluate

            summary.write(folder.path, evaluate.summarised(runs, kind.rounds(work, runs), _about(work, runs)))
        write_report(folder.path)
    shown = concluded[1][:4] if concluded is not None else []  # the report has them all
    if concluded is None and evaluated:
        from uni_train.eval.sets import training_run

        shown = list(training_run.tables(summary.read(folder.path)))
    for table in shown:
        print_table(table, work.progress)
    if summarised:
        _track(work)


def _about(work: Work[Any], runs: Stages) -> dict[str, Any]:
    """What every summary says of a run."""
    config = work.config
    return {
        "recipe": config.recipe,
        "model": config.model.name,
        "seed": config.seed,
        "wall_seconds": sum(stage.manifest.seconds for _, stage in runs if stage.manifest is not None),
        "peak_rss_bytes": max(peak_rss(), *(int(stage.facts().get(PEAK, 0)) for _, stage in runs)),
    }


def _concluded(folder: RunFolder, runs: Stages, names: Sequence[str]) -> bool:
    """Whether summary and report exist and are newer than every stage, so that they need not be written again."""
    conclusions = [folder.path / name for name in names]
    if not all(file.is_file() for file in conclusions):
        return False
    finished = max((stage.path / "manifest.json").stat().st_mtime_ns for _, stage in runs)
    return min(file.stat().st_mtime_ns for file in conclusions) >= finished


def _track(work: Work[Any]) -> None:
    if work.config.logger.kind != "wandb":
        return
    from uni_train.eval import tracking
    from uni_train.stages.finetune import wandb_names
    from uni_train.training.wandb_run import open_run

    with open_run(work.folder.path, **wandb_names(work)) as run:
        tracking.log_run(run, work.folder.path)
