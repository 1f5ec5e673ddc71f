"""Flow-GRPO (Liu et al. 2025, arXiv 2505.05470) from prompts to a step of the optimizer; read it from top to bottom.

Once an epoch:

    1. prompts       `prompts_per_epoch`, a function of seed and epoch            rollout.PromptList
    2. rollout       `group_size` images each, with random steps in a window      rollout.sample_epoch, flow.rollout
    3. rewards       of each image: verifier, judge, your own function            rewards.contract.Scoring
    4. advantages    (reward - mean of its group) / standard deviation            flow.advantages

Then `updates_per_epoch` times, each on an equal part of the epoch's images, in micro-batches of random steps:

    5. log ratio     of stored steps, current weights to those that sampled       losses.Losses.step_loss
    6. loss          clipped ratio times advantage                                flow.grpo.grpo_loss
    7. KL            to the starting weights, with objective.kl                   losses.Reference
       thoughts      the same for their tokens, where thoughts are trained        flow.grpo.token_loss
       sft           rows with their images, where the recipe has some            training.supervised
    8. step          gradients clipped, AdamW, averages                           training.fit.run, by Lightning

A variant changes the random steps of 2, or the loss of 5 and 6: variants.py has all of them. Logs and alarms are in
callbacks.py. A rank trains on the images it has sampled; where others have more, it pads with rows of weight 0.

Left out on purpose: dropout (sampling and training must agree: the model is in eval mode), a critic, a replay buffer.

    directory/checkpoints/step=00000100/    at the end of an epoch; see checkpoint_io
    directory/metrics.jsonl                 one line an update, the same whether interrupted or not
    directory/rollouts.jsonl                one line an epoch: rewards, images, seconds
    directory/held_out.jsonl                scores on held-out prompts
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uni_train.config.kinds import Updates
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed, rng
from uni_train.distributed.ranks import Ranks
from uni_train.flow.grpo import STEP_METRICS, TOKEN_METRICS
from uni_train.flow.objective import interpolate
from uni_train.models.base import FlowPolicy
from uni_train.models.transfer import upload
from uni_train.training.callbacks import Evaluate, Validation
from uni_train.training.fit import CHECKPOINTS, HELD_OUT, FitResult, Run, run
from uni_train.training.flow_grpo.batches import MicroBatch, ThoughtBatch
from uni_train.training.flow_grpo.callbacks import Alarms, EpochLog
from uni_train.training.flow_grpo.config import GrpoConfig
from uni_train.training.flow_grpo.losses import Losses
from uni_train.training.flow_grpo.rollout import (
    Context,
    Rollouts,
    Sampling,
    read_context,
    sample_epoch,
    thought_request,
)
from uni_train.training.metric_log import truncate_metrics
from uni_train.training.steps import Source, StepBatch, StepDataset, StepLoader
from uni_train.training.strategies.choice import check_guided, check_second_weights, current_ranks, on_ranks, reduced
from uni_train.training.strategies.sharding import unsharded
from uni_train.training.supervised import FitOptions, SupervisedModule

ROLLOUTS = "rollouts.jsonl"
EPOCH_METRICS = ("reward", "reward_std", "best_of_group", "frac_reward_zero_std", "diversity")
"""Statistics of an epoch that every line of metrics.jsonl repeats."""
GRPO_OPTIONS = FitOptions(stage="grpo")
ImageStep = tuple[int, int]
"""Number of an image, and random step in the window. The step behind the window stands for the image's thought."""


