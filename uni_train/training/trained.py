"""Which parameters are trained, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import nn

from uni_train.core.errors import UsageError

NOTHING = "(?!)"  # a pattern that is found nowhere


def select_parameters(model: nn.Module, trained: str, frozen: Sequence[str] = ()) -> list[str]:
    """Names of the parameters that are to be trained, of those that the model itself leaves trainable.

    Args:
        trained: all | moe_gen (the model's part `generation`) | lora (adapters, see lora.py).
        frozen: parts that are not trained all the same; those that the model lacks are ignored.

    Raises:
        UsageError: none is left.
    """
    parts: Mapping[str, str] = getattr(model, "trained_parts", {})
    wanted = re.compile({"all": "", "moe_gen": parts.get("generation", NOTHING), "lora": "lora_"}[trained])
    kept = re.compile("|".join([parts[part] for part in frozen if part in parts]) or NOTHING)
    names = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and wanted.search(name) and not kept.search(name)
    ]
    if not names:
        without = f" frozen={','.join(frozen)}" if frozen else ""
        raise UsageError(f"trained={trained}{without}: no parameter of {type(model).__name__} is left to train")
    return names


def train_only(model: nn.Module, trained: str, frozen: Sequence[str] = ()) -> set[str]:
    """Freeze all parameters but those of `select_parameters`, whose names it returns."""
    names = set(select_parameters(model, trained, frozen))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    return names
