"""Low-rank adapters (LoRA, Hu et al. 2021) on a model's transformer, by peft: W x + alpha / rank * B A x, A, B trained.

Adapters are put into the model, trained, and merged into the weights; then the model is as it was, with other numbers.
In between, `save_adapters` writes what peft reads, or diffusers where the model is one of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uni_train.config.schema import LoraConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.core.files import atomic_path, atomic_write_json
from uni_train.models.quantised import dequantise, is_quantised
from uni_train.training.trained import NOTHING

ADAPTER = "default"
_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"
_DIFFUSERS = "transformer"  # the submodule that diffusers' pipelines have under the same name
_DIFFUSERS_WEIGHTS = "pytorch_lora_weights.safetensors"


def pattern(model: nn.Module, targets: str) -> str:
    """A regular expression for whole names of linear layers: of generation, understanding, both, or re:PATTERN."""
    layers: Mapping[str, str] = getattr(model, "adapter_layers", {})
    return targets.removeprefix("re:") if targets.startswith("re:") else layers.get(targets, NOTHING)


@contextmanager
def adapted(model: nn.Module, config: LoraConfig, seed: int) -> Iterator[None]:
    """Within this block `model` has adapters; behind it they are merged into its weights and gone.

    A is random from `seed`, B zero, so that at first the model computes what it did.

    Raises:
        UsageError: no module matches the targets.
        UserError: peft is not installed.
    """
    trainable = {parameter: parameter.requires_grad for parameter in model.parameters()}
    add_adapters(model, config, seed)
    yield
    _merge(model)
    for parameter, before in trainable.items():
        parameter.requires_grad_(before)


def add_adapters(model: nn.Module, config: LoraConfig, seed: int) -> None:
    """As `adapted` does, for good. Raises as it does."""
    try:
        from peft import inject_adapter_in_model

        from uni_train.training.added_product import AddedProduct
    except ImportError as error:
        raise UserError("trained=lora needs peft", "Install it with: pip install -e '.[hf]'.") from error
    if not _targets(model, config):
        raise UsageError(
            f"lora.targets={config.targets}: no linear layer has such a name",
            "Use generation, understanding, both, or re:PATTERN that matches a whole name such as "
            "bagel.language_model.model.layers.0.self_attn.q_proj.",
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = _peft_config(model, config)
        settings._register_custom_module({nn.Linear: AddedProduct})
        inject_adapter_in_model(settings, model, ADAPTER)


def count_adapters(model: nn.Module, config: LoraConfig) -> int:
    """How many parameters the adapters of `model` (it may be on the meta device) would have."""
    return sum(config.rank * (layer.in_features + layer.out_features) for layer in _targets(model, config))


def _targets(model: nn.Module, config: LoraConfig) -> list[nn.Linear]:
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [module for name, module in layers if re.fullmatch(pattern(model, config.targets), name)]


def _merge(model: nn.Module) -> None:
    """Add the adapters to the weights below them and take them out; quantised weights become plain ones."""
    quantised = {id(module) for module in model.modules() if is_quantised(module._parameters.get("weight"))}
    dequantise(model)
    for parent, name, layer in list(_adapted(model)):
        base = layer.get_base_layer()
        if id(base) in quantised:  # peft merges into what torchao could quantise again, and loses by that
            base.weight.data += layer.get_delta_weight(ADAPTER).to(base.weight.dtype)
        else:
            layer.merge(safe_merge=not base.weight.is_meta)  # as ranks are left whose weights were sharded
        setattr(parent, name, base)
    for module in model.modules():
        if hasattr(module, "peft_config"):
            del module.peft_config


def save_adapters(model: nn.Module, config: LoraConfig, folder: Path) -> None:
    """Write the adapters of a BAGEL as peft does, so that `PeftModel.from_pretrained` reads them.

    Those of a Qwen-Image-Edit are `lora_down`, `lora_up` and a scalar `alpha` a layer: W + alpha / rank * up @ down.
    `lora_up` holds the scale and `alpha` is the rank, because SGLang-Diffusion rounds alpha down to a whole number.

    Those of a pipeline whose loader refuses alpha (FLUX, Stable Diffusion 3) are `lora_A` and (alpha / rank) `lora_B`.

    Raises:
        UserError: the folder cannot be written, or the adapters are those of the start.
    """
    adapters = {
        name.replace(f".{ADAPTER}.", "."): value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
        if "lora_" in name
    }
    if not any(value.any() for name, value in adapters.items() if "lora_B" in name):
        raise UserError("the adapters have learned nothing: every lora_B is 0", "Look at lora.targets, optimizer.lr.")
    root = next(iter(adapters)).split(".")[0]
    tensors = {name.split(".", 1)[1]: value for name, value in adapters.items()}
    if root == _DIFFUSERS and not model.adapter_alpha:
        scale = config.alpha / config.rank
        scaled = {name: value * scale if "lora_B" in name else value for name, value in adapters.items()}
        _write(folder / _DIFFUSERS_WEIGHTS, scaled)
        return
    if root == _DIFFUSERS:
        named = {}
        for layer in sorted({name.split(".lora_")[0] for name in tensors}):
            named[f"{layer}.lora_down.weight"] = tensors[f"{layer}.lora_A.weight"]
            named[f"{layer}.lora_up.weight"] = tensors[f"{layer}.lora_B.weight"] * (config.alpha / config.rank)
            named[f"{layer}.alpha"] = torch.tensor(float(config.rank))
        _write(folder / _DIFFUSERS_WEIGHTS, named)
        return
    _write(folder / _WEIGHTS, {f"base_model.model.{name}": value for name, value in tensors.items()})
    atomic_write_json(folder / _CONFIG, json.loads(json.dumps(_peft_config(model, config).to_dict(), default=_plain)))


def _write(file: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as temporary:
            save_file(tensors, temporary, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot write {file} ({error})", "Make room there, then run again.") from error


def _peft_config(model: nn.Module, config: LoraConfig) -> Any:
    from peft import LoraConfig as PeftConfig

    return PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]  # a float works and is meant to
        lora_dropout=config.dropout,
        target_modules=pattern(model, config.targets),
        bias="none",
    )


def _adapted(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """Every layer with an adapter: its parent, its name there, itself."""
    from peft.tuners.lora import LoraLayer

    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, LoraLayer):
                yield parent, name, child


def _plain(value: Any) -> Any:
    """Sets and enumerations as JSON has them."""
    return sorted(value) if isinstance(value, set) else getattr(value, "value", str(value))
