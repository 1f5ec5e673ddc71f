"""What rewards that ask a model pay for images that are known to be right or wrong, before a run learns from them.

The images are solutions of held-out items, those of other items, and near misses of sprites: another object, another
count, both. The task's verifier proves each, and the policy draws none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from uni_train.config.schema import SHARDED
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.core.seeds import derive_seed
from uni_train.data_gen import sprites
from uni_train.data_gen.sprite_task import SpriteTask, beside_item
from uni_train.data_gen.task import Item, Status, Task
from uni_train.recipes.flow_grpo.config import FlowGrpoConfig
from uni_train.rewards.contract import Reward, columns_of, score
from uni_train.rewards.judging import ModelReward, SelfCheck
from uni_train.stages.validation import prompt_of
from uni_train.stages.work import StageRun, Work

FILE = "known_images.json"
N = 60  # images, about half of them right


def measure(work: Work[FlowGrpoConfig], stage: StageRun, rewards: Sequence[Reward]) -> dict[str, Any]:
    """Reward -> its mean for right and for wrong images, their numbers, how many got no answer, and `auc`: the share of
    pairs of a right and a wrong image in which the right one is paid more (equal ones count half). All ranks call it.

    Raises:
        UserError: a judge does not answer.
    """
    sharded = work.config.strategy.kind in SHARDED
    rewards = [reward for reward in rewards if isinstance(reward.function, ModelReward)]
    for reward in rewards if sharded else ():
        if isinstance(reward.function, SelfCheck):
            work.progress.say(f"  known images: none for {reward.name}, for sharded weights answer only in training")
    judges = [reward for reward in rewards if not (sharded and isinstance(reward.function, SelfCheck))]
    if work.config.prompts.task is None or not judges:
        return {}
    summaries = work.ranks.from_main(partial(_paid, work, stage, judges))
    for name, paid in summaries.items():
        right, wrong, auc = paid["right"], paid["wrong"], paid["auc"]
        facts = [f"cannot be read for {paid['missing']} of them"] if paid["missing"] else []
        if auc is not None:
            means = f"{right['mean']:.2f} for {right['n']} right and {wrong['mean']:.2f} for {wrong['n']} wrong ones"
            facts.insert(0, f"pays {means}, AUC {auc:.2f}")
        work.progress.say(f"  known images: {name} {', and '.join(facts)}")
        if auc is None or auc < 0.75:
            work.progress.say(
                f"  warning: {name} hardly sees which images are right, so there is little to learn from it: "
                "take another judge (docs/flow_grpo.md#known-images)"
            )
    return summaries


def _paid(work: Work[FlowGrpoConfig], stage: StageRun, rewards: Sequence[Reward]) -> dict[str, Any]:
    """Asked once a run, also where it is continued. Nothing where the task has no images."""
    file, config = stage.path / FILE, work.config
    if not file.exists():
        task, levels = work.task(config.prompts.task or ""), config.held_out.levels or config.prompts.levels
        seeds = [derive_seed("known", config.seed, i) for i in range(N)]
        items = [task.sample(seed, levels[i % len(levels)], config.held_out.split)[0] for i, seed in enumerate(seeds)]
        if not task.has_image(items[0]):
            work.progress.say(f"  known images: none, for {task.name} of this world has no solutions as images")
            return {}
        shown = [(item, _shown(task, items, i, seed)) for i, (item, seed) in enumerate(zip(items, seeds, strict=True))]
        status = [task.verify(item, image).status for item, image in shown]
        prompts, images = zip(*((prompt_of(item), image) for item, image in shown), strict=True)
        paid = score(rewards, [prompt.text for prompt in prompts], images, columns_of(prompts, 1, 0)).each
        atomic_write_json(file, {reward.name: _summary(status, paid[:, r]) for r, reward in enumerate(rewards)})
    summaries: dict[str, Any] = read_json(file)
    return summaries


def _shown(task: Task, items: Sequence[Item], i: int, seed: int) -> np.ndarray:
    """An image beside item `i`, right or wrong about equally often; uint8 [H, W, 3]."""
    if isinstance(task, SpriteTask) and (shown := beside_item(items[i], random.Random(seed))) is not None:
        return sprites.render(*shown, seed)
    others = [item for item in (*items[i:], *items[:i]) if item.answer != items[i].answer]
    return task.render(others[0] if others and seed % 2 else items[i], seed)


def _summary(status: Sequence[Status], paid: np.ndarray) -> dict[str, Any]:
    """Of N images and float [N], NaN where no answer could be read: those count nowhere else."""
    kinds, read = {"right": "pass", "wrong": "fail"}, ~np.isnan(paid)
    parts = {kind: paid[read & np.array([verdict == proof for verdict in status])] for kind, proof in kinds.items()}
    more = np.sign(parts["right"][:, None] - parts["wrong"][None])
    means = {kind: {"mean": float(part.mean()) if part.size else None, "n": part.size} for kind, part in parts.items()}
    return {**means, "missing": int((~read).sum()), "auc": float((more.mean() + 1) / 2) if more.size else None}
