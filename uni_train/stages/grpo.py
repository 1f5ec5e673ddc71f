"""Reinforcement: pictures of the recipe's prompts, its rewards, and what both do to the model (docs/flow_grpo.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_gen.errors import DataError
from data_gen.seeds import derive_seed
from data_gen.task import Item, Task
from eval.statistics import proportion
from uni_train.config.schema import FlowGrpoConfig
from uni_train.errors import UserError
from uni_train.files import atomic_path
from uni_train.models.base import Request, UnifiedModel
from uni_train.models.load import save_model
from uni_train.rewards.contract import Reward
from uni_train.rewards.naming import reward_function
from uni_train.stages.finetune import ADAPTERS, adapters, run_logger, supervised_settings
from uni_train.stages.work import MODEL, StageRun, Work, in_batches
from uni_train.training.data.rows import BadRow, Row, image_of, open_rows
from uni_train.training.flow_grpo.prompts import Prompt, PromptList, Prompts
from uni_train.training.flow_grpo.settings import AlarmSettings, FlowGrpoSettings

if TYPE_CHECKING:
    from uni_train.training.flow_grpo.rollouts import Drawn

GALLERY = "gallery"
_SHOWN_GROUPS, _SHOWN_MEMBERS, _BORDER = 8, 16, 2


def run(work: Work[FlowGrpoConfig], stage: StageRun) -> None:
    """Train by rewards; held-out success before and after is in the result."""
    # Lightning takes seconds to import, which --dry-run need not wait for.
    from uni_train.training.flow_grpo.fit import HELD_OUT, fit_flow_grpo
    from uni_train.training.metric_log import read_metrics

    config = work.config
    rewards = [Reward(name, reward_function(r.function), r.weight) for name, r in config.used_rewards.items()]
    asked = prompts(work)
    model = work.model(work.weights)
    grpo = settings(config, stage.path.name)
    optimizer = supervised_settings(config, grpo.updates, 1, stage.path.name, trained=config.trained)
    held_out = _held_out(work)

    def measure(step: int) -> Mapping[str, float]:
        del step  # every look asks the same prompts
        return success(work, model, held_out)

    def show(epoch: int, drawn: Drawn) -> None:
        if epoch % config.held_out.every == 0 or epoch == config.epochs - 1:
            write_gallery(drawn, config.rollout.group_size, stage.path / GALLERY / f"epoch-{epoch:05d}.png")

    with adapters(work, model, optimizer, stage.path):
        result = fit_flow_grpo(
            model,
            asked,
            rewards,
            grpo,
            optimizer,
            stage.path,
            evaluate=measure if held_out else None,
            evaluate_every=config.held_out.every,
            on_drawn=show,
            logger=run_logger(work, stage.path.name),
            description="  updates",
        )
    save_model(model, stage.path / MODEL)
    work.changed(model, stage.path / MODEL)
    folders = [stage.path / MODEL, *([stage.path / ADAPTERS] if config.trained == "lora" else [])]
    stage.outputs = sorted(file for folder in folders for file in folder.rglob("*") if file.is_file())
    looks = read_metrics(stage.path / HELD_OUT)
    epochs = read_metrics(stage.path / "rollouts.jsonl")
    seconds = {part: sum(line["seconds"].get(part, 0.0) for line in epochs) for part in ("rollout", "reward", "update")}
    stage.result = {
        "updates": result.updates,
        "seconds": result.seconds,
        "split": seconds,
        "reward": {"first": epochs[0]["reward"], "last": epochs[-1]["reward"]},
        "held_out": _intervals(config, looks, held_out),
    }
    parts = ", ".join(f"{part} {value:.0f} s" for part, value in seconds.items())
    work.progress.say(f"  reward {epochs[0]['reward']:.3f} -> {epochs[-1]['reward']:.3f}; {parts}")
    if held_out:
        work.progress.table(
            f"Success on {config.held_out.split} prompts",
            ["", *(f"level {level}" for level in held_out)],
            [
                [when, *(_shown(stage.result["held_out"][when][str(level)]) for level in held_out)]
                for when in ("before", "after")
            ],
        )
    work.progress.say(f"  model: {stage.path / MODEL}")


def settings(config: FlowGrpoConfig, stage: str) -> FlowGrpoSettings:
    """The recipe in the trainer's terms."""
    rollout, objective = asdict(config.rollout), asdict(config.objective)
    return FlowGrpoSettings(
        variant=config.variant,
        epochs=config.epochs,
        updates_per_epoch=config.updates_per_epoch,
        rows=config.rows,
        draw_rows=config.model.draw_batch,
        alarms=AlarmSettings(**asdict(config.alarms)),
        seed=config.seed,
        stage=stage,
        **rollout,
        **objective,
    )


