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
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.config.kinds import check_fits, judge_of, run_task
from uni_train.config.messages import check_draws
from uni_train.config.schema import RetentionConfig, RunConfig
from uni_train.core.errors import DataError, UsageError, UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import sources
from uni_train.eval.report.sections.retention import FACTS, FOLDER, LOSSES, START, tables
from uni_train.models.base import Example, Trainable, expect_skill
from uni_train.models.checkpoint import on_disk
from uni_train.models.family import family_of
from uni_train.rewards.contract import Prompt
from uni_train.stages import evaluate
from uni_train.stages.held_out_loss import row_losses
from uni_train.stages.kind import Stages
from uni_train.stages.validation import ValidationPrompts, read_prompts
from uni_train.stages.work import MODEL, StageRun, Work
from uni_train.training.data import inferred
from uni_train.training.data.digest import digests
from uni_train.training.data.rows import Joined, Rows, open_rows
from uni_train.training.metric_log import JsonlLogger, read_metrics

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Noise levels at which rows are scored."""
PRETRAIN = "pretrain"
"""In place of a file: rows as those of the model's own pretraining, where it can make them."""


def expect(work: Work[Any]) -> None:
    """Check before a run what is measured after it.

    Raises:
        UserError: a task has too few items, or a file is one that the model cannot draw or learn.
    """
    config, section = _evaluating(work.config), work.config.retention
    evaluate.items(replace(work, config=config), "retention.n")
    files = [path for path in (section.prompts, section.rows) if path is not None]
    if not files or not all(path == PRETRAIN or Path(path).exists() for path in files):  # `missing` names them
        return
    model = expect_skill(family_of(config.model.family).skeleton(on_disk(config.model), config.seed)[0], Trainable)
    for prompt in _prompts(section):
        model.example_tokens(Example(prompt.text, prompt.images))
    if section.rows is not None:
        _rows(config, model)


def measure(work: Work[Any], runs: Stages) -> None:
    """Ask both models; all ranks call it. What was measured before is kept, unless it was asked otherwise.

    Raises:
        UserError: no stage has trained a model; a row or prompt is one that the model cannot learn or draw.
    """
    config, folder = work.config, work.folder.path / FOLDER
    trained = [run for _, run in runs if (run.path / MODEL).is_dir()]
    if not trained:
        raise UserError("retention compares two models, and this run trains none", "retention.sets=[].")
    models = {START: None, trained[-1].path.name: trained[-1].path / MODEL}
    was, asked = work.weights, _evaluating(config)
    work.ranks.from_main(lambda: _renew(folder, config.retention, asked.evaluation.sets, trained[-1].path.name))
    updates = sum(int(run.facts().get("updates", 0)) for run in trained)
    for (name, weights), step in zip(models.items(), (0, updates), strict=True):
        work.weights = weights
        if asked.evaluation.sets and not (folder / name / evaluate.evaluation.SCORES).exists():
            work.progress.say(f"retention, {name}: {len(asked.evaluation.sets)} sets")
            work.config = asked
            if judge_of(asked) is not None:
                from uni_train.stages import judging

                judging.ready(work)
            evaluate.run(work, StageRun(folder / name, None), name)
            work.config = config
        if config.retention.prompts is not None:
            _draw(work, folder, step)
        if config.retention.rows is not None:
            _score(work, folder / LOSSES, step)
    work.weights = was
    work.ranks.from_main(lambda: _finish(work, folder))


def _evaluating(config: RunConfig) -> RunConfig:
    """With the evaluation of the sets."""
    sets = retained(config) if "all" in config.retention.sets else config.retention.sets
    modes = tuple(mode for mode in config.evaluation.modes if mode == "normal" or config.model.thinks)
    asked = replace(config.evaluation, sets=tuple(sets), n=config.retention.n, modes=modes)
    return replace(config, evaluation=asked)


def _finish(work: Work[Any], folder: Path) -> None:
    """Say that all is measured, and show it."""
    from uni_train.eval.report.tables import print_table

    facts = read_json(folder / FACTS)
    if not facts["done"]:
        atomic_write_json(folder / FACTS, {**facts, "done": True})
    for table in tables(work.folder.path):
        print_table(table, work.progress)


def retained(config: RunConfig) -> list[str]:
    """Every set, without variants, that the model draws and that no round or prompt of the run names."""
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


def _renew(folder: Path, section: RetentionConfig, sets: Sequence[str], trained: str) -> None:
    """Note what is asked, and remove what was asked otherwise: sets, prompts and rows each by themselves."""
    file = folder / FACTS
    asked: dict[str, Any] = {"sets": [list(sets), section.n]} if sets else {}
    for key, path in (("prompts", section.prompts), ("rows", section.rows)):
        if path is not None:
            asked[key] = [path, section.n, {} if path == PRETRAIN else digests(_opened(path))]
    before = read_json(file) if file.exists() else {}
    places = {"sets": [START, before.get("trained", trained)], "prompts": ["held_out"], "rows": [LOSSES]}
    for key in asked.keys() & before.keys():
        for place in places[key] if asked[key] != before[key] else ():
            shutil.rmtree(folder / place) if (folder / place).is_dir() else (folder / place).unlink(missing_ok=True)
    now = {**before, **asked, "trained": trained}
    if now != before:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_json(file, {**now, "done": False})


def _opened(path: str) -> Joined:
    return Joined([], [Path(path)]) if path.lower().endswith(".txt") else open_rows(path, held_out=True)


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
    config, path = work.config, work.config.retention.prompts
    if (folder / "held_out" / f"step={step:08d}").exists():
        return
    prompts = {str(path): _prompts(config.retention)}
    validation = ValidationPrompts(prompts, config.evaluation.seed, config.model.draw_batch)
    scores = validation.evaluate(work.model(work.weights), step, folder, ranks=work.ranks)
    if scores:
        work.progress.say(f"retention, after {step} updates: {scores['held_out']:.2f} of the items in {path} are right")


def _prompts(section: RetentionConfig) -> list[Prompt]:
    """Of the file. Raises UserError: it cannot be read, or has none."""
    if section.prompts is None:
        return []
    prompts = read_prompts(section.prompts, most=section.n, rewarded=False, held_out=True)
    if not prompts:
        raise UserError(f"retention.prompts: {section.prompts} has no prompts", "Write one a line.")
    return prompts
