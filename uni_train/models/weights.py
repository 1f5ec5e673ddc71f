"""Named tensors in safetensors files, read and written one at a time.

The format is simple enough to do by hand (8 bytes: length of a JSON header; the header: name -> dtype, shape, byte
range; then the bytes), and by hand is how a 29 GB model never lies in memory twice: a tensor is read straight into its
own memory, and written straight from it. The safetensors library maps whole files when it
reads, and wants all tensors at once when it writes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uni_train.data_gen.reading_limits import open_file, parse_json, read_json, reason
from uni_train.errors import UserError
from uni_train.files import atomic_path, atomic_write_json
from uni_train.models.quantised import plain

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The format's names of the dtypes that are read and written."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_LONGEST_HEADER = 100_000_000
_LISTED = 10

Get = Callable[[str], Tensor]
"""A tensor by its name."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one tensor lies: `begin` counts bytes from the start of the file."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Weights(Mapping[str, Stored]):
    """The tensors of one or several safetensors files. Opening reads the headers only.

    Raises:
        UserError: a file that is missing, truncated or damaged, a dtype that is not in `DTYPES`, or a tensor that
            lies in two of the files.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self._stored: dict[str, Stored] = {}
        for file in self.files:
            for name, stored in _read_header(file).items():
                if name in self._stored:
                    raise UserError(f"{name} is both in {self._stored[name].file} and in {file}", "Remove one of them.")
                self._stored[name] = stored

    def __getitem__(self, name: str) -> Stored:
        return self._stored[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: stored.shape for name, stored in self.items()}

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Those that occur, the one with the most bytes first."""
        count: dict[torch.dtype, int] = {}
        for stored in self.values():
            count[stored.dtype] = count.get(stored.dtype, 0) + stored.bytes
        return tuple(sorted(count, key=count.__getitem__, reverse=True))

    @property
    def dtype_names(self) -> tuple[str, ...]:
        """The same as "bfloat16"."""
        return tuple(str(dtype).removeprefix("torch.") for dtype in self.dtypes)

    @property
    def bytes(self) -> int:
        return sum(stored.bytes for stored in self.values())

    def read(self, name: str) -> Tensor:
        """A tensor in memory of its own.

        Raises:
            UserError: the file was changed since it was opened, or the tensor holds NaN or an infinity.
        """
        stored = self[name]
        value = torch.empty(stored.shape, dtype=stored.dtype)
        if value.numel():
            with open(stored.file, "rb", buffering=0) as file:
                file.seek(stored.begin)
                _fill(file, memoryview(_bytes(value)), stored.file)
            if value.is_floating_point() and value.dtype.itemsize > 1:
                low, high = torch.aminmax(value)  # one pass, and NaN is both
                if not bool(torch.isfinite(low) & torch.isfinite(high)):
                    raise UserError(
                        f"{stored.file}: {name} holds numbers that are none (NaN or infinity)",
                        "The training that made it has diverged, or the file is damaged: take an earlier checkpoint.",
                    )
        return value


def check(stored: Mapping[str, Sequence[int]], wanted: Mapping[str, Sequence[int]], file: str, hint: str) -> None:
    """Compare names and shapes.

    Raises:
        UserError: what does not fit, at most ten names.
    """
    found_problems = list(problems(stored, wanted))
    if found_problems:
        more = f" (and {len(found_problems) - _LISTED} more)" if len(found_problems) > _LISTED else ""
        raise UserError(f"{file} does not fit the model: {'; '.join(found_problems[:_LISTED])}{more}", hint)


def problems(stored: Mapping[str, Sequence[int]], wanted: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Missing, extra and misshapen names, a phrase each, in this order."""
    yield from (f"{name} is missing" for name in wanted if name not in stored)
    yield from (f"{name} is not part of the model" for name in stored if name not in wanted)
    yield from (
        f"{name} has shape {list(stored[name])}, not {list(shape)}"
        for name, shape in wanted.items()
        if name in stored and tuple(stored[name]) != tuple(shape)
    )


def write(file: Path, tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]], get: Get) -> None:
    """Write a safetensors file atomically. `tensors`: dtype and shape by name; `get` is asked for one after the other.

    `get` may return another dtype than announced: it is converted.

    Raises:
        UserError: the disk is full or the place cannot be written; an older file there is untouched.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name][0].itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        dtype, shape = tensors[name]
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    try:
        with atomic_path(file) as temporary, open(temporary, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                out.write(memoryview(_bytes(plain(get(name)).to("cpu", tensors[name][0]).contiguous())))
            out.flush()
    except OSError as error:
        raise UserError(
            f"cannot write {file} ({error.strerror or error})",
            "Make room there; what was finished is kept, so run the command again.",
        ) from error


def write_sharded(
    folder: Path,
    stem: str,
    tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]],
    get: Get,
    shard_bytes: int | None = None,
) -> None:
    """`<stem>.safetensors`, or several files of at most `shard_bytes` (a larger tensor has its own) and an index.

    Every file is written atomically, the index last.
    """
    parts = _parts(tensors, shard_bytes)
    names = [f"{stem}-{i + 1:05d}-of-{len(parts):05d}.safetensors" for i in range(len(parts))]
    if len(parts) == 1:
        names = [f"{stem}.safetensors"]
    for name, part in zip(names, parts, strict=True):
        write(folder / name, part, get)
    index = folder / f"{stem}.safetensors.index.json"
    if len(parts) > 1:
        place = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
        total = sum(math.prod(shape) * dtype.itemsize for dtype, shape in tensors.values())
        atomic_write_json(index, {"metadata": {"total_size": total}, "weight_map": place})
    for old in (*folder.glob(f"{stem}-?????-of-?????.safetensors"), folder / f"{stem}.safetensors", index):
        if old.name not in names and not (old == index and len(parts) > 1):
            old.unlink(missing_ok=True)


