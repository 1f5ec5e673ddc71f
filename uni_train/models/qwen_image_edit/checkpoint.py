"""A diffusers folder of a Qwen-Image-Edit to a model, and a model to such a folder.

    model_index.json   names the pipeline: QwenImageEditPipeline, or QwenImageEditPlusPipeline (2509, 2511)
    transformer/       what is trained: config.json and *.safetensors, alone or in shards with an index
    text_encoder/, vae/, tokenizer/, processor/, scheduler/

The transformer is made on the meta device and its tensors are loaded one by one. Where it is sharded, each rank loads
only its part. `from_pretrained` of diffusers reads the folders that we write. The transformer is new; all other files
are those of the folder that the model came from. They never change, so they are hard links where the file system
allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from uni_train.config.schema import EditingConfig, ModelConfig
from uni_train.core.errors import UserError
from uni_train.flow.schedule import DynamicShift
from uni_train.models.diffusers.checkpoint import (
    expect_whole,
    export,
    fill_part,
    load,
    part_on_meta,
    part_weights,
    save,
    without_bars,
)
from uni_train.models.diffusers.family import EDITORS
from uni_train.models.meta import without_weights
from uni_train.models.quantised import quantise
from uni_train.models.qwen_image_edit.reading import Processor, image_processor
from uni_train.models.qwen_image_edit.unified import QwenImageEdit
from uni_train.models.shapes import Guess
from uni_train.models.weights import read_object

__all__ = ["build", "export", "load", "save", "skeleton"]

_HINT = "It must be a Qwen-Image-Edit in diffusers' layout; `uni_train models inspect` shows what it is."
_TEXT_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
}
"""Sizes of the Qwen2.5-VL-7B that all of them read with."""


def _is_plus(path: Path) -> bool:
    """Whether a folder holds the Plus form. Raises UserError for another pipeline."""
    name = read_object(path / "model_index.json", _HINT).get("_class_name")
    if name not in EDITORS:
        raise UserError(f"{path} is a diffusers pipeline ({name}), but none of {', '.join(EDITORS)}", _HINT)
    return bool(name == EDITORS[1])


def _shift(path: Path) -> DynamicShift:
    """Of a folder's scheduler. Raises UserError for one that shifts otherwise."""
    config = read_object(path / "scheduler" / "scheduler_config.json", _HINT)
    if not config.get("use_dynamic_shifting") or config.get("time_shift_type", "exponential") != "exponential":
        raise UserError(
            f"{path / 'scheduler'} shifts noise levels in a way that is not known here",
            "Copy scheduler_config.json of the released checkpoint, with use_dynamic_shifting.",
        )
    return DynamicShift(
        base_tokens=int(config.get("base_image_seq_len", 256)),
        max_tokens=int(config.get("max_image_seq_len", 4096)),
        base_shift=float(config.get("base_shift", 0.5)),
        max_shift=float(config.get("max_shift", 1.15)),
        terminal=config.get("shift_terminal"),
    )


@contextmanager
def _libraries(name: str) -> Iterator[None]:
    """Turns a library that is not installed into a UserError."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"model={name} needs diffusers and transformers ({error})", "Install them: pip install -e '.[hf]'."
        ) from error


# --- building ---------------------------------------------------------------------------------------------------------


def skeleton(config: ModelConfig) -> tuple[QwenImageEdit, bool]:
    """The model without weights, and whether its tokenizer is a guess.

    Sizes are those of the folder `config.checkpoint`; where there is none, those of the recipe.
    """
    folder, sizes = Path(config.checkpoint or ""), config.architecture
    with _libraries(config.name):
        from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

        if config.checkpoint is not None and folder.exists():
            _is_plus(folder)
            transformer, vae = (part_on_meta(folder, part) for part in ("transformer", "vae"))
            text = Qwen2_5_VLConfig.from_dict(read_object(folder / "text_encoder" / "config.json", _HINT))
        else:
            transformer, vae = _meta_of_recipe(config)
            seeing = {
                "depth": sizes.vit_layers,
                "hidden_size": sizes.vit_hidden_size,
                "intermediate_size": sizes.vit_intermediate_size,
                "num_heads": sizes.vit_heads,
                "patch_size": sizes.vit_patch,
                "out_hidden_size": _TEXT_7B["hidden_size"],
            }
            text = Qwen2_5_VLConfig(text_config=_TEXT_7B, vision_config=seeing)
        with without_weights():
            parts = transformer, Qwen2_5_VLForConditionalGeneration(text), vae
    processor, editing = read_processor(config), config.editing or EditingConfig()
    reading = processor or Guess()
    model = QwenImageEdit(config.name, *parts, reading, DynamicShift(), config.sampling, editing, sizes.image_size)
    return model, processor is None


def _meta_of_recipe(config: ModelConfig) -> tuple[Any, Any]:
    from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel

    sizes = config.architecture
    with without_weights():
        transformer = QwenImageTransformer2DModel(
            patch_size=sizes.latent_patch,
            in_channels=sizes.latent_channels * sizes.latent_patch**2,
            out_channels=sizes.latent_channels,
            num_layers=sizes.layers,
            attention_head_dim=sizes.hidden_size // sizes.heads,
            num_attention_heads=sizes.heads,
            joint_attention_dim=_TEXT_7B["hidden_size"],
        )
        return transformer, AutoencoderKLQwenImage(z_dim=sizes.latent_channels)


def build(config: ModelConfig, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> QwenImageEdit:
    """The model of the folder `config.checkpoint`. dtype: None is each part's `Weights.compute_dtype`."""
    folder = Path(config.checkpoint or "")
    editing = replace(config.editing or EditingConfig(), plus=_is_plus(folder))
    with _libraries(config.name):
        from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope
        from transformers import Qwen2_5_VLForConditionalGeneration

    shift, stored = _shift(folder), part_weights(folder, "text_encoder").compute_dtype
    transformer, vae = (part_on_meta(folder, part) for part in ("transformer", "vae"))
    fill_part(transformer, folder, "transformer", dtype, device, config.weights)
    fill_part(vae, folder, "vae", dtype, device)
    rope = transformer.pos_embed
    if not isinstance(rope, QwenEmbedRope):
        raise UserError(f"{folder} draws layers (use_layer3d_rope), which is not known here", _HINT)
    # Its tables are plain attributes, so they were left on the meta device.
    transformer.pos_embed = QwenEmbedRope(rope.theta, rope.axes_dim, rope.scale_rope)
    processor = read_processor(config)
    if processor is None:
        raise UserError(f"{folder} holds no tokenizer", _HINT)
    text_encoder: Any
    expect_whole(folder, "text_encoder")
    try:
        with without_bars():
            text_encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(
                folder / "text_encoder", dtype=dtype or stored, use_safetensors=True, local_files_only=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{folder} cannot be loaded: {error}", _HINT) from error
    parts = transformer, quantise(text_encoder, config.weights, device).to(device), vae
    side = config.architecture.image_size
    model = QwenImageEdit(config.name, *parts, processor, shift, config.sampling, editing, side)
    model.source = folder
    return model


def read_processor(config: ModelConfig) -> Processor | None:
    """The processor of the folder `config.checkpoint`, if it is there."""
    folder = Path(config.checkpoint) if config.checkpoint is not None else None
    if folder is None or not (folder / "tokenizer").is_dir():
        return None
    with _libraries(config.name):
        from transformers import Qwen2Tokenizer

        try:
            tokenizer = Qwen2Tokenizer.from_pretrained(folder / "tokenizer", local_files_only=True)
            return Processor(image_processor(folder / "processor"), tokenizer)
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} cannot be loaded: {error}", _HINT) from error
