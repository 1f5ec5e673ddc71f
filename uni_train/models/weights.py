"""Named tensors in safetensors files, read and written one at a time.

The safetensors library reads. Its mapping of a file lasts for one tensor, so that a 29 GB model is in memory once.
Within `mapped` it lasts as long as the weights do, and the processes of a machine share it.
The library writes only what it is given as a whole, so `write` makes the files itself, tensor by tensor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_path, atomic_write_json
from uni_train.core.reading_limits import open_file, read_json, reason

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
    "BOOL": torch.bool,
}
"""The format's names of the dtypes that are read and written: none in which only quantised weights are stored."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_SCALES = ("weight_scale", "scale_weight", "weight_scale_inv")  # whose weights may well be stored as F16
LARGEST = 1e10  # of a matrix's numbers; published models stay below 1,000
_mapped = ContextVar("mapped", default=False)

_LISTED = 10
_COMPILED = "_orig_mod."  # what torch.compile writes into names
_WRAPPERS = ("ema_model.", "ema.", "module.", "model.")  # what DDP, averages and modules of training write before them

Get = Callable[[str], Tensor]
"""A tensor by its name."""
Described = Mapping[str, tuple[torch.dtype, Sequence[int]]]
"""Dtype and shape by name."""
Start = Callable[[int], Callable[[], object]]
"""Called with the number of tensors; its result is called after each tensor."""


@dataclass(frozen=True, slots=True)
class Format:
    """How weights are written.

    Attributes:
        dtype: of floating-point ones; None keeps each one's.
        shard_bytes: most bytes of a file, but for a larger tensor; None: one file, or what is usual for the layout.
    """

    dtype: torch.dtype | None = None
    shard_bytes: int | None = None


@contextmanager
def mapped() -> Iterator[None]:
    """Within it `Weights.read` and `fill` give views of the files: nothing is read before it is used.

    So a rank that copies its part of a weight reads that part alone. Numbers are not checked.
    """
    token = _mapped.set(True)
    try:
        yield
    finally:
        _mapped.reset(token)


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in a file, under the file's name for it."""

    file: Path
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Weights(dict[str, Stored]):
    """The tensors of one or several safetensors files. Opening reads the headers only.

    Raises:
        UserError: a file is missing, truncated or damaged, a dtype is not in `DTYPES`, or two files hold one tensor.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        super().__init__()
        self.files = tuple(files)
        for file in self.files:
            for name, stored in _read_header(file).items():
                if name in self:
                    raise UserError(f"{name} is both in {self[name].file} and in {file}", "Remove one of them.")
                self[name] = stored

    def fitted(self, expected: Collection[str]) -> Weights:
        """The same tensors by the model's own names: without what wrappers write before them, and without counters.

        Args:
            expected: names in the model, or some of them. An average (`ema.`) stands for the weight of its name.
        """
        names = {name.replace(_COMPILED, ""): w for name, w in self.items() if w.shape or name in expected}
        prefixes = {prefix for name in names for prefix in _wrappers(name) if name.removeprefix(prefix) in expected}
        fitted = {name: weight for name, weight in names.items() if not any(map(name.startswith, prefixes - {""}))}
        for prefix in sorted(prefixes - {""}, key=lambda prefix: prefix.startswith("ema")):  # averages replace others
            fitted |= {name.removeprefix(prefix): weight for name, weight in names.items() if name.startswith(prefix)}
        weights = Weights(())
        weights.files = self.files
        weights.update(fitted)
        return weights

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: stored.shape for name, stored in self.items()}

    @property
    def described(self) -> Described:
        return {name: (stored.dtype, stored.shape) for name, stored in self.items()}

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Those that occur, the one with the most bytes first."""
        count: dict[torch.dtype, int] = {}
        for stored in self.values():
            count[stored.dtype] = count.get(stored.dtype, 0) + stored.bytes
        return tuple(sorted(count, key=count.__getitem__, reverse=True))

    @property
    def compute_dtype(self) -> torch.dtype:
        """The one that a model of them has: bfloat16 where most of them are, else float32, which holds them all."""
        return torch.bfloat16 if self.dtypes[0] == torch.bfloat16 else torch.float32

    @property
    def dtype_names(self) -> tuple[str, ...]:
        """The same as "bfloat16"."""
        return tuple(str(dtype).removeprefix("torch.") for dtype in self.dtypes)

    @property
    def bytes(self) -> int:
        return sum(stored.bytes for stored in self.values())

    def read(self, name: str) -> Tensor:
        """A tensor in memory of its own; within `mapped` a view of the file.

        Raises:
            UserError: the file was changed since it was opened; the tensor holds NaN, or a number beyond `LARGEST`.
        """
        file = self[name].file
        with _damage_named(file), safe_open(file, "pt") as opened:
            value: Tensor = opened.get_tensor(self[name].name)
        if _mapped.get():
            return value
        value = value.clone()
        most = largest(value)
        if not math.isfinite(most) or (value.ndim > 1 and most > LARGEST):
            raise UserError(
                f"{file}: {name} holds numbers that no trained weight has (NaN, infinity or beyond {LARGEST:g})",
                "The training that made it has diverged, or the file is damaged: take an earlier checkpoint.",
            )
        return value


