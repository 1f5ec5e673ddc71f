"""A linear layer with a low-rank adapter whose product is added to the layer's own result in place.

peft computes ``y + B A x * alpha / rank`` as a product, a scaled copy and a sum: six passes over memory of the size of
y, all of them again where layers are recomputed. On a GPU those passes take longer than the adapter's products. Here
one ``addmm`` reads and writes y once, and the gradient of B A x needs no scaled copy either.
"""

from __future__ import annotations

from typing import Any

from peft.tuners.lora import Linear
from torch import Tensor


class AddedProduct(Linear):
    """peft's layer with another forward pass; what peft stores and merges is unchanged."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """[..., in] -> [..., out]."""
        (adapter,) = self.active_adapters
        down, up, dropout = self.lora_A[adapter], self.lora_B[adapter], self.lora_dropout[adapter]
        # DeepSpeed's ZeRO-3 has the weight of a layer only while that layer is called.
        if self.merged or self.disable_adapters or hasattr(up.weight, "ds_id"):
            return super().forward(x, *args, **kwargs)
        rows = x.reshape(-1, x.shape[-1])
        y = self.base_layer(rows, *args, **kwargs)
        low = down(dropout(self._cast_input_dtype(rows, down.weight.dtype)))
        y = y.addmm_(low.to(y.dtype), up.weight.to(y.dtype).t(), alpha=self.scaling[adapter])
        return y.view(*x.shape[:-1], y.shape[-1])
