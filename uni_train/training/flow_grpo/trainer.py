"""Flow-GRPO (Liu et al. 2025, arXiv 2505.05470) from prompts to a step of the optimizer; read it from top to bottom.

Once an epoch:

    1. prompts       `prompts_per_epoch`, a function of seed and epoch            rollout.PromptList
    2. rollout       `group_size` images each, with random steps in a window      rollout.collect, flow.rollout
    3. rewards       of each image: verifier, judge, your own function            rewards.contract.Scoring
    4. advantages    (reward - mean of its group) / standard deviation            flow.advantages

Then `updates_per_epoch` times, each on an equal part of the epoch's images, in micro-batches of random steps:

    5. log ratio     of stored steps, current weights to those that sampled       losses.Losses.step_loss
    6. loss          clipped ratio times advantage                                flow.grpo.grpo_loss
    7. KL            to the starting weights, with objective.kl                   losses.Reference
       thoughts      the same for their tokens, where thoughts are trained        flow.grpo.token_loss
       sft           rows with their images, where the recipe has some            training.supervised
    8. step          gradients clipped, AdamW, averages                           training.fit.run, by Lightning

A variant changes one part: the random step (cps, dance: flow.steps), the window (fast, mix: flow.window), the ratio
(guard: flow.grpo.guard_loss) or its bound (dppo: flow.grpo.dppo_loss). DiffusionNFT and AWM replace 5 and 6 by losses
on images noised again (flow.nft, flow.grpo.awm_loss). DiffusionNFT samples with averaged weights. Logs and alarms are
in callbacks.py. A rank trains on the images it has sampled; where others have more, it pads with rows of weight 0.

Left out on purpose: dropout (sampling and training must agree: the model is in eval mode), a critic, a replay buffer.

    directory/checkpoints/step=00000100/    at the end of an epoch; see checkpoint_io
    directory/metrics.jsonl                 one line an update, the same whether interrupted or not
    directory/rollouts.jsonl                one line an epoch: rewards, images, seconds
    directory/held_out.jsonl                scores on held-out prompts
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import Logger
from rich.progress import Progress
from torch import Tensor

from uni_train.config.kinds import Updates
from uni_train.config.schema import GrpoConfig, ThoughtsConfig
from uni_train.distributed.ranks import Ranks
from uni_train.errors import UserError
from uni_train.flow.grpo import TOKEN_METRICS
from uni_train.models.base import UnifiedModel
from uni_train.rewards.contract import Reward
from uni_train.training.callbacks import Evaluate, Validation
from uni_train.training.fit import CHECKPOINTS, HELD_OUT, FitResult, Run, run
from uni_train.training.flow_grpo.callbacks import Alarms, EpochLog, OnImages
from uni_train.training.flow_grpo.losses import METRICS, Losses, check_on_policy
from uni_train.training.flow_grpo.micro_batches import MicroBatch, step_fields, thought_batch, update_rows
from uni_train.training.flow_grpo.rollout import Context, Prompts, Rollouts, collect, read_context
from uni_train.training.metric_log import truncate_metrics
from uni_train.training.steps import Source, StepBatch, StepDataset
from uni_train.training.strategies.choice import check_guided, check_second_weights, current_ranks, on_ranks
from uni_train.training.strategies.sharding import unsharded
from uni_train.training.supervised import SupervisedModule

ROLLOUTS = "rollouts.jsonl"
EPOCH_METRICS = ("reward", "reward_std", "best_of_group", "frac_reward_zero_std", "diversity")
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
    on_images: OnImages | None = None,
    sft_rows: Source | None = None,
    logger: Logger | None = None,
    progress: bool | Progress = True,
    description: str | None = None,
    keep: int = 2,
    log_every: int = 10,
) -> FitResult:
    """Train `model` in place; afterwards it has the final weights, averaged ones if `config.ema`.

    The same call continues from the newest intact checkpoint, which is at the end of an epoch. An interrupted run ends
    with the same weights and the same metrics.jsonl, bit for bit.

    Args:
        stage: part of every seed. trained: see trained.select_parameters. draw_rows: images sampled together.
        evaluate: updates done -> scores on held-out prompts, every `evaluate_every` epochs; the alarm reads "held_out".
        on_images: is called with every epoch's images. sft_rows: the rows of `config.sft`.

    Raises:
        UsageError: keys that do not fit together.
        UserError: a reward that fails, the on-policy check, an alarm, a damaged checkpoint, a diverged loss.
    """
    config = on_ranks(config)
    ranks = config.strategy.devices * config.strategy.nodes
    config.check_ranks(ranks)
    check_second_weights(config.strategy, config.unsharded(trained))
    check_guided(config.strategy, getattr(model, "guided", False))
    updates = Updates(config.updates, config.grad_accumulation_steps(ranks))
    directory = Path(directory)

    def prepare(fit: Run) -> FlowGrpoModule:
        if fit.done % config.updates_per_epoch:
            hint = "Delete it; the run continues from the one before."
            raise UserError(f"{directory}: the checkpoint of update {fit.done} is inside an epoch", hint)
        current_ranks().from_main(lambda: truncate_metrics(directory / ROLLOUTS, fit.done))
        module = FlowGrpoModule(
            model, config, updates, prompts, rewards,
            stage=stage, trained=trained, draw_rows=draw_rows, on_images=on_images, sft_rows=sft_rows,
        )  # fmt: skip
        every, file = evaluate_every * config.updates_per_epoch, directory / HELD_OUT
        validation = None if evaluate is None else Validation(evaluate, every, file)
        alarms = Alarms(config, validation, fit.log, directory / CHECKPOINTS)
        log = EpochLog(directory / ROLLOUTS, config.updates_per_epoch)
        fit.callbacks += [log, alarms] if validation is None else [log, validation, alarms]
        model.eval()
        return module

    return run(
        model, config, updates, directory, prepare, logger=logger, progress=progress, keep=keep, log_every=log_every,
        description=description or stage, checkpoint_unit=config.updates_per_epoch,
    )  # fmt: skip


class FlowGrpoModule(SupervisedModule):
    """The whole loop: `batches` samples and cuts micro-batches, `training_step` returns the loss of each.

        loss = mean over (image, step) of the clipped objective + kl weight * divergence from the reference

    The mean is over all rows of an update, however they are cut. After the last micro-batch `metrics` has the loss and
    its parts, clip fractions, grad_norm, tokens, and the epoch's rewards. It also has the ratio's mean, standard
    deviation and largest |log ratio|.
    """

    config: GrpoConfig
    rollouts: Rollouts  # of the current epoch, on this rank

    def __init__(
        self,
        model: UnifiedModel,
        config: GrpoConfig,
        updates: Updates,
        prompts: Prompts,
        rewards: Sequence[Reward],
        *,
        stage: str = "grpo",
        trained: str = "all",
        draw_rows: int = 256,
        on_images: OnImages | None = None,
        sft_rows: Source | None = None,
    ) -> None:
        super().__init__(model, config, updates, stage=stage, trained=trained)
        self.skips = False  # groups of equal rewards have no gradient either, and their update counts
        self.prompts, self.rewards, self.draw_rows = prompts, rewards, draw_rows
        self.on_images, self.sft_rows = on_images, sft_rows
        # Made before Lightning restores a checkpoint, with the starting weights.
        self.losses = Losses(model, config, self.trained_names)
        self.thoughts = config.thoughts or ThoughtsConfig()
        self._means: dict[str, Tensor] = {}
        self._log_ratios: list[Tensor] = []
        self._sampled_at = time.perf_counter()

    @property
    def ranks(self) -> Ranks:
        return Ranks(self.trainer.global_rank, self.trainer.world_size)

    @property
    def seconds(self) -> dict[str, float]:
        """Of the epoch until now: rollout, reward, update."""
        return {**self.rollouts.seconds, "update": time.perf_counter() - self._sampled_at}

    # --- an epoch: rollouts, then micro-batches of their random steps ---

    def train_dataloader(self) -> _Loader:
        return _Loader(self)

    def batches(self) -> Iterator[StepBatch]:
        """The micro-batches of all updates that are not done; each epoch begins with its rollouts."""
        config = self.config
        sft = self._sft_batches()
        for epoch in range(self.global_step // config.updates_per_epoch, config.epochs):
            if epoch:
                self.losses.follow()
            context = self._collect(epoch)
            self._score(context)
            for update in range(config.updates_per_epoch):
                if update and self.model.encoder_trained:
                    context = None  # the weights have changed: read again
                step = epoch * config.updates_per_epoch + update
                content: list[Any] = self._micro_batches(update, context, on_policy=update == 0)
                content += [] if sft is None else [sft[step][0].content]
                # Lightning counts equally many in every update. ZeRO begins its sums with the first, and all strategies
                # reduce in the last, so empty ones are between them.
                empty = [None] * (self.updates.accumulate - len(content))
                for micro, part in enumerate([*content[:1], *empty, *content[1:]]):
                    yield StepBatch(step, micro, self.updates.accumulate, part)
            context = None  # freed before the next one is made

    def _collect(self, epoch: int) -> Context | None:
        """Set `rollouts`; returns the context that their images were sampled under."""
        prompts = self.prompts.epoch(epoch, self.config.rollout.prompts_per_epoch)
        with unsharded(self.model), self.losses.sampling():
            self.rollouts, context, images = collect(
                self.model, prompts, self.rewards, self.config, self.stage, epoch,  # type: ignore[arg-type]
                self.ranks, self.precision, self.draw_rows,
            )  # fmt: skip
        self._sampled_at = time.perf_counter()
        if self.on_images is not None:
            self.on_images(epoch, images)
        return context

    def _micro_batches(self, update: int, context: Context | None, on_policy: bool) -> list[MicroBatch]:
        """This rank's rows of an update in micro-batches, as many as on every other rank.

        Args:
            context: of this rank's images; None: read it now.
            on_policy: the weights are those that sampled.
        """
        config, rollouts = self.config, self.rollouts
        rows = update_rows(rollouts, config, self.stage, update)
        own = [row for row in rows if row[0] in rollouts.images]
        padding = (own[0][0] if own else rollouts.images.start, 0)
        if context is None:
            needed = sorted({image // config.images_a_request for image, _ in own or [padding]})
            with unsharded(self.model), self.losses.sampling(on_policy), self.precision():
                context = read_context(self.model, {n: rollouts.requests[n] for n in needed}, config)  # type: ignore[arg-type]
        most = max(Counter(image // len(rollouts.images) for image, _ in rows).values(), default=0)
        # Two where empty ones follow, for the first and the last must compute (see `batches`).
        count = max(-(-most // config.rows), min(2, self.updates.accumulate - (config.sft is not None)))
        steps = sum(step < config.window_size for _, step in rows)
        batches = []
        for part in (own[micro::count] for micro in range(count)):
            picked = [row for row in part if row[1] < config.window_size]
            thoughts = [image for image, step in part if step == config.window_size]
            batches.append(MicroBatch(
                rows=part,
                **step_fields(rollouts, context, picked or [padding], config, self.stage),
                share=len(picked) / max(steps, 1),
                on_policy=on_policy,
                thoughts=thought_batch(rollouts, thoughts, len(thoughts) / max(len(rows) - steps, 1), config),
            ))  # fmt: skip
        return batches

    def _score(self, context: Context | None) -> None:
        """Old log probabilities by the micro-batches of training, before weights change: of thoughts, and with
        `on_policy=recompute` of steps."""
        rollouts, recompute = self.rollouts, self.config.objective.on_policy == "recompute" and not self.config.forward
        if not recompute and self.config.thoughts is None:
            return
        for update in range(self.config.updates_per_pass):
            read = context if update == 0 or not self.model.encoder_trained else None
            for batch in self._micro_batches(update, read, on_policy=True):
                rows = [(image - rollouts.images.start, step) for image, step in batch.rows]
                of_steps = [row for row in rows if row[1] < self.config.window_size]
                of_thoughts = [image for image, step in rows if step == self.config.window_size]
                with unsharded(self.model), self.precision():
                    if recompute and of_steps:  # none: padding, with no place for its values
                        log_prob, mean = self.losses.score(batch)
                    if batch.thoughts is not None:
                        scored = self.losses.token_log_probs(batch.thoughts).detach()
                        rollouts.thought_log_probs[of_thoughts] = scored
                for row, place in enumerate(of_steps if recompute else ()):
                    rollouts.log_probs[place] = log_prob[row]
                    if rollouts.means.numel():
                        rollouts.means[place] = mean[row]

    def _sft_batches(self) -> StepDataset | None:
        """This rank's rows of `sft`, by update."""
        if self.config.sft is None:
            return None
        assert self.sft_rows is not None, "sft without rows"
        return StepDataset(
            self.model.collate, {"sft": self.sft_rows}, lambda step: {"sft": 1.0},  # type: ignore[arg-type]
            rows=self.config.sft.rows, updates=self.config.updates, seed=self.config.seed, stage=f"{self.stage} sft",
            rank=self.ranks.rank, world_size=self.ranks.world_size,
        )  # fmt: skip

    # --- an update: the loss of each micro-batch ---

    def training_step(self, batch: StepBatch, batch_idx: int) -> Tensor:
        """Raises UserError: the on-policy check."""
        if batch.step != self.global_step:
            raise RuntimeError(f"the loader gave the batch of update {batch.step} to update {self.global_step}")
        zero = torch.zeros((), device=self.device)
        if batch.micro == 0:
            # With thoughts a rank may have rows of one kind only; all ranks reduce the same names.
            kl, thoughts_kl = self.config.objective.kl, self.thoughts.kl
            names = (*METRICS, *TOKEN_METRICS, *["kl"] * bool(kl), *["thoughts/kl"] * bool(thoughts_kl))
            self._means = dict.fromkeys(names, zero) if self.config.thoughts is not None else {}
            self._log_ratios = []
        if batch.content is None:
            return torch.zeros((), device=self.device, requires_grad=True) * 1
        if not isinstance(batch.content, MicroBatch):
            return self._sft_loss(batch)
        rows, loss, log_ratio = batch.content, zero, None
        # DDP averages gradients over ranks and Lightning over micro-batches, but these are parts of one sum.
        times = batch.grad_accumulation_steps * self.trainer.world_size
        if rows.share or rows.thoughts is None:
            loss, metrics, log_ratio = self.losses.step_loss(rows)
            self._add(metrics, rows.share)
        if log_ratio is None and self.losses.rule is not None:
            log_ratio = zero.new_zeros(0)  # of no step: the check below is a collective
        if log_ratio is not None and not rows.share:
            log_ratio = log_ratio[:0]  # of padding, which `_score` does not score
        if rows.on_policy and log_ratio is not None and self.config.objective.on_policy != "trust":
            worst = self.trainer.strategy.reduce(_largest(log_ratio), reduce_op="max")
            check_on_policy(float(worst), self.config.objective, batch.step)
        loss = self._weighted(loss, rows.share * self.config.objective.image_weight, times)
        if rows.thoughts is not None:
            own, metrics = self.losses.token_loss(rows.thoughts)
            self._add(metrics, rows.thoughts.share)
            loss = loss + self._weighted(own, rows.thoughts.share * self.thoughts.weight, times)
        self._add({"tokens": rows.mask.sum()}, float(rows.share > 0))
        if log_ratio is not None:
            self._log_ratios.append(log_ratio)
        if batch.last:
            self._gather_metrics(loss)
        return loss

    def _weighted(self, loss: Tensor, weight: float, times: int) -> Tensor:
        self._add({"loss": loss}, weight)
        return loss * (weight * times)

    def _sft_loss(self, batch: StepBatch) -> Tensor:
        """Squared error of velocities on the rows of `sft`, a mean over all ranks' tokens; the last micro-batch."""
        assert self.config.sft is not None
        result, weight = self._loss(batch), self.config.sft.weight
        total, tokens = result.mse_sum, result.mse_tokens.to(result.mse_sum)
        counted = self.trainer.strategy.reduce(torch.stack([total.detach(), tokens]), reduce_op="sum")
        mean = counted[0] / counted[1]
        self._add({"sft": mean, "loss": mean * weight}, 1 / self.trainer.world_size)  # each rank has the mean of all
        self._gather_metrics(total)
        return total * (weight * self.trainer.world_size * batch.grad_accumulation_steps / counted[1])

    def _add(self, metrics: Mapping[str, Tensor], share: float) -> None:
        for name, value in metrics.items():
            self._means[name] = self._means.get(name, 0) + value.detach().float() * share

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
        self.metrics.update({name: loss.new_tensor(self.rollouts.statistics[name]) for name in EPOCH_METRICS})

    # --- Lightning ---

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
        if batch.content is None or isinstance(batch.content, MicroBatch):
            return batch  # rollouts are where the model is
        return super().transfer_batch_to_device(batch, device, dataloader_idx)


@dataclass(frozen=True, slots=True)
class _Loader:
    """Without state, which Lightning would save. Its length is that of the whole run: then Lightning asks for a batch
    only when the update before it is finished (see steps.StepLoader)."""

    module: FlowGrpoModule

    def __len__(self) -> int:
        return self.module.updates.total * self.module.updates.accumulate

    def __iter__(self) -> Iterator[StepBatch]:
        return self.module.batches()


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value, 0 of none."""
    return torch.cat([values.abs(), values.new_zeros(1)]).max()
