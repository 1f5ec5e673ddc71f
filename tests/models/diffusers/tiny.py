"""Pipelines of diffusers small enough for a test: all parts of the real ones, random weights, tokenizers of letters."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import pre_tokenizers

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


def _clip_tokenizer() -> Any:
    from transformers import CLIPTokenizer

    pieces = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{one}</w>" for one in LETTERS)]
    return CLIPTokenizer({piece: i for i, piece in enumerate(pieces)}, [], model_max_length=77)


def _t5_tokenizer() -> Any:
    from transformers import T5Tokenizer

    pieces = ["<pad>", "</s>", "<unk>", "▁", *(one for one in LETTERS if one.isascii())]
    return T5Tokenizer([(piece, -1.0) for piece in pieces], extra_ids=0, model_max_length=32)


def _qwen_tokenizer() -> Any:
    from tests.models.qwen_image_edit.tiny import tokenizer

    made = tokenizer()
    made.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}<|im_start|>assistant\n"
    )
    made.pad_token = "<|endoftext|>"
    return made


def _clip(projects: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        bos_token_id=0, eos_token_id=1, pad_token_id=1, vocab_size=2 + 2 * len(LETTERS), hidden_size=16,
        intermediate_size=32, num_attention_heads=2, num_hidden_layers=3, projection_dim=16,
    )  # fmt: skip
    return (CLIPTextModelWithProjection if projects else CLIPTextModel)(config).eval()


def _t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    size = len(_t5_tokenizer())
    return T5EncoderModel(T5Config(vocab_size=size, d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=2)).eval()


def _vae(blocks: int = 2, channels: int = 4) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8,) * blocks, layers_per_block=1, latent_channels=channels, norm_num_groups=2,
        down_block_types=("DownEncoderBlock2D",) * blocks, up_block_types=("UpDecoderBlock2D",) * blocks,
        use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06, scaling_factor=1.5, sample_size=32,
    ).eval()  # fmt: skip


def _flow() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(shift=3.0)


def flux() -> Any:
    from diffusers import FluxPipeline, FluxTransformer2DModel

    transformer = FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8), guidance_embeds=True,
    )  # fmt: skip
    return FluxPipeline(_flow(), _vae(), _clip(), _clip_tokenizer(), _t5(), _t5_tokenizer(), transformer)


def flux2_klein() -> Any:
    """Takes several images."""
    from diffusers import AutoencoderKLFlux2, Flux2KleinPipeline, Flux2Transformer2DModel
    from transformers import Qwen3Config, Qwen3ForCausalLM

    words = _qwen_tokenizer()
    text = Qwen3Config(
        vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=28, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8,
    )  # fmt: skip
    transformer = Flux2Transformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=48, timestep_guidance_channels=256, axes_dims_rope=(4, 4, 4, 4), guidance_embeds=False,
    )  # fmt: skip
    vae = AutoencoderKLFlux2(
        block_out_channels=(8,), layers_per_block=1, latent_channels=4, norm_num_groups=1, sample_size=32,
        down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",),
        use_quant_conv=False, use_post_quant_conv=False,
    )  # fmt: skip
    return Flux2KleinPipeline(_flow(), vae.eval(), Qwen3ForCausalLM(text).eval(), words, transformer)


def stable_diffusion_3() -> Any:
    from diffusers import SD3Transformer2DModel, StableDiffusion3Pipeline

    transformer = SD3Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=4,
        caption_projection_dim=32, joint_attention_dim=32, pooled_projection_dim=32, out_channels=4,
    )  # fmt: skip
    clip, words = _clip_tokenizer(), _t5_tokenizer()
    return StableDiffusion3Pipeline(transformer, _flow(), _vae(), _clip(True), clip, _clip(True), clip, _t5(), words)


def _unet(channels: int) -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        block_out_channels=(8, 16), layers_per_block=1, sample_size=16, in_channels=channels, norm_num_groups=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, attention_head_dim=2,
    )  # fmt: skip


def stable_diffusion() -> Any:
    from diffusers import PNDMScheduler, StableDiffusionPipeline

    words, scheduler = _clip_tokenizer(), PNDMScheduler(skip_prk_steps=True, steps_offset=1)
    return StableDiffusionPipeline(
        _vae(), _clip(), words, _unet(4), scheduler, None, None, requires_safety_checker=False
    )


def instruct_pix2pix() -> Any:
    """Draws from one image only."""
    from diffusers import EulerAncestralDiscreteScheduler, StableDiffusionInstructPix2PixPipeline

    words, scheduler = _clip_tokenizer(), EulerAncestralDiscreteScheduler()
    return StableDiffusionInstructPix2PixPipeline(
        _vae(), _clip(), words, _unet(8), scheduler, None, None, requires_safety_checker=False
    )


def pixart_sigma() -> Any:
    from diffusers import DPMSolverMultistepScheduler, PixArtSigmaPipeline, PixArtTransformer2DModel

    transformer = PixArtTransformer2DModel(
        sample_size=32, num_layers=1, patch_size=2, attention_head_dim=8, num_attention_heads=2, caption_channels=32,
        in_channels=4, cross_attention_dim=16, out_channels=8,
    )  # fmt: skip
    return PixArtSigmaPipeline(_t5_tokenizer(), _t5(), _vae(4), transformer, DPMSolverMultistepScheduler())


def qwen_image() -> Any:
    from diffusers import QwenImagePipeline

    from tests.models.qwen_image_edit.tiny import pipeline

    parts = pipeline().components
    return QwenImagePipeline(**{name: parts[name] for name in parts if name != "processor"})


PIPELINES = {
    made.__name__: made
    for made in (flux, flux2_klein, instruct_pix2pix, pixart_sigma, qwen_image, stable_diffusion, stable_diffusion_3)
}


def pipeline(name: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    made = PIPELINES[name]()
    made.set_progress_bar_config(disable=True)
    return made
