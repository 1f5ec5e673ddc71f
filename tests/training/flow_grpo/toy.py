"""A small real flow for the trainer: four tokens of three numbers, conditions of eight, pictures of 2 x 2 pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from uni_train.config.schema import OptimizerConfig, StrategyConfig
from uni_train.core.seeds import derive_seed
from uni_train.flow.objective import interpolate, velocity_target
from uni_train.flow.schedule import Schedule, bagel_schedule
from uni_train.models.base import FlowPolicy, Request, SupervisedLoss
from uni_train.rewards.contract import Prompt
from uni_train.training.flow_grpo.config import GrpoConfig, RolloutConfig
from uni_train.training.flow_grpo.rollout import PromptList

TOKENS, NUMBERS = 4, 3
GRPO = GrpoConfig(
    epochs=3,
    updates_per_epoch=2,
    rows=12,
    rollout=RolloutConfig(prompts_per_epoch=4, group_size=4, steps=5),
    optimizer=OptimizerConfig(lr=3e-3),
    checkpoint_every=1,
    strategy=StrategyConfig(accelerator="cpu"),
)
PROMPTS = PromptList([Prompt(f"p{i}", f"prompt {i}", columns={"number": i}) for i in range(6)], seed=0)


@dataclass(frozen=True)
class Solved:
    """A row with its image: all its numbers are `grey`."""

    prompt: str
    grey: float
    seed: int = 0


@dataclass(frozen=True)
class ToyBatch:
    """Rows that are learned; noise: [B, TOKENS, NUMBERS]."""

    prompts: Sequence[Request]
    grey: Tensor
    noise: Tensor


SOLVED = [Solved(f"prompt {i}", i / 5) for i in range(6)]


@dataclass(frozen=True)
class ToyCondition:
    """[B, 8]; reading depends on the weights, as with BAGEL."""

    values: Tensor

    def select(self, rows: Sequence[int] | Tensor) -> ToyCondition:
        return ToyCondition(self.values[torch.as_tensor(rows, dtype=torch.long)])

    def repeat(self, times: int) -> ToyCondition:
        return ToyCondition(self.values.repeat_interleave(times, 0))


class ToyFlow(FlowPolicy):
    """Draws in steps and does nothing else."""

    name = "toy"
    draw = picture_size = prepare_training = example_tokens = None
    trained_parts: ClassVar = {"generation": "_moe_gen"}

    def __init__(self, seed: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.read = nn.Linear(2, 8)
            self.body = nn.Linear(NUMBERS + 1 + 8, 32)
            self.out_moe_gen = nn.Linear(32, NUMBERS)
        self.dropout = nn.Dropout(dropout)
        self.read_times = 0

    @torch.no_grad()
    def encode(self, requests: Sequence[Request]) -> ToyCondition:
        self.read_times += 1
        given = torch.tensor([[len(r.prompt) / 10, float(r.prompt[-1])] for r in requests])
        return ToyCondition(self.read(given / 5))

    def noise(self, requests: Sequence[Request]) -> Tensor:
        made = [torch.Generator().manual_seed(derive_seed(r.seed)) for r in requests]
        return torch.stack([torch.randn(TOKENS, NUMBERS, generator=one) for one in made])

    def schedule(self, condition: Any = None, row: int = 0, steps: int | None = None) -> Schedule:
        return bagel_schedule((steps or 6) + 1, 1.0)

    def velocity(self, x_t: Tensor, t: Tensor | float, condition: ToyCondition) -> Tensor:
        level = torch.as_tensor(t, dtype=torch.float32).reshape(-1, 1, 1).expand(len(x_t), TOKENS, 1)
        read = condition.values[:, None].expand(-1, TOKENS, -1)
        return self.out_moe_gen(self.dropout(torch.tanh(self.body(torch.cat([x_t, level, read], -1)))))

    def decode(self, latents: Tensor, condition: Any = None) -> list[np.ndarray]:
        pixels = (latents * 40 + 128).clamp(0, 255).to(torch.uint8)
        return list(pixels.reshape(-1, 2, 2, NUMBERS).numpy())

    def collate(self, examples: Sequence[Solved], seed: int) -> ToyBatch:
        noise = self.noise([Request("", "", seed=one.seed) for one in examples])
        prompts = [Request("", one.prompt) for one in examples]
        return ToyBatch(prompts, torch.tensor([one.grey for one in examples]), noise)

    def supervised_loss(self, batch: ToyBatch, passes: int | None = None) -> SupervisedLoss:
        clean = batch.grey[:, None, None].expand_as(batch.noise)
        velocity = self.velocity(interpolate(clean, batch.noise, 0.5), 0.5, self.encode(batch.prompts))
        error = (velocity - velocity_target(clean, batch.noise)).square().mean(-1)
        none = error.new_zeros(())
        return SupervisedLoss(none, none, error.sum(), torch.tensor(error.numel()))


def bright(prompts: list[str], completions: list[np.ndarray], **columns: Any) -> list[float]:
    """Bright pictures are good ones."""
    return [float(image.mean()) / 255 for image in completions]
