"""A file's prompts that are not trained on, scored by the run's rewards while a model is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uni_train.data_gen.seeds import derive_seed
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.watchdog import note
from uni_train.errors import UserError
from uni_train.eval.groups import Group, write_groups
from uni_train.models.base import Request, UnifiedModel
from uni_train.rewards.contract import Reward, Scoring
from uni_train.stages.gallery import SHOWN_GROUPS, groups_of, log_groups
from uni_train.stages.validation import FOLDER
from uni_train.stages.work import in_batches
from uni_train.training.flow_grpo.rollout import Prompt, ScoredImages, columns_of

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
        """{"held_out": weighted sum of the rewards' means, "held_out/liked": mean of the reward `liked`, ...}

        A value for every prompt and the first images are written to `folder`/held_out, images to `logger` (W&B) too.
        All ranks call it, share the drawing and get the same scores.

        Raises:
            UserError: a reward fails, or applies to fewer than two images. OSError: the disk is full.
        """
        mine = ranks.on_all(lambda: self._drawn(model, ranks))
        rows = sorted((row for part in ranks.gather(mine) for row in part), key=lambda row: row.place)
        values = {reward.name: [row.rewards[i] for row in rows] for i, reward in enumerate(self.rewards)}
        known = {name: [value for value in some if value is not None] for name, some in values.items()}
        for name, some in known.items():
            if len(some) < LEAST:
                raise UserError(f"{self.file}: {name} has a value for {len(some)} of {len(rows)} images", MORE)
        shown = [row.group for row in rows if row.group is not None]
        if ranks.is_main:
            write_groups(folder / FOLDER / f"step={step:08d}", shown, step=step, file=self.file, rewards=values)
        log_groups(logger, FOLDER, shown, step)
        means = {name: float(np.mean(some)) for name, some in known.items()}
        total = sum(reward.weight * means[reward.name] for reward in self.rewards)
        return {"held_out": total, **{f"held_out/{name}": mean for name, mean in means.items()}}

    def _drawn(self, model: UnifiedModel, ranks: Ranks) -> list[_Row]:
        """This rank's prompts."""
        prompts: list[Prompt] = []
        images: list[np.ndarray] = []
        places: list[int] = []
        with Scoring(self.rewards) as scoring:
            for number, batch in list(in_batches(self.prompts, self.batch))[ranks.rank :: ranks.world_size]:
                first = number * self.batch
                requests = [
                    Request(prompt.id, prompt.text, prompt.images, seed=derive_seed("held out", self.seed, prompt.id))
                    for prompt in batch
                ]
                columns = columns_of(batch, 1, first)
                if self.think:
                    columns["thought"], drawn = model.think_and_draw(requests)
                else:
                    drawn = model.draw(requests)
                scoring.add([prompt.text for prompt in batch], drawn, columns)
                prompts, images, places = [*prompts, *batch], [*images, *drawn], [*places, *columns["place"]]
                note()
            if not prompts:
                return []
            scores = scoring.scores()
        groups = groups_of(ScoredImages(prompts, images, scores), 1)  # the first of this rank
        shown = {place: group for place, group in zip(places, groups, strict=False) if place < SHOWN_GROUPS}
        return [
            _Row(place, [None if np.isnan(value) else float(value) for value in each], shown.get(place))
            for place, each in zip(places, scores.each, strict=True)
        ]


@dataclass(frozen=True)
class _Row:
    """What a prompt came to: each reward, None where it does not apply; the images of the first prompts."""

    place: int
    rewards: list[float | None]
    group: Group | None
