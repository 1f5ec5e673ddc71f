"""What a checkpoint was found to hold: files, dtypes, parameters by part, and what keeps it from loading."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from uni_train.models.weights import Weights, problems

if TYPE_CHECKING:
    from uni_train.models.family import Family, Found


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


def of_state(family: Family, checkpoint: Found, file: str, own: Mapping[str, torch.Tensor]) -> Inspection:
    """Of a folder with its weights in one `file`; `own`: the state of a model of its sizes, on any device."""
    stored = Weights([checkpoint.path / file])
    return Inspection(
        family.name,
        checkpoint.what,
        str(checkpoint.path),
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
