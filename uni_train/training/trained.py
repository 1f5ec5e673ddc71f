"""Which parameters are trained, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn

from uni_train.errors import UsageError
from uni_train.models.bagel.config import GENERATION_NAMES

PARTS = {
    "vit": r"\bvit_model\.",
    "connector": r"\bconnector\.",
    "understanding": r"\blanguage_model\.(?!.*_moe_gen)",
    "generation": "|".join(GENERATION_NAMES),
}
"""Parts of a BAGEL that may be frozen, by what is searched in a parameter's name. `understanding` are the decoder's
weights for text and ViT tokens, its embeddings and its head."""


def select_parameters(model: nn.Module, trained: str, frozen: Sequence[str] = ()) -> list[str]:
    """Names of the parameters that are to be trained, of those that the model itself leaves trainable.

    Args:
        trained: all | moe_gen (generation weights) | lora (adapters, see lora.py).
        frozen: `PARTS` that are not trained all the same.
    """
    parts = {"all": ("",), "moe_gen": GENERATION_NAMES, "lora": ("lora_",)}[trained]
    kept = re.compile("|".join(PARTS[part] for part in frozen) if frozen else "(?!)")
    names = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and any(part in name for part in parts) and not kept.search(name)
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
