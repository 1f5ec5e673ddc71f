"""Checkpoints as folders of safetensors and JSON: nothing in them can run code, and damage is noticed before use.

    step=00000100/state.safetensors     every tensor of Lightning's nested checkpoint dict
    step=00000100/state.json            everything else, with the size and sha256 of the tensors' file

A folder is written under a hidden temporary name, flushed to the disk and renamed. So a folder with its final name is
complete unless the disk damaged it later. Left out on purpose: sharded and asynchronous saving.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from uni_train.data_gen.reading_limits import JSON_BYTES, parse_json, read_text, reason
from uni_train.errors import UserError
from uni_train.files import flush, sha256_of
from uni_train.training.low_bit_adamw import moments_of

FORMAT = 2
TENSORS = "state.safetensors"
TREE = "state.json"
TAG = "$"

_NAME = re.compile(r"step=(\d{8,})")
_LEFTOVER = re.compile(r"\.step=\d+\.(new|old)-[0-9a-f]+")


class DamagedCheckpoint(UserError):
    """A checkpoint folder is not what was written: a part is missing, cut short or altered."""


# --- the nested dict as JSON plus tensors ---------------------------------------------------------------------------


def encode_tree(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split a nested value into a JSON-able tree and its tensors. A tensor's name is its place in the tree.

    Kept exactly: None, bool, int, float (nan and infinities too), str, list, tuple, dict with keys of these kinds;
    numpy arrays, and torch tensors (on the CPU, without gradient; also the optimizer's 8-bit moments). Subclasses come
    back as the plain kind (OrderedDict as dict), numpy scalars as Python's.

    Raises:
        TypeError: at the first value of another type, naming its place in the tree.
    """
    tensors: dict[str, Tensor] = {}
    storages: set[int] = set()

    def keep(value: Tensor, where: str) -> str:
        dense = value.detach().to("cpu").contiguous()
        if dense.numel() and dense.untyped_storage().data_ptr() in storages:
            dense = dense.clone()  # safetensors refuses tensors that overlap in memory
        storages.add(dense.untyped_storage().data_ptr())
        name = where.removeprefix("/") or "tensor"
        while name in tensors:  # keys may hold a /, too
            name += "#"
        tensors[name] = dense
        return name

    def visit(value: Any, where: str) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}
        if type(value).__name__ == "OptimState8bit":  # torchao's, which need not be installed
            dtype = str(value.dtype).removeprefix("torch.")
            parts = {"codes": keep(value.codes, where), "scale": keep(value.scale, f"{where}/scale")}
            return {TAG: "moments", "v": {**parts, "signed": value.signed, "dtype": dtype}}
        if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized:
            return {TAG: "tensor", "v": keep(value, where)}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            # ascontiguousarray would give a 0-dimensional array one dimension.
            return {TAG: "ndarray", "v": keep(torch.from_numpy(np.array(value, order="C")), where)}
        if isinstance(value, np.generic):
            return visit(value.item(), where)
        if isinstance(value, dict):
            if all(type(key) is str for key in value) and TAG not in value:
                return {key: visit(item, f"{where}/{key}") for key, item in value.items()}
            items = [[visit(key, f"{where}/key"), visit(item, f"{where}/{key}")] for key, item in value.items()]
            return {TAG: "dict", "v": items}
        if isinstance(value, list | tuple):
            items = [visit(item, f"{where}/{index}") for index, item in enumerate(value)]
            return items if isinstance(value, list) else {TAG: "tuple", "v": items}
        raise TypeError(f"{where or '/'}: {type(value).__qualname__} cannot be saved in a checkpoint")

    return visit(tree, ""), tensors


