"""Checkpoints of a training as models read them: tensors in safetensors files, each whole or in parts.

    step=00000100/state.json                          all that is no tensor, with the size and sha256 of the files
    step=00000100/state.safetensors                   what one process has written, or
    step=00000100/state-00001-of-00008.safetensors    what each of eight has

A part is a run of a tensor's numbers in row-major order. ZeRO's pieces of flattened weights and FSDP2's rows are such
runs. So a rank finds its part whoever wrote the others, under whatever strategy and on whatever number of ranks.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from uni_train.core.errors import UserError
from uni_train.core.files import sha256_of
from uni_train.core.reading_limits import JSON_BYTES, parse_json, read_text, reason
from uni_train.models.weights import largest

FORMAT = 3
TREE = "state.json"
PARTS = "parts"  # in the header of a file of tensors: where they begin in which shape


class DamagedCheckpoint(UserError):
    """A checkpoint folder is not what was written: a part is missing, cut short or altered."""


class Part(NamedTuple):
    """`values` [n] are the numbers from `begin` on of a flattened tensor of `shape`."""

    values: Tensor
    begin: int
    shape: Sequence[int]


@dataclass
class Parts:
    """A tensor of `shape` in the files of a checkpoint; only what is asked for is read."""

    shape: Sequence[int]
    values: dict[int, Tensor] = field(default_factory=dict)

    def numbers(self, begin: int, count: int) -> Tensor:
        """So many of the flattened tensor's, [count]."""
        pieces = [
            values[max(begin - first, 0) : max(begin + count - first, 0)]
            for first, values in sorted(self.values.items())
        ]
        return torch.cat(pieces)

    def whole(self) -> Tensor:
        """The tensor, in memory of its own."""
        return self.numbers(0, math.prod(self.shape)).view(*self.shape)


def numbers(value: Tensor | Parts, begin: int, count: int) -> Tensor:
    """So many of a flattened tensor's, from `begin` on, [count]."""
    return value.numbers(begin, count) if isinstance(value, Parts) else value.reshape(-1)[begin : begin + count]


def whole(value: Tensor | Parts) -> Tensor:
    """The tensor, from all its parts if it has such."""
    return value.whole() if isinstance(value, Parts) else value


def dumps(content: Any) -> str:
    """JSON as it is hashed."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def read_header(path: Path) -> dict[str, Any]:
    """The content of a checkpoint's state.json: `files` (name, bytes, sha256) and `tree`.

    Raises:
        DamagedCheckpoint: it is missing, cut short or altered.
        UserError: there is no such folder, or another version wrote it.
    """
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"no checkpoint at {path}")
    try:
        text = read_text(path / TREE, JSON_BYTES)
    except FileNotFoundError:
        raise damaged(path, TREE, "it is missing") from None
    except (OSError, ValueError) as error:
        raise damaged(path, TREE, f"it cannot be read ({reason(error)})") from error
    try:
        state = parse_json(text, path / TREE, nan=True)
        version = state["format"]
        if version == FORMAT:
            content: dict[str, Any] = state["content"]
            if hashlib.sha256(dumps(content).encode()).hexdigest() != state["sha256"]:
                raise ValueError("its content does not match its checksum")
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, TREE, f"it was cut short or altered ({reason(error)})") from error
    if version != FORMAT:
        raise UserError(
            f"the checkpoint {path} has format {version}, this version reads format {FORMAT}",
            "Use the version of uni_train that wrote it, or start the run over.",
        )
    return content


def verify(path: Path) -> dict[str, Any]:
    """`read_header` of a checkpoint whose files are what was written, and whose numbers are finite.

    Raises:
        DamagedCheckpoint: a file is missing, cut short or altered; a weight or an optimizer's state is NaN or infinite.
        UserError: as `read_header`.
    """
    content = read_header(path)
    with ThreadPoolExecutor() as pool:
        for problem in pool.map(lambda stored: _problem(path, stored), content["files"]):
            if problem is not None:
                raise damaged(path, *problem)
    return content


def _problem(path: Path, stored: Mapping[str, Any]) -> tuple[str, str] | None:
    """A file that is not as written, and why."""
    name, size = stored["name"], stored["bytes"]
    try:
        stored_size = (path / name).stat().st_size
        if stored_size != size:
            return name, f"it has {stored_size:,} bytes, {size:,} were written"
        if sha256_of(path / name) != stored["sha256"]:
            return name, "its content does not match its checksum"
        if bad := not_finite({tensor: value for tensor, value, _ in _opened(path, name)}):
            return name, f"{bad} is not finite"
    except FileNotFoundError:
        return name, "it is missing"
    except OSError as error:
        return name, f"it cannot be read ({error})"
    return None


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The first of some tensors that holds a NaN or an infinity."""
    return next((name for name, value in tensors.items() if not math.isfinite(largest(value))), None)


def open_tensors(path: Path, content: Mapping[str, Any]) -> dict[str, Tensor | Parts]:
    """Tensors by name, as views of the files that `content` of `read_header` lists.

    Raises:
        DamagedCheckpoint: a file is none of safetensors.
    """
    tensors: dict[str, Tensor | Parts] = {}
    for name, value, place in (entry for stored in content["files"] for entry in _opened(path, stored["name"])):
        if place is None:
            tensors[name] = value
        elif value.numel() or name not in tensors:
            parts = tensors.setdefault(name, Parts(place[1]))
            assert isinstance(parts, Parts)
            parts.values[place[0]] = value
    return tensors


def _opened(path: Path, file: str) -> list[tuple[str, Tensor, Any]]:
    """Each tensor of a file, with the begin and shape of what is a part."""
    try:
        with safe_open(path / file, "pt") as opened:
            places = json.loads((opened.metadata() or {}).get(PARTS, "{}"))
            return [(name, opened.get_tensor(name), places.get(name)) for name in opened.keys()]  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise damaged(path, file, reason(error)) from error


def damaged(path: Path, part: str, why: str) -> DamagedCheckpoint:
    """What is wrong with which file of a checkpoint."""
    return DamagedCheckpoint(
        f"the checkpoint {path} is damaged: {part}: {why}",
        f"Delete it (rm -r '{path}'); the run continues from the previous one.",
    )
