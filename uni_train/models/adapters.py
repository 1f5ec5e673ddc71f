"""LoRA files of any trainer, merged into a model: W + alpha / rank * up @ down (Hu et al. 2021, arXiv 2106.09685).

    peft                  base_model.model.LAYER.lora_A.weight; alpha in adapter_config.json
    diffusers             transformer.LAYER.lora_A.weight; alpha in the file's header, or as a tensor
    DiffSynth-Studio      LAYER.lora_A.default.weight
    kohya, musubi-tuner   lora_unet_LAYER_WITH_UNDERSCORES.lora_down.weight; alpha as a tensor
    ComfyUI               diffusion_model.LAYER.lora_down.weight; alpha as a tensor

Where no alpha is stored it is the rank, as for all of them but peft. Every layer of a file must find its place: what is
not applied is an error. So is a setting of peft that asks for more than that product.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import read_json, reason

if TYPE_CHECKING:
    from torch import Tensor, nn

FILES = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")
_CONFIG = "adapter_config.json"
_HEADER = "lora_adapter_metadata"  # where diffusers keeps peft's settings
_KEY = re.compile(r"(?P<layer>.+)\.(?P<role>lora_A|lora_B|lora[._]down|lora[._]up)(\.(?!weight$)\w+)?\.weight")
_ADDED = re.compile(r"[._](lora|lokr|loha|hada|oft|dora)[._]")  # in names of tensors that are added to a layer
_PREFIXES = (
    *("base_model.model.", "model.diffusion_model.", "diffusion_model.", "pipe.dit.", "dit.", "transformer."),
    *("lora_unet_", "lora_transformer_", "module."),
)
"""Before the layer's own name; what others call the decoder as a whole."""
_TRAINERS = {
    "base_model.model.": "peft",
    "lora_unet_": "kohya or musubi-tuner",
    "diffusion_model.": "ComfyUI",
    "transformer.": "diffusers",
}
_LISTED = 3
_NUMBERS = ("r", "lora_alpha", "rank_pattern", "alpha_pattern")
_READ = (  # or without an effect on what is added: about the training, or where layers are, which their names tell
    "use_rslora",
    *("task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "lora_dropout", "runtime_config"),
    *("megatron_core", "qalora_group_size", "loftq_config", "eva_config", "corda_config", "lora_ga_config"),
)
_ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, "gaussian", "orthogonal", "eva", "mica"),  # others begin by changing the base
}
"""Values, beside false and nothing, of peft's other settings. A setting that is not listed must be false or nothing."""
_CONVERTED = ("pissa", "olora", "corda", "lora_ga")  # beginnings of `init_lora_weights` that peft itself converts


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA file. layers: by the names in the file, their tensors' names by "down", "up" and "alpha".

    settings: peft's; in diffusers' header a key has the part of the pipeline before it.
    """

    file: Path
    layers: Mapping[str, Mapping[str, str]]
    settings: Mapping[str, Any]

    @property
    def title(self) -> str:
        """For people: "a LoRA of peft, 240 layers"."""
        first = next(iter(self.layers))
        trainer = next((name for prefix, name in _TRAINERS.items() if first.startswith(prefix)), None)
        if trainer is None and ".lora_A.default." in self.layers[first]["down"]:
            trainer = "DiffSynth-Studio"
        return f"a LoRA{f' of {trainer}' if trainer else ''}, {len(self.layers)} layers"

    def scale(self, layer: str, rank: int, alpha: float | None) -> float:
        """What up @ down is multiplied by; `alpha`: the layer's own tensor."""
        alpha = self.setting("lora_alpha", layer, "alpha_pattern") if alpha is None else alpha
        if alpha is None:
            return 1.0
        return alpha / (math.sqrt(rank) if self.setting("use_rslora", layer) else rank)

    def setting(self, key: str, layer: str, pattern: str = "") -> Any:
        """peft's for a layer: of the first name in `pattern` that fits the layer's, else of all layers of its part."""
        name = layer.removeprefix("base_model.model.")
        part, dot, rest = name.partition(".")
        own, name = (part + dot, rest) if f"{part}.{key}" in self.settings else ("", name)
        patterns = (self.settings.get(own + pattern) or {}).items()
        fitting = (value for names, value in patterns if re.fullmatch(rf"(.*\.)?({names})", name))
        return next(fitting, self.settings.get(own + key))


