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

import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from uni_train.config.schema import EditingConfig, ModelConfig
from uni_train.errors import UserError
from uni_train.files import atomic_path
from uni_train.flow.schedule import DynamicShift
from uni_train.models.meta import without_weights
from uni_train.models.qwen_image_edit.reading import Processor, image_processor
from uni_train.models.qwen_image_edit.unified import EditSampling, QwenImageEdit
from uni_train.models.shapes import Guess
from uni_train.models.weights import (
    Start,
    Weights,
    check,
    copy,
    fill,
    problems,
    read_object,
    shapes_of,
    weight_files,
    write_state,
)

PIPELINES = ("QwenImageEditPipeline", "QwenImageEditPlusPipeline")
_STEM = "diffusion_pytorch_model"
_STEMS = {"transformer": _STEM, "text_encoder": "model", "vae": _STEM}
_SHARD_BYTES = 10 * 10**9
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


class PublishedEditor(QwenImageEdit):
    """A QwenImageEdit read from a folder.

    Attributes:
        source: the folder; all but the transformer goes from there into every export.
    """

    family = "qwen_image_edit"
    source: Path


@dataclass(frozen=True, slots=True)
class EditorFolder:
    """A folder in diffusers' layout: its JSON files and the headers of its weights, by subfolder."""

    path: Path
    plus: bool
    weights: Mapping[str, Weights]
    configs: Mapping[str, Mapping[str, Any]]

    @property
    def shift(self) -> DynamicShift:
        """The scheduler's. Raises UserError for one that shifts otherwise."""
        config = self.configs["scheduler"]
        if not config.get("use_dynamic_shifting") or config.get("time_shift_type", "exponential") != "exponential":
            raise UserError(
                f"{self.path / 'scheduler'} shifts noise levels in a way that is not known here",
                "Copy scheduler_config.json of the released checkpoint, with use_dynamic_shifting.",
            )
        return DynamicShift(
            base_tokens=int(config.get("base_image_seq_len", 256)),
            max_tokens=int(config.get("max_image_seq_len", 4096)),
            base_shift=float(config.get("base_shift", 0.5)),
            max_shift=float(config.get("max_shift", 1.15)),
            terminal=config.get("shift_terminal"),
        )


def open_folder(path: Path) -> EditorFolder:
    """Read the JSON files and the headers.

    Raises:
        UserError: files that are missing or damaged, or another pipeline.
    """
    name = read_object(path / "model_index.json", _HINT).get("_class_name")
    if name not in PIPELINES:
        raise UserError(f"{path} is a diffusers pipeline ({name}), but none of {', '.join(PIPELINES)}", _HINT)
    weights = {
        part: Weights(weight_files(path / part, (f"{stem}.safetensors",), _HINT)) for part, stem in _STEMS.items()
    }
    configs = {part: read_object(path / part / "config.json", _HINT) for part in _STEMS}
    configs["scheduler"] = read_object(path / "scheduler" / "scheduler_config.json", _HINT)
    return EditorFolder(path, name == PIPELINES[1], weights, configs)


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