def _wrappers(name: str) -> Iterator[str]:
    """What may be no part of a name, from nothing to all wrappers that it begins with."""
    prefix: str | None = ""
    while prefix is not None:
        yield prefix
        prefix = next((prefix + prefix_ for prefix_ in _WRAPPERS if name.startswith(prefix_, len(prefix))), None)


Shapes = Mapping[str, Sequence[int]]


def shapes_of(module: nn.Module) -> dict[str, Sequence[int]]:
    """Names and shapes of a module's state."""
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def check(stored: Shapes, expected: Shapes, file: object, hint: str) -> None:
    """Compare names and shapes.

    Raises:
        UserError: what does not fit, at most ten names.
    """
    wrong = list(problems(stored, expected))
    if wrong:
        more = f" (and {len(wrong) - _LISTED} more)" if len(wrong) > _LISTED else ""
        raise UserError(f"{file} does not fit the model: {'; '.join(wrong[:_LISTED])}{more}", hint)


def problems(stored: Shapes, expected: Shapes) -> Iterator[str]:
    """Missing, extra and misshapen names, a phrase each, in this order."""
    yield from (f"{name} is missing" for name in expected if name not in stored)
    yield from (f"{name} is not part of the model" for name in stored if name not in expected)
    yield from (
        f"{name} has shape {list(stored[name])}, not {list(shape)}"
        for name, shape in expected.items()
        if name in stored and tuple(stored[name]) != tuple(shape)
    )


def fill(
    module: nn.Module,
    get: Get,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Fill a module tensor by tensor. Quantised weights stay as they are.

    Tensors on the meta device are replaced, in `dtype` (None: as stored) on `device`. Others are overwritten in place;
    within `mapped` they become views, of the file's dtype.
    """
    state = module.state_dict(keep_vars=True)
    replaced = {name: get(name).to(device, dtype) for name, value in state.items() if value.is_meta}
    with torch.no_grad():
        for name, value in state.items():
            if name in replaced or is_quantised(value):
                continue
            if _mapped.get():
                value.data = get(name).to(value.device)
            else:
                value.copy_(get(name))
    if replaced:
        module.load_state_dict(replaced, strict=False, assign=True)


def write(file: Path, tensors: Described, get: Get) -> None:
    """Write a safetensors file atomically; `get` is asked for one tensor after the other.

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
                value = plain(get(name)).to("cpu", tensors[name][0]).contiguous()
                numbers: Any = value.reshape(-1).view(torch.uint8).numpy()
                out.write(memoryview(numbers))
            out.flush()
    except OSError as error:
        raise UserError(
            f"cannot write {file} ({error.strerror or error})",
            "Make room there; what was finished is kept, so run the command again.",
        ) from error


def write_sharded(folder: Path, stem: str, tensors: Described, get: Get, form: Format) -> None:
    """`<stem>.safetensors`, or several files and an index. Every file is written atomically, the index last."""
    if form.dtype is not None:
        tensors = {
            name: (form.dtype if dtype.is_floating_point else dtype, shape) for name, (dtype, shape) in tensors.items()
        }
    parts = _parts(tensors, form.shard_bytes)
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


def write_state(state: Mapping[str, Tensor], folder: Path, stem: str, form: Format) -> None:
    """Write a module's state by `write_sharded`."""
    tensors = {name: (value.dtype, tuple(value.shape)) for name, value in state.items()}
    write_sharded(folder, stem, tensors, lambda name: state[name].detach(), form)


def copy(get: Get, tensors: Described, folder: Path, stem: str, start: Start, form: Format) -> None:
    """Write stored tensors by `write_sharded`, one at a time."""
    advance = start(len(tensors))

    def counted(name: str) -> Tensor:
        advance()
        return get(name)

    write_sharded(folder, stem, tensors, counted, form)


def weight_files(folder: Path, names: Sequence[str], hint: str, others: Collection[str] = ()) -> list[Path]:
    """The first file that exists of `names`, or its shards: those that `NAME.index.json` lists, or all that are there.

    Args:
        others: names of files beside the weights, which an index may list as well.

    Raises:
        UserError: there is none, the index is damaged, or one of the shards is missing.
    """
    for name in names:
        if (folder / name).is_file():
            return [folder / name]
        if (folder / f"{name}.index.json").is_file():
            return [file for file in _indexed_files(folder / f"{name}.index.json") if file.name not in others]
        stem = name.removesuffix(".safetensors")
        if shards := sorted(folder.glob(f"{stem}-?????-of-?????.safetensors")):
            count = int(shards[0].stem[-5:])
            if len(shards) != count:
                raise UserError(f"{folder} holds {len(shards)} of {count} shards of {name}", "Copy the others as well.")
            return shards
    raise UserError(f"{folder} holds no weights: none of {', '.join(names)}, alone or with an index.json", hint)


def _indexed_files(index: Path) -> list[Path]:
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
        if not all(isinstance(name, str) and "/" not in name for name in names):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index} is damaged: it names no weight files", "Copy it again.") from error
    return [index.parent / name for name in names]