def adapter_file(path: Path) -> Path | None:
    """The LoRA file that a path is or holds, told by the names of its tensors; None for anything else."""
    if path.is_dir():
        named = [path / name for name in FILES if (path / name).is_file()]
        files = named or (sorted(path.glob("*.safetensors")) if not any(path.glob("*config.json")) else [])
        path = files[0] if len(files) == 1 or named else path
    return path if path.suffix == ".safetensors" and path.is_file() and any(map(_ADDED.search, _shapes(path))) else None


def open_adapter(path: Path) -> Adapter:
    """Read names and settings.

    Raises:
        UserError: no LoRA file, one of another kind (LoKr, DoRA, ...), or one of peft without its adapter_config.json.
            Its settings are damaged, are those of another file, or make it more than a plain LoRA.
    """
    file = adapter_file(path)
    if file is None:
        if not path.exists():
            raise UserError(f"there is nothing at {path}", "Check the path of the adapter.")
        raise UserError(f"{path} is no adapter", "Name a LoRA: a safetensors file, or a folder that holds one.")
    layers: dict[str, dict[str, str]] = {}
    shapes = _shapes(file)
    for name in shapes:
        match = _KEY.fullmatch(name)
        if match is not None:
            role = "down" if match["role"].endswith(("A", "down")) else "up"
            if layers.setdefault(match["layer"], {}).setdefault(role, name) != name:
                raise UserError(
                    f"{file} holds several adapters: {layers[match['layer']][role]} and {name}", "Save one."
                )
        elif name.endswith(".alpha"):
            layers.setdefault(name.removesuffix(".alpha"), {})["alpha"] = name
        else:
            raise UserError(
                f"{file} holds {name}, which is no plain LoRA", "Merge it with the program that trained it."
            )
    halved = next((layer for layer, parts in layers.items() if not {"down", "up"} <= parts.keys()), None)
    if halved is not None:
        raise UserError(f"{file} is damaged: {halved} lacks one of its two matrices", "Copy it again.")
    adapter, first = Adapter(file, layers, _settings(file)), next(iter(layers))
    if first.startswith("base_model.model.") and adapter.setting("lora_alpha", first) is None:
        raise UserError(f"{file} has no {_CONFIG} beside it, which tells its alpha", "Copy that file there as well.")
    for layer, parts in layers.items():
        alphas = math.prod(shapes[parts["alpha"]] if "alpha" in parts else [])
        if not len(shapes[parts["down"]]) == len(shapes[parts["up"]]) == 2 or alphas != 1:
            hint = "Merge it with the program that trained it."
            raise UserError(f"{file}: {layer} is no product of two matrices and one number", hint)
        rank, configured = shapes[parts["down"]][0], adapter.setting("r", layer, "rank_pattern")
        if configured not in (None, rank):
            raise UserError(
                f"{file}: {layer} has rank {rank}, and its settings say {configured}",
                f"The file and its {_CONFIG} are of two trainings: copy both of one.",
            )
    return adapter


def merge(model: nn.Module, path: Path) -> int:
    """Add a LoRA file to the model's weights; the number of layers.

    Raises:
        UserError: as `open_adapter`; a layer that the model lacks or that has another shape. The model is unchanged.
    """
    from uni_train.models.weights import Weights

    adapter = open_adapter(path)
    weights = Weights([adapter.file])
    wrong = problems(model, adapter, weights)
    if wrong:
        more = f" (and {len(wrong) - _LISTED} more)" if len(wrong) > _LISTED else ""
        raise UserError(
            f"{adapter.file} was trained on another base: {'; '.join(wrong[:_LISTED])}{more}",
            "Name the model that it was trained on before it: MODEL+ADAPTER.",
        )
    places = _places(model)
    for layer, parts in adapter.layers.items():
        down, up = weights.read(parts["down"]), weights.read(parts["up"])
        alpha = weights.read(parts["alpha"]).item() if "alpha" in parts else None
        add(places[_plain(layer, places)], down, up, adapter.scale(layer, len(down), alpha))
    return len(adapter.layers)


