"""What the flow-matching pipelines that can be trained have apart: text inputs, positions, guidance and times.

Shapes: B rows, G latent tokens of one image, C numbers a token, L text tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uni_train.flow.guidance import true_cfg
from uni_train.models.qwen_image_edit.latents import PATCH, Grid, Latents, pack, unpack

Words = Mapping[str, Tensor]
"""The transformer's text inputs, without the dimension of rows."""


class KLLatents(Latents):
    """Latents of diffusers' AutoencoderKL; a token has 2 x 2 of them."""

    def __init__(self, vae: Any) -> None:
        config = vae.config
        self.vae = vae
        self.stride = 2 ** (len(config.block_out_channels) - 1) * PATCH
        self.channels = int(config.latent_channels) * PATCH**2
        self._mean = torch.tensor(config.shift_factor or 0.0)
        self._std = torch.tensor(1 / config.scaling_factor)

    def _encoded(self, x: Tensor) -> Tensor:
        return self.vae.encode(x).latent_dist.mode()  # type: ignore[operator]

    def _decoded(self, z: Tensor) -> Tensor:
        return self.vae.decode(z, return_dict=False)[0]  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class FlowTransformer:
    """How one pipeline class calls its transformer.

    Attributes:
        latents: of its VAE.
        words: text inputs of a prompt.
        velocity: (pipeline, x [B, G, C], t [B], text inputs, grid, guidance) -> noise - clean [B, G, C].
        negative: the prompt that guidance leads away from; None: the transformer is given the scale.
        guided: (guided side, other side, scale) -> the guided velocity.
        alpha: whether diffusers' loader reads a scalar `alpha` beside each adapter.
        untrained: names of parameters that no output depends on begin so, in the last block.
    """

    latents: Callable[[Any], Latents]
    words: Callable[[Any, str], Words]
    velocity: Callable[[Any, Tensor, Tensor, Mapping[str, Any], Grid, float], Tensor]
    negative: str | None = None
    guided: Callable[[Tensor, Tensor, float], Tensor] = true_cfg
    alpha: bool = False
    untrained: tuple[str, ...] = ()


def _flux_words(pipeline: Any, prompt: str) -> Words:
    embeds, pooled, _ = pipeline.encode_prompt(prompt, None)
    return {"encoder_hidden_states": embeds[0], "pooled_projections": pooled[0]}


def _flux_velocity(
    pipeline: Any, x: Tensor, t: Tensor, words: Mapping[str, Any], grid: Grid, guidance: float
) -> Tensor:
    rows, text = len(x), words["encoder_hidden_states"]
    scale = torch.full([rows], guidance, device=x.device) if pipeline.transformer.config.guidance_embeds else None
    return pipeline.transformer(
        hidden_states=x,
        timestep=t.to(x.dtype),
        guidance=scale,
        txt_ids=text.new_zeros(text.shape[1], 3),
        img_ids=pipeline._prepare_latent_image_ids(rows, *grid, x.device, x.dtype),
        return_dict=False,
        **words,
    )[0]


def _sd3_words(pipeline: Any, prompt: str) -> Words:
    embeds, _, pooled, _ = pipeline.encode_prompt(prompt, None, None, do_classifier_free_guidance=False)
    return {"encoder_hidden_states": embeds[0], "pooled_projections": pooled[0]}


def _sd3_velocity(pipeline: Any, x: Tensor, t: Tensor, words: Mapping[str, Any], grid: Grid, guidance: float) -> Tensor:
    hidden = unpack(x, grid)
    return pack(pipeline.transformer(hidden_states=hidden, timestep=1000 * t, return_dict=False, **words)[0])


def _qwen_words(pipeline: Any, prompt: str) -> Words:
    embeds, _ = pipeline.encode_prompt(prompt, max_sequence_length=512)
    return {"encoder_hidden_states": embeds[0]}


def _qwen_velocity(
    pipeline: Any, x: Tensor, t: Tensor, words: Mapping[str, Any], grid: Grid, guidance: float
) -> Tensor:
    return pipeline.transformer(
        hidden_states=x,
        timestep=t.to(x.dtype),
        img_shapes=[[(1, *grid)]] * len(x),
        return_dict=False,
        **words,
    )[0]


def _cfg(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance (Ho and Salimans 2022, arXiv 2207.12598)."""
    return uncond + scale * (cond - uncond)


TRANSFORMERS = {
    "FluxPipeline": FlowTransformer(KLLatents, _flux_words, _flux_velocity),
    "StableDiffusion3Pipeline": FlowTransformer(KLLatents, _sd3_words, _sd3_velocity, "", _cfg),
    "QwenImagePipeline": FlowTransformer(
        Latents,
        _qwen_words,
        _qwen_velocity,
        " ",
        alpha=True,
        untrained=("attn.to_add_out.", "txt_mlp.net.0.proj.", "txt_mlp.net.2."),
    ),
}
