"""Frozen weights in 4 or 8 bits, by torchao: what adapters are trained on, and drawn with, on one small card.

    nf4    4 bits a weight in blocks of 64, whose scales have 8 bits themselves (QLoRA, Dettmers et al. 2023,
           arXiv 2305.14314, sections 3.1 and 3.2): 0.52 bytes a weight
    int8   8 bits, a scale for each output
    fp8    float8 e4m3, a scale for each output

The linear layers of the decoder are quantised. Embeddings, heads, norms, the vision encoder and the VAE stay as they
are. A product takes its weight back to the compute dtype first, so nothing is faster; gradients flow to the inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from uni_train.config.schema import Quantised
from uni_train.core.errors import UserError
from uni_train.models.weights import is_quantised, plain

M = TypeVar("M", bound=nn.Module)
LAYERS = r"(.*\.)?(language_model\.model\.layers|language_model\.layers|(single_)?transformer_blocks)\.\d+\..*"
"""Names of layers in a BAGEL, a nano, a Janus, the transformers of diffusers, and the text encoder of an editor."""
_BLOCK, _SCALES = 64, 256  # nf4: weights that share a scale, scales that share one


def quantise(
    model: M,
    weights: Quantised | None,
    device: torch.device | str | None = None,
    read: Callable[[str], Tensor] | None = None,
) -> M:
    """Quantise the decoder's linear layers, in place; those that are already so stay so. None: nothing happens.

    One layer after the other: no two of them have plain weights on `device` at the same time.

    Args:
        device: where each weight is moved before it is quantised; None: where it is.
        read: a plain weight by its name; None: the model's own.

    Raises:
        UserError: torchao is not installed; this model has no such layers.
    """
    if weights is None:
        return model
    layers: list[tuple[str, Any]] = [*decoder_layers(model)]
    if not layers:
        raise UserError(
            f"model.weights={weights}: {type(model).__name__} has no decoder that could be quantised",
            "Leave model.weights out.",
        )
    for name, layer in layers:
        if not is_quantised(layer.weight):
            plainly = layer.weight.detach() if read is None else read(f"{name}.weight")
            layer.learns = layer.weight.requires_grad
            layer.weight = nn.Parameter(_stored(plainly.to(device), weights), requires_grad=False)
            del plainly  # before the next one is read
    return model


def dequantise(model: nn.Module) -> None:
    """The weights as products see them, in place of the quantised ones. A model that has such goes to the CPU first,
    since it is quantised because it does not fit elsewhere."""
    layers: list[Any] = [layer for layer in model.modules() if is_quantised(layer._parameters.get("weight"))]
    if layers:
        model.to("cpu")
    for layer in layers:
        layer.weight = nn.Parameter(plain(layer.weight), requires_grad=layer.learns)


def decoder_layers(model: nn.Module) -> list[tuple[str, nn.Linear]]:
    """What `quantise` quantises."""
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [(name, layer) for name, layer in linear if "lora_" not in name and re.fullmatch(LAYERS, name)]


def stored_bytes(layer: nn.Linear, weights: Quantised) -> int:
    """Bytes of a layer's quantised weight; a test compares them with torchao's."""
    count, out = layer.weight.numel(), layer.out_features
    if weights == "nf4":
        scales = count // _BLOCK
        return count // 2 + scales + layer.weight.element_size() * (scales // _scale_block(count))
    return count + out * (5 if weights == "int8" else 4)


def need_torchao(why: str) -> None:
    """Raises UserError where torchao is missing."""
    try:
        import torchao  # noqa: F401
    except ImportError as error:
        raise UserError(f"{why} needs torchao", "Install it with: pip install -e '.[quantized]'.") from error


def _stored(weight: Tensor, weights: Quantised) -> Tensor:
    need_torchao(f"model.weights={weights}")
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, NF4Tensor, quantize_

    if weights == "nf4":
        count = weight.numel()
        if count % _BLOCK:
            raise UserError(f"model.weights=nf4: {count} weights are no multiple of {_BLOCK}", "Use int8.")
        return NF4Tensor.from_tensor(weight, _BLOCK, _scale_block(count))
    alone = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    alone.weight = nn.Parameter(weight, requires_grad=False)
    quantize_(alone, Int8WeightOnlyConfig() if weights == "int8" else Float8WeightOnlyConfig())
    return alone.weight.detach()


def _scale_block(count: int) -> int:
    """Scales that share one: 256, or as many as go into a small layer's."""
    scales, block = count // _BLOCK, _SCALES
    while scales % block:
        block //= 2
    return block
