"""A recipe from its first stage to its report. Running it again continues where it stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from eval import summary, tracking
from eval.evaluation import SCORED
from eval.report import write_report
from eval.scored import read_folder
from eval.statistics import PairedComparison
from uni_train.config.build import to_plain
from uni_train.config.schema import (
    Config,
    FlowGrpoConfig,
    KnowledgeConfig,
    PretrainConfig,
    RoundConfig,
    SftConfig,
    StarsConfig,
)
from uni_train.config.stage_list import PlannedStage, stage_list
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.run_folder import RunFolder
from uni_train.stages import evaluate, filter, finetune, judging, sample
from uni_train.stages.cpu import prepare_cpu
from uni_train.stages.work import MODEL, PEAK, StageRun, Work, peak_rss

if TYPE_CHECKING:
    from uni_train.cli.progress import ConsoleProgress


def fit(config: Config, folder: RunFolder, progress: ConsoleProgress, ranks: Ranks = ALONE) -> None:
    """Run all stages of a recipe that are not finished yet, then write summary.json and report.html.

    Args:
        folder: locked by the first of `ranks`, which all call this.

    Raises:
        UserError: for everything that a person can put right.
    """
    prepare_cpu(config.model.threads, ranks.local_world_size)
    work: Work[Any] = Work(config, folder, progress, ranks=ranks)
    planned = stage_list(config)
    if any(one.kind == "evaluate" for one in planned):
        evaluate.sets(work)  # a set too small for evaluation.n is said before anything is trained or drawn
    if isinstance(config, StarsConfig) and config.schedule.kind == "threshold":
        for each in config.rounds:
            evaluate.watched(work, each.set_name)
    runs: list[tuple[PlannedStage, StageRun]] = []
    for one in planned:
        with work.stage(one, len(planned)) as stage:
            if not stage.done:
                judging.ready(work)
            _run(work, one, stage, runs)
        if (stage.path / MODEL).is_dir():
            work.weights = stage.path / MODEL
        runs.append((one, stage))
    ranks.from_main(lambda: _conclude(work, runs))


def _conclude(work: Work[Any], runs: list[tuple[PlannedStage, StageRun]]) -> None:
    if isinstance(work.config, KnowledgeConfig):
        _conclude_knowledge(work, runs)
        return
    folder, evaluated = work.folder, any(one.kind == "evaluate" for one, _ in runs)
    if not _concluded(folder, runs, ("summary.json", "report.html") if evaluated else ("report.html",)):
        if evaluated:
            _summarise(work, runs)
        write_report(folder.path)
    if not evaluated:
        return
    for table in summary.console_tables(summary.read(folder.path)):
        work.progress.print(table)
    _track(work)


def _conclude_knowledge(work: Work[KnowledgeConfig], runs: list[tuple[PlannedStage, StageRun]]) -> None:
    from uni_train.stages import knowledge

    found, tables = knowledge.conclude(work, runs)
    if not _concluded(work.folder, runs, ("summary.json", "report.html")):
        summary.write(work.folder.path, {**_about(work, runs), "rounds": [], **found})
        write_report(work.folder.path)
    for table in tables[:4]:  # the report has them all
        work.progress.table(table.title, table.columns, [[_cell(cell) for cell in row] for row in table.rows])
    _track(work)


def _cell(cell: Any) -> str:
    return "" if cell is None else str(cell.difference if isinstance(cell, PairedComparison) else cell)


def _about(work: Work[Any], runs: list[tuple[PlannedStage, StageRun]]) -> dict[str, Any]:
    """What every summary says of a run."""
    config = work.config
    return {
        "recipe": config.recipe,
        "model": config.model.name,
        "seed": config.seed,
        "wall_seconds": sum(stage.manifest.seconds for _, stage in runs if stage.manifest is not None),
        "peak_rss_bytes": max(peak_rss(), *(int(stage.facts().get(PEAK, 0)) for _, stage in runs)),
    }


def _run(work: Work[Any], one: PlannedStage, stage: StageRun, before: list[tuple[PlannedStage, StageRun]]) -> None:
    if stage.done:
        return
    if one.kind == "evaluate":
        evaluate.run(work, stage, one.name.removeprefix("evaluate-"))
    elif isinstance(work.config, SftConfig):
        from uni_train.stages import sft

        sft.run(work, stage)
    elif isinstance(work.config, FlowGrpoConfig):
        from uni_train.stages import grpo

        grpo.run(work, stage)
    elif isinstance(work.config, KnowledgeConfig):
        from uni_train.stages import knowledge

        if one.kind == "ask":
            knowledge.before(work, stage)
        else:
            knowledge.inject(work, stage, sum(earlier.kind == "inject" for earlier, _ in before))
    elif isinstance(work.config, PretrainConfig):
        from uni_train.stages import pretrain

        if one.kind == "vae":
            pretrain.vae(work, stage)
        else:
            pretrain.part(work, stage, one.name.removeprefix("pretrain-"))
    else:
        stars = cast("Work[StarsConfig]", work)
        rounds = [stars.config.rounds[i] for i in one.rounds]
        if one.kind == "sample":
            sample.run(stars, stage, rounds[0])
        elif one.kind == "filter":
            filter.run(stars, stage, before[-1][1], rounds[0])
        else:
            filtered: finetune.Filtered = {of.set_name: (of, s) for of, s in _filtered(stars.config, before)}
            finetune.run(stars, stage, one.rounds, filtered)


def _filtered(
    config: StarsConfig, runs: Iterable[tuple[PlannedStage, StageRun]]
) -> Iterator[tuple[RoundConfig, StageRun]]:
    """Rounds, and their stages that hold the filter's verdicts: a round that samples until enough is kept has one stage
    for both."""
    for one, stage in runs:
        if one.kind in ("sample", "filter"):
            of = config.rounds[one.rounds[0]]
            if one.kind == ("filter" if of.kept is None else "sample"):
                yield of, stage


def _concluded(folder: RunFolder, runs: list[tuple[PlannedStage, StageRun]], names: Sequence[str]) -> bool:
    """Whether summary and report are there and no stage is newer: then a further start changes nothing."""
    conclusions = [folder.path / name for name in names]
    if not all(file.is_file() for file in conclusions):
        return False
    finished = max((stage.path / "manifest.json").stat().st_mtime_ns for _, stage in runs)
    return min(file.stat().st_mtime_ns for file in conclusions) >= finished


def _summarise(work: Work[Any], runs: list[tuple[PlannedStage, StageRun]]) -> None:
    config, folder = work.config, work.folder
    labelled = {
        one.name.removeprefix("evaluate-"): read_folder(stage.path / SCORED, images=False)
        for one, stage in runs
        if one.kind == "evaluate"
    }
    if "before" not in labelled:  # a pretraining run has no model to compare with
        labelled = {"before": labelled.pop("after"), **labelled}
    found = summary.build(
        **_about(work, runs),
        evaluations=labelled,
        rounds=_rounds(config, runs) if isinstance(config, StarsConfig) else [],
    )
    summary.write(folder.path, found)


def _rounds(config: StarsConfig, runs: list[tuple[PlannedStage, StageRun]]) -> list[summary.Round]:
    """One entry a fine-tuning; the rounds that it serves are summed."""
    entries = []
    for one, stage in runs:
        if one.kind != "finetune":
            continue
        served = [config.rounds[i] for i in one.rounds]
        members = [(p, s) for p, s in runs if p.kind in ("sample", "filter") and set(p.rounds) <= set(one.rounds)]
        kept = [pair for _, s in _filtered(config, members) for pair in filter.outcomes(s)]
        entries.append(
            summary.Round(
                task="+".join(dict.fromkeys(r.task for r in served)),
                level=served[0].level if len(served) == 1 else "+".join(str(r.level) for r in served),
                sampled=len(kept),
                kept=sum(accepted for accepted, _ in kept),
                updates=int(stage.facts()["updates"]),
                seconds=sum(s.manifest.seconds for _, s in [*members, (one, stage)] if s.manifest is not None),
                reliability=summary.filter_reliability([a for a, _ in kept], [c for _, c in kept]),
                filter=config.filter,
            )
        )
    return entries


def _track(work: Work[Any]) -> None:
    if work.config.logger.kind != "wandb":
        return
    from uni_train.training.wandb_run import group_of, open_run

    wanted = work.config.logger
    with open_run(
        work.folder.path,
        project=wanted.project,
        name=work.folder.name,
        group=group_of(wanted.group, work.folder.path),
        config=to_plain(work.config),
        offline=wanted.offline,
    ) as run:
        tracking.log_run(run, work.folder.path)
