"""A pretended CUDA device on a torch built for CPUs: real numbers, device labels, mixes refused, host syncs counted.

`Cuda` holds a CPU tensor and reports cuda:0. A dispatch mode catches factories and copies between devices. Below it
lies a FakeTensorMode that is never reached: it keeps torch from initialising CUDA. shim.cpp registers the device.
Not covered: Triton kernels, NCCL, FSDP2, ZeRO, int8 and fp8 subclasses.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

ROOT = str(Path(__file__).parents[2]) + "/"
aten = torch.ops.aten

SYNCS = {
    aten._local_scalar_dense.default: "item",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.is_nonzero.default: "bool",
    aten.equal.default: "equal",
    aten._unique2.default: "unique",
    aten.unique_dim.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave",
}
INDEXED = {
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index_put.default,
}
"""Operations that take indices from the CPU."""


class DeviceMix(RuntimeError):
    """What CUDA refuses: tensors of two devices, a CPU generator for a CUDA tensor, unlike dtypes at attention."""


class Log:
    """What happened on the device.

    Attributes:
        syncs: (kind, place) of everything that waits for the device, or copies from or to pageable memory.
        kernels: (kernel, masked, grouped heads, place) of attention. mixes: refusals, also those that were caught.
        calls, inside: by label of `watch`: calls, and syncs within them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.syncs: Counter[tuple[str, str]] = Counter()
        self.kernels: Counter[tuple[str, bool, bool, str]] = Counter()
        self.mixes: list[str] = []
        self.calls: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()

    def sync(self, kind: str) -> None:
        self.syncs[kind, place()] += 1

    def refuse(self, what: str) -> DeviceMix:
        self.mixes.append(f"{what} at {place()}")
        return DeviceMix(self.mixes[-1])

    def watch(self, owner: Any, name: str, label: str, counts: bool = True) -> None:
        """Count the calls of a method for good, and the syncs within them."""
        real = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            before = self.syncs.total()
            try:
                return real(*args, **kwargs)
            finally:
                self.calls[label] += counts
                self.inside[label] += self.syncs.total() - before

        setattr(owner, name, counted)


LOG = Log()


def place(depth: int = 2) -> str:
    """The innermost lines of the project that led here."""
    found: list[str] = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < depth:
        file = frame.f_code.co_filename
        if file.startswith(ROOT) and "/tests/" not in file and "/.venv/" not in file:
            found.append(f"{file.removeprefix(ROOT)}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(found) or "outside"


class Cuda(Tensor):
    """A tensor on cuda:0, whose numbers are in `elem`, a CPU tensor."""

    elem: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem: Tensor) -> Cuda:
        layout = dict(strides=elem.stride(), storage_offset=elem.storage_offset(), layout=elem.layout)
        made = Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype, device="cuda:0", **layout)
        made.elem = elem.detach()
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Cuda({self.elem})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, value: Cuda) -> None:
        self.elem = value.elem
        if value.shape != self.shape:
            Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    def tolist(self) -> Any:
        LOG.sync("tolist")
        return self.elem.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise LOG.refuse("numpy() of a CUDA tensor")

    __array__ = pin_memory = numpy

    def data_ptr(self) -> int:
        return self.elem.data_ptr()

    def untyped_storage(self) -> Any:
        return self.elem.untyped_storage()


def bare(value: Any) -> Any:
    return value.elem if isinstance(value, Cuda) else value


def on_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def leaves(args: Any, kwargs: Any) -> list[Any]:
    """All arguments, those within lists too (operations nest no deeper; pytree takes half of the time)."""
    found: list[Any] = []
    for one in (*args, *kwargs.values()):
        if isinstance(one, (list, tuple)):
            found += one
        else:
            found.append(one)
    return found


