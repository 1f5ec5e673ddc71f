"""Ways to train a large model on one card: what quantised weights and 8-bit moments leave of a traced update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import nn

from uni_train.models.quantised import Quantised, decoder_layers, stored_bytes
from uni_train.plan.trace import KINDS
from uni_train.plan.updates import AVERAGE, STEP, Traced, nbytes
from uni_train.training.low_bit_adamw import moments

_COPIES = 3
"""Weights of the largest layer in the compute dtype that a product with a quantised one holds. An assumption."""


def lighter(traced: Traced, model: nn.Module, weights: Quantised | None, state: str) -> Traced:
    """`traced`, an update of `model` on plain weights with whole moments, as it is with others.

    Args:
        weights: of the decoder. state: "full" or "8bit", of AdamW's moments.
    """
    line = traced.timeline
    held, saved, optimizer = line.bytes.astype(np.float64), 0, traced.optimizer
    if weights is not None:
        layers = [layer for _, layer in decoder_layers(model)]
        saved = sum(nbytes(layer.weight) - stored_bytes(layer, weights) for layer in layers)
        held[:, KINDS.index("weights")] -= saved
        computing = ~np.isin(np.array(line.phases), (STEP, AVERAGE))
        held[computing, KINDS.index("activations")] += _COPIES * max(nbytes(layer.weight) for layer in layers)
    if state == "8bit" and optimizer:
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = sum(nbytes(one) for weight in trained for one in moments(weight))
        held[:, KINDS.index("optimizer")] *= optimizer / traced.optimizer
    return replace(
        traced, timeline=replace(line, bytes=held.astype(np.int64)), weights=traced.weights - saved, optimizer=optimizer
    )
