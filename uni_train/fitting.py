"""The body of `uni_train fit`: compose, open the run folder, run the stages and conclude; in one process or in several.

Running it again continues where it stopped. A dry run whose answer is cached loads no torch, so functions import what
they need.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.config.build import to_plain
from uni_train.config.compose import compose, quoted
from uni_train.config.kinds import PlannedStage, check_before_run, check_ranks, judge_of, stage_list
from uni_train.config.paths import missing_packages, missing_paths, named_paths
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.distributed.devices import deterministic_kernels, expect_gpu
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.models.checkpoint import find, resolve, source_of, stored_model
from uni_train.run_folder import RunFolder
from uni_train.stages.kind import Stages, stages_of

if TYPE_CHECKING:
    from uni_train.console.progress import ConsoleProgress
    from uni_train.stages.work import StageRun, Work

PROCESS = 2**30  # bytes of memory that a process of nano takes, rounded up
MOST_PROCESSES = 8  # an update of 40 rows gains nothing from more


def run_recipe(recipe: str, overrides: Sequence[str], *, fresh: bool, all_cores: bool = False) -> RunConfig:
    """The composed recipe, which has run. Raises UserError for everything that a person can put right.

    all_cores: obey `strategy.all_cores`. Other processes know nothing that the caller has registered in Python.
    """
    ranks = Ranks.from_environment()
    with said_once(ranks):
        config = compose(recipe, overrides)
        check_ranks(config, ranks.world_size)
        config = _resolved(config, recipe, overrides)
        run = Path(config.out) / config.recipe / config.run_name
        if fresh or not any(run.glob("stages/*/manifest.json")):  # else it may be done with them
            for error in missing(config):
                raise error
        expect_gpu(config.strategy.accelerator)
        if max(ranks.world_size, config.strategy.nodes) > 1:
            from uni_train.distributed.preflight import expect_layout

            expect_layout(ranks, config)
    processes = 1 if ranks.world_size > 1 else _processes(config) if all_cores else config.strategy.devices
    if processes > 1:
        from uni_train.distributed.launch import start

        options = ["--fresh"] if fresh else []
        code = start(["fit", "--recipe", recipe, *options, *overrides], processes)
        if code:
            raise SystemExit(code)
        return config
    with deterministic_kernels(config.strategy.deterministic):
        (_run_with_others if ranks.world_size > 1 else _run)(config, ranks, fresh)
    return config


def _resolved(config: RunConfig, recipe: str, overrides: Sequence[str]) -> RunConfig:
    """With the folders of what are Hub ids or runs: the run records these, which name commit and stage."""
    named = {key: value for key, value, _ in named_paths(to_plain(config))}
    given = {key: value for key, value in named.items() if key.endswith("checkpoint")}
    data = [key for key, value in named.items() if value.startswith("hf:") and not (key in given or key[-1].isdigit())]
    sources = {key: source_of(value) for key, value in given.items()}
    moved = [key for key, source in sources.items() if source.kind in ("hub", "run") or source.adapters]
    if not moved and not data:
        return config
    from uni_train.core.hub_data import local_data

    places = {key: resolve(given[key]) for key in moved} | {key: str(local_data(named[key])) for key in data}
    return compose(recipe, [*overrides, *(f"{key}={quoted(place)}" for key, place in places.items())])


def _processes(config: RunConfig) -> int:
    """How many processes of this machine run the recipe: `strategy.devices`, or by `strategy.all_cores` one a core."""
    strategy = config.strategy
    if not strategy.all_cores or strategy.devices > 1 or strategy.nodes > 1 or config.model.threads != "auto":
        return strategy.devices
    import torch

    from uni_train.stages.cpu import memory, usable_cores

    if strategy.accelerator != "cpu" and (torch.cuda.is_available() or torch.backends.mps.is_available()):
        return 1
    most = min(usable_cores(), memory() // PROCESS - 1, MOST_PROCESSES)  # the process that starts them counts too
    return next((count for count in range(most, 1, -1) if _shares(config, count)), 1)


def _shares(config: RunConfig, ranks: int) -> bool:
    """Whether each of `ranks` processes gets rows of every update."""
    try:
        check_ranks(config, ranks)
    except UserError:
        return False
    return True


@contextmanager
def said_once(ranks: Ranks) -> Iterator[None]:
    """An error that every process of a node finds is left to the first of them; the others end with it."""
    try:
        yield
    except UserError as error:
        if ranks.local_rank:
            time.sleep(3)  # torchrun ends all when the first one has
            raise SystemExit(error.exit_code) from error
        raise


def _run_with_others(config: RunConfig, ranks: Ranks, fresh: bool) -> None:
    import torch

    from uni_train.console.ranks import one_message
    from uni_train.distributed.ranks import joined

    gpu = config.strategy.accelerator != "cpu" and torch.cuda.is_available()
    shared = replace(config.strategy, devices=ranks.local_world_size, nodes=ranks.world_size // ranks.local_world_size)
    with ExitStack() as stack:
        with said_once(ranks):
            stack.enter_context(joined(ranks, cuda=gpu, timeout=timedelta(seconds=config.strategy.timeout)))
        stack.enter_context(one_message(ranks))
        _run(replace(config, strategy=shared), ranks, fresh)


def _run(config: RunConfig, ranks: Ranks, fresh: bool) -> None:
    from uni_train.console.progress import ConsoleProgress
    from uni_train.distributed.preemption import preemptible

    def choose() -> str:
        place = RunFolder.fresh if fresh else RunFolder
        return place(config.out, config.recipe, config.run_name).name

    run = RunFolder(config.out, config.recipe, ranks.from_main(choose))
    if ranks.world_size > 1:
        from uni_train.distributed.preflight import preflight

        preflight(ranks, config)
    progress = ConsoleProgress()
    expect(config, progress)
    if not any(run.path.glob("stages/*/manifest.json")):  # else it fitted
        remarks = ranks.from_main(lambda: check_before_run(config, ranks.world_size))
        for line in remarks if ranks.is_main else ():
            progress.say(line)
    with ExitStack() as stack:
        continues, config = ranks.from_main(lambda: _begin(config, stack.enter_context(run)))
        if ranks.world_size > 1:
            from uni_train.console.ranks import open_log
            from uni_train.distributed.preflight import expect_shared

            expect_shared(ranks, run.path / "run.json")
            ranks.on_all(lambda: open_log(ranks, run.path, config.strategy.timeout))
            progress = ConsoleProgress()
        stack.enter_context(preemptible())
        progress.say(f"{'continuing' if continues else 'run folder'} {run.path}")
        if ranks.world_size > 1:
            nodes = f" on {config.strategy.nodes} nodes" if config.strategy.nodes > 1 else ""
            progress.say(f"{ranks.world_size} processes{nodes}; their logs are in {run.path / 'logs'}")
        elif config.strategy.all_cores:
            progress.say("one process")
        if fresh and run.name != config.run_name:
            progress.say(f"to continue it later, leave out --fresh and add name={run.name}")

        try:
            run_stages(config, run, progress, ranks)
        except SystemExit as end:
            if isinstance(end.__context__, KeyboardInterrupt):  # Lightning's way to end after Ctrl-C
                raise KeyboardInterrupt from None
            raise
        report = run.path / "report.html"
        if report.is_file():
            progress.say(f"report: {report.resolve()}")
        if config.logger.kind == "wandb":
            from uni_train.training.wandb_run import offline_folders

            for folder in offline_folders(run.path):
                progress.say(f"W&B, offline: {folder}; `wandb sync` uploads it")


def _begin(config: RunConfig, run: RunFolder) -> tuple[bool, RunConfig]:
    """Whether the run continues, and its configuration with how far its training came before it was extended."""
    if not hasattr(config, "extended_from"):
        return run.begin(config, sys.argv), config
    from uni_train.stages import extension

    return extension.begin(config, run, sys.argv)


# --- the stages -------------------------------------------------------------------------------------------------------


def missing(config: RunConfig) -> Iterator[UserError]:
    """An error for each package and file that is not there, and for each checkpoint that cannot be loaded."""
    yield from missing_packages(config)
    yield from missing_files(config)


def missing_files(config: RunConfig) -> Iterator[UserError]:
    """The same of files and folders alone: a node that starts the run may have other packages."""
    paths = [*missing_paths(config)]
    yield from paths
    for key, value, _ in () if paths else named_paths(to_plain(config)):
        if key.endswith("checkpoint") and value != "shipped" and not source_of(value).is_absent:
            try:
                stored_model(config.model) if key == "model.checkpoint" else find(source_of(value).base)
            except UserError as error:
                yield UserError(f"{key}: {error.message}", error.hint)


def expect(config: RunConfig, progress: ConsoleProgress) -> None:
    """Check keys of the model, sets, rewards and data before anything is written.

    Raises:
        UserError: the first such thing.
    """
    from uni_train.models.load import expect_keys, expect_precision

    expect_keys(config.model)
    expect_precision(config.model, config.strategy.precision)
    stages_of(config).prepare(expect_items(config, progress))


def expect_items(config: RunConfig, progress: ConsoleProgress) -> Work[Any]:
    """Check that tasks have the items that stages and validations ask for; no file is read.

    Raises:
        UserError: a task has too few.
    """
    from uni_train.stages.work import Work

    work: Work[Any] = Work(config, RunFolder(config.out, config.recipe, config.run_name), progress)
    if any(stage.kind == "evaluate" for stage in stage_list(config)):
        from uni_train.stages import evaluate

        evaluate.items(work)  # without their images, which take longer
    stages_of(config).expect_items(work)
    if config.retention:
        from uni_train.stages import retention

        retention.expect(work)
    return work


def run_stages(config: RunConfig, folder: RunFolder, progress: ConsoleProgress, ranks: Ranks = ALONE) -> None:
    """Run all stages of a recipe that are not finished yet, then write summary.json and report.html.

    Args:
        folder: locked by the first of `ranks`, which all call this.

    Raises:
        UserError: for everything that a person can put right.
    """
    from uni_train.stages.cpu import prepare_cpu
    from uni_train.stages.data import expect_same_data
    from uni_train.stages.work import MODEL, Work

    prepare_cpu(config.model.threads, ranks.local_world_size)
    work: Work[Any] = Work(config, folder, progress, ranks=ranks)
    kind, planned = stages_of(config), stage_list(config)
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

                    evaluate.run(work, stage, evaluate.moment(step))
                else:
                    kind.run(work, step, stage, runs)
        if step.base and (stage.path / MODEL).is_dir():
            work.weights = stage.path / MODEL
        runs.append((step, stage))
    if config.retention:
        from uni_train.stages import retention

        retention.measure(work, runs)
    ranks.from_main(lambda: _conclude(work, runs))


def _conclude(work: Work[Any], runs: Stages) -> None:
    from uni_train.eval import summary
    from uni_train.eval.report.run import write_report
    from uni_train.eval.report.tables import print_table

    folder, kind = work.folder, stages_of(work.config)
    evaluated = any(run.kind == "evaluate" for run, _ in runs)
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
    from uni_train.stages.work import PEAK, peak_rss

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
    facts = [*(stage.path / "manifest.json" for _, stage in runs), *folder.path.glob("retention/retention.json")]
    finished = max(file.stat().st_mtime_ns for file in facts)
    return min(file.stat().st_mtime_ns for file in conclusions) >= finished


def _track(work: Work[Any]) -> None:
    if work.config.logger.kind != "wandb":
        return
    from uni_train.eval import tracking
    from uni_train.stages.train_stage import wandb_names
    from uni_train.training.wandb_run import open_run

    with open_run(work.folder.path, **wandb_names(work)) as run:
        tracking.log_run(run, work.folder.path)
