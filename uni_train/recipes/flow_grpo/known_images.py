"""What rewards that ask a model pay for images that are known to be right or wrong, before a run learns from them.

The images are those of `data make --format judge`, of validation items: near misses, other answers and attacks among
them, each proved by the task's verifier. The policy draws none of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from uni_train.core.errors import DataError
from uni_train.core.files import atomic_write_json
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.judge_rows import judge_samples
from uni_train.eval.images import pixels
from uni_train.recipes.flow_grpo.config import FlowGrpoConfig
from uni_train.rewards.contract import Reward, columns_of, score
from uni_train.rewards.judging import ModelReward
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
    rewards = [reward for reward in rewards if isinstance(reward.function, ModelReward)]
    if work.config.prompts.task is None or not rewards:
        return {}
    found = work.ranks.from_main(partial(_paid, work, stage, rewards))
    for name, paid in found.items():
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
    return found


def _paid(work: Work[FlowGrpoConfig], stage: StageRun, rewards: Sequence[Reward]) -> dict[str, Any]:
    """Asked once a run, also where it is continued. Nothing where the task draws no images."""
    file, config = stage.path / FILE, work.config
    if not file.exists():
        task, levels = work.task(config.prompts.task or ""), config.held_out.levels or config.prompts.levels
        seeds = [derive_seed("known", config.seed, i) for i in range(N)]
        drawn = [task.sample(seed, levels[i % len(levels)], "validation")[0] for i, seed in enumerate(seeds)]
        items = {item.id: item for item in drawn}
        try:
            samples = list(judge_samples(task, drawn, config.seed))
        except DataError as error:
            work.progress.say(f"  known images: none ({error})")
            return {}
        prompts = [prompt_of(items[sample.row["id"]]) for sample in samples]
        images = [pixels(sample.images["image"]) for sample in samples]
        paid = score(rewards, [prompt.text for prompt in prompts], images, columns_of(prompts, 1, 0)).each
        right = np.array([sample.row["verdict"] == "pass" for sample in samples])
        atomic_write_json(file, {reward.name: _summary(right, paid[:, r]) for r, reward in enumerate(rewards)})
    return json.loads(file.read_text(encoding="utf-8"))


def _summary(right: np.ndarray, paid: np.ndarray) -> dict[str, Any]:
    """Of bool [N] and float [N], NaN where no answer could be read: those count nowhere else."""
    parts = {name: paid[chosen & ~np.isnan(paid)] for name, chosen in (("right", right), ("wrong", ~right))}
    more = np.sign(parts["right"][:, None] - parts["wrong"][None])
    means = {name: {"mean": float(part.mean()) if part.size else None, "n": part.size} for name, part in parts.items()}
    missing = int(np.isnan(paid).sum())
    return {**means, "missing": missing, "auc": float((more.mean() + 1) / 2) if more.size else None}
