"""AdamW for bfloat16 weights that stores each weight's rounding error in a second bfloat16.

A bfloat16 weight of 1 has neighbours at 0.996 and 1.008. An update of 1e-4 is rounded away, that of the next step as
well, and so on: with plain AdamW such a weight never moves. Here each weight has its rounding error beside it, a
second bfloat16, so that weight + rest carries 16 bits; updates are made to that sum in float32, where the moments are
kept, too.

Memory a weight, in bytes: weight 2, gradient 2, rest 2, moments 8, together 14. Float32 throughout (or `bf16-mixed`)
takes 16, bfloat16 throughout 8. One weight tensor at a time is held in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class HalfAdamW(Optimizer):
    """Decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2) on weight + rest.

        m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
        w <- (1 - lr decay) w - lr m / (1 - b1^k) / (sqrt(v / (1 - b2^k)) + eps)

    Float32 weights have no rest.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One update; returns what the closure does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)
        return loss

    def _update(self, weight: Tensor, group: Mapping[str, Any]) -> None:
        state, half = self.state[weight], weight.dtype != torch.float32
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(weight, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(weight, dtype=torch.float32)
            if half:
                state["rest"] = torch.zeros_like(weight)
        state["step"] += 1
        (b1, b2), lr, k = group["betas"], group["lr"], state["step"]
        gradient = weight.grad.float()  # type: ignore[union-attr]
        m, v = state["exp_avg"], state["exp_avg_sq"]
        m.lerp_(gradient, 1 - b1)
        v.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        whole = weight.float() + state["rest"] if half else weight
        whole.mul_(1 - lr * group["weight_decay"])
        whole.addcdiv_(m, v.sqrt().div_((1 - b2**k) ** 0.5).add_(group["eps"]), value=-lr / (1 - b1**k))
        if half:
            weight.copy_(whole)
            state["rest"].copy_(whole.sub_(weight))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:  # type: ignore[override]
        """As PyTorch's, which alone would round the moments to the weights' dtype.

        Where DeepSpeed wrote it, `master` (the weight in float32) stands for the rest.
        """
        super().load_state_dict(dict(state_dict))
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        weights = [weight for group in self.param_groups for weight in group["params"]]
        for number, weight in zip(numbers, weights, strict=True):
            entry = state_dict["state"].get(number)
            if not entry:
                continue
            state = self.state[weight]
            for name in ("exp_avg", "exp_avg_sq"):
                if name in entry:
                    state[name] = entry[name].to(weight.device, copy=True)
            state["step"] = int(entry["step"])
            if "master" in entry:
                state.pop("master", None)
                if weight.dtype != torch.float32:
                    state["rest"] = (entry["master"].to(weight.device) - weight.detach().float()).to(weight.dtype)
