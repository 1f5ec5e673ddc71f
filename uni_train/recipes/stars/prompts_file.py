"""`rounds[].prompts_file`: a round that asks the prompts of a file, released ones or our own, and no fresh ones."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.config.kinds import run_task
from uni_train.core.errors import DataError, UserError
from uni_train.core.files import atomic_write_json
from uni_train.data_gen.overlap import overlap, prompts_of
from uni_train.data_gen.task import Item
from uni_train.data_gen.training_prompts import TrainingPrompts, read_prompts
from uni_train.eval.task_benchmark import set_of
from uni_train.recipes.stars.config import RoundConfig, RoundsConfig
from uni_train.stages import evaluate
from uni_train.stages.work import Work

COUNTS = "prompts.json"  # in the folder of the stage that samples


def items(config: RoundsConfig, round_: RoundConfig) -> list[Item]:
    """The first `prompts` of the file. Raises UserError: it has none of the round's task, level and world."""
    return _asked(config, round_)[0]


def noted(work: Work[Any], folder: Path, round_: RoundConfig) -> list[Item]:
    """`items`; says, and writes to `COUNTS`, what is asked, and which questions of the evaluation are among them."""
    asked, prompts = _asked(work.config, round_)
    rest = {
        f"beyond prompts={round_.prompts}": len(prompts.items) - len(asked),
        f"rows or pairs left out (reasons in {COUNTS})": len(prompts.left_out),
        "with the prompt of an earlier one": prompts.repeated,
    }
    corrected = f" ({len(prompts.relabelled)} wrong answers of the file are corrected)" if prompts.relabelled else ""
    without = ", ".join(f"{count} {what}" for what, count in rest.items() if count)
    said = f"{round_.prompts_file}: {len(asked)} prompts are asked{corrected}; not asked: {without or 'none'}"
    training, by_set = prompts_of(asked), dict[str, list[Item]]()
    for item in evaluate.items(work):
        by_set.setdefault(set_of(item), []).append(item)
    shared = [overlap(name, prompts_of(tests), training) for name, tests in by_set.items()]
    for line in (said, *(each.describe() for each in shared if each.same_problem)):
        work.progress.say(f"  {line}")
    counts = {
        "asked": len(asked), "left_out": prompts.left_out, "repeated": prompts.repeated,
        "relabelled": prompts.relabelled, "evaluation": [asdict(each) for each in shared],
    }  # fmt: skip
    work.ranks.from_main(partial(atomic_write_json, folder / COUNTS, counts))
    return asked


def _asked(config: RoundsConfig, round_: RoundConfig) -> tuple[list[Item], TrainingPrompts]:
    """The first `prompts`, pairs whole, and all that the file has."""
    task = run_task(config, round_.task)
    try:
        prompts = read_prompts(Path(str(round_.prompts_file)), task, round_.level)
    except DataError as error:
        hint = "Rows are UniSandbox's published ones of maths or mapping, or items.jsonl of `uni_train data make`."
        raise UserError(f"prompts_file of the round {round_.set_name}: {error}", hint) from None
    return prompts.items[: round_.prompts - round_.prompts % task.items_per_draw], prompts
