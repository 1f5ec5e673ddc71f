"""What a checkpoint holds, from its headers alone: parameters by part, dtypes, and what keeps it from loading."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from data_gen.reading_limits import read_json, reason
from uni_train.config import places
from uni_train.errors import UserError
from uni_train.models.load import CONFIG, WEIGHTS, model_config
from uni_train.models.recognise import Found, recognise
from uni_train.models.weights import Weights, problems

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What lies at a path, or is meant by a name.

    Attributes:
        kind: nano, bagel, qwen_image_edit or other. what: the same in words.
        path: where it lies; None for a model whose weights are not on this machine.
        weights: file (of a diffusers folder: subfolder) -> its dtypes, most bytes first.
        bytes: of all weight files.
        parameters: by part; the VAE is the last one.
        problems: what is missing, extra or misshapen, a phrase each; with any of them the model does not load.
        hint: what to do about it.
    """

    kind: str
    what: str
    path: str | None
    weights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bytes: int = 0
    parameters: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    hint: str = ""

    @property
    def total(self) -> int:
        """All parameters, the VAE's too."""
        return sum(self.parameters.values())

    @property
    def loads(self) -> bool:
        """Whether `build_model` would take it."""
        return self.kind != "other" and self.path is not None and not self.problems


def inspect(name_or_path: str) -> Inspection:
    """Look at a model by its name (`uni_train models`) or path. Only headers and small JSON files are read.

    Raises:
        UserError: nothing lies there, or files are damaged. UsageError: no such name.
    """
    if name_or_path in [option.name for option in places.options("model")]:
        config = model_config(name_or_path)
        if config.checkpoint == "shipped":
            from uni_train.models.nano.nano import shipped

            return _nano(shipped())
        if config.family == "qwen_image_edit" and not Path(config.checkpoint or "").is_dir():
            from uni_train.models.qwen_image_edit import checkpoint as editor

            parts = zip(editor.PARTS, editor.on_meta(config), strict=True)
            return Inspection(
                "qwen_image_edit",
                f"Qwen-Image-Edit of the sizes in configs/model/{config.name}.yaml",
                None,
                parameters={part: sum(value.numel() for value in module.parameters()) for part, module in parts},
                problems=(f"its folder {config.checkpoint} is not there",),
                hint="Download the checkpoint there, or give the folder's path.",
            )
        if config.checkpoint is None or not Path(config.checkpoint).exists():
            from uni_train.models.bagel.checkpoint import on_meta

            bagel, vae = on_meta(config)
            return Inspection(
                "bagel",
                f"BAGEL of the sizes in configs/model/{config.name}.yaml",
                None,
                parameters=_parts(_shapes(bagel), _shapes(vae)),
                problems=(f"its folder {config.checkpoint} is not there",),
                hint="Download the checkpoint there, or give the folder's path.",
            )
        name_or_path = config.checkpoint
    found = recognise(Path(name_or_path))
    if found.kind == "bagel":
        return _bagel(found)
    if found.kind == "qwen_image_edit":
        return _editor(found)
    if found.kind == "nano":
        return _nano(found.path)
    return Inspection("other", found.what, str(found.path), hint=found.hint)


def _bagel(found: Found) -> Inspection:
    from uni_train.models.bagel.checkpoint import compare, open_folder
    from uni_train.models.bagel.tokenizer import has_tokenizer

    folder = open_folder(found.path)
    shapes, wrong = compare(folder)
    if folder.vae is None:
        wrong.append("ae.safetensors is missing")
    if not has_tokenizer(folder.path):
        wrong.append("tokenizer.json is missing")
    files = [folder.weights] if folder.vae is None else [folder.weights, folder.vae]
    return Inspection(
        "bagel",
        found.what,
        str(found.path),
        _dtypes(files),
        sum(weights.bytes for weights in files),
        _parts(shapes, folder.vae.shapes if folder.vae is not None else {}),
        tuple(wrong),
        "Copy what is missing from the folder of BAGEL-7B-MoT; see docs/models/bagel.md." if wrong else "",
    )


def _editor(found: Found) -> Inspection:
    from uni_train.models.qwen_image_edit import checkpoint as editor

    folder = editor.open_folder(found.path)
    wrong = editor.compare(folder)
    return Inspection(
        "qwen_image_edit",
        found.what,
        str(found.path),
        {part: tuple(_short(dtype) for dtype in weights.dtypes) for part, weights in folder.weights.items()},
        sum(weights.bytes for weights in folder.weights.values()),
        editor.count_parts(folder),
        tuple(wrong),
        "Copy the folder again." if wrong else "",
    )


def _nano(folder: Path) -> Inspection:
    from uni_train.models.bagel.bagel import Bagel
    from uni_train.models.bagel.config import BagelConfig
    from uni_train.models.nano.edit import Pixels
    from uni_train.models.nano.vae import PatchVAE

    stored = Weights([folder / WEIGHTS])
    try:
        described = read_json(folder / CONFIG)
        name, sizes = str(described["model"]), BagelConfig.from_dict(described["bagel"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / CONFIG} is damaged ({reason(error)})", "Copy it again.") from error
    patch = stored.shapes.get("vae.encoder.0.weight", (1, 3, 1, 1))
    with torch.device("meta"):
        bagel = Bagel(sizes)
        learned = PatchVAE(sizes.latent_channels, hidden=patch[0], downsample=patch[-1])
        vae = Pixels() if name == "nano_edit" else learned
    own = {f"bagel.{name}": shape for name, shape in _shapes(bagel).items()}
    own |= {f"vae.{name}": shape for name, shape in _shapes(vae).items()}
    return Inspection(
        "nano",
        name,
        str(folder),
        _dtypes([stored]),
        stored.bytes,
        _parts(
            {name[6:]: shape for name, shape in stored.shapes.items() if name.startswith("bagel.")},
            {name: shape for name, shape in stored.shapes.items() if name.startswith("vae.")},
        ),
        tuple(problems(stored.shapes, own)),
    )


def _dtypes(files: Sequence[Weights]) -> dict[str, tuple[str, ...]]:
    return {file.name: tuple(_short(dtype) for dtype in weights.dtypes) for weights in files for file in weights.files}


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _parts(bagel: Shapes, vae: Shapes) -> dict[str, int]:
    from uni_train.models.bagel.checkpoint import count_parts

    return {**count_parts(bagel), "VAE": sum(math.prod(shape) for shape in vae.values())}


def _shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}
