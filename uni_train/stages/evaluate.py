"""Normal and CoT accuracy on the sets of `evaluation.sets`, every image stored once.

A recipe that names none asks UniSandbox's six (Niu et al. 2025, Tables 1 to 3). All are asked alike, and those beside
the six (`data_gen.registry.sources`) have their own tables.
`evaluation.modes` may have "said": how often the model says the right answer in words at once.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from uni_train.config.kinds import PlannedStage, reads_images
from uni_train.config.schema import EvalConfig, RunConfig
from uni_train.core.errors import DataError, UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import sources
from uni_train.data_gen.task import Item, Task
from uni_train.eval import evaluation
from uni_train.eval.benchmark import Scored
from uni_train.eval.calls import StoredModel
from uni_train.eval.sample import mostly_failed
from uni_train.eval.scored import read_folder, without_images
from uni_train.eval.sets import training_run
from uni_train.eval.sets.benchmark import SetBenchmark
from uni_train.eval.sets.counting import accuracy, accuracy_rows, units
from uni_train.eval.sets.names import named
from uni_train.eval.shortcuts import Trivial
from uni_train.eval.store import Store
from uni_train.eval.task_benchmark import TaskBenchmark, item_case
from uni_train.models.identity import ModelIdentity
from uni_train.stages.batched import Batched
from uni_train.stages.kind import Stages
from uni_train.stages.shards import make_shards
from uni_train.stages.work import SHARDS, STORE, StageRun, Work, in_batches

if TYPE_CHECKING:
    from uni_train.eval.summary import Round
    from uni_train.models.base import UnifiedModel


def benchmark(work: Work[RunConfig]) -> SetBenchmark:
    """What this run asks. Raises UserError: as `items`."""
    return SetBenchmark([item_case(item) for item in items(work)], work.config.evaluation.modes)


def items(work: Work[RunConfig], key: str = "evaluation.n") -> list[Item]:
    """Of every set that is asked; the same whatever the run's seed, so that runs compare.

    Raises:
        UserError: a split has fewer than `key` expressions or pairs.
    """
    wanted = work.config.evaluation
    drawn: list[Item] = []
    for name in wanted.sets:
        split = sources()[name].split or wanted.split
        seed = derive_seed("evaluation", wanted.seed)
        drawn += named(_drawn(work, name, key, wanted.n, split, seed), name)
    return drawn


def watched(work: Work[Any], name: str) -> list[Item]:
    """The validation items of one set for the threshold curriculum. Raises UserError: the split has too few."""
    n, seed = work.config.schedule.check_prompts, derive_seed("check", work.config.seed)
    return _drawn(work, name, "schedule.check_prompts", n, "validation", seed)


def _drawn(work: Work[Any], name: str, key: str, n: int, split: str, seed: int) -> list[Item]:
    task, level = _task(work, name), sources()[name].level
    task.validate(level, split)
    try:
        return task.generate(n, level, split, seed)
    except DataError as error:
        raise UserError(f"{key} {n} is too many for {name}: {error}", f"Lower {key}.") from error


def _task(work: Work[Any], name: str) -> Task:
    source = sources()[name]
    task = work.task(source.task)
    return replace(cast(Any, task), **source.options) if source.options else task


def moment(planned: PlannedStage) -> str:
    """The moment of an evaluation: before, round1, after. The last of an extended run is the one after."""
    return planned.name.removeprefix("evaluate-").partition("-")[0]


def run(work: Work[RunConfig], stage: StageRun, label: str) -> None:
    """Ask everything in every mode; score by the exact verifier, in the everyday world by the judge.

    The stage's folder is that of an evaluation (`uni_train.eval.evaluation`), for `eval compare` and `eval report`.
    """
    config, weights = work.config, work.weights
    plan = evaluation.EvaluationPlan(
        checkpoint=str(weights or config.model.checkpoint),
        benchmarks=[benchmark(work)],
        config=EvalConfig(
            seed=config.evaluation.seed,
            redraw=config.evaluation.redraw,
            judge=work.judge if reads_images(config) else None,
            out=str(stage.path.parent),
            name=stage.path.name,
            store=str(stage.path / STORE),
        ),
    )
    # Its calls are this stage's alone, so that no checkpoint need be hashed to tell whose they are.
    content, family = f"{config.recipe}/{work.folder.path.name}/{stage.path.name}", {"family": config.model.family}
    model = StoredModel(
        ModelIdentity(config.model.name, plan.checkpoint, content, family if config.evaluation.redraw > 1 else {}),
        Store(plan.store_folder),
        lambda: work.model(weights),
        think_batch=config.model.think_batch,
        draw_batch=config.model.draw_batch,
    )
    (result,) = evaluation.run(plan, work.progress, model=model, ranks=work.ranks).results.values()
    _check(result, config)
    stage.outputs = [stage.path / name for name in (evaluation.ASKED, evaluation.SCORES)]
    stage.outputs += [stage.path / evaluation.SCORED / name for name in result.shards]
    scores = {mode: result.scores[mode] for mode in result.settings}
    stage.result = {"label": label, "scores": scores}
    plain = {name: [Trivial.from_dict(raw) for raw in rows] for name, rows in result.scores["strategies"].items()}
    work.progress.table(f"Accuracy, {label}: {result.questions}", *accuracy_rows(scores, plain))


def _check(result: evaluation.Result, config: RunConfig) -> None:
    """Raises UserError where the model or the judge failed, because then there is no score."""
    counts = sum((Counter(some) for by_set in result.outcomes.values() for some in by_set.values()), Counter())
    if counts["judge_failed"]:
        from uni_train.stages import judging

        raise judging.silent(config, counts["judge_failed"], counts.total())
    if result.not_scored or result.no_skill:
        setting, name, why = (*result.not_scored, *result.no_skill)[0]
        raise UserError(f"{name}, {setting} cannot be scored: {why}", "Put it right and run the same command again.")


def summarised(runs: Stages, rounds: Sequence[Round], about: Mapping[str, Any]) -> dict[str, Any]:
    """summary.json of a run with evaluations. about: what every summary says."""
    labelled = {
        moment(run): read_folder(stage.path / evaluation.SCORED, images=False)
        for run, stage in runs
        if run.kind == "evaluate"
    }
    if "before" not in labelled:  # a pretraining run has no model to compare with
        labelled = {"before": labelled.pop("after"), **labelled}
    return training_run.build(**about, evaluations=labelled, rounds=rounds)


def normal_accuracy(model: UnifiedModel, work: Work[Any], name: str, folder: Path) -> float:
    """Normal accuracy on the `watched` items of one set. All ranks call it and share the draws.

    Args:
        folder: where images wait for a judge; it is removed afterwards.

    Raises:
        UserError: the judge gave no verdict on most of them.
    """
    ranks, questions = work.ranks, TaskBenchmark.from_items(watched(work, name), "normal")
    asks = questions.asks(derive_seed("check", work.config.seed))
    batches = [batch for _, batch in in_batches(asks, work.config.model.draw_batch)]
    respondent = Batched(model, work.config.model.think_batch)

    def make(index: int) -> list[Scored]:
        return questions.verified(respondent, batches[index])

    if reads_images(work.config):
        from uni_train.stages import judging

        judged = partial(judging.judged, work, folder, questions)
        make_shards(work, folder, [len(batch) for batch in batches], make, name, judged, quiet=True)
        scored = ranks.from_main(lambda: list(read_folder(folder / SHARDS, images=False)))
        ranks.from_main(lambda: shutil.rmtree(folder, ignore_errors=True))
    else:
        mine = [answer for index in range(ranks.rank, len(batches), ranks.world_size) for answer in make(index)]
        scored = [answer for part in ranks.gather(list(without_images(mine))) for answer in part]
    if why := mostly_failed(scored):
        raise UserError(f"{name} cannot be scored: {why}", "Put it right and run the same command again.")
    value = accuracy(units(scored, "official")).value
    return 0.0 if value is None else value
