"""A file's prompts that are not trained on, scored by the run's rewards while a model is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_gen.seeds import derive_seed
from eval.groups import Group, write_groups
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.errors import UserError
from uni_train.models.base import Request, UnifiedModel
from uni_train.rewards.contract import Reward, score
from uni_train.stages.gallery import SHOWN_GROUPS, groups_of, log_groups
from uni_train.stages.validation import FOLDER
from uni_train.stages.work import in_batches
from uni_train.training.flow_grpo.rollout import Drawn, Prompt, columns_of

TOTAL = "reward"
"""The name of the weighted sum of all rewards, as in rollouts.jsonl."""
LEAST = 2
"""Prompts, without which there is no interval."""
MORE = f"held_out needs {LEAST} prompts or more."


@dataclass(frozen=True)
class RewardedPrompts:
    """Held-out prompts, independent of the run's seed.

    seed: of the drawing. batch: images drawn together. think: before it draws.
    """

    prompts: Sequence[Prompt]
    rewards: Sequence[Reward]
    file: str
    seed: int
    batch: int
    think: bool = False

    def evaluate(
        self, model: UnifiedModel, step: int, folder: Path, logger: Any = None, ranks: Ranks = ALONE
    ) -> dict[str, float]:
        """{"held_out": mean of the weighted sum of rewards, "held_out/liked": mean of the reward `liked`, ...}

        A value for every prompt and the first images are written to `folder`/held_out, images to `logger` (W&B) too.
        All ranks call it, share the drawing and get the same scores.

        Raises:
            UserError: a reward fails, or applies to no image. OSError: the disk is full.
        """
        batches = list(in_batches(self.prompts, self.batch))
        own = batches[ranks.rank :: ranks.world_size]
        mine = {number: self._batch(model, batch, number) for number, batch in own}
        found = {number: one for part in ranks.gather(mine) for number, one in part.items()}
        rows = [row for number, _ in batches for row in found[number][0]]
        shown = [group for number, _ in batches for group in found[number][1]][:SHOWN_GROUPS]
        values = {name: [row[name] for row in rows] for name in (TOTAL, *(one.name for one in self.rewards))}
        known = {name: [value for value in some if value is not None] for name, some in values.items()}
        for name, some in known.items():
            if len(some) < LEAST:
                raise UserError(f"{self.file}: {len(some)} of {len(rows)} images have a value of {name}", MORE)
        if ranks.is_main:
            about = {"step": step, "file": self.file, "rewards": values}
            write_groups(folder / FOLDER / f"step={step:08d}", shown, **about)
        log_groups(logger, FOLDER, shown, step)
        means = {name: float(np.mean(some)) for name, some in known.items()}
        return {"held_out": means.pop(TOTAL), **{f"held_out/{name}": mean for name, mean in means.items()}}

    def _batch(
        self, model: UnifiedModel, prompts: Sequence[Prompt], number: int
    ) -> tuple[list[dict[str, float | None]], list[Group]]:
        """Each prompt's rewards by name, None where one does not apply; and the images of the first batch."""
        requests = [
            Request(one.id, one.text, one.images, seed=derive_seed("held out", self.seed, one.id)) for one in prompts
        ]
        columns = columns_of(prompts, 1, number * self.batch)
        if self.think:
            columns["thought"], images = model.think_and_draw(requests)
        else:
            images = model.draw(requests)
        scores = score(self.rewards, [one.text for one in prompts], images, columns)
        note()
        rows = [
            {TOTAL: float(total), **{name: _known(value) for name, value in zip(scores.names, each, strict=True)}}
            for total, each in zip(scores.total, scores.each, strict=True)
        ]
        return rows, groups_of(Drawn(prompts, images, scores), 1) if number == 0 else []


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
