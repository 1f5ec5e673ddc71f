"""A Qwen-Image-Edit small enough for a test: every part of the real one, random weights, a tokenizer of bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers

SIDE = 64
"""Pictures have the area of a square of so many pixels; as latents and as the Qwen2.5-VL sees them, too."""
SIZES = [f"model.{key}={SIDE}" for key in ("architecture.image_size", "editing.latent_size", "editing.look_size")]
KEYS = ["model=qwen_image_edit_2511", "model.threads=1", *SIZES, "strategy.precision=32-true"]
"""A recipe's keys for the tiny model; its folder is to be added."""
MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
SCHEDULER = {
    **{"base_image_seq_len": 256, "max_image_seq_len": 8192, "base_shift": 0.5, "max_shift": 0.9},
    **{"shift_terminal": 0.02, "time_shift_type": "exponential", "use_dynamic_shifting": True},
}


def tokenizer() -> Any:
    from transformers import Qwen2Tokenizer

    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Qwen2Tokenizer(vocabulary, [])
    made.add_tokens(list(MARKERS), special_tokens=True)
    return made


def processor() -> Any:
    """The image-only one: the stock processor needs torchvision."""
    from uni_train.models.qwen_image_edit.reading import Processor, image_processor

    return Processor(image_processor(), tokenizer())


def pipeline(plus: bool = True, seed: int = 0, zero_cond_t: bool = False) -> Any:
    """A diffusers pipeline; `zero_cond_t` as in 2511."""
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImageEditPipeline,
        QwenImageEditPlusPipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    words = tokenizer()
    torch.manual_seed(seed)
    transformer = QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4), zero_cond_t=zero_cond_t,
    )  # fmt: skip
    vae = AutoencoderKLQwenImage(
        base_dim=8, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True],
        latents_mean=[0.1, -0.2, 0.0, 0.3], latents_std=[0.9, 1.1, 1.0, 0.8],
    )  # fmt: skip
    markers = dict(zip(MARKERS, words.convert_tokens_to_ids(list(MARKERS)), strict=True))
    sizes = {"hidden_size": 16, "intermediate_size": 32}
    text = sizes | {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    rope = {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 1_000_000.0}
    end, start = markers["<|im_end|>"], markers["<|endoftext|>"]
    ids = {"vocab_size": len(words), "eos_token_id": end, "pad_token_id": start, "bos_token_id": start}
    text_encoder = Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config=text | ids | {"rope_parameters": rope},
            vision_config=sizes | {"depth": 2, "num_heads": 2, "out_hidden_size": 16, "fullatt_block_indexes": [1]},
            image_token_id=markers["<|image_pad|>"],
            vision_start_token_id=markers["<|vision_start|>"],
            vision_end_token_id=markers["<|vision_end|>"],
            video_token_id=len(words),
        )
    )
    made = (QwenImageEditPlusPipeline if plus else QwenImageEditPipeline)(
        scheduler=FlowMatchEulerDiscreteScheduler(**SCHEDULER),
        vae=vae,
        text_encoder=text_encoder.eval(),
        tokenizer=words,
        processor=processor(),
        transformer=transformer.eval(),
    )
    made.vae.eval()
    made.set_progress_bar_config(disable=True)
    return made


def published(folder: Path, plus: bool = True, seed: int = 0, zero_cond_t: bool = False) -> Path:
    """The tiny pipeline as a folder such as people download."""
    made = pipeline(plus, seed, zero_cond_t)
    index: dict[str, Any] = {"_class_name": type(made).__name__, "_diffusers_version": "0.42.0"}
    for part in ("scheduler", "text_encoder", "tokenizer", "transformer", "vae"):
        kind = type(getattr(made, part))
        index[part] = [kind.__module__.split(".")[0], kind.__name__]
        getattr(made, part).save_pretrained(folder / part)
    for part in (made.processor.image_processor, made.tokenizer):
        part.save_pretrained(folder / "processor")
    index["processor"] = ["transformers", "Qwen2VLProcessor"]
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder
