"""What a computation holds in memory, moment by moment, and its FLOPs: followed without doing it.

The real code runs on tensors that have shapes and no numbers; every storage that an operation makes is counted from
then until nothing refers to it any more. So the program, not a formula, gives what autograd keeps for the backward pass
and what recomputing saves. It also gives what an optimizer needs for a moment.

Two kinds of device stand in for the real one (`StandIn`): "cpu" follows the paths that a CPU takes, with PyTorch's
fake tensors; "meta" those of a GPU, whose fused kernels are those of kernels.py.

Left out: what allocators add (rounding, fragments), and what a kernel takes for itself while it runs.
"""

from __future__ import annotations

import contextlib
import typing
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from uni_train.plan.kernels import gpu_kernels

Kind = Literal["weights", "vae", "gradients", "optimizer", "averages", "reference", "rollouts", "activations"]
KINDS: tuple[Kind, ...] = typing.get_args(Kind)
"""What memory is for. `activations` is whatever has no other name, temporary results included."""
StandIn = Literal["cpu", "meta"]


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Bytes by kind at every moment before something was given back: each peak, under any weights, is one of them.

    Attributes:
        phases: the phase of each moment. bytes: int64 [moments, kinds].
    """

    phases: tuple[str, ...]
    bytes: np.ndarray

    def peak(self, factors: Sequence[float] | np.ndarray | None = None) -> int:
        """The most at any moment; `factors` [kinds] or [moments, kinds] scale what a device holds of each kind."""
        return sum(self.at_peak(factors)[1].values())

    def at_peak(self, factors: Sequence[float] | np.ndarray | None = None) -> tuple[str, dict[Kind, int]]:
        """The phase of the peak and the bytes of each kind then, scaled."""
        scaled = self.bytes if factors is None else self.bytes * np.asarray(factors)
        if not len(scaled):
            return "", dict.fromkeys(KINDS, 0)
        moment = int(scaled.sum(1).argmax())
        return self.phases[moment], {kind: int(value) for kind, value in zip(KINDS, scaled[moment], strict=True)}


class Trace(TorchDispatchMode):
    """Within this context all storages are followed. `flops` counts products and attention as PyTorch's counter does.

    Give storages their kind with `name`; before that they are activations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0
        self.phase = ""
        self.live = dict.fromkeys(KINDS, 0)  # bytes held now
        self._kinds: dict[int, tuple[int, Kind]] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._moments: list[tuple[int, ...]] = []
        self._phases: list[str] = []
        self._grew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = _shortcut(func, args, kwargs)
        if out is None:
            out = func(*args, **kwargs)
        for leaf in (out,) if isinstance(out, Tensor) else tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._see(leaf, "activations")
        count = _FLOPS.get(func._overloadpacket)
        if count is not None:
            self.flops += count(*args, **kwargs, out_val=out)
        return out

    def name(self, tensors: Any, kind: Kind) -> None:
        """The storages of the tensors in a nest of lists and dicts are of this kind."""
        for leaf in tree_leaves(tensors):
            if isinstance(leaf, Tensor):
                self._see(leaf, kind, again=True)

    def start(self, phase: str) -> None:
        """What follows belongs to this phase."""
        self._note()
        self.phase = phase

    @contextlib.contextmanager
    def gradients_of(self, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
        """Within this block, what is accumulated into these parameters is called gradients as soon as it is there."""
        hooks = [
            parameter.register_post_accumulate_grad_hook(lambda weight: self.name(weight.grad, "gradients"))
            for parameter in parameters
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def timeline(self) -> Timeline:
        """What was seen so far."""
        self._note()
        return Timeline(tuple(self._phases), np.array(self._moments, np.int64).reshape(-1, len(KINDS)))

    def _see(self, tensor: Tensor, kind: Kind, again: bool = False) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._kinds.get(key)
        if known is None:
            size = storage.nbytes()
            self._kinds[key] = size, kind
            self._references[key] = weakref.ref(storage, lambda _, key=key: self._forget(key))  # type: ignore[misc]
            self.live[kind] += size
            self._grew = True
        elif again and known[1] != kind:
            self._note()
            self.live[known[1]] -= known[0]
            self.live[kind] += known[0]
            self._kinds[key] = known[0], kind
            self._grew = True

    def _forget(self, key: int) -> None:
        self._note()
        size, kind = self._kinds.pop(key)
        del self._references[key]
        self.live[kind] -= size

    def _note(self) -> None:
        """A moment worth keeping: memory only grew since the last one."""
        if self._grew:
            self._moments.append(tuple(self.live.values()))
            self._phases.append(self.phase)
            self._grew = False


_POINTWISE = {
    getattr(torch.ops.aten, name)
    for name in ("add", "sub", "mul", "div", "neg", "sqrt", "silu", "sigmoid", "gelu", "addcmul")
}

_ALIKE = {"aten::empty_like", "aten::zeros_like", "aten::roll"}
_FLOPS = {**flop_registry, torch.ops.aten.addmm_: flop_registry[torch.ops.aten.addmm]}


def _shortcut(func: Any, args: Any, kwargs: Any) -> Tensor | None:
    """What needs no shape function on the meta device, for which those are slow: writing into a tensor, arithmetic on
    floating-point tensors, products, tensors of the same shape, and the norm of a whole tensor."""
    first = args[0] if args else None
    if not isinstance(first, Tensor) or first.device.type != "meta":
        return None
    name = func._schema.name
    if name.endswith("_") and not name.endswith(("set_", "resize_", "__")):
        return first
    if name == "aten::linalg_vector_norm" and len(args) < 3:
        return first.new_empty(())
    if name == "aten::addmm":
        return first.new_empty(args[1].shape[0], args[2].shape[1])
    if name in _ALIKE and first.is_contiguous() and {*kwargs} <= {"dtype", "pin_memory"}:
        return first.new_empty(first.shape, dtype=kwargs.get("dtype") or first.dtype)
    if func._overloadpacket in _POINTWISE and all(
        argument.is_floating_point() for argument in args if isinstance(argument, Tensor)
    ):
        others = [argument for argument in args[1:] if isinstance(argument, Tensor) and argument.ndim]
        if all(other.shape == first.shape and other.dtype == first.dtype for other in others):
            return torch.empty_like(first)
        if first.ndim:
            shape = torch.broadcast_shapes(first.shape, *(other.shape for other in others))
            dtype = first.dtype
            for other in others:
                dtype = torch.promote_types(dtype, other.dtype)
            return first.new_empty(shape, dtype=dtype)
    return None


@contextlib.contextmanager
def following(device: StandIn) -> Iterator[Trace]:
    """A trace in which the code computes shapes alone, on a stand-in for a CPU or for a GPU."""
    trace = Trace()
    with contextlib.ExitStack() as stack:
        if device == "cpu":
            from torch._subclasses.fake_tensor import FakeTensorMode

            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        else:
            stack.enter_context(gpu_kernels(trace))
        stack.enter_context(trace)
        yield trace


def place(module: nn.Module, device: StandIn, cast: Any = None) -> None:
    """Give `module` weights without numbers, inside `following`, whatever it had before.

    Args:
        cast: name and dtype of a weight -> the dtype it is to have.
    """
    seen: dict[nn.Parameter, nn.Parameter] = {}
    for prefix, part in module.named_modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is None:
                continue
            if parameter not in seen:
                whole = f"{prefix}.{name}" if prefix else name
                dtype = cast(whole, parameter.dtype) if cast is not None else parameter.dtype
                blank = torch.empty(parameter.shape, dtype=dtype, device=device)
                seen[parameter] = nn.Parameter(blank, requires_grad=parameter.requires_grad)
            part._parameters[name] = seen[parameter]
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)