def decode_tree(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `encode_tree`."""

    def visit(value: Any) -> Any:
        if isinstance(value, list):
            return [visit(item) for item in value]
        if not isinstance(value, dict):
            return value
        if TAG not in value:
            return {key: visit(item) for key, item in value.items()}
        kind, content = value[TAG], value["v"]
        match kind:
            case "tensor":
                return tensors[content]
            case "ndarray":
                return tensors[content].numpy()
            case "moments":
                dtype = getattr(torch, content["dtype"])
                return moments_of(tensors[content["codes"]], tensors[content["scale"]], content["signed"], dtype)
            case "float":
                return float(content)
            case "dict":
                return {visit(key): visit(item) for key, item in content}
            case "tuple":
                return tuple(visit(item) for item in content)
        raise ValueError(f"unknown tag {kind!r}")

    return visit(tree)


# --- folders --------------------------------------------------------------------------------------------------------


def save_folder(tree: Any, path: Path) -> None:
    """Write `tree` as the folder `path`, completely or not at all; an older folder of that name is replaced.

    Raises:
        UserError: the disk is full or the place cannot be written; what was there before is untouched.
        TypeError: `tree` holds something that cannot be saved (see `encode_tree`).
    """
    encoded, tensors = encode_tree(tree)
    path = Path(path)
    unique = uuid.uuid4().hex
    new = path.parent / f".{path.name}.new-{unique}"
    try:
        new.mkdir(parents=True)
        save_file(tensors, new / TENSORS)
        flush(new / TENSORS)
        text = _dumps(encoded)
        header = {
            "format": FORMAT,
            "tensors": {"file": TENSORS, "bytes": (new / TENSORS).stat().st_size, "sha256": sha256_of(new / TENSORS)},
            "tree_sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
        with open(new / TREE, "w", encoding="utf-8") as file:
            file.write(json.dumps(header)[:-1] + ', "tree": ' + text + "}\n")
        flush(new / TREE)
        shutil.copymode(new / TREE, new / TENSORS)  # safetensors gives 0600, whatever the umask
        flush(new)
        if path.exists():
            old = path.parent / f".{path.name}.old-{unique}"
            os.rename(path, old)
            os.rename(new, path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.rename(new, path)
        flush(path.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(new, ignore_errors=True)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            f"cannot write the checkpoint {path}: {'the disk is full' if full else reason}",
            "Earlier checkpoints are untouched: make room or fix the folder, then run the same command again.",
        ) from error
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def load_folder(path: Path) -> Any:
    """Read back what `save_folder` wrote, after checking that it is what was written.

    Raises:
        DamagedCheckpoint: a part is missing, cut short or altered.
        UserError: there is no such folder, or a newer version wrote it.
    """
    path = Path(path)
    if not path.is_dir():
        raise UserError(f"no checkpoint at {path}")
    tree = verify_folder(path)
    try:
        return decode_tree(tree, load_file(path / TENSORS))
    except (SafetensorError, KeyError, ValueError, AttributeError) as error:
        raise _damaged(path, TREE, str(error)) from error


def verify_folder(path: Path) -> Any:
    """Check both files of the checkpoint `path` and return its JSON tree, tensors still by name.

    Raises:
        DamagedCheckpoint, UserError: as `load_folder`.
    """
    path = Path(path)
    try:
        text = read_text(path / TREE, JSON_BYTES)
    except FileNotFoundError:
        raise _damaged(path, TREE, "it is missing") from None
    except (OSError, ValueError) as error:
        raise _damaged(path, TREE, f"it cannot be read ({reason(error)})") from error
    try:
        state = parse_json(text, path / TREE, nan=True)
        version, stored = state["format"], state["tensors"]
        if version == FORMAT:
            tree, size, digest = state["tree"], stored["bytes"], stored["sha256"]
            if hashlib.sha256(_dumps(tree).encode()).hexdigest() != state["tree_sha256"]:
                raise ValueError("its content does not match its checksum")
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, TREE, f"it was cut short or altered ({reason(error)})") from error
    if version != FORMAT:
        raise UserError(
            f"the checkpoint {path} has format {version}, this version reads format {FORMAT}",
            "Use the version of uni_train that wrote it, or start the run over.",
        )
    try:
        found = (path / TENSORS).stat().st_size
        if found != size:
            raise _damaged(path, TENSORS, f"it has {found:,} bytes, {size:,} were written")
        if sha256_of(path / TENSORS) != digest:
            raise _damaged(path, TENSORS, "its content does not match its checksum")
    except FileNotFoundError:
        raise _damaged(path, TENSORS, "it is missing") from None
    except OSError as error:
        raise _damaged(path, TENSORS, f"it cannot be read ({error})") from error
    return tree


class FolderCheckpointIO(CheckpointIO):
    """Lightning's checkpoint reader and writer for such folders; paths are local and end in `step=00000100`."""

    def __init__(self) -> None:
        self._failed: UserError | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Called on the first rank alone, while the others wait for it: an error is kept for `check`."""
        try:
            save_folder(checkpoint, Path(path))
        except UserError as error:
            self._failed = error

    def check(self) -> None:
        """Raises UserError: the last checkpoint could not be written."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The checkpoint with its tensors on the CPU; Lightning copies them to where they belong."""
        loaded: dict[str, Any] = load_folder(Path(path))
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        shutil.rmtree(path, ignore_errors=True)


# --- a folder of checkpoints ----------------------------------------------------------------------------------------


def checkpoint_name(step: int) -> str:
    """`step=00000100`."""
    return f"step={step:08d}"


def checkpoint_step(path: Path) -> int:
    """The update a checkpoint folder was written after."""
    match = _NAME.fullmatch(Path(path).name)
    if match is None:
        raise UserError(f"{path} is not a checkpoint: its name must look like {checkpoint_name(100)}")
    return int(match[1])


def list_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first, complete or not; temporary leftovers are no checkpoints."""
    directory = Path(directory)
    if not directory.is_dir():
        return []
    return sorted((p for p in directory.iterdir() if _NAME.fullmatch(p.name)), key=checkpoint_step)


def latest_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint that is intact, or None in a folder without any.

    A damaged one is passed over with a warning. When every one is damaged the newest's error is raised: starting over
    in silence would lose work that a person may still be able to save.
    """
    first_error: DamagedCheckpoint | None = None
    for path in reversed(list_checkpoints(directory)):
        try:
            verify_folder(path)
        except DamagedCheckpoint as error:
            first_error = first_error or error
            warnings.warn(f"{error.message}; trying the one before it", stacklevel=2)
        else:
            return path
    if first_error is not None:
        raise DamagedCheckpoint(
            f"no checkpoint in {directory} can be used. {first_error.message}",
            f"Delete {directory} to train from the start.",
        ) from first_error
    return None


def remove_leftovers(directory: Path) -> None:
    """Delete what interrupted writes left behind. Only for the process that holds the run's lock."""
    directory = Path(directory)
    if directory.is_dir():
        for path in directory.iterdir():
            if _LEFTOVER.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)


def _dumps(tree: Any) -> str:
    return json.dumps(tree, allow_nan=False, separators=(",", ":"))


def _damaged(path: Path, part: str, reason: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"the checkpoint {path} is damaged: {part}: {reason}",
        f"Delete it (rm -r '{path}'); the run continues from the previous one.",
    )