def fit_flow_grpo(
    model: FlowPolicy,
    sampling: Sampling,
    config: GrpoConfig,
    directory: Path,
    options: FitOptions = GRPO_OPTIONS,
    *,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 10,
    sft_rows: Source | None = None,
) -> FitResult:
    """Train `model` in place; afterwards it has the final weights, averaged ones if `config.ema`.

    The same call continues from the newest intact checkpoint, which is at the end of an epoch. An interrupted run ends
    with the same weights and the same metrics.jsonl, bit for bit.

    Args:
        evaluate: updates done -> scores on held-out prompts, every `evaluate_every` epochs; the alarm reads "held_out".
        sft_rows: the rows of `config.sft`.

    Raises:
        UsageError: keys that do not fit together.
        UserError: a reward that fails, the on-policy check, an alarm, a damaged checkpoint, a diverged loss.
    """
    config = on_ranks(config)
    ranks = config.strategy.devices * config.strategy.nodes
    config.check_ranks(ranks)
    check_second_weights(config.strategy, config.unsharded(options.trained))
    check_guided(config.strategy, getattr(model, "guided", False))
    updates = Updates(config.updates, config.grad_accumulation_steps(ranks))
    directory = Path(directory)

    def prepare(fit: Run) -> FlowGrpoModule:
        if fit.done % config.updates_per_epoch:
            hint = "Delete it; the run continues from the one before."
            raise UserError(f"{directory}: the checkpoint of update {fit.done} is inside an epoch", hint)
        current_ranks().from_main(lambda: truncate_metrics(directory / ROLLOUTS, fit.done))
        module = FlowGrpoModule(model, config, updates, sampling, options, sft_rows)
        every, file = evaluate_every * config.updates_per_epoch, directory / HELD_OUT
        validation = None if evaluate is None else Validation(evaluate, every, file)
        alarms = Alarms(config, validation, fit.log, directory / CHECKPOINTS)
        log = EpochLog(directory / ROLLOUTS, config.updates_per_epoch)
        fit.callbacks += [log, alarms] if validation is None else [log, validation, alarms]
        model.eval()
        return module

    return run(model, config, updates, directory, prepare, options, checkpoint_unit=config.updates_per_epoch)


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
        model: FlowPolicy,
        config: GrpoConfig,
        updates: Updates,
        sampling: Sampling,
        options: FitOptions = GRPO_OPTIONS,
        sft_rows: Source | None = None,
    ) -> None:
        super().__init__(model, config, updates, options)
        self.skips = False  # groups of equal rewards have no gradient either, and their update counts
        self.sampling, self.sft_rows = sampling, sft_rows
        # Made before Lightning restores a checkpoint, with the starting weights.
        self.losses = Losses(model, config, self.trained_names)
        self._means: dict[str, Tensor] = {}
        self._log_ratios: list[Tensor] = []
        self.sampled_at = time.perf_counter()

    # --- an epoch: rollouts, then micro-batches of their random steps ---

    def train_dataloader(self) -> StepLoader:
        return StepLoader(self.updates.total * self.updates.accumulate, self.batches)

    def batches(self) -> Iterator[StepBatch]:
        """The micro-batches of all updates that are not done; each epoch begins with its rollouts."""
        config, model, ranks, accumulate = self.config, self.model, self.ranks, self.updates.accumulate
        sft = None if config.sft is None else StepDataset(
            model.collate, {"sft": self.sft_rows}, lambda step: {"sft": 1.0},  # type: ignore[arg-type, dict-item]
            rows=config.sft.rows, updates=config.updates, seed=config.seed, stage=f"{self.stage} sft",
            rank=ranks.rank, world_size=ranks.world_size,
        )  # fmt: skip
        context: Context | None = None
        for epoch in range(self.global_step // config.updates_per_epoch, config.epochs):
            if epoch:
                self.losses.follow()
            prompts = self.sampling.prompts(epoch, config.rollout.prompts_per_epoch)
            with unsharded(model), self.losses.sampling():
                self.rollouts, context, images = sample_epoch(
                    model, prompts, self.sampling.rewards, config, self.stage, epoch,  # type: ignore[arg-type]
                    ranks, self.precision, self.sampling.draw_rows, self.sampling.think_rows,
                )  # fmt: skip
            self.sampled_at = time.perf_counter()
            if self.sampling.on_images is not None:
                self.sampling.on_images(epoch, images)
            del images  # to look at: they are not trained on
            self._old_log_probs(context)
            for update in range(config.updates_per_epoch):
                if update and model.encoder_trained:
                    context = None  # the weights have changed: read again
                step = epoch * config.updates_per_epoch + update
                content: list[Any] = self._micro_batches(update, context)
                content += [] if sft is None else [sft[step][0].content]
                # Lightning counts equally many in every update. ZeRO begins its sums with the first, and all strategies
                # reduce in the last, so empty ones are between them.
                content[1:1] = [None] * (accumulate - len(content))
                for micro, part in enumerate(content):
                    yield StepBatch(step, micro, accumulate, part)
            context = None  # freed before the next one is made

    def _micro_batches(self, update: int, context: Context | None) -> list[MicroBatch]:
        """Cut the rows of an update that this rank trains on into micro-batches, as many as every other rank has.

        A row is a random step of an image, or its thought. A rank without rows gets one with the share 0.

        Args:
            context: of this rank's images; None: read it now.
        """
        config, rollouts, window = self.config, self.rollouts, self.config.window_size
        rows = update_rows(rollouts, config, self.stage, update)
        own = [row for row in rows if row[0] in rollouts.images]
        padding = (own[0][0] if own else rollouts.images.start, 0)
        if context is None:
            with unsharded(self.model), self.precision():
                drawn = [n for n, step in own if step < window] or [padding[0]]
                context = read_context(self.model, rollouts.requests, drawn, config)  # type: ignore[arg-type]
        most = max(Counter(image // len(rollouts.images) for image, _ in rows).values(), default=0)
        # Two where empty ones follow, for the first and the last must compute (see `batches`).
        count = max(-(-most // config.rows), min(2, self.updates.accumulate - (config.sft is not None)))
        steps = sum(step < window for _, step in rows)
        batches = []
        for part in (own[micro::count] for micro in range(count)):
            picked = [row for row in part if row[1] < window]
            thoughts = [image for image, step in part if step == window]
            share, thought_share = len(picked) / max(steps, 1), len(thoughts) / max(len(rows) - steps, 1)
            batches.append(MicroBatch(
                **step_fields(rollouts, context, picked or [padding], config, self.stage), rows=picked, share=share,
                thoughts=thought_batch(rollouts, thoughts, thought_share, config) if thoughts else None,
            ))  # fmt: skip
        return batches

    def _old_log_probs(self, context: Context | None) -> None:
        """Old log probabilities by the micro-batches of training, before weights change: of thoughts, and with
        `on_policy=recompute` of steps."""
        config, rollouts = self.config, self.rollouts
        recompute = config.objective.on_policy == "recompute" and not config.algorithm.forward
        thoughts = config.learned_thoughts
        ratios = recompute or (thoughts is not None and thoughts.loss == "grpo")
        updates = range(config.updates_per_pass if ratios else 0)
        reads = (None if update and self.model.encoder_trained else context for update in updates)
        for batch in chain.from_iterable(map(self._micro_batches, updates, reads)):
            with unsharded(self.model), self.precision():
                if recompute and batch.rows:  # none: padding, with no place for its values
                    places = tuple(zip(*[(n - rollouts.images.start, step) for n, step in batch.rows], strict=True))
                    rollouts.log_probs[places], means = self.losses.score(batch)
                    if rollouts.means.numel():
                        rollouts.means[places] = means
                if batch.thoughts is not None:
                    scored = self.losses.token_log_probs(batch.thoughts).detach()
                    rollouts.thought_log_probs[batch.thoughts.index] = scored

    # --- an update: the loss of each micro-batch ---

    def training_step(self, batch: StepBatch, batch_idx: int) -> Tensor:
        """Raises UserError: the on-policy check."""
        if batch.step != self.global_step:
            raise RuntimeError(f"the loader gave the batch of update {batch.step} to update {self.global_step}")
        config, zero, content = self.config, torch.zeros((), device=self.device), batch.content
        if batch.micro == 0:
            self._log_ratios, self._means = [], {}
            if config.learned_thoughts is not None:  # a rank may have rows of one kind only; all reduce the same names
                names = (*STEP_METRICS, *TOKEN_METRICS, *["kl"] * bool(config.objective.kl))
                self._means = dict.fromkeys((*names, *["thoughts/kl"] * bool(config.learned_thoughts.kl)), zero)
        if content is None:
            total = torch.zeros((), device=self.device, requires_grad=True) * 1
        elif not isinstance(content, MicroBatch):
            total = self._sft_loss(batch)
        else:
            loss: Tensor = zero
            log_ratio: Tensor | None = zero.new_zeros(0)
            if content.share or content.thoughts is None:
                loss, metrics, log_ratio = self.losses.step_loss(content)
                self._add(metrics, content.share)
            if log_ratio is not None:  # of padding, which has no old log probability, none counts
                self._log_ratios.append(log_ratio if content.share else log_ratio[:0])
            self._add({"tokens": content.mask.sum()}, float(content.share > 0))
            total = self._weighted(loss, content.share * config.objective.image_weight, batch)
            if content.thoughts is not None:
                loss, metrics = self.losses.token_loss(content.thoughts)
                self._add(metrics, content.thoughts.share)
                total = total + self._weighted(loss, content.thoughts.share * self.losses.thoughts.weight, batch)
        if batch.last:
            self._gather_metrics()
            self._check_on_policy(batch.step)
        return total

    def _weighted(self, loss: Tensor, weight: float, batch: StepBatch) -> Tensor:
        self._add({"loss": loss}, weight)
        # DDP averages gradients over ranks and Lightning over micro-batches, but these are parts of one sum.
        return loss * (weight * (batch.grad_accumulation_steps * self.trainer.world_size))

    def _check_on_policy(self, update: int) -> None:
        """Raises UserError where, in an epoch's first update, the weights that sampled give steps another density."""
        objective, ratio = self.config.objective, self.metrics.get("log_ratio_max")
        if ratio is None or update % self.config.updates_per_epoch or objective.on_policy == "trust":
            return
        worst = float(ratio)
        clip_range = min(math.log1p(objective.clip_high), -math.log1p(-min(objective.clip_low, 0.999)))
        most = objective.on_policy_check * clip_range
        if not worst <= most:
            raise UserError(
                f"on-policy check: before update {update + 1} the weights are those that sampled, but the log ratio of "
                f"a step is {worst:.2g} (at most {most:.2g}: {objective.on_policy_check:g} of the clip range)",
                "Training and sampling compute different velocities. objective.on_policy=recompute scores the samples "
                "in the micro-batches of training; else check dropout and rollout.latents=float32, or widen the clip "
                "range.",
            )

    def _sft_loss(self, batch: StepBatch) -> Tensor:
        """Squared error of velocities on the rows of `sft`, a mean over all ranks' tokens; the last micro-batch."""
        assert self.config.sft is not None
        result, weight, ranks = self._loss(batch), self.config.sft.weight, self.trainer.world_size
        total, tokens = result.mse_sum, result.mse_tokens.to(result.mse_sum)
        counted = reduced(torch.stack([total, tokens]))
        mean = counted[0] / counted[1]
        self._add({"sft": mean, "loss": mean * weight}, 1 / ranks)  # each rank has the mean of all
        return total * (weight * ranks * batch.grad_accumulation_steps / counted[1])

    def _add(self, metrics: Mapping[str, Tensor], share: float) -> None:
        for name, value in metrics.items():
            self._means[name] = self._means.get(name, 0) + value.detach().float() * share

    def _gather_metrics(self) -> None:
        """Metrics of the update over all ranks."""
        names = sorted(self._means)
        sums = reduced(torch.stack([self._means[name] for name in names]))
        self.metrics.update(zip(names, sums, strict=True))
        if self._log_ratios:
            log_ratios = torch.cat(self._log_ratios)
            off = log_ratios.double().expm1()  # ratio - 1, whose square is not lost beside 1
            counted = off.new_full((), len(off))
            n, total, squares = reduced(torch.stack([counted, off.sum(), off.square().sum()]))
            n = n.clamp_min(1)
            self.metrics["ratio_std"] = (squares / n - (total / n).square()).clamp_min(0).sqrt().float()
            self.metrics["log_ratio_max"] = reduced(_largest(log_ratios), "max")
        self.metrics.update({name: sums.new_full((), self.rollouts.statistics[name]) for name in EPOCH_METRICS})

    # --- Lightning ---

    def rows_of_update(self) -> Sequence[str]:
        return list(dict.fromkeys(f"prompt {request.prompt!r}"[:80] for request in self.rollouts.requests.values()))

    @property
    def ranks(self) -> Ranks:
        return Ranks(self.trainer.global_rank, self.trainer.world_size)

    def precision(self) -> contextlib.AbstractContextManager[None]:
        """Within this context the model computes as in a training step: under autocast, where that has it."""
        return self.trainer.precision_plugin.train_step_context()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.losses.sampler is not None:
            checkpoint["sampler"] = self.losses.sampler

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the weights that sample, where they are a second set."""
        super().on_load_checkpoint(checkpoint)
        if self.losses.sampler is not None:
            self.losses.sampler = dict(checkpoint["sampler"])

    def transfer_batch_to_device(self, batch: StepBatch, device: torch.device, dataloader_idx: int) -> StepBatch:
        if batch.content is None or isinstance(batch.content, MicroBatch):
            return batch  # rollouts are where the model is
        return super().transfer_batch_to_device(batch, device, dataloader_idx)


def update_rows(rollouts: Rollouts, config: GrpoConfig, stage: str, update: int) -> list[ImageStep]:
    """The rows of an update on all ranks: an equal part of the images, shuffled by seed, epoch and pass.

    Images that teach nothing are left out. Where no image is left, a `kl` penalty acts on all.
    """
    images = rollouts.informative.nonzero().flatten().tolist()
    if not images and config.objective.kl:
        images = list(range(len(rollouts.informative)))
    turn, part = divmod(update, config.updates_per_pass)
    rng("pictures", config.seed, stage, rollouts.epoch, *([turn] if turn else [])).shuffle(images)
    return [(image, step) for image in images[part :: config.updates_per_pass] for step in config.learned_places]


def step_fields(
    rollouts: Rollouts, context: Context, rows: Sequence[ImageStep], config: GrpoConfig, stage: str
) -> dict[str, Any]:
    """Fields of MicroBatch for some rows: stored random steps, or finished images noised again."""
    device = rollouts.final.device
    index, places = upload(torch.tensor([(image - rollouts.images.start, step) for image, step in rows]), device).T
    condition, schedule = context([image for image, _ in rows])
    mask = rollouts.mask[index]
    fields = {"condition": condition, "schedule": schedule, "mask": mask, "advantage": rollouts.advantages[index]}
    if rollouts.window is None:  # the noise levels of an image spread evenly over [0, 1)
        clean, draws = rollouts.final[index], config.objective.noise_draws
        seeds = [derive_seed(config.seed, stage, "noised", rollouts.epoch, *row) for row in rows]
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        pairs = zip(rows, generators, strict=True)
        levels = [(draw + float(torch.rand((), generator=generator))) / draws for (_, draw), generator in pairs]
        noise = upload(
            torch.stack([torch.randn(clean.shape[1:], generator=generator) for generator in generators]), device
        )
        noise, t = noise.to(clean) * mask, upload(torch.tensor(levels), device)
        return {**fields, "x": interpolate(clean, noise, t[:, None, None]), "t": t, "clean": clean}
    steps = places + rollouts.window.start
    if rollouts.means.numel():
        fields["old_mean"] = rollouts.means[index, places]
    return {
        **fields,
        "x": rollouts.latents[index, places].float(),
        "t": schedule.step(steps)[0],
        "steps": steps,
        "x_next": rollouts.latents[index, places + 1].float(),
        "old_log_prob": rollouts.log_probs[index, places],
    }


def thought_batch(rollouts: Rollouts, images: Sequence[int], share: float, config: GrpoConfig) -> ThoughtBatch:
    """The thoughts of some images."""
    places = torch.tensor([image - rollouts.images.start for image in images])
    index = upload(places, rollouts.final.device)
    requests = [thought_request(rollouts.requests[image], image % config.rollout.group_size) for image in images]
    old, advantages = rollouts.thought_log_probs[index], rollouts.advantages[index]
    return ThoughtBatch(requests, rollouts.thoughts[places], old, advantages, share, index)


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value, 0 of none."""
    return torch.cat([values.abs(), values.new_zeros(1)]).max()
