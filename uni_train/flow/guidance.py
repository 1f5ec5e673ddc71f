"""Classifier-free guidance with a text and an image scale, and the renormalisation of the result.

`guide` is BAGEL's, `true_cfg` Qwen-Image's. For `guide`, with c, u_t, u_i the velocities given everything, without the
text, and without the images:

    a = u_t + s_text (c - u_t)
    b = u_i + s_img  (a - u_i)          (only where s_img > 1, else b = a)
    v = b * clamp(|c| / (|b| + 1e-8), min, 1)

Large scales make the velocity too long; the factor shortens it to the length of the unguided one. BAGEL (Deng et al.
2025, appendix on inference) has three kinds: *global* takes the norm over a whole image, *channel* over each token.
*text_channel* shortens ``a`` per token and leaves ``b`` as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Renorm = Literal["global", "channel", "text_channel", "none"]


@dataclass(frozen=True, slots=True)
class Guidance:
    """Scales above 1 switch guidance on, where ``interval[0] < t <= interval[1]`` (t after the shift).

    A text scale of 1 or less switches everything off, the image guidance included, as in BAGEL's released code.
    `norm_scope` says over what the global norm runs: ``"row"`` keeps every image independent of its batch; ``"batch"``
    is what the released code does when it samples several images at once.
    """

    text_scale: float = 1.0
    img_scale: float = 1.0
    interval: tuple[float, float] = (0.0, 1.0)
    renorm: Renorm = "global"
    renorm_min: float = 0.0
    norm_scope: Literal["row", "batch"] = "row"

    def text_on(self, t: Tensor | float) -> Tensor | bool:
        """Whether the text-free branch is needed at noise level t; of a tensor, a bool tensor."""
        level = t.double() if isinstance(t, Tensor) else t  # as precise as the interval
        return (self.text_scale > 1.0) & (self.interval[0] < level) & (level <= self.interval[1])


def guide(cond: Tensor, no_text: Tensor, no_img: Tensor | None, guidance: Guidance) -> Tensor:
    """Guided velocity of [B, L, C]; `no_img` may be None where the image scale is not above 1.

    Padding tokens must be zero in all branches, so that they do not count in the norms.
    """
    text_guided = no_text + guidance.text_scale * (cond - no_text)
    if guidance.renorm == "text_channel":
        text_guided = _shorten(text_guided, cond, (-1,), guidance.renorm_min)
    guided = text_guided
    if guidance.img_scale > 1.0:
        if no_img is None:
            raise ValueError("an image scale above 1 needs the image-free branch")
        guided = no_img + guidance.img_scale * (text_guided - no_img)
    if guidance.renorm == "global":
        dims = (0, 1, 2) if guidance.norm_scope == "batch" else (1, 2)
        return _shorten(guided, cond, dims, guidance.renorm_min)
    if guidance.renorm == "channel":
        return _shorten(guided, cond, (-1,), guidance.renorm_min)
    return guided


def true_cfg(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    """Qwen-Image's guidance [B, L, C]: ``u + scale (c - u)``, each token brought to the length of c, up or down.

    A token that is zero in both, as padding is, stays zero.
    """
    guided = uncond + scale * (cond - uncond)
    norm, norm_guided = (torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (cond, guided))
    return guided * (norm / norm_guided.clamp_min(torch.finfo(guided.dtype).tiny))


def _shorten(guided: Tensor, cond: Tensor, dims: tuple[int, ...], minimum: float) -> Tensor:
    norm = torch.linalg.vector_norm(cond, dim=dims, keepdim=True)
    norm_guided = torch.linalg.vector_norm(guided, dim=dims, keepdim=True)
    return guided * (norm / (norm_guided + 1e-8)).clamp(min=minimum, max=1.0)