def on_meta(config: ModelConfig) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Transformer, text encoder and VAE without weights, for counting and dry runs.

    Sizes are those of the folder `config.checkpoint`; where there is none, those of the recipe.
    """
    folder = Path(config.checkpoint) if config.checkpoint is not None else None
    with _libraries(config.name):
        from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

        if folder is not None and folder.exists():
            opened = open_folder(folder)
            transformer, vae = _meta(opened)
            text = Qwen2_5_VLConfig.from_dict(dict(opened.configs["text_encoder"]))
        else:
            transformer, vae = _meta_of_recipe(config)
            one = config.architecture
            seeing = {
                "depth": one.vit_layers,
                "hidden_size": one.vit_hidden_size,
                "intermediate_size": one.vit_intermediate_size,
                "num_heads": one.vit_heads,
                "patch_size": one.vit_patch,
                "out_hidden_size": _TEXT_7B["hidden_size"],
            }
            text = Qwen2_5_VLConfig(text_config=_TEXT_7B, vision_config=seeing)
        with without_weights():
            return transformer, Qwen2_5_VLForConditionalGeneration(text), vae


def skeleton(config: ModelConfig) -> tuple[QwenImageEdit, bool]:
    """The model without weights, and whether its tokenizer is a guess.

    Raises:
        UserError: the checkpoint folder holds something else than this model.
    """
    parts, processor = on_meta(config), read_processor(config)
    sampling, editing = EditSampling.from_config(config), config.editing or EditingConfig()
    model = QwenImageEdit(config.name, *parts, processor or Guess(), DynamicShift(), sampling, editing)
    return model, processor is None


def _meta(opened: EditorFolder) -> tuple[Any, Any]:
    from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel

    with without_weights():
        transformer: Any = QwenImageTransformer2DModel.from_config(dict(opened.configs["transformer"]))
        vae: Any = AutoencoderKLQwenImage.from_config(dict(opened.configs["vae"]))
    return transformer, vae


def _meta_of_recipe(config: ModelConfig) -> tuple[Any, Any]:
    from diffusers import AutoencoderKLQwenImage, QwenImageTransformer2DModel

    one = config.architecture
    with without_weights():
        transformer = QwenImageTransformer2DModel(
            patch_size=one.latent_patch,
            in_channels=one.latent_channels * one.latent_patch**2,
            out_channels=one.latent_channels,
            num_layers=one.layers,
            attention_head_dim=one.hidden_size // one.heads,
            num_attention_heads=one.heads,
            joint_attention_dim=_TEXT_7B["hidden_size"],
        )
        return transformer, AutoencoderKLQwenImage(z_dim=one.latent_channels)


def build(config: ModelConfig, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> PublishedEditor:
    """The model of the folder `config.checkpoint`, with its weights.

    Args:
        dtype: of all weights; None: each part's `Weights.compute_dtype`.

    Raises:
        UserError: there is no such folder, it holds something else, or its weights do not fit.
    """
    assert config.checkpoint is not None
    opened = open_folder(Path(config.checkpoint))
    with _libraries(config.name):
        return _build(config, opened, dtype, device)


def _build(
    config: ModelConfig, opened: EditorFolder, dtype: torch.dtype | None, device: torch.device | str
) -> PublishedEditor:
    from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope
    from transformers import Qwen2_5_VLForConditionalGeneration
    from transformers.utils import logging

    transformer, vae = _meta(opened)
    for part, module in (("transformer", transformer), ("vae", vae)):
        _fill(module, opened.weights[part], dtype, device)
    rope = transformer.pos_embed
    if not isinstance(rope, QwenEmbedRope):
        raise UserError(f"{opened.path} draws layers (use_layer3d_rope), which is not known here", _HINT)
    # Its tables are plain attributes, so they were left on the meta device.
    transformer.pos_embed = QwenEmbedRope(rope.theta, rope.axes_dim, rope.scale_rope)
    processor = read_processor(config)
    if processor is None:
        raise UserError(f"{opened.path} holds no tokenizer", _HINT)
    stored = opened.weights["text_encoder"].compute_dtype
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    text_encoder: Any
    try:
        text_encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(
            opened.path / "text_encoder", dtype=dtype or stored, use_safetensors=True, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{opened.path} cannot be loaded: {error}", _HINT) from error
    finally:
        if shown:
            logging.enable_progress_bar()
    model = PublishedEditor(
        config.name,
        transformer,
        text_encoder.to(device),
        vae,
        processor,
        opened.shift,
        EditSampling.from_config(config),
        replace(config.editing or EditingConfig(), plus=opened.plus),
    )
    model.source = opened.path
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


def _fill(module: nn.Module, weights: Weights, dtype: torch.dtype | None, device: torch.device | str) -> None:
    """Give a module its weights. Raises UserError for names and shapes that do not fit."""
    weights = weights.fitted(module.state_dict())
    check(weights.shapes, shapes_of(module), weights.files[0].parent, _HINT)
    fill(module, weights.read, dtype or weights.compute_dtype, device)


def load(model: PublishedEditor, path: Path) -> None:
    """Take the transformer's weights from a folder that `save` has written; nothing else is ever trained.

    Raises:
        UserError: names and shapes that do not fit (at most ten), files that are missing or damaged.
    """
    _fill(model.transformer, open_folder(path).weights["transformer"], None, model.device)
    model.source = path


def compare(opened: EditorFolder) -> list[str]:
    """What keeps a folder's weights from fitting its sizes, in phrases."""
    with _libraries("qwen_image_edit"):
        modules = _meta(opened)
    return [
        f"{part}: {problem}"
        for part, module in zip(("transformer", "vae"), modules, strict=True)
        for problem in problems(opened.weights[part].fitted(module.state_dict()).shapes, shapes_of(module))
    ]


def count_parts(opened: EditorFolder) -> dict[str, int]:
    """Numbers of parameters by part, as `QwenImageEditFamily.parts` names them."""
    return {
        part: sum(math.prod(stored.shape) for stored in opened.weights[folder].values())
        for part, folder in (("transformer", "transformer"), ("text encoder", "text_encoder"), ("VAE", "vae"))
    }


# --- writing ----------------------------------------------------------------------------------------------------------


def save(
    model: PublishedEditor, folder: Path, dtype: torch.dtype | None = None, shard_bytes: int | None = None
) -> None:
    """Write a folder that diffusers' `from_pretrained` reads.

    Args:
        dtype: of the transformer's floating-point weights; None keeps theirs.
        shard_bytes: write shards of at most this size; None: 10 GB.

    Raises:
        UserError, OSError: the disk is full or the folder cannot be written. The weights are written last.
    """
    _carry(model.source, folder)
    write_state(model.transformer.state_dict(), folder / "transformer", _STEM, dtype, shard_bytes or _SHARD_BYTES)


def export(
    source: Path,
    folder: Path,
    start: Start,
    dtype: torch.dtype | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Copy a folder, its transformer tensor by tensor and in `dtype` if one is given.

    Args:
        start: told how many tensors there will be; what it returns is called after each.

    Raises:
        UserError, OSError: weights that do not fit the folder's JSON files; a disk that is full.
    """
    opened = open_folder(source)
    wrong = compare(opened)
    if wrong:
        raise UserError(f"{source} does not fit its config.json: {'; '.join(wrong[:10])}", _HINT)
    _carry(source, folder)
    to = folder / "transformer"
    copy(opened.weights["transformer"], to, _STEM, start, dtype, shard_bytes or _SHARD_BYTES)


def _carry(source: Path, folder: Path) -> None:
    """Everything but the transformer's weights, as it is."""
    if source.resolve() == folder.resolve():
        return
    for name in (*_STEMS, "tokenizer", "processor", "scheduler", "."):
        if not (source / name).is_dir():
            continue
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file in sorted((source / name).iterdir()):
            if not file.is_file() or (name == "transformer" and file.name != "config.json"):
                continue
            if name == "." and file.name != "model_index.json":
                continue
            with atomic_path(folder / name / file.name) as temporary:
                link_or_copy(file.resolve(), temporary)


def link_or_copy(file: Path, to: Path) -> None:
    """Large weights take no room twice where both places are on one file system."""
    if file.suffix == ".safetensors":
        try:
            to.unlink(missing_ok=True)
            os.link(file, to)
        except OSError:
            pass
        else:
            return
    shutil.copyfile(file, to)