def read_object(file: Path, missing: str = "Copy it again.") -> dict[str, Any]:
    """A JSON object beside weights.

    Args:
        missing: hint where the file is not there.

    Raises:
        UserError: no such file, a damaged one, or no JSON object.
    """
    try:
        loaded = read_json(file)
        if not isinstance(loaded, dict):
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        raise UserError(f"{file.parent} holds no {file.name}", missing) from None
    except (ValueError, OSError) as error:
        raise UserError(f"{file} is damaged ({reason(error)})", "Copy it again.") from error
    return loaded


# --- the format -----------------------------------------------------------------------------------------------------


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{file} is missing", "Copy it again.") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{file} is damaged ({reason(error)})", "Copy it again, or make it anew.") from error


def _read_header(file: Path) -> dict[str, Stored]:
    """Name -> dtype and shape of every tensor. The library compares all byte ranges with the file's length."""
    with _damage_named(file):
        with open_file(file) as opened:
            if opened.read(8) == b"version ":
                raise UserError(
                    f"{file} is the note that git leaves in a file's place, not the weights",
                    "Run `git lfs pull` there.",
                )
        with safe_open(file, "pt") as opened:
            slices = {name: opened.get_slice(name) for name in opened.offset_keys()}
            described = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
    for name, (dtype, _) in described.items():
        weight = name.endswith((".weight", ".bias"))
        if dtype not in DTYPES or name.endswith(_SCALES) or (weight and not DTYPES[dtype].is_floating_point):
            known = ", ".join(dtype_name for dtype_name, kind in DTYPES.items() if kind.is_floating_point)
            raise UserError(
                f"{file} holds {name} as {dtype}, which cannot be read",
                f"Weights are read as {known}, without scales: write plain ones with the program that quantised them.",
            )
    return {name: Stored(file, name, DTYPES[dtype], shape) for name, (dtype, shape) in described.items()}


def is_quantised(weight: object) -> bool:
    """Whether a parameter is one of torchao's. Does not import it."""
    return isinstance(weight, Tensor) and type(weight).__module__.startswith("torchao.")


def plain(tensor: Tensor) -> Tensor:
    """The tensor itself, or what a quantised one stands for."""
    if not is_quantised(tensor):
        return tensor
    whole: Any = tensor.detach()
    return whole.get_original_weight() if hasattr(whole, "get_original_weight") else whole.dequantize()


def largest(value: Tensor) -> float:
    """The largest absolute value, NaN where there is one; 0 of none, and of what is no float of 16 bits or more."""
    if not (value.numel() and value.is_floating_point() and value.dtype.itemsize > 1):
        return 0.0
    low, high = torch.aminmax(value)  # one pass without a copy; NaN is both
    return float(torch.maximum(-low, high))


def _parts(tensors: Described, limit: int | None) -> list[dict[str, tuple[torch.dtype, Sequence[int]]]]:
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
