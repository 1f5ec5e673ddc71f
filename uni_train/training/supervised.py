"""Supervised training: rectified-flow MSE on image tokens plus cross-entropy on text, each averaged over all tokens.

    loss = ce_weight * sum(ce) / tokens(ce) + mse_weight * sum(mse) / tokens(mse)

Sums and counts run over the *global* batch of an update: all ranks, all micro-batches. Averaging each rank's own mean
instead would weight a token by how few others its rank happened to get.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DeepSpeedStrategy
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from uni_train.config.kinds import Updates
from uni_train.config.schema import TrainingConfig
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.models.transfer import upload
from uni_train.training.divergence import not_applied
from uni_train.training.optimizer import learning_rate_factor, make_optimizer
from uni_train.training.steps import StepBatch
from uni_train.training.strategies.choice import reduced
from uni_train.training.trained import train_only

if TYPE_CHECKING:
    from uni_train.models.base import SupervisedLoss, Trainable


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a training takes beside its data and its configuration.

    Attributes:
        stage: part of every seed, so that two trainings of a run see different draws.
        trained, frozen: see trained.select_parameters.
        logger: a further Lightning logger, for example `wandb_logger(...)`.
        progress: whether it shows a progress line.
        description: of the progress line; None: the stage.
        keep: newest checkpoints that stay. log_every: updates between two writes of metrics.jsonl.
    """

    stage: str = "finetune"
    trained: str = "all"
    frozen: Sequence[str] = ()
    logger: Logger | None = None
    progress: bool = True
    description: str | None = None
    keep: int = 2
    log_every: int = 10


