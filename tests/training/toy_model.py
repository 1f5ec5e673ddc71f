"""A small real model for the training machinery: it predicts a token (ce) and undoes noise on a vector (mse); fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tests.training.keys import given
from uni_train.models.base import Trainable
from uni_train.training.curriculum import Constant
from uni_train.training.fit import FitResult, fit_supervised

WIDTH = 8
CLASSES = 5


@dataclass(frozen=True)
class ToyExample:
    """x [WIDTH] as a tuple; label is a class, or None for a row without text; image rows count for the mse."""

    x: tuple[float, ...]
    label: int | None
    image: bool
    seed: int = 0


@dataclass
class ToyBatch:
    x: Tensor
    noise: Tensor
    labels: Tensor
    text: Tensor
    image: Tensor

    def to(self, device: torch.device) -> ToyBatch:
        return ToyBatch(*(getattr(self, field).to(device) for field in ("x", "noise", "labels", "text", "image")))


class ToyModel(Trainable):
    """A few hundred parameters; all noise comes from each example's seed."""

    trained_parts: ClassVar = {"generation": "_moe_gen"}
    prepare_training = example_tokens = None

    def __init__(self, seed: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.body = nn.Linear(WIDTH, 16)
            self.norm = nn.LayerNorm(16)
            self.head = nn.Linear(16, CLASSES)
            self.out_moe_gen = nn.Linear(16, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def collate(self, examples: Sequence[ToyExample], seed: int) -> ToyBatch:
        noise = [torch.randn(WIDTH, generator=torch.Generator().manual_seed(e.seed % 2**63)) for e in examples]
        return ToyBatch(
            torch.tensor([e.x for e in examples]),
            torch.stack(noise),
            torch.tensor([e.label or 0 for e in examples]),
            torch.tensor([e.label is not None for e in examples]),
            torch.tensor([e.image for e in examples]),
        )

    def token_counts(self, batch: ToyBatch) -> tuple[int, int]:
        return int(batch.text.sum()), int(batch.image.sum()) * WIDTH

    def hidden(self, batch: ToyBatch) -> Tensor:
        return self.dropout(self.norm(torch.relu(self.body(batch.x + 0.1 * batch.noise))))

    def supervised_loss(self, batch: ToyBatch) -> SimpleNamespace:
        hidden = self.hidden(batch)
        ce = nn.functional.cross_entropy(self.head(hidden).float(), batch.labels, reduction="none")
        mse = (self.out_moe_gen(hidden).float() - batch.noise).square()
        return SimpleNamespace(
            ce_sum=(ce * batch.text).sum(),
            ce_tokens=batch.text.sum(),
            mse_sum=(mse * batch.image[:, None]).sum(),
            mse_tokens=batch.image.sum() * WIDTH,
        )


def toy_examples(n: int, seed: int) -> list[ToyExample]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, WIDTH, generator=generator).tolist()
    return [
        ToyExample(tuple(row), None if i % 3 == 0 else int(sum(row) > 0) + i % 2, image=i % 4 != 0)
        for i, row in enumerate(rows)
    ]


def train(
    folder: Path, model: ToyModel | None = None, examples: Sequence[ToyExample] = (), **keys: Any
) -> tuple[Any, FitResult]:
    """A model, by default a fresh toy, after a fit in `folder` on `examples`, by default forty."""
    model, keys = model or ToyModel(), {"updates": 6, "rows": 12, "progress": False} | keys
    examples = examples or toy_examples(40, 0)
    return model, fit_supervised(model, {"a": examples}, Constant({"a": 1.0}), directory=folder, **given(**keys))


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    """Bit for bit."""
    weights = other.state_dict()
    assert weights.keys() == one.state_dict().keys()
    for name, value in one.state_dict().items():
        assert torch.equal(weights[name], value), name