def write_state(
    state: Mapping[str, Tensor], folder: Path, stem: str, dtype: torch.dtype | None, shard_bytes: int | None
) -> None:
    """Write a module's state by `write_sharded`, floating-point weights as `dtype` if one is given."""
    tensors = {name: (stored_as(value.dtype, dtype), tuple(value.shape)) for name, value in state.items()}
    write_sharded(folder, stem, tensors, lambda name: state[name].detach(), shard_bytes)


def stored_as(own: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    """What a tensor is written as: `wanted` if one is given and it is of floating point, else its own type."""
    return wanted if wanted is not None and own.is_floating_point else own


def indexed_files(index: Path) -> list[Path]:
    """The files that a `*.safetensors.index.json` names.

    Raises:
        UserError: the index is damaged.
    """
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
        if not all(isinstance(name, str) and "/" not in name for name in names):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index} is damaged: it names no weight files", "Copy it again.") from error
    return [index.parent / name for name in names]


# --- the format -----------------------------------------------------------------------------------------------------


def _read_header(file: Path) -> dict[str, Stored]:
    """Name -> place of every tensor, all byte ranges checked against the file's length."""
    try:
        with open_file(file) as opened:
            length = os.fstat(opened.fileno()).st_size
            start = opened.read(8)
            if start == b"version ":
                raise UserError(
                    f"{file} is the note that git leaves in a file's place, not the weights",
                    "Run `git lfs pull` there.",
                )
            size = int.from_bytes(start, "little")
            if length < 8 or size > min(length - 8, _LONGEST_HEADER):
                raise ValueError("it ends before its header does" if length >= 8 else "it is too short")
            header = parse_json(opened.read(size), file)
    except FileNotFoundError:
        raise UserError(f"{file} is missing", "Copy it again.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged ({reason(error)})", "Copy it again, or make it anew.") from error
    try:
        return _parse_header(file, header, 8 + size, length)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{file} is damaged ({reason(error)})", "Copy it again, or make it anew.") from error


def _parse_header(file: Path, header: Mapping[str, Any], start: int, length: int) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if about["dtype"] not in DTYPES:
            raise UserError(
                f"{file} holds {name} as {about['dtype']}, which cannot be read",
                f"Known dtypes: {', '.join(DTYPES)}. Quantised checkpoints are not supported.",
            )
        begin, end = about["data_offsets"]
        stored = Stored(file, DTYPES[about["dtype"]], tuple(int(n) for n in about["shape"]), start + begin)
        if begin < 0 or end - begin != stored.bytes:
            raise ValueError(f"the header contradicts itself about {name}")
        if start + end > length:
            raise ValueError(f"it ends inside {name}: {length} bytes of at least {start + end}")
        found[name] = stored
    return found


def _bytes(value: Tensor) -> Any:
    """The memory of a contiguous CPU tensor as a flat numpy array of bytes."""
    return value.reshape(-1).view(torch.uint8).numpy()


def _fill(file: Any, memory: memoryview, path: Path) -> None:
    while memory:
        read = file.readinto(memory)
        if not read:
            raise UserError(f"{path} was cut short while it was read", "Copy it again.")
        memory = memory[read:]


def _parts(
    tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]], limit: int | None
) -> list[dict[str, tuple[torch.dtype, Sequence[int]]]]:
    parts: list[dict[str, tuple[torch.dtype, Sequence[int]]]] = [{}]
    used = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * dtype.itemsize
        if limit is not None and parts[-1] and used + size > limit:
            parts.append({})
            used = 0
        parts[-1][name] = (dtype, shape)
        used += size
    return parts