def add(layer: nn.Linear, down: Tensor, up: Tensor, scale: float) -> None:
    """Add `scale` * up [out, rank] @ down [rank, in], computed in float32, to a layer's weight."""
    layer.weight.data += (up.float() @ down.float() * scale).to(layer.weight)


def problems(model: nn.Module, adapter: Adapter, stored: Mapping[str, Any]) -> list[str]:
    """What keeps an adapter from fitting the model (it may be on the meta device), in phrases.

    Args:
        stored: the file's tensors (`Weights`).
    """
    places, wrong = _places(model), []
    for layer, parts in adapter.layers.items():
        place = places.get(_plain(layer, places))
        (rank, inner), (outer, other) = stored[parts["down"]].shape, stored[parts["up"]].shape
        if place is None:
            wrong.append(f"{layer} is not part of the model")
        elif rank != other or (outer, inner) != (place.out_features, place.in_features):
            fits = f"{place.out_features} x {place.in_features}"
            wrong.append(f"{layer} has {outer} x {inner} of rank {rank} and {other}, the model {fits}")
    return wrong


def _places(model: nn.Module) -> dict[str, nn.Linear]:
    """Linear layers by every ending of their name that no other one has, dots as underscores."""
    from torch import nn

    endings: dict[str, list[nn.Linear]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            parts = name.split(".")
            for start in range(len(parts)):
                endings.setdefault("_".join(parts[start:]), []).append(module)
    return {name: modules[0] for name, modules in endings.items() if len(modules) == 1}


def _plain(layer: str, places: Mapping[str, nn.Linear]) -> str:
    """A layer's name as `_places` has it, without what trainers write before it."""
    name = layer
    while (key := name.replace(".", "_")) not in places:
        prefix = next((prefix_ for prefix_ in _PREFIXES if name.startswith(prefix_)), None)
        if prefix is None:
            break
        name = name.removeprefix(prefix)
    return key


def _shapes(file: Path) -> dict[str, list[int]]:
    """Of a file's tensors. Raises UserError for a damaged file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as opened:
            return {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file} is damaged ({reason(error)})", "Copy it again.") from error


def _settings(file: Path) -> Mapping[str, Any]:
    """peft's, of adapter_config.json beside the file or of diffusers' header; checked."""
    from safetensors import safe_open

    beside = file.parent / _CONFIG
    try:
        if beside.is_file():
            loaded = read_json(beside)
        else:
            with safe_open(file, "np") as opened:
                loaded = json.loads((opened.metadata() or {}).get(_HEADER, "{}"))
        for key, value in loaded.items():
            _expect_plain(file, key.rpartition(".")[2], value)
    except (OSError, ValueError, AttributeError, re.error) as error:
        raise UserError(f"the settings of {file} are damaged ({reason(error)})", "Copy it again.") from error
    return loaded


def _expect_plain(file: Path, name: str, value: Any) -> None:
    """Raises UserError for a setting of peft that a product of two matrices does not obey, ValueError for no number."""
    if name in _NUMBERS:
        numbers = [1 if value is None else value]
        if isinstance(value, dict):
            numbers = [number for pattern, number in value.items() if re.compile(pattern)]
        if not all(isinstance(number, int | float) and 0 < number < math.inf for number in numbers):
            raise ValueError(f"{name} is {value!r:.60}")
    elif value and name not in _READ and value not in _ACCEPTED.get(name, ()):
        hint = "Merge it with peft, where it was trained: PeftModel.from_pretrained(MODEL, FOLDER).merge_and_unload()."
        if name == "init_lora_weights" and str(value).startswith(_CONVERTED):
            hint = (
                "Such a training begins by changing the base. Save it as a plain LoRA: model.save_pretrained(FOLDER, "
                "path_initial_model_for_weight_conversion=ADAPTER_BEFORE_TRAINING)."
            )
        raise UserError(f"{file} is no plain LoRA: its settings say {name}={value!r:.60}", hint)
