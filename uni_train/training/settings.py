"""What a person may set about a supervised run. Plain values only, so that it can be made from a recipe without torch.

Left out on purpose: anything that follows from the model (its dtype, its attention) or from the run (its folder).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from uni_train.errors import UsageError

SCHEDULES = ("constant", "linear", "cosine")
TRAINED = ("all", "moe_gen", "lora")
STRATEGIES = ("auto", "single", "ddp", "deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3", "fsdp2")
SHARDED = ("deepspeed_zero3", "fsdp2")
"""Strategies under which each rank holds a part of the weights."""
FREEZABLE = ("vit", "connector", "understanding", "generation")


@dataclass(frozen=True, kw_only=True)
class SupervisedSettings:
    """One supervised fit. An *update* is one optimizer step, whatever the number of ranks or micro-batches."""

    updates: int = 300
    rows: int = 256
    """Rows of an update that a mixture share of 1.0 stands for, over all ranks and micro-batches together."""
    tokens: int | None = None
    """Instead of `rows`: each micro-batch of each rank takes examples until it has at least so many tokens."""
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Not applied to norms, biases and other parameters of fewer than two dimensions."""
    warmup_updates: int = 0
    """Updates of linear warm-up; fewer than `updates`."""
    schedule: str = "constant"
    """constant | linear | cosine: how the rate falls from `decay_from` on."""
    decay_from: float = 0.5
    """The part of all updates after which the rate falls (not before the warm-up ends)."""
    final_lr: float = 0.0
    """Share of `lr` that the fall ends at."""
    clip: float = 1.0
    """Largest global gradient norm; 0 leaves gradients alone."""
    state: str = "full"
    """full | 8bit (torchao's AdamW8bit): the moments of AdamW."""
    ce_weight: float = 1.0
    mse_weight: float = 1.0
    trained: str = "all"
    """all | moe_gen | lora | re:PATTERN, searched in the parameter names."""
    frozen: tuple[str, ...] = ()
    """Parts that are not trained all the same: vit | connector | understanding | generation."""
    precision: str = "32-true"
    """Lightning's name. On CPUs with AMX bf16-mixed is about 1.5 times as fast as 32-true."""
    accelerator: str = "auto"
    devices: int = 1
    """A node; where ranks have joined (uni_train.distributed.ranks), as many as have."""
    num_nodes: int = 1
    strategy: str = "auto"
    """auto | single | ddp (the whole model on each device) | deepspeed_zero1..3 | fsdp2, or a name of Lightning's."""
    offload_optimizer: bool = False
    """deepspeed_zero1..3: the optimizer's state in the memory of the CPU."""
    offload_weights: bool = False
    """deepspeed_zero3, fsdp2: weights there as well."""
    accumulate: int = 1
    """Micro-batches per update; above 1 the model must have `token_counts(batch)`."""
    num_workers: int = 0
    """Processes that make batches ahead of time; 0 makes them in the training process."""
    ema: float | None = None
    """Decay of the moving average of the weights. With it the averaged weights are evaluated and returned."""
    checkpoint_every: int = 100
    keep: int = 2
    """Newest checkpoints kept."""
    log_every: int = 10
    """Updates between writes of the metric log; every update gets its own line all the same."""
    seed: int = 0
    stage: str = "finetune"
    """Part of every seed, so that two stages of a run with one seed see different draws."""

    def check(self) -> None:
        """Raise UsageError naming the first key whose value cannot be meant."""
        for key in ("updates", "rows", "devices", "num_nodes", "accumulate", "checkpoint_every", "keep", "log_every"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key}={getattr(self, key)}: must be at least 1")
        for key in ("warmup_updates", "num_workers", "weight_decay", "clip", "ce_weight", "mse_weight"):
            if getattr(self, key) < 0:
                raise UsageError(f"{key}={getattr(self, key)}: must not be negative")
        if self.tokens is not None and self.tokens < 1:
            raise UsageError(f"tokens={self.tokens}: must be at least 1")
        for part in self.frozen:
            if part not in FREEZABLE:
                raise UsageError(f"frozen={part}: must be of {', '.join(FREEZABLE)}")
        if self.lr <= 0:
            raise UsageError(f"lr={self.lr}: must be above 0")
        if self.warmup_updates >= self.updates:
            raise UsageError(
                f"warmup_updates={self.warmup_updates}: there are only {self.updates} updates, "
                "so the full learning rate would never be reached",
                "Lower warmup_updates or raise updates.",
            )
        if self.schedule not in SCHEDULES:
            raise UsageError(f"schedule={self.schedule}: must be one of {', '.join(SCHEDULES)}")
        for key in ("decay_from", "final_lr"):
            if not 0 <= getattr(self, key) <= 1:
                raise UsageError(f"{key}={getattr(self, key)}: must lie in 0..1")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise UsageError(f"ema={self.ema}: must lie in 0..1 (1 excluded), or be null")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas={list(self.betas)}: must be two numbers in 0..1 (1 excluded)")
        if self.trained.startswith("re:"):
            try:
                re.compile(self.trained.removeprefix("re:"))
            except re.error as error:
                raise UsageError(f"trained={self.trained}: {error}") from error
        elif self.trained not in TRAINED:
            raise UsageError(f"trained={self.trained}: must be all, moe_gen, lora or re:PATTERN")
