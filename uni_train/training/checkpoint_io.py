"""Checkpoints as folders of safetensors and JSON: nothing in them can run code, and damage is noticed before use.

uni_train/models/parts.py says what is in a folder, and reads it. Each rank writes the parts that it holds, while
training goes on: what waits is the copy of its state in host memory.

A folder is written under a hidden temporary name, flushed to the disk and renamed when all ranks are done. So a folder
with its final name is complete unless the disk damaged it later.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from uni_train.core.errors import UserError
from uni_train.core.files import flush, sha256_of
from uni_train.distributed.ranks import ALONE, TIMEOUT, Ranks
from uni_train.models.parts import (
    FORMAT,
    PARTS,
    TREE,
    DamagedCheckpoint,
    Part,
    Parts,
    damaged,
    dumps,
    not_finite,
    open_tensors,
    read_header,
    verify,
    whole,
)
from uni_train.run_folder import STEP
from uni_train.training.strategies.sharding import held

TAG = "$"

ALARM = "alarm"  # in place of step, of a checkpoint to be looked at: no training continues from it
_LEFTOVER = re.compile(rf"\.(step|{ALARM})=\d+\.(new|old)")


# --- the nested dict as JSON plus tensors ---------------------------------------------------------------------------


def encode_tree(tree: Any, first: bool = True) -> tuple[Any, dict[str, Tensor | Part]]:
    """Split a nested value into a JSON-able tree and its tensors, copied. A tensor's name is its place in the tree.

    Kept exactly: None, bool, int, float (nan and infinities too), str, list, tuple, dict with keys of these kinds;
    numpy arrays, and torch tensors (on the CPU, without gradient; also the optimizer's 8-bit moments). Subclasses come
    back as the plain kind (OrderedDict as dict), numpy scalars as Python's. Of a DTensor or Part this rank's is kept.

    Args:
        first: False for the other ranks, of which only the parts are kept.

    Raises:
        TypeError: at the first value of another type, naming its place in the tree.
    """
    tensors: dict[str, Tensor | Part] = {}

    def keep(value: Tensor | Part, where: str) -> str:
        name = where.removeprefix("/") or "tensor"
        while name in tensors:  # keys may hold a /, too
            name += "#"
        if isinstance(value, Part):
            tensors[name] = value._replace(values=_copy(value.values))
        elif first:
            tensors[name] = _copy(value)
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
        if isinstance(value, Part):
            return {TAG: "tensor", "v": keep(value, where)}
        if isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized:
            return {TAG: "tensor", "v": keep(held(value), where)}
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


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def decode_tree(tree: Any, tensors: Mapping[str, Tensor | Parts]) -> Any:
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
                return whole(tensors[content]).numpy()
            case "moments":
                dtype = getattr(torch, content["dtype"])
                codes, scale = whole(tensors[content["codes"]]), whole(tensors[content["scale"]])
                from uni_train.training.low_bit_adamw import moments_of

                return moments_of(codes, scale, content["signed"], dtype)
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
    _write(*encode_tree(tree), Path(path))


def _write(
    tree: Any,
    tensors: Mapping[str, Tensor | Part],
    path: Path,
    ranks: Ranks = ALONE,
    gather: Callable[[Any], list[Any]] = lambda mine: [mine],
) -> None:
    """What every rank does; the first gives the folder its name when all have written. Raises as `save_folder`."""
    new, old = (path.with_name(f".{path.name}.{when}") for when in ("new", "old"))
    mine: dict[str, Any] | str
    try:
        mine = _write_tensors(tensors, new, ranks)
    except (OSError, SafetensorError, ValueError) as error:
        mine = _reason(error) if ranks.world_size == 1 else f"rank {ranks.rank}: {_reason(error)}"
    files = gather(mine)
    failed = next((file for file in files if isinstance(file, str)), None)
    try:
        if failed is None and ranks.is_main:
            text = dumps({"files": files, "tree": tree})
            header = json.dumps({"format": FORMAT, "sha256": hashlib.sha256(text.encode()).hexdigest()})
            (new / TREE).write_text(f'{header[:-1]}, "content": {text}}}\n', encoding="utf-8")
            for stored in files:
                shutil.copymode(new / TREE, new / stored["name"])  # safetensors gives 0600, whatever the umask
            flush(new / TREE)
            flush(new)
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.rename(path, old)
            os.rename(new, path)
            flush(path.parent)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        failed = _reason(error)
    if failed is not None:
        shutil.rmtree(new, ignore_errors=True)
        raise UserError(
            f"cannot write the checkpoint {path}: {failed}",
            "Earlier ones are untouched. Make room, fix the folder or lower optimizer.lr; then run the command again.",
        )


def _write_tensors(tensors: Mapping[str, Tensor | Part], folder: Path, ranks: Ranks) -> dict[str, Any]:
    """This rank's file: its name, size and digest. Raises ValueError for a number that is not finite."""
    stem = "state" if ranks.world_size == 1 else f"state-{ranks.rank + 1:05d}-of-{ranks.world_size:05d}"
    file = folder / f"{stem}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: value for name, value in tensors.items() if isinstance(value, Part)}
    places = json.dumps({name: (part.begin, list(part.shape)) for name, part in parts.items()})
    plain = {name: value.values if isinstance(value, Part) else value for name, value in tensors.items()}
    if bad := not_finite(plain):
        raise ValueError(f"{bad} is not finite")
    save_file(plain, file, {PARTS: places})
    flush(file)
    return {"name": file.name, "bytes": file.stat().st_size, "sha256": sha256_of(file)}


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def load_folder(path: Path) -> Any:
    """Read back what `save_folder` wrote, after checking that it is what was written.

    Raises:
        DamagedCheckpoint: a part is missing, cut short or altered.
        UserError: there is no such folder, or a newer version wrote it.
    """
    return _decoded(Path(path), verify(Path(path)), together=True)


def _decoded(path: Path, content: Mapping[str, Any], together: bool) -> Any:
    """The tree; its tensors are views of files, those in parts in memory if they are to be put `together`."""
    tensors = open_tensors(path, content)
    try:
        return decode_tree(content["tree"], {name: whole(x) if together else x for name, x in tensors.items()})
    except (KeyError, ValueError, AttributeError, RuntimeError) as error:
        raise damaged(path, TREE, str(error)) from error


class FolderCheckpointIO(CheckpointIO):
    """Lightning's checkpoint reader and writer for such folders; paths are local and end in `step=00000100`.

    Args:
        keep: newest checkpoints that stay; None: all.
        ranks: that each write, and read, the parts which they hold; alone where the first does all.
    """

    def __init__(self, keep: int | None = None, ranks: Ranks = ALONE) -> None:
        self.keep, self.ranks = keep, ranks
        self._group: Any = None
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Copy what this rank holds and return; a thread writes it. Ask `wait` what became of it."""
        if self.ranks.world_size > 1 and self._group is None:
            import torch.distributed as dist

            self._group = dist.new_group(timeout=TIMEOUT, backend="gloo")  # of the threads
        tree, tensors = encode_tree(checkpoint, self.ranks.is_main)
        self._writing = self._pool.submit(self._write, tree, tensors, Path(path))

    def _write(self, tree: Any, tensors: Mapping[str, Tensor | Part], path: Path) -> None:
        _write(tree, tensors, path, self.ranks, self._gather)
        if self.keep is not None and self.ranks.is_main:
            for old in list_checkpoints(path.parent)[: -self.keep]:
                shutil.rmtree(old, ignore_errors=True)

    def _gather(self, mine: Any) -> list[Any]:
        if self._group is None:
            return [mine]
        import torch.distributed as dist

        values: list[Any] = [None] * self.ranks.world_size
        dist.all_gather_object(values, mine, group=self._group)
        return values

    def wait(self) -> None:
        """Return when the last checkpoint is written. Raises UserError: it could not be."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """End the thread when it has written."""
        self._pool.shutdown()
        if self._group is not None:
            import torch.distributed as dist

            dist.destroy_process_group(self._group)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """A checkpoint that `latest_checkpoint` has verified; its tensors are views of files, or `Parts` on ranks."""
        path = Path(path)
        loaded: dict[str, Any] = _decoded(path, read_header(path), together=self.ranks.world_size == 1)
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        shutil.rmtree(path, ignore_errors=True)


# --- a folder of checkpoints ----------------------------------------------------------------------------------------


def checkpoint_name(step: int, kind: str = "step") -> str:
    """`step=00000100`."""
    return f"{kind}={step:08d}"


def checkpoint_step(path: Path) -> int:
    """The update a checkpoint folder was written after."""
    match = STEP.fullmatch(Path(path).name)
    if match is None:
        raise UserError(f"{path} is not a checkpoint: its name must look like {checkpoint_name(100)}")
    return int(match[1])


def list_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first, complete or not; temporary leftovers are no checkpoints."""
    directory = Path(directory)
    if not directory.is_dir():
        return []
    return sorted((p for p in directory.iterdir() if STEP.fullmatch(p.name)), key=checkpoint_step)


def latest_checkpoint(directory: Path) -> Path | None:
    """The newest checkpoint that is intact and finite, or None in a folder without any.

    A damaged one is passed over with a warning. When every one is damaged the newest's error is raised: starting over
    in silence would lose work that a person may still be able to save.
    """
    first_error: DamagedCheckpoint | None = None
    for path in reversed(list_checkpoints(directory)):
        try:
            verify(path)
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
