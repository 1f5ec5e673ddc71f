"""What else a training has changed: what it does not train, measured with the first and with the last weights.

    RUN/retention/start, RUN/retention/05-finetune    evaluations of sets (`eval compare` takes them)
    RUN/retention/held_out/step=00000100              images of prompts, those of the first weights at step 0
    RUN/retention/losses.jsonl                        the losses of rows, a line a model

All of it comes after the last stage, so it changes no number of the run, and a finished run may be asked for it.
"""

from __future__ import annotations

import heapq
import random
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.config.kinds import check_fits, run_task
from uni_train.config.messages import check_draws
from uni_train.config.schema import RunConfig
from uni_train.core.errors import DataError, UsageError, UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import sources
from uni_train.eval.report.sections.retention import FACTS, FOLDER, LOSSES, START, tables
from uni_train.models.base import Example, Trainable, expect_skill
from uni_train.stages import evaluate
from uni_train.stages.held_out_loss import row_losses
from uni_train.stages.kind import Stages
from uni_train.stages.validation import ValidationPrompts, read_prompts
from uni_train.stages.work import MODEL, StageRun, Work
from uni_train.training.data import inferred
from uni_train.training.data.rows import Rows, open_rows
from uni_train.training.metric_log import JsonlLogger, read_metrics

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Noise levels at which rows are scored."""
PRETRAIN = "pretrain"
"""In place of a file: rows as those of the model's own pretraining, where it can make them."""


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
        if config.retention.rows is not None:
            _score(work, folder / LOSSES, step)
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


def _score(work: Work[Any], file: Path, step: int) -> None:
    """Append the losses of the rows under the current weights."""
    lines = work.ranks.from_main(lambda: read_metrics(file))
    if any(line["step"] == step for line in lines):
        return
    config = work.config
    model = expect_skill(work.model(work.weights), Trainable).eval()
    examples = _rows(config, model)
    ce, mse = row_losses(model, examples, LEVELS, config.evaluation.seed, work.ranks)
    rows = {"ce": ce.tolist(), "mse": mse.tolist()}
    line = {"step": step, "levels": [*LEVELS], "ids": {"held_out": [*examples]}, "rows": {"held_out": rows}}
    work.ranks.from_main(lambda: JsonlLogger(file).append([line]))


def _rows(config: RunConfig, model: Trainable) -> dict[str, Example]:
    """Rows of the file, chosen by a hash, or so many of each kind of the model's pretraining.

    Raises:
        UserError: a bad row; no such file; a model that has no rows of its pretraining.
    """
    given, n = str(config.retention.rows), config.retention.n
    seed = partial(derive_seed, "retention", config.evaluation.seed)
    if given != PRETRAIN:
        longest = config.model.architecture.max_text_tokens
        rows = Rows(
            open_rows(given, held_out=True), inferred.parse, config.data.bad_rows, model.example_tokens, longest
        )
        chosen = heapq.nsmallest(n, range(len(rows)), key=seed)
        return {f"/{index}": rows.draw(index, random.Random(0)) for index in chosen}
    makers = model.replay_rows(())
    if makers is None:
        hint = "Give a file or a folder of rows: retention.rows=FILE."
        raise UserError(f"retention.rows=pretrain: {model.name} has no rows of its pretraining", hint)
    return {f"{kind}/{i}": make(random.Random(seed(kind, i))) for kind, (_, make) in makers.items() for i in range(n)}


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