# --- prompts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskPrompts:
    """New draws of a task in every epoch; prompt i of an epoch has the level whose turn it is."""

    task: Task
    levels: tuple[int, ...]
    seed: int

    def epoch(self, epoch: int, count: int) -> list[Prompt]:
        found = []
        for i in range(count):
            level = self.levels[(epoch * count + i) % len(self.levels)]
            seed = derive_seed("grpo prompts", self.seed, epoch, i)
            items = self.task.sample(seed, level, "train")
            found.append(prompt_of(self.task, items[seed % len(items)]))
        return found


def prompt_of(task: Task, item: Item) -> Prompt:
    """An item as the model is asked."""
    image = task.input_image(item)
    columns = {"item": item, "answer": item.answer, "level": item.level}
    return Prompt(item.id, item.prompt, () if image is None else (image,), columns)


def prompts(work: Work[FlowGrpoConfig]) -> Prompts:
    """What the recipe asks.

    Raises:
        UserError: a file of prompts is missing or has a bad row, or a task has too few items.
    """
    config = work.config
    asked = config.prompts
    if asked.path is not None:
        return PromptList(read_prompts(asked.path, asked.images), config.seed)
    task = work.task(asked.task or "maze")
    _check_levels(task, asked.levels)
    if asked.n is None:
        return TaskPrompts(task, asked.levels, config.seed)
    share = -(-asked.n // len(asked.levels))
    items = [item for level in asked.levels for item in _generate(task, share, level, "train", config.seed)]
    return PromptList([prompt_of(task, item) for item in items[: asked.n]], config.seed)


def read_prompts(path: str, images: str | None = None) -> list[Prompt]:
    """Rows with `prompt`, and `images` or `input_image`; all their other keys are columns for rewards. A row with the
    facts of an item of ours has it as the column `item`.

    Raises:
        UserError: a missing file; a bad row, by its file and number.
    """
    rows = open_rows(path, Path(images) if images is not None else None)
    found = []
    for index in range(len(rows)):
        try:
            found.append(_prompt(rows[index], index))
        except BadRow as error:
            hint = "Every row needs a prompt, and images that can be read."
            raise UserError(f"{rows.where(index)}: {error}", hint) from None
    return found


def _prompt(row: Row, index: int) -> Prompt:
    values: dict[str, Any] = dict(row.values)
    shown = values.get("images") or ([values["input_image"]] if values.get("input_image") else [])
    if not isinstance(shown, list):
        raise BadRow("images is no list")
    pictures = tuple(image_of(image, row.folder, f"image {i}") for i, image in enumerate(shown, start=1))
    columns = {key: value for key, value in values.items() if key not in ("id", "prompt", "images", "input_image")}
    if isinstance(values.get("facts"), dict):
        try:
            columns["item"] = Item.from_dict(values)
        except (KeyError, TypeError, ValueError) as error:
            raise BadRow(f"is no item of ours: {error}") from None
    return Prompt(str(values.get("id", f"row{index}")), row.text("prompt"), pictures, columns)


def _check_levels(task: Task, levels: Sequence[int]) -> None:
    for level in levels:
        if level not in task.levels:
            raise UserError(
                f"prompts.levels: {task.name} has no level {level}", f"Choose of {', '.join(map(str, task.levels))}."
            )


def _generate(task: Task, n: int, level: int, split: str, seed: int) -> list[Item]:
    try:
        return task.generate(n, level, split, derive_seed("grpo", split, seed))
    except DataError as error:
        raise UserError(str(error), "Ask for fewer, or for other levels.") from None


# --- held-out success -------------------------------------------------------------------------------------------------


def _held_out(work: Work[FlowGrpoConfig]) -> dict[int, list[Item]]:
    """Level -> prompts that are never trained on; the same whatever the run's seed."""
    config = work.config
    if config.prompts.task is None or not config.held_out.n:
        return {}
    task = work.task(config.prompts.task)
    levels = config.held_out.levels or config.prompts.levels
    _check_levels(task, levels)
    seed, split = config.evaluation.seed, config.held_out.split
    return {level: _generate(task, config.held_out.n, level, split, seed)[: config.held_out.n] for level in levels}


def success(work: Work[FlowGrpoConfig], model: UnifiedModel, items: Mapping[int, Sequence[Item]]) -> dict[str, float]:
    """ "held_out": the share of all prompts that the verifier passes; "held_out/4": of level 4."""
    config = work.config
    task = work.task(config.prompts.task or "maze")
    found: dict[str, float] = {}
    passed = 0
    for level, some in items.items():
        right = 0
        for _, batch in in_batches(some, config.model.draw_batch):
            asked = [prompt_of(task, item) for item in batch]
            requests = [
                Request(one.id, one.text, one.images, seed=derive_seed("held out", config.evaluation.seed, one.id))
                for one in asked
            ]
            right += sum(
                task.verify(item, image).passed for item, image in zip(batch, model.draw(requests), strict=True)
            )
        found[f"held_out/{level}"] = right / len(some)
        passed += right
    return {"held_out": passed / sum(map(len, items.values())), **found}


def _intervals(
    config: FlowGrpoConfig, looks: Sequence[Mapping[str, float]], items: Mapping[int, Sequence[Item]]
) -> dict[str, dict[str, Any]]:
    if not looks or not items:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for when, look in (("before", looks[0]), ("after", looks[-1])):
        found[when] = {
            str(level): proportion(round(look[f"held_out/{level}"] * len(some)), len(some)).to_dict()
            for level, some in items.items()
        }
    return found


def _shown(estimate: Mapping[str, Any]) -> str:
    return f"{estimate['value']:.2f} [{estimate['low']:.2f}, {estimate['high']:.2f}] n={estimate['n']}"


# --- pictures ---------------------------------------------------------------------------------------------------------


def write_gallery(drawn: Drawn, group_size: int, file: Path) -> None:
    """The first groups of an epoch, a row each, first what was shown; the border goes from red (worst reward of the
    epoch) to green (best)."""
    from PIL import Image

    totals = drawn.scores.total
    low, spread = float(totals.min()), float(np.ptp(totals)) or 1.0
    rows = []
    height = max(image.shape[0] for image in drawn.images) + 2 * _BORDER
    width = max(image.shape[1] for image in drawn.images) + 2 * _BORDER
    for g, prompt in enumerate(drawn.prompts[:_SHOWN_GROUPS]):
        cells = [_framed(prompt.images[0] if prompt.images else None, (128, 128, 128), height, width)]
        for i in range(g * group_size, g * group_size + min(group_size, _SHOWN_MEMBERS)):
            good = (float(totals[i]) - low) / spread
            cells.append(_framed(drawn.images[i], (int(220 * (1 - good)), int(180 * good), 40), height, width))
        rows.append(np.concatenate(cells, axis=1))
    sheet = np.concatenate(rows)
    enlarged = max(1, 64 // height)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as temporary:
        Image.fromarray(sheet.repeat(enlarged, axis=0).repeat(enlarged, axis=1)).save(temporary, "PNG")


def _framed(image: np.ndarray | None, colour: tuple[int, int, int], height: int, width: int) -> np.ndarray:
    cell = np.full((height, width, 3), 255, np.uint8)
    if image is not None:
        h, w = min(image.shape[0], height - 2 * _BORDER), min(image.shape[1], width - 2 * _BORDER)
        cell[: h + 2 * _BORDER, : w + 2 * _BORDER] = colour
        cell[_BORDER : _BORDER + h, _BORDER : _BORDER + w] = image[:h, :w]
    return cell
