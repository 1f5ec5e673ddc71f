"""What a checkpoint holds, from its headers alone: parameters by part, dtypes, and what keeps it from loading."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from uni_train.config import places
from uni_train.config.schema import ModelConfig
from uni_train.models.family import WEIGHTS, Family, Found, family_of
from uni_train.models.load import model_config
from uni_train.models.recognise import recognise
from uni_train.models.weights import Weights, problems


@dataclass(frozen=True, slots=True)
class Inspection:
    """What lies at a path, or is meant by a name.

    Attributes:
        kind: its family, or other. what: the same in words.
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
        family = family_of(config.family)
        if config.checkpoint == "shipped" and family.shipped is not None:
            return family.inspect(Found(family.name, family.shipped, config.name, model=config.name))
        if config.checkpoint is None or not Path(config.checkpoint).exists():
            return _without_weights(config)
        name_or_path = config.checkpoint
    found = recognise(Path(name_or_path))
    if found.kind == "other":
        return Inspection("other", found.what, str(found.path), hint=found.hint)
    return family_of(found.kind).inspect(found)


def _without_weights(config: ModelConfig) -> Inspection:
    """A model whose sizes are known, and whose weights are not on this machine."""
    family = family_of(config.family)
    model, _ = family.skeleton(config)
    problem, hint = "it is untrained: nothing is stored", "Train it first."
    if config.checkpoint is not None:
        problem = f"its folder {config.checkpoint} is not there"
        hint = "Download the checkpoint there, or give the folder's path."
    return Inspection(
        family.name,
        f"{family.title} of the sizes in configs/model/{config.name}.yaml",
        None,
        parameters=by_part(family, {name: value.shape for name, value in model.named_parameters()}),
        problems=(problem,),
        hint=hint,
    )


def of_state(family: Family, found: Found, own: Mapping[str, torch.Tensor]) -> Inspection:
    """Of a folder as `Family.save` writes it; `own`: the state of a model of its sizes, on any device."""
    stored = Weights([found.path / WEIGHTS])
    return Inspection(
        family.name,
        found.what,
        str(found.path),
        dtypes_of([stored]),
        stored.bytes,
        by_part(family, stored.shapes),
        tuple(problems(stored.shapes, {name: tuple(value.shape) for name, value in own.items()})),
    )


def by_part(family: Family, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Numbers of parameters by part, in the family's order; `shapes` by the names that the model has for them."""
    counts = dict.fromkeys(family.parts, 0)
    for name, shape in shapes.items():
        counts[family.part_of(name)] += math.prod(shape)
    return counts


def dtypes_of(files: Sequence[Weights]) -> dict[str, tuple[str, ...]]:
    """File name -> its dtypes, most bytes first."""
    return {file.name: tuple(short(dtype) for dtype in weights.dtypes) for weights in files for file in weights.files}


def short(dtype: torch.dtype) -> str:
    """ "bfloat16"."""
    return str(dtype).removeprefix("torch.")
