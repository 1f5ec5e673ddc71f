"""What the flow-matching pipelines that can be trained have apart: text inputs, positions, guidance and times.

Shapes: B rows, G latent tokens of an image (shown ones included), C numbers a token. L text tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uni_train.flow.guidance import true_cfg
from uni_train.models.diffusers.condition import Words
from uni_train.models.diffusers.latents import Grid, KLLatents, Latents, pack, unpack


@dataclass(frozen=True, slots=True)
class FlowTransformer:
    """How one pipeline class calls its transformer.

    Attributes:
        latents: of its VAE.
        words: text inputs of a prompt.
        text_tokens: L of a prompt.
        velocity: (transformer, x [B, G, C], t [B], text inputs, grids, guidance) -> noise - clean [B, G, C].
        negative: the prompt that guidance leads away from; None: the transformer is given the scale.
        guided: (guided side, other side, scale) -> the guided velocity.
        alpha: whether diffusers' loader reads a scalar `alpha` beside each adapter.
        untrained: names of parameters that no output depends on begin so, in the last block.
    """

    latents: Callable[[Any], Latents]
    words: Callable[[Any, str], Words]
    text_tokens: Callable[[Any, str], int]
    velocity: Callable[[Any, Tensor, Tensor, Mapping[str, Any], Sequence[Grid], float], Tensor]
    negative: str | None = None
    guided: Callable[[Tensor, Tensor, float], Tensor] = true_cfg
    alpha: bool = False
    untrained: tuple[str, ...] = ()


def _flux_words(pipeline: Any, prompt: str) -> Words:
    embeds, pooled, _ = pipeline.encode_prompt(prompt, None)
    return {"encoder_hidden_states": embeds[0], "pooled_projections": pooled[0]}


def _flux_velocity(
    transformer: Any, x: Tensor, t: Tensor, words: Mapping[str, Any], grids: Sequence[Grid], guidance: float
) -> Tensor:
    from diffusers import FluxPipeline

    rows, text = len(x), words["encoder_hidden_states"]
    return transformer(
        hidden_states=x,
        timestep=t.to(x.dtype),
        guidance=torch.full([rows], guidance, device=x.device) if transformer.config.guidance_embeds else None,
        txt_ids=text.new_zeros(text.shape[1], 3),
        img_ids=FluxPipeline._prepare_latent_image_ids(rows, *grids[0], x.device, x.dtype),
        return_dict=False,
        **words,
    )[0]


def _sd3_words(pipeline: Any, prompt: str) -> Words:
    embeds, _, pooled, _ = pipeline.encode_prompt(prompt, None, None, do_classifier_free_guidance=False)
    return {"encoder_hidden_states": embeds[0], "pooled_projections": pooled[0]}


def _sd3_velocity(
    transformer: Any, x: Tensor, t: Tensor, words: Mapping[str, Any], grids: Sequence[Grid], guidance: float
) -> Tensor:
    hidden = unpack(x, grids[0])
    return pack(transformer(hidden_states=hidden, timestep=1000 * t, return_dict=False, **words)[0])


def _qwen_words(pipeline: Any, prompt: str) -> Words:
    embeds, _ = pipeline.encode_prompt(prompt, max_sequence_length=512)
    return {"encoder_hidden_states": embeds[0]}


def _qwen_tokens(pipeline: Any, prompt: str) -> int:
    chat = pipeline.tokenizer(pipeline.prompt_template_encode.format(prompt)).input_ids
    return min(len(chat) - pipeline.prompt_template_encode_start_idx, 512)


def _qwen_velocity(
    transformer: Any, x: Tensor, t: Tensor, words: Mapping[str, Any], grids: Sequence[Grid], guidance: float
) -> Tensor:
    return transformer(
        hidden_states=x,
        timestep=t.to(x.dtype),
        img_shapes=[[(1, *grid) for grid in grids]] * len(x),
        return_dict=False,
        **words,
    )[0]


def _cfg(cond: Tensor, uncond: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance (Ho and Salimans 2022, arXiv 2207.12598)."""
    return uncond + scale * (cond - uncond)


QWEN_IMAGE = FlowTransformer(
    Latents,
    _qwen_words,
    _qwen_tokens,
    _qwen_velocity,
    " ",
    alpha=True,
    untrained=("attn.to_add_out.", "txt_mlp.net.0.proj.", "txt_mlp.net.2."),
)
"""Of the editing pipelines too; their text stream ends in the last block."""
TRANSFORMERS = {
    "FluxPipeline": FlowTransformer(KLLatents, _flux_words, lambda pipeline, prompt: 512, _flux_velocity),
    "StableDiffusion3Pipeline": FlowTransformer(
        KLLatents,
        _sd3_words,
        lambda pipeline, prompt: pipeline.tokenizer_max_length + 256,
        _sd3_velocity,
        "",
        _cfg,
    ),
    "QwenImagePipeline": QWEN_IMAGE,
}