def each(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` with each of its leaves changed."""
    if isinstance(value, (list, tuple)):
        return type(value)([change(one) for one in value])
    return change(value)


@functools.cache
def composite(func: Any) -> bool:
    """Whether autograd and dispatch modes see its parts in place of it."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@functools.cache
def in_place(func: Any) -> list[tuple[int, str]]:
    """Places and names of the arguments that it writes."""
    named = enumerate(func._schema.arguments)
    return [(i, one.name) for i, one in named if one.alias_info is not None and one.alias_info.is_write]


def compute(func: Any, args: Any, kwargs: Any) -> Any:
    """One operation on the numbers, after CUDA's rules."""
    with torch._C._DisableTorchDispatch():
        if func is aten._to_copy.default:
            return _convert(args[0], **kwargs)
        if func is aten.copy_.default:
            return _copy(*args[:2])
        if func in (aten.lift_fresh.default, aten.lift.default):
            return args[0]
        labelled = _check(func, args, kwargs)
        device = kwargs.get("device")
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu"), "pin_memory": False}
        out = func(*(each(bare, one) for one in args), **{name: each(bare, one) for name, one in kwargs.items()})
        stays = bool(labelled) if device is None else on_cuda(device)
        return _label(func, args, kwargs, out, labelled) if stays else out


def _convert(source: Tensor, **kwargs: Any) -> Tensor:
    kwargs.pop("pin_memory", None)
    device, later = kwargs.pop("device", None), kwargs.pop("non_blocking", False)
    to = isinstance(source, Cuda) if device is None else on_cuda(device)
    if to != isinstance(source, Cuda) and not (later and to and source in PINNED):
        LOG.sync("to the device" if to else "to the host")
    out = aten._to_copy.default(bare(source), **kwargs)
    return Cuda(out) if to else out


def _copy(target: Tensor, source: Tensor) -> Tensor:
    if isinstance(target, Cuda) != isinstance(source, Cuda) and source.numel():
        LOG.sync("to the device" if isinstance(target, Cuda) else "to the host")
    bare(target).copy_(bare(source))
    return target


def _check(func: Any, args: Any, kwargs: Any) -> list[Cuda]:
    """The CUDA tensors among the arguments. Raises DeviceMix."""
    tensors = [leaf for leaf in leaves(args, kwargs) if isinstance(leaf, Tensor)]
    labelled = [one for one in tensors if isinstance(one, Cuda)]
    plain = [one for one in tensors if not isinstance(one, Cuda) and one.dim()]
    if func in SYNCS and labelled:
        LOG.sync(SYNCS[func])
    if func in INDEXED:
        for index in args[1]:
            if isinstance(index, Cuda) and not isinstance(args[0], Cuda):
                raise LOG.refuse(f"{func}: a CUDA index of a CPU tensor")
            if isinstance(index, Tensor) and isinstance(args[0], Cuda):
                if not isinstance(index, Cuda):
                    LOG.sync("index to the device")
                if index.dtype in (torch.bool, torch.uint8):
                    LOG.sync("nonzero of a mask")
    elif labelled and plain and not str(func).startswith(("aten.set_", "profiler")):
        raise LOG.refuse(f"{func}: CUDA and CPU tensors, the latter {[tuple(one.shape) for one in plain]}")
    return labelled


def _label(func: Any, args: Any, kwargs: Any, out: Any, labelled: Sequence[Cuda]) -> Any:
    """Results as CUDA tensors; of an operation in place, the arguments that it wrote."""
    written: dict[int, Any] = {}
    for i, name in in_place(func):
        value = args[i] if i < len(args) else kwargs.get(name)
        written |= {id(bare(one)): one for one in (value if isinstance(value, (list, tuple)) else [value])}

    def label(value: Any) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, Cuda):
            return value
        return written[id(value)] if id(value) in written else Cuda(value)

    if torch.is_inference_mode_enabled() and any(not one.is_inference() for one in labelled):
        with torch.inference_mode(False):
            return each(label, out)
    return each(label, out)


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = leaves(args, kwargs)
        mine = on_cuda(kwargs.get("device")) or any(isinstance(leaf, Cuda) for leaf in given)
        touches = mine or any(isinstance(leaf, torch.device) and leaf.type == "cuda" for leaf in given)
        if touches and composite(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if mine:
            return compute(func, args, kwargs)
        with _disable_current_modes():
            return func(*args, **kwargs)


class Generator(torch.Generator):
    """A generator that says which device it is of; its numbers are a CPU's."""

    def __new__(cls, device: Any = "cpu") -> Any:
        made = super().__new__(cls)
        made.place = torch.device(device)
        return made

    def __init__(self, device: Any = "cpu") -> None: ...

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place  # type: ignore[attr-defined,no-any-return]


def of_own_device(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`torch.rand` and the like with a generator, which must be of the device of the numbers."""

    def drawn(*args: Any, generator: torch.Generator | None = None, device: Any = None, **kwargs: Any) -> Tensor:
        if generator is not None and on_cuda(device) != on_cuda(generator.device):
            raise LOG.refuse(f"{draw.__name__}: a generator of {generator.device} for numbers on {device or 'cpu'}")
        return draw(*args, generator=generator, device=device, **kwargs)

    return drawn


class _Pinned:
    """Tensors that `pin_memory` returned: copies from them do not wait."""

    def __init__(self) -> None:
        self.places: set[int] = set()
        self.tensors: list[Tensor] = []  # kept, so that no other tensor gets their places

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.places

    def pin(self, tensor: Tensor, *_: Any) -> Tensor:
        made = tensor.clone()
        self.tensors.append(made)
        self.places.add(made.untyped_storage().data_ptr())
        return made


PINNED = _Pinned()


def kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, grouped: bool) -> str:
    """What torch 2.13 takes on any card but sm90 and sm100 with cuDNN above 9.15.

    Flash attention refuses masks and float32, the memory-efficient kernel refuses grouped heads.
    """
    half = query.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cuda")
    width, same = query.shape[-1], query.shape[1] == key.shape[1]
    if mask is None and half and width <= 256 and width == value.shape[-1] and (grouped or same):
        return "flash"
    if not grouped and same and width == key.shape[-1] and width % (8 if half else 4) == 0:
        return "efficient"
    return "math"


_attention = F.scaled_dot_product_attention


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if isinstance(query, Cuda):
        taken = kernel(query, key, value, attn_mask, enable_gqa)
        LOG.kernels[taken, attn_mask is not None, enable_gqa, place()] += 1
        if len({query.dtype, key.dtype, value.dtype}) > 1 and not torch.is_autocast_enabled("cuda"):
            raise LOG.refuse(f"attention of {query.dtype}, {key.dtype} and {value.dtype}")
    with sdpa_kernel(SDPBackend.MATH):
        return _attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


_tensor = torch.tensor


def tensor(data: Any, *args: Any, **kwargs: Any) -> Tensor:
    """`torch.tensor` of lists that hold CUDA tensors."""

    def plain(value: Any) -> Any:
        if isinstance(value, Cuda):
            return value.tolist() if value.dim() else value.item()
        return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value

    return _tensor(plain(data) if isinstance(data, (list, tuple)) else data, *args, **kwargs)


class _Card:
    name, major, minor, total_memory, multi_processor_count = "pretended", 8, 0, 80 << 30, 108


def _answers(**values: Any) -> dict[str, Callable[..., Any]]:
    return {name: lambda *_, value=value, **__: value for name, value in values.items()}


CALLS = _answers(
    **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
    **dict.fromkeys(("current_device", "memory_allocated", "max_memory_allocated"), 0),
    **dict.fromkeys(("set_device", "manual_seed", "manual_seed_all", "empty_cache", "synchronize", "_lazy_init")),
    **dict.fromkeys(("reset_peak_memory_stats", "current_stream", "set_rng_state_all", "set_rng_state")),
    device_count=1,
    mem_get_info=(70 << 30, 80 << 30),
    get_device_name="pretended",
    get_device_properties=_Card,
    get_device_capability=(8, 0),
    memory_stats={},
    get_rng_state=torch.zeros(16, dtype=torch.uint8),
    get_rng_state_all=[],
)


def register(library: str) -> None:
    """Tell torch of the device, once a process; `library` is the built shim.cpp, which LD_PRELOAD has loaded."""
    ctypes.CDLL(library).pretend_register()


@contextlib.contextmanager
def pretending() -> Iterator[Log]:
    """Within this block there is one CUDA device. Call `register` before."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    lifted = torch._C._only_lift_cpu_tensors()
    with contextlib.ExitStack() as stack:
        for name, value in CALLS.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        for owner, name, value in (
            (torch, "tensor", tensor),
            (torch, "Generator", Generator),
            (Tensor, "pin_memory", lambda one, *_: PINNED.pin(one)),
            (F, "scaled_dot_product_attention", attention),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        for name in ("rand", "randn", "randint", "randperm"):
            stack.enter_context(mock.patch.object(torch, name, of_own_device(getattr(torch, name))))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, lifted)
        stack.enter_context(_Mode())
        yield LOG
