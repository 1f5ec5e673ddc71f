"""Flow-GRPO (Liu et al. 2025, arXiv 2505.05470) from prompts to a step of the optimizer.

Once an epoch, in `RolloutData.batches`:

    1. prompts       `prompts_per_epoch`, a function of seed and epoch            rollout.PromptList
    2. rollout       `group_size` images each, with random steps in a window      rollout.collect, flow.rollout
    3. rewards       of each image: verifier, judge, a function of one's own      rewards.contract.Scoring
    4. advantages    (reward - mean of its group) / deviation                     flow.advantages

Then `updates_per_epoch` times, each on an equal part of the epoch's images, in micro-batches of their random steps,
which all ranks share (deal.py):

    5. replay        log probabilities of stored steps under today's weights      losses.Losses
    6. loss          clipped ratio to the weights that sampled, times advantage   flow.grpo.grpo_loss
    7. KL            to the weights that the run started from, if objective.kl    losses.Reference
       thoughts      where images have such: the same for their tokens            thoughts.py
       sft           rows with their images, if the recipe has such               training.supervised
    8. step          gradients clipped, AdamW, averages                           training.fit.run, by Lightning

Variants change one line each: other random steps (cps, dance: flow.steps), other windows (fast, mix: flow.window),
another ratio (guard: flow.grpo.guard_loss) or bound (dppo: flow.grpo.dppo_loss). DiffusionNFT and AWM replace 5 and 6
by losses on images noised anew (flow.nft, flow.grpo.awm_loss); DiffusionNFT samples with weights that follow slowly.
Logs and alarms: callbacks.py.

Left out on purpose: dropout (the model stays in eval mode: sampling and replay must agree), a critic, a replay buffer.

    directory/checkpoints/step=00000100/    see checkpoint_io; in the middle of an epoch with its rollouts
    directory/metrics.jsonl                 one line an update, the same whether interrupted or not
    directory/rollouts.jsonl                one line an epoch: rewards, images, seconds
    directory/held_out.jsonl                scores on prompts that are not trained on
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger
from rich.progress import Progress
from torch import Tensor

from uni_train.config.kinds import Updates
from uni_train.config.schema import SHARDED, GrpoConfig, ThoughtsConfig
from uni_train.data_gen.seeds import derive_seed
from uni_train.distributed.ranks import Ranks
from uni_train.errors import UsageError, UserError
from uni_train.flow.objective import interpolate
from uni_train.flow.schedule import Schedule
from uni_train.models.base import Request, UnifiedModel
from uni_train.rewards.contract import Reward
from uni_train.training.callbacks import Evaluate, Validation
from uni_train.training.fit import CHECKPOINTS, HELD_OUT, FitResult, Run, run
from uni_train.training.flow_grpo.callbacks import Alarms, EpochLog, OnDrawn
from uni_train.training.flow_grpo.deal import Row, deal, given_away, micro_batches, random_steps, with_others
from uni_train.training.flow_grpo.losses import PARTS, Losses, MiniBatch
from uni_train.training.flow_grpo.rollout import (
    Prompt,
    Prompts,
    Rollouts,
    collect,
    requests_of,
    resharded,
    schedule_of,
    thinking,
)
from uni_train.training.flow_grpo.thoughts import PARTS as THOUGHT_PARTS
from uni_train.training.flow_grpo.thoughts import ThoughtBatch, log_probs, written
from uni_train.training.metric_log import truncate_metrics
from uni_train.training.steps import Source, StepBatch, StepDataset
from uni_train.training.strategies.choice import check_second_weights, here, on_ranks
from uni_train.training.strategies.sharding import unsharded
from uni_train.training.supervised import SupervisedModule

ROLLOUTS = "rollouts.jsonl"
IN_METRICS = ("reward", "reward_std", "best_of_group", "frac_reward_zero_std", "diversity")
"""Statistics of an epoch that every line of metrics.jsonl repeats."""


def fit_flow_grpo(
    model: UnifiedModel,
    prompts: Prompts,
    rewards: Sequence[Reward],
    config: GrpoConfig,
    directory: Path,
    *,
    stage: str = "grpo",
    trained: str = "all",
    draw_rows: int = 256,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 10,
    on_drawn: OnDrawn | None = None,
    solved: Source | None = None,
    logger: Logger | None = None,
    progress: bool | Progress = True,
    description: str | None = None,
    keep: int = 2,
    log_every: int = 10,
) -> FitResult:
    """Train `model` in place; afterwards it has the final weights, averaged ones if `config.ema`.

    Running it again with the same arguments continues from the newest intact checkpoint, also in the middle of an
    epoch, and ends with the same weights and the same metrics.jsonl, bit for bit.

    Args:
        stage: part of every seed. trained: see trained.select_parameters. draw_rows: images drawn together.
        evaluate: updates done -> scores on held-out prompts ("held_out" is what the alarm watches), every
            `evaluate_every` epochs.
        on_drawn: is shown every epoch's images.
        solved: the rows of `config.sft`.

    Raises:
        UsageError: keys that do not fit together.
        UserError: a reward that fails, the on-policy check, an alarm, a damaged checkpoint, a diverged loss.
    """
    config = on_ranks(config)
    ranks = config.strategy.devices * config.strategy.nodes
    config.check_ranks(ranks)
    _check_strategy(model, config, trained)
    updates = Updates(config.updates, config.grad_accumulation_steps(ranks))
    directory = Path(directory)

    def parts(made: Run) -> FlowGrpoModule:
        here().from_main(lambda: truncate_metrics(directory / ROLLOUTS, made.done))
        module = FlowGrpoModule(model, config, updates, stage=stage, trained=trained)
        validation = None
        if evaluate is not None:
            validation = Validation(evaluate, evaluate_every * config.updates_per_epoch, directory / HELD_OUT)
        made.callbacks += [
            EpochLog(directory / ROLLOUTS, config.updates_per_epoch),
            *([validation] if validation is not None else []),
            Alarms(config, validation, made.log, directory / CHECKPOINTS),
        ]
        made.data = RolloutData(model, prompts, rewards, module, draw_rows, on_drawn, solved)
        model.eval()
        return module

    return run(
        model,
        config,
        updates,
        directory,
        parts,
        logger=logger,
        progress=progress,
        description=description or stage,
        keep=keep,
        log_every=log_every,
    )


def _check_strategy(model: UnifiedModel, config: GrpoConfig, trained: str) -> None:
    """Raises UsageError for what sharded weights cannot do."""
    strategy, what = config.strategy, None
    if config.forward:
        what = f"variant={config.variant}"
    elif config.thoughts is not None:
        what = "thoughts, of which ranks train unlike numbers"
    elif config.objective.kl and trained != "lora":
        what = f"a kl penalty with trained={trained}"
    check_second_weights(strategy, what)
    guided = getattr(model, "guided", False) and strategy.devices * strategy.nodes > 1
    if guided and strategy.kind in SHARDED:
        raise UsageError(
            f"strategy={strategy.kind} cannot train under guidance: it acts at some noise levels alone, so devices "
            "that hold parts of one another's weights would ask for them unequally often",
            "Set model.sampling.cfg_text_scale=1 and edit_text_scale=1, or use strategy=deepspeed_zero2.",
        )


# --- the loop: rollouts once an epoch, micro-batches of them for its updates ------------------------------------------


class RolloutData(pl.LightningDataModule):
    """All micro-batches of the run, in order; images are sampled when the first one of an epoch is asked for.

    A micro-batch is a function of the rollouts and of (seed, update). So the rollouts of an unfinished epoch are in the
    checkpoint, and a run continues in the middle of it, on another number of ranks too.
    """

    def __init__(
        self,
        model: UnifiedModel,
        prompts: Prompts,
        rewards: Sequence[Reward],
        module: FlowGrpoModule,
        draw_rows: int = 256,
        on_drawn: OnDrawn | None = None,
        solved: Source | None = None,
    ) -> None:
        super().__init__()
        self.model, self.prompts, self.rewards, self.config = model, prompts, rewards, module.config
        self.module, self.draw_rows, self.on_drawn, self.solved = module, draw_rows, on_drawn, solved
        self.rollouts: Rollouts | None = None
        self._held: Rollouts | None = None  # the same, and what other ranks gave this one to train on
        self._deals: list[list[list[Row]]] = []
        self._given: dict[tuple[int, int], list[int]] = {}
        self._since = time.perf_counter()

    def train_dataloader(self) -> _Loader:
        return _Loader(self)

    @property
    def ranks(self) -> Ranks:
        assert self.trainer is not None
        return Ranks(self.trainer.global_rank, self.trainer.world_size)

    def batches(self) -> Iterator[StepBatch]:
        """From the first update that is not done. Where an update needs fewer micro-batches than there are, some are
        empty, on all ranks alike."""
        assert self.trainer is not None
        config, ranks = self.config, self.ranks
        micros = config.grad_accumulation_steps(ranks.world_size)
        self._since = time.perf_counter()
        if self.rollouts is not None:  # of the checkpoint
            self.rollouts = self.rollouts.to(self.model.device)
        prompts: Sequence[Prompt] = ()
        condition = None
        solved = self._solved()
        for step in range(self.trainer.global_step, config.updates):
            epoch, update = divmod(step, config.updates_per_epoch)
            if update == 0 or not prompts:
                prompts = self.prompts.epoch(epoch, config.rollout.prompts_per_epoch)
            if update == 0 or self.model.encoder_trained:
                condition = None  # freed before the next one is made
            if update == 0:
                if epoch:
                    self.module.losses.follow()
                condition = self._sample(prompts, epoch)
            if self.rollouts is None or self.rollouts.epoch != epoch:
                raise RuntimeError(f"update {step} is in the middle of epoch {epoch}, whose rollouts are missing")
            if self._held is None or self._held.epoch != epoch:
                self._deal(self.rollouts)
                again = config.objective.on_policy == "recompute" and self.module.losses.rule is not None
                if update == 0 and (again or config.thoughts is not None):
                    self._score(prompts, condition)
            self.module.epoch_metrics = {name: self.rollouts.statistics[name] for name in IN_METRICS}
            cut = self._cut(prompts, update, condition)
            more = [] if solved is None else [solved[step][0].content]
            # ZeRO begins its sums with the first and steps with the last, so what is empty is between them.
            empty = [None] * (micros - len(cut) - len(more))
            for micro, rows in enumerate([*cut[:1], *empty, *cut[1:], *more]):
                yield StepBatch(step, micro, micros, rows)

    def _solved(self) -> StepDataset | None:
        """Every update's rows of `sft` on this rank."""
        asked, ranks = self.config.sft, self.ranks
        if asked is None:
            return None
        assert self.solved is not None, "sft without rows"
        return StepDataset(
            self.model.collate,
            {"sft": self.solved},
            lambda step: {"sft": 1.0},
            rows=asked.rows,
            updates=self.config.updates,
            seed=self.config.seed,
            stage=f"{self.module.stage} sft",
            rank=ranks.rank,
            world_size=ranks.world_size,
        )

    def _sample(self, prompts: Sequence[Prompt], epoch: int) -> Any:
        """New rollouts; returns the condition that this rank's groups were sampled under."""
        module = self.module
        with unsharded(self.model), module.losses.sampling():
            self.rollouts, condition, drawn = collect(
                self.model,
                prompts,
                self.rewards,
                self.config,
                module.stage,
                epoch,
                self.ranks,
                module.precision,
                self.draw_rows,
            )
        self._since = time.perf_counter()
        if self.on_drawn is not None:
            self.on_drawn(epoch, drawn)
        return condition

    def _deal(self, rollouts: Rollouts) -> None:
        """Which rank trains on what in each update of the epoch, and the images for it."""
        ranks, images = self.ranks, len(rollouts.images)
        self._deals = [
            deal(random_steps(rollouts, self.config, self.module.stage, update), images, ranks.world_size)
            for update in range(self.config.updates_per_epoch)
        ]
        self._given = given_away(self._deals, images)
        self._held = with_others(rollouts, self._given, ranks)

    def _cut(self, prompts: Sequence[Prompt], update: int, drawn_under: Any, fresh: bool = False) -> list[MiniBatch]:
        """The micro-batches of an update on this rank, as many as on the others.

        Args:
            drawn_under: the condition of this rank's own groups, in the first update: where the encoder is trained,
                weights that have moved read a little differently, so each later update reads again.
            fresh: the weights are those that sampled, in later updates too.
        """
        config, held, dealt, ranks = self.config, self._held, self._deals[update], self.ranks
        assert held is not None
        mine = dealt[ranks.rank] or [(held.images[0], 0)]
        fresh = fresh or update == 0
        # A row of the condition stands for a group, or for an image where each has its own thought.
        per = 1 if config.thoughts is not None else config.rollout.group_size
        units: Sequence[int] = ranks.shard(len(prompts) * config.rollout.group_size // per)
        if drawn_under is None or self._given:
            if self.model.encoder_trained or self._given:
                units = sorted({image // per for image, _ in mine})
            with unsharded(self.model), self.module.losses.sampling(fresh), self.module.precision():
                drawn_under = self.model.encode(self._requests(prompts, units))
        schedule = schedule_of(self.model, drawn_under, len(units), config.rollout.steps)
        under = _Under(drawn_under, {unit: row for row, unit in enumerate(units)}, schedule, per)
        count, rows = micro_batches(dealt, config.rows), sum(map(len, dealt))
        count = max(count, min(2, config.micro_batches(ranks.world_size)))
        counted, stage = dealt[ranks.rank], self.module.stage
        steps = sum(place < config.window_size for some in dealt for _, place in some)
        batches = []
        for micro in range(count):
            steps_of_micro, thoughts = self._kinds(counted[micro::count])
            share = len(steps_of_micro) / max(steps, 1)
            batch = minibatch(held, under, steps_of_micro or [(mine[0][0], 0)], config, stage, fresh=fresh, share=share)
            if thoughts:
                batch = replace(batch, thoughts=self._thoughts(prompts, thoughts, len(thoughts) / (rows - steps)))
            batches.append(batch)
        return batches

    def _kinds(self, rows: Sequence[Row]) -> tuple[list[Row], list[int]]:
        """Random steps, and the images whose thoughts are among `rows`."""
        last = self.config.window_size
        return [row for row in rows if row[1] < last], [image for image, place in rows if place == last]

    def _requests(self, prompts: Sequence[Prompt], units: Sequence[int]) -> list[Request]:
        """What is read to draw: of groups, or of images by their thoughts."""
        config, held, stage = self.config, self._held, self.module.stage
        assert held is not None
        if config.thoughts is None:
            return requests_of(prompts, config, stage, held.epoch, units)
        at = {image: row for row, image in enumerate(held.images)}
        texts = [self.model.thought_text(written(held.thoughts[at[image]])) for image in units]
        groups = [image // config.rollout.group_size for image in units]
        return requests_of(prompts, config, stage, held.epoch, groups, texts)

    def _thoughts(self, prompts: Sequence[Prompt], images: Sequence[int], share: float) -> ThoughtBatch:
        held, k = self._held, self.config.rollout.group_size
        assert held is not None
        at = {image: row for row, image in enumerate(held.images)}
        rows = [at[image] for image in images]
        groups = [image // k for image in images]
        asked = requests_of(prompts, self.config, self.module.stage, held.epoch, groups)
        requests = [thinking(one, image % k) for one, image in zip(asked, images, strict=True)]
        return ThoughtBatch(requests, held.thoughts[rows], held.thought_log_probs[rows], held.advantages[rows], share)

    def _score(self, prompts: Sequence[Prompt], condition: Any) -> None:
        """Score thoughts, and where asked the epoch's steps, as training will, with the weights that sampled them; in
        place."""
        assert self.rollouts is not None and self._held is not None
        rollouts, held, again = self.rollouts, self._held, self.config.objective.on_policy == "recompute"
        index = {image: row for row, image in enumerate(held.images)}
        for update in range(self.config.updates_per_pass):
            dealt = self._deals[update][self.ranks.rank]
            own = condition if update == 0 or not self.model.encoder_trained else None
            cut = self._cut(prompts, update, own, fresh=True)
            for micro, rows in enumerate(cut):
                steps, thoughts = self._kinds(dealt[micro :: len(cut)])
                with unsharded(self.model), self.module.precision():
                    if again:
                        log_prob, mean = self.module.losses.scored(rows)
                    if rows.thoughts is not None:
                        said = log_probs(self.model, rows.thoughts.requests, rows.thoughts.ids).detach()
                        held.thought_log_probs[[index[image] for image in thoughts]] = said
                for row, (image, place) in enumerate(steps if again else ()):
                    held.log_probs[index[image], place] = log_prob[row]
                    if held.means.numel():
                        held.means[index[image], place] = mean[row]
        if self._given:
            self._return_scores(rollouts, held, index)

    def _return_scores(self, rollouts: Rollouts, held: Rollouts, index: Mapping[int, int]) -> None:
        """To who drew the images: checkpoints are made of that, and a later pass deals the steps otherwise."""
        last, own, first = self.config.window_size, len(rollouts.images), rollouts.images[0]
        scored: dict[int, list[tuple[int, int, Tensor, Tensor]]] = defaultdict(list)
        for update in range(self.config.updates_per_pass):
            for image, place in self._deals[update][self.ranks.rank]:
                at = index[image]
                value = held.thought_log_probs[at] if place == last else held.log_probs[at, place]
                means = held.means[at, place] if held.means.numel() and place < last else value.new_zeros(0)
                scored[image // own].append((image, place, value.cpu(), means.cpu()))
        received = self.ranks.exchange(scored, [(target, source) for source, target in self._given])
        for rows in (scored[self.ranks.rank], *received.values()):
            for image, place, value, means in rows:
                if place == last:
                    rollouts.thought_log_probs[image - first] = value.to(rollouts.thought_log_probs)
                    continue
                rollouts.log_probs[image - first, place] = value
                if rollouts.means.numel():
                    rollouts.means[image - first, place] = means[: rollouts.means.shape[2]]
        self._held = with_others(rollouts, self._given, self.ranks)

    @property
    def seconds(self) -> dict[str, float]:
        """Of the epoch so far, restarts included: rollout, reward, update."""
        assert self.rollouts is not None
        past = self.rollouts.seconds
        return {**past, "update": past.get("update", 0.0) + time.perf_counter() - self._since}

    def state_dict(self) -> dict[str, Any]:
        assert self.trainer is not None
        if self.rollouts is None or self.trainer.global_step % self.config.updates_per_epoch == 0:
            return {"rollouts": None}
        return {"rollouts": self.ranks.gather(replace(self.rollouts, seconds=self.seconds).state_dict())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["rollouts"] is not None:
            self.rollouts = Rollouts.from_state_dict(resharded(state_dict["rollouts"], self.ranks))


@dataclass(frozen=True, slots=True)
class _Loader:
    """Of no state, because Lightning would save it beside that of RolloutData. Its length is that of the whole run:
    Lightning then asks for a batch only when the update before it is finished (see steps.StepLoader)."""

    data: RolloutData

    def __len__(self) -> int:
        config = self.data.config
        return config.updates * config.grad_accumulation_steps(self.data.ranks.world_size)

    def __iter__(self) -> Iterator[StepBatch]:
        return self.data.batches()


@dataclass(frozen=True, slots=True, eq=False)
class _Under:
    """A condition with a row for each of some groups or images, by their numbers, `per` images each; and the noise
    levels of their images, likewise."""

    condition: Any
    rows: Mapping[int, int]
    schedule: Schedule
    per: int


def minibatch(
    rollouts: Rollouts,
    under: _Under,
    picked: Sequence[Row],
    config: GrpoConfig,
    stage: str,
    *,
    fresh: bool,
    share: float,
) -> MiniBatch:
    """The given steps as a micro-batch. With a share of 0 they count nothing: all ranks have to compute as often."""
    device = rollouts.final.device
    index = {image: row for row, image in enumerate(rollouts.images)}
    images = torch.tensor([index[image] for image, _ in picked], device=device)
    places = torch.tensor([place for _, place in picked], device=device)
    units = [under.rows[image // under.per] for image, _ in picked]
    condition, schedule = under.condition.select(units), under.schedule.select(units)
    mask, advantage = rollouts.mask[images], rollouts.advantages[images]
    none = rollouts.final.new_zeros(len(picked), 0)
    if rollouts.window is None:
        clean = rollouts.final[images]
        noised = [_noise_draw(clean.shape[1:], config, stage, rollouts.epoch, image, place) for image, place in picked]
        t = torch.tensor([level for level, _ in noised], device=device)
        x = interpolate(clean, torch.stack([noise for _, noise in noised]).to(clean) * mask, t[:, None, None])
        return MiniBatch(
            x, t, condition, places, none, none[:, :0], none, clean, advantage, mask, share, schedule, fresh
        )
    steps = places + rollouts.window.start
    return MiniBatch(
        x=rollouts.latents[images, places].float(),
        t=schedule.step(steps)[0],
        condition=condition,
        steps=steps,
        after=rollouts.latents[images, places + 1].float(),
        old_log_prob=rollouts.log_probs[images, places],
        old_mean=rollouts.means[images, places] if rollouts.means.numel() else none,
        clean=none,
        advantage=advantage,
        mask=mask,
        share=share,
        schedule=schedule,
        fresh=fresh,
    )


def _noise_draw(
    shape: torch.Size, config: GrpoConfig, stage: str, epoch: int, image: int, place: int
) -> tuple[float, Tensor]:
    """Noise level and noise of one draw (forward process): levels evenly spread over the draws of an image."""
    generator = torch.Generator().manual_seed(derive_seed(config.seed, stage, "noised", epoch, image, place))
    level = (place + float(torch.rand((), generator=generator))) / config.objective.noise_draws
    return level, torch.randn(shape, generator=generator)


# --- the loss ---------------------------------------------------------------------------------------------------------


class FlowGrpoModule(SupervisedModule):
    """One plain loss a micro-batch; Lightning's automatic optimisation does the rest.

        loss = mean over (image, step) of the clipped objective + kl weight * divergence from the reference

    The mean runs over all rows of an update, whatever its micro-batches. After the last of them `metrics` holds the
    loss and its parts, statistics of the ratio (mean, deviation, largest |log ratio|), clip fractions, grad_norm,
    tokens, and the epoch's rewards from `epoch_metrics`.

    Raises (in training_step):
        UserError: the on-policy check: steps replayed with the weights that sampled them differ too much.
    """

    config: GrpoConfig

    def __init__(
        self, model: UnifiedModel, config: GrpoConfig, updates: Updates, *, stage: str = "grpo", trained: str = "all"
    ) -> None:
        super().__init__(model, config, updates, stage=stage, trained=trained)
        # Before Lightning restores a checkpoint: the weights that the run starts from.
        self.losses = Losses(model, config, self.trained_names)
        self.thoughts = config.thoughts or ThoughtsConfig()
        self.epoch_metrics: dict[str, float] = {}
        self._means: dict[str, Tensor] = {}
        self._log_ratios: list[Tensor] = []

    def training_step(self, batch: StepBatch, batch_idx: int) -> Tensor:
        if batch.step != self.global_step:
            raise RuntimeError(f"the loader gave the batch of update {batch.step} to update {self.global_step}")
        if batch.micro == 0:
            # Ranks that got one kind of rows alone have the names of the other one too.
            joint, kl = self.config.thoughts is not None, bool(self.config.objective.kl)
            names = PARTS + ("kl",) * kl if joint else ()
            names += THOUGHT_PARTS + ("thoughts/kl",) * bool(self.thoughts.kl) if names else ()
            self._means, self._log_ratios = dict.fromkeys(names, torch.zeros((), device=self.device)), []
        if batch.content is None:  # nothing to learn, on any rank
            return torch.zeros((), device=self.device, requires_grad=True) * 1
        if not isinstance(batch.content, MiniBatch):
            return self._of_solved(batch)
        rows = batch.content
        loss, log_ratio = torch.zeros((), device=self.device), None
        parts: dict[str, Tensor] = {}
        if rows.share or rows.thoughts is None:
            loss, parts, log_ratio = self.losses.of_images(rows)
        if log_ratio is None and self.losses.rule is not None:
            log_ratio = loss.new_zeros(0)  # thoughts alone: all ranks still have to reduce equally often
        if rows.fresh and log_ratio is not None:
            self._check_on_policy(log_ratio, batch.step)
        # DDP averages gradients over ranks and Lightning over micro-batches, but these are parts of one sum.
        times = batch.grad_accumulation_steps * self.trainer.world_size
        share = rows.share * self.config.objective.image_weight
        self._add(parts, rows.share)
        self._add({"loss": loss}, share)
        loss = loss * (share * times)
        if rows.thoughts is not None:
            own, parts = self.losses.of_thoughts(rows.thoughts)
            share = rows.thoughts.share * self.thoughts.weight
            self._add(parts, rows.thoughts.share)
            self._add({"loss": own}, share)
            loss = loss + own * (share * times)
        self._means["tokens"] = self._means.get("tokens", 0) + rows.mask.sum().float() * (rows.share > 0)
        if log_ratio is not None:
            self._log_ratios.append(log_ratio if rows.share else log_ratio[:0])
        if batch.last:
            self._gather_metrics(loss)
        return loss

    def _of_solved(self, batch: StepBatch) -> Tensor:
        """The loss of the rows of `sft`, which are the last micro-batch: their velocities' squared error, a mean over
        all ranks' tokens."""
        assert self.config.sft is not None
        found, weight = self._loss(batch), self.config.sft.weight
        total, tokens = found.mse_sum, found.mse_tokens.to(found.mse_sum)
        counted = self.trainer.strategy.reduce(torch.stack([total.detach(), tokens]), reduce_op="sum")
        mean = counted[0] / counted[1]
        # Sums over ranks follow, of which each has the mean of all.
        self._add({"sft": mean, "loss": mean * weight}, 1 / self.trainer.world_size)
        self._gather_metrics(total)
        return total * (weight * self.trainer.world_size * batch.grad_accumulation_steps / counted[1])

    def _add(self, parts: Mapping[str, Tensor], share: float) -> None:
        for name, value in parts.items():
            self._means[name] = self._means.get(name, 0) + value.detach().float() * share

    def _check_on_policy(self, log_ratio: Tensor, step: int) -> None:
        """Raises UserError where weights that have not moved give another density than when they sampled."""
        objective = self.config.objective
        if objective.on_policy == "trust":
            return
        clip_range = min(math.log1p(objective.clip_high), -math.log1p(-min(objective.clip_low, 0.999)))
        most = objective.on_policy_check * clip_range
        worst = float(self.trainer.strategy.reduce(_largest(log_ratio), reduce_op="max"))
        if worst <= most:
            return
        raise UserError(
            f"on-policy check: before update {step + 1} the weights are those that drew, but the log ratio of a step "
            f"is {worst:.2g} (at most {most:.2g}: {objective.on_policy_check:g} of the clip range)",
            "Training and drawing compute different velocities. objective.on_policy=recompute scores what was drawn in "
            "the micro-batches of training; else check dropout and rollout.latents=float32, or widen the clip range.",
        )

    def _gather_metrics(self, loss: Tensor) -> None:
        """Metrics of the update over all ranks."""
        reduce = self.trainer.strategy.reduce
        names = sorted(self._means)
        sums = reduce(torch.stack([self._means[name] for name in names]), reduce_op="sum")
        self.metrics.update(zip(names, sums, strict=True))
        if self._log_ratios:
            log_ratios = torch.cat(self._log_ratios)
            off = log_ratios.double().expm1()  # ratio - 1, whose square is not lost beside 1
            counted = off.new_tensor(float(len(off)))
            n, total, squares = reduce(torch.stack([counted, off.sum(), off.square().sum()]), reduce_op="sum")
            n = n.clamp_min(1)
            self.metrics["ratio_std"] = (squares / n - (total / n).square()).clamp_min(0).sqrt().float()
            self.metrics["log_ratio_max"] = reduce(_largest(log_ratios), reduce_op="max")
        self.metrics.update({name: loss.new_tensor(value) for name, value in self.epoch_metrics.items()})

    def precision(self) -> contextlib.AbstractContextManager[None]:
        """Within this context the model computes as in a training step: under autocast, where that has it."""
        return self.trainer.precision_plugin.train_step_context()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.losses.sampler is not None:
            checkpoint["sampler"] = self.losses.sampler

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if self.losses.sampler is not None:
            self.losses.sampler = dict(checkpoint["sampler"])

    def transfer_batch_to_device(self, batch: StepBatch, device: torch.device, dataloader_idx: int) -> StepBatch:
        if batch.content is None or isinstance(batch.content, MiniBatch):
            return batch  # rollouts are where the model is
        return super().transfer_batch_to_device(batch, device, dataloader_idx)


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value, 0 of none."""
    return torch.cat([values.abs(), values.new_zeros(1)]).max()