class SupervisedModule(pl.LightningModule):
    """Lightning's view of a model in supervised training; automatic optimization does the rest.

    After the last micro-batch of an update `metrics` holds detached scalars of it, on the model's device: loss, ce,
    mse, grad_norm (before clipping), tokens; `used_lr` is its learning rate. Of these the norm alone is read from the
    device. An update whose gradient is not finite ends the training. Where a part of the weights is trained, one that
    reaches none of them is skipped (`skips`).
    """

    def __init__(
        self,
        model: Trainable,
        config: TrainingConfig,
        updates: Updates,
        options: FitOptions,
    ) -> None:
        super().__init__()
        self.model, self.config, self.updates, self.stage = model, config, updates, options.stage
        self.trained_names = train_only(model, options.trained, options.frozen)
        self.skips = options.trained != "all" or bool(options.frozen)
        self.metrics: dict[str, Tensor] = {}
        self.used_lr = 0.0
        self._sums: Tensor | None = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Weights that are not trained are left out: they are those that the run starts from."""
        frozen = self._frozen()
        checkpoint["state_dict"] = {name: v for name, v in checkpoint["state_dict"].items() if name not in frozen}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Complete what `on_save_checkpoint` left out, and count micro-batches as this number of ranks makes them."""
        frozen = self._frozen()
        here = {name: value for name, value in self.state_dict().items() if name in frozen}
        checkpoint["state_dict"] = here | checkpoint["state_dict"]
        # Lightning counts micro-batches, of which an update may have had others on another number of ranks.
        passed = checkpoint["global_step"] * self.updates.accumulate
        counted = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (counted["total"], counted["current"]):
            off = passed - counts["ready"]
            counts.update({name: count + off for name, count in counts.items()})

    def _frozen(self) -> set[str]:
        return {f"model.{name}" for name, _ in self.model.named_parameters() if name not in self.trained_names}

    def on_train_batch_start(self, batch: StepBatch, batch_idx: int) -> None:
        # Dropout and whatever else draws from torch's global generator then depends on the update, not on the past.
        # (Not torch.manual_seed: it formats a stack trace for each kind of device that is not in use, a millisecond.)
        seed = derive_seed(self.config.seed, self.stage, "torch", batch.step, self.global_rank, batch.micro)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        # Noted before the update, because the scheduler moves on with it.
        self.used_lr = float(self.trainer.optimizers[0].param_groups[0]["lr"])

    def training_step(self, batch: StepBatch, batch_idx: int) -> Tensor:
        if batch.step != self.global_step:
            raise RuntimeError(f"the loader gave the batch of update {batch.step} to update {self.global_step}")
        loss = self._loss(batch)
        sums = torch.stack([loss.ce_sum.detach().float(), loss.mse_sum.detach().float()])
        if batch.tokens is None:
            counts = torch.stack([loss.ce_tokens, loss.mse_tokens]).to(sums)
        else:
            counts = upload(torch.tensor(batch.tokens, dtype=sums.dtype), sums.device)
        ranks = self.trainer.world_size
        if ranks > 1:
            sums, counts = reduced(torch.stack([sums, counts]))
        counts = counts.clamp(min=1)
        weights = (self.config.ce_weight, self.config.mse_weight)
        scale = [weight / count for weight, count in zip(weights, counts.unbind(), strict=True)]
        self._sums = sums / counts if batch.micro == 0 or self._sums is None else self._sums + sums / counts
        if batch.last:
            self.metrics["loss"] = self._sums[0] * weights[0] + self._sums[1] * weights[1]
            self.metrics["ce"], self.metrics["mse"] = self._sums
            self.metrics["tokens"] = counts.sum()
        # DDP averages gradients over ranks and Lightning over micro-batches, but these are parts of one sum.
        total = (ranks * batch.grad_accumulation_steps) * (scale[0] * loss.ce_sum + scale[1] * loss.mse_sum)
        if not total.requires_grad:  # such as text where adapters of generation are trained
            # DDP waits for each rank to reach a weight.
            total = total + 0 * _whole(next(p for p in self.model.parameters() if p.requires_grad).sum())
        return total

    def _loss(self, batch: StepBatch) -> SupervisedLoss:
        """The model's; where ranks hold parts of one another's weights or gradients they compute in step.

        Raises:
            UserError: a rank has no rows.
        """
        model: Any = self.model
        shared = self.config.strategy.kind.startswith(("deepspeed_", "fsdp2"))
        if not (shared and self.trainer.world_size > 1 and hasattr(model, "passes")):
            return model.supervised_loss(batch.content)
        mine = model.passes(batch.content)
        counts = torch.tensor([-mine, mine], device=self.device)
        fewest, most = reduced(counts, "max").tolist()
        if not fewest:
            raise UserError(
                f"update {batch.step + 1} has too few rows for {self.trainer.world_size} devices x "
                f"{batch.grad_accumulation_steps} micro-batches: one of them got none",
                "Raise the batch, lower accumulate, or use strategy=ddp.",
            )
        return model.supervised_loss(batch.content, passes=most)

    def note_gradient(self, norm: Tensor) -> None:
        """Keep the norm of an update's gradient before it is clipped. Raises Stopped where it is not finite."""
        self.metrics["grad_norm"] = norm
        if not math.isfinite(norm):
            raise not_applied(float(norm), self.global_step + 1, self.rows_of_update())

    def rows_of_update(self) -> Sequence[str]:
        """This rank's rows of the current update, as messages name them."""
        return ()

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        if isinstance(self.trainer.strategy, DeepSpeedStrategy):
            return  # its engine clips when it steps
        # Lightning's own clipping throws the norm away.
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(parameters, gradient_clip_val or math.inf, foreach=True)
        self.note_gradient(_whole(norm).to(self.device))  # offloaded gradients are on the CPU
        if self.skips and not self.metrics["grad_norm"]:
            optimizer.zero_grad()  # gradients of zero would move weights by AdamW's momentum

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        config = self.config.optimizer
        trained = {n: p for n, p in self.model.named_parameters() if n in self.trained_names}
        optimizer = make_optimizer(trained, config)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate_factor(step, config, self.updates.total)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def transfer_batch_to_device(self, batch: StepBatch, device: torch.device, dataloader_idx: int) -> StepBatch:
        if device.type == "cpu":
            return batch
        moved = move_data_to_device(batch.content, device)
        return StepBatch(batch.step, batch.micro, batch.grad_accumulation_steps, moved, batch.tokens)


def _whole(value: Tensor) -> Tensor:
    """A number that devices may hold parts of."""
    return value.full_tensor() if isinstance(value, DTensor) else value
