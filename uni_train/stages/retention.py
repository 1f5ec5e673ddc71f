"""What else a training has changed: what it does not train, measured with the first and with the last weights.

    RUN/retention/start, RUN/retention/05-finetune    evaluations of sets (`eval compare` takes them)
    RUN/retention/held_out/step=00000100              images of prompts, those of the first weights at step 0

All of it comes after the last stage, so it changes no number of the run, and a finished run may be asked for it.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from uni_train.config.kinds import check_fits, run_task
from uni_train.config.messages import check_draws
from uni_train.config.schema import RunConfig
from uni_train.core.errors import DataError, UsageError, UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.data_gen.registry import sources
from uni_train.eval.report.sections.retention import FACTS, FOLDER, START, tables
from uni_train.stages import evaluate
from uni_train.stages.kind import Stages
from uni_train.stages.validation import ValidationPrompts, read_prompts
from uni_train.stages.work import MODEL, StageRun, Work


def measure(work: Work[Any], runs: Stages) -> None:
    """Ask both models; all ranks call it. What was measured before is kept, unless it was asked otherwise.

    Raises:
        UserError: no stage has trained a model; a task has too few items, or a file cannot be read.
    """
    config, folder = work.config, work.folder.path / FOLDER
    trained = [run for _, run in runs if (run.path / MODEL).is_dir()]
    if not trained:
        raise UserError("retention compares two models, and this run trains none", "retention.sets=[].")
    sets = retained(config) if "all" in config.retention.sets else list(config.retention.sets)
    facts = {"retention": asdict(config.retention) | {"sets": sets}, "trained": trained[-1].path.name}
    work.ranks.from_main(lambda: _renew(folder, facts))
    models = {START: None, trained[-1].path.name: trained[-1].path / MODEL}
    updates = sum(int(run.facts().get("updates", 0)) for run in trained)
    was, asked = work.weights, config.evaluation
    modes = tuple(mode for mode in asked.modes if mode == "normal" or config.model.thinks)
    for (name, weights), step in zip(models.items(), (0, updates), strict=True):
        work.weights = weights
        if sets and not (folder / name / evaluate.evaluation.SCORES).exists():
            work.progress.say(f"retention, {name}: {len(sets)} sets")
            work.config = replace(
                config, evaluation=replace(asked, sets=tuple(sets), n=config.retention.n, modes=modes)
            )
            evaluate.run(work, StageRun(folder / name, None), name)
            work.config = config
        if config.retention.prompts is not None:
            _draw(work, folder, step)
    work.weights = was
    work.ranks.from_main(lambda: _finish(work, folder, facts))


def _finish(work: Work[Any], folder: Path, facts: dict[str, Any]) -> None:
    """Say that all is measured, and show it."""
    from uni_train.eval.report.tables import print_table

    if not read_json(folder / FACTS).get("done"):
        atomic_write_json(folder / FACTS, {**facts, "done": True})
    for table in tables(work.folder.path):
        print_table(table, work.progress)


def retained(config: RunConfig) -> list[str]:
    """Every set, without variants, that the model draws and on which the run does not train."""
    rounds = {round_.set_name for round_ in getattr(config, "rounds", ())}
    prompts = getattr(config, "prompts", None)
    reinforced = {(prompts.task, level) for level in prompts.levels} if prompts is not None else set()
    return [
        name
        for name, source in sources().items()
        if not source.variant and name not in rounds and (source.task, source.level) not in reinforced
        if _draws(config, source.task, source.level)
    ]


def _draws(config: RunConfig, task: str, level: int) -> bool:
    try:
        check_draws(config.model, [task], str)
        check_fits(config, task, [level], "retention.sets", str)
        run_task(config, task).validate(level, config.evaluation.split)
    except (UsageError, DataError):
        return False
    return True


def _renew(folder: Path, facts: dict[str, Any]) -> None:
    """Remove what was measured otherwise."""
    file = folder / FACTS
    if file.exists() and {key: read_json(file).get(key) for key in facts} != facts:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_json(file, facts)


def _draw(work: Work[Any], folder: Path, step: int) -> None:
    """Draw the file's prompts, each from the same noise by both models."""
    section = work.config.retention
    if (folder / "held_out" / f"step={step:08d}").exists():
        return
    prompts = read_prompts(section.prompts, most=section.n, rewarded=False, held_out=True)
    if not prompts:
        raise UserError(f"retention.prompts: {section.prompts} has no prompts", "Write one a line.")
    validation = ValidationPrompts(
        {section.prompts: prompts}, work.config.evaluation.seed, work.config.model.draw_batch
    )
    validation.evaluate(work.model(work.weights), step, folder, ranks=work.ranks)
