"""From an epoch's rollouts to micro-batches: the loader that draws when an epoch begins.

Update u of an epoch has an equal part of the pictures, in an order shuffled by seed and epoch, each with all its random
steps. A batch is a function of the rollouts and of (seed, update), so a run goes on in the middle of an epoch from the
rollouts in its checkpoint (uni_train/training/flow_grpo/fit.py).

Conditions are read once a group: when the pictures are drawn, and again for each later update of the epoch, because
its weights read a little differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from data_gen.seeds import derive_seed, rng
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.flow.advantages import informative
from uni_train.flow.objective import interpolate
from uni_train.flow.schedule import Schedule
from uni_train.models.base import UnifiedModel
from uni_train.training.flow_grpo.prompts import Prompt, Prompts
from uni_train.training.flow_grpo.rollouts import Drawn, Rollouts, common_schedule, requests_of
from uni_train.training.flow_grpo.settings import FlowGrpoSettings
from uni_train.training.steps import StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class GrpoRows:
    """R steps of pictures to train on.

    Attributes:
        x: [R, G, C] before the step. t: [R], its noise level. condition: R rows.
        steps: int64 [R], after: [R, G, C], old_log_prob: [R], old_mean: [R, G, C] or [R, 0] (densities only).
        clean: [R, G, C], the finished picture (diffusion_nft only, else [R, 0]).
        advantage: [R]. mask: bool [R, G, 1].
        share: of the update's rows, on all ranks, that these are; 0: they count nothing.
        schedule: what `steps` count.
        fresh: the weights are those that drew.
    """

    x: Tensor
    t: Tensor
    condition: Any
    steps: Tensor
    after: Tensor
    old_log_prob: Tensor
    old_mean: Tensor
    clean: Tensor
    advantage: Tensor
    mask: Tensor
    share: float
    schedule: Schedule
    fresh: bool


class RolloutLoader:
    """The micro-batches of all updates from `start()` to the last; pictures are drawn when an epoch's first is asked.

    It has the length of the whole run, like steps.StepLoader, and for the same reasons: Lightning then asks for a batch
    only when the update before it is finished.
    """

    def __init__(
        self,
        model: UnifiedModel,
        prompts: Prompts,
        settings: FlowGrpoSettings,
        draw: Callable[[Sequence[Prompt], int], tuple[Rollouts, Any, Drawn]],
        start: Callable[[], int],
        ranks: Ranks = ALONE,
        whole: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`whole`: within it the model can read prompts, however its weights are kept."""
        self.model, self.prompts, self.settings = model, prompts, settings
        self.draw, self.start, self.ranks, self.whole = draw, start, ranks, whole
        self.micros = settings.micros(ranks.world_size)
        self.rollouts: Rollouts | None = None
        self.drawn: Drawn | None = None

    def __len__(self) -> int:
        return self.settings.updates * self.micros

    def __iter__(self) -> Iterator[StepBatch]:
        settings = self.settings
        for step in range(self.start(), settings.updates):
            epoch, update = divmod(step, settings.updates_per_epoch)
            prompts = self.prompts.epoch(epoch, settings.groups)
            if update == 0:
                self.rollouts, condition, self.drawn = self.draw(prompts, epoch)
            else:
                if self.rollouts is None or self.rollouts.epoch != epoch:
                    raise RuntimeError(f"update {step} is in the middle of epoch {epoch}, whose rollouts are missing")
                with self.whole():
                    condition = self.model.encode(requests_of(prompts, settings, epoch, self.ranks))
            schedule = common_schedule(self.model, condition, len(self.ranks.shard(len(prompts))), settings.steps)
            picked = pairs(self.rollouts, settings, update, self.micros * self.ranks.world_size)
            mine = [pair for pair in picked if pair[0] in self.rollouts.mine]
            for micro in range(self.micros):
                some = mine[micro :: self.micros]
                content = make_rows(self.rollouts, condition, schedule, some, settings, update == 0, len(picked))
                yield StepBatch(step, micro, self.micros, content)


def pairs(rollouts: Rollouts, settings: FlowGrpoSettings, update: int, least: int) -> list[tuple[int, int]]:
    """(picture, place in the window) of an update, of all ranks: an equal part of those pictures that can teach
    something.

    With fewer than `least` of them, the micro-batches of all ranks, pictures of flat groups stay in.
    """
    pictures = list(range(len(rollouts.totals)))
    size = settings.window_size
    if settings.drop_flat:
        groups = torch.arange(settings.groups).repeat_interleave(settings.group_size)
        use = informative(rollouts.rewards if settings.spread == "each" else rollouts.totals, groups)
        use = use.any(1) if use.ndim > 1 else use
        kept = [i for i in pictures if bool(use[i])]
        if len(kept) // settings.updates_per_epoch * size >= least:
            pictures = kept
    rng("pictures", settings.seed, settings.stage, rollouts.epoch).shuffle(pictures)
    mine = pictures[update :: settings.updates_per_epoch]
    return [(picture, place) for picture in mine for place in range(size)]


def make_rows(
    rollouts: Rollouts,
    condition: Any,
    schedule: Schedule,
    picked: Sequence[tuple[int, int]],
    settings: FlowGrpoSettings,
    fresh: bool,
    of: int,
) -> GrpoRows:
    """The given steps of this rank's pictures, as a micro-batch of an update of `of` such on all ranks.

    Without any it is a row that counts nothing: all ranks have to compute as often.
    """
    device = rollouts.final.device
    share = len(picked) / of
    picked = picked or [(rollouts.first, 0)]
    pictures = torch.tensor([picture - rollouts.first for picture, _ in picked], device=device)
    places = torch.tensor([place for _, place in picked], device=device)
    under = condition.select([(picture - rollouts.first) // settings.group_size for picture, _ in picked])
    mask, advantage = rollouts.mask[pictures], rollouts.advantages[pictures]
    none = rollouts.final.new_zeros(len(picked), 0)
    if rollouts.window is None:
        clean = rollouts.final[pictures]
        drawn = [_noised(clean.shape[1:], settings, rollouts.epoch, picture, place) for picture, place in picked]
        t = torch.tensor([level for level, _ in drawn], device=device)
        x = interpolate(clean, torch.stack([noise for _, noise in drawn]).to(clean) * mask, t[:, None, None])
        return GrpoRows(x, t, under, places, none, none[:, :0], none, clean, advantage, mask, share, schedule, fresh)
    steps = places + rollouts.window.start
    before, after = rollouts.latents[pictures, places], rollouts.latents[pictures, places + 1]
    means = rollouts.means[pictures, places] if rollouts.means.numel() else none
    return GrpoRows(
        before.float(),
        schedule.levels[steps],
        under,
        steps,
        after.float(),
        rollouts.log_probs[pictures, places],
        means,
        none,
        advantage,
        mask,
        share,
        schedule,
        fresh,
    )


def _noised(
    shape: torch.Size, settings: FlowGrpoSettings, epoch: int, picture: int, place: int
) -> tuple[float, Tensor]:
    """Noise level and noise of one draw (diffusion_nft): levels evenly spread over the draws of a picture."""
    seed = derive_seed(settings.seed, settings.stage, "noised", epoch, picture, place)
    generator = torch.Generator().manual_seed(seed)
    level = (place + float(torch.rand((), generator=generator))) / settings.noise_draws
    return level, torch.randn(shape, generator=generator)
