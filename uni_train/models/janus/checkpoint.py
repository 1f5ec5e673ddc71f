"""A folder of a Janus in transformers' layout (deepseek-community/Janus-Pro-7B) or DeepSeek's own to a model.

config.json, model.safetensors alone or in shards with an index, the tokenizer, and preprocessor_config.json.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from uni_train.config.schema import ModelConfig
from uni_train.core.errors import UserError, first_line
from uni_train.core.files import atomic_path
from uni_train.models.janus import DEEPSEEK
from uni_train.models.janus.training import TrainableJanus
from uni_train.models.janus.unified import IMAGE
from uni_train.models.meta import without_weights
from uni_train.models.shapes import Guess
from uni_train.models.weights import (
    Format,
    Start,
    Weights,
    check,
    copy,
    fill,
    read_object,
    shapes_of,
    weight_files,
    write_state,
)

_STEM = "model"
_HINT = "It must be a Janus with safetensors, such as deepseek-community/Janus-Pro-7B."
_VOCABULARY = 102_400  # of the DeepSeek-LLM that it was made from
_HEAD, _EMBEDDING = "lm_head.weight", "model.language_model.embed_tokens.weight"


def build(config: ModelConfig, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> TrainableJanus:
    """The model of the folder `config.checkpoint`, on the CPU, as transformers reads it whole."""
    assert config.checkpoint is not None
    folder = Path(config.checkpoint)
    weights, empty = open_weights(folder), on_meta(folder)
    check(weights.shapes, shapes(empty), folder, _HINT)  # transformers draws at random what is missing
    dtype = dtype or weights.compute_dtype
    try:
        from transformers import AutoTokenizer, JanusForConditionalGeneration
        from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil

        if is_deepseek(folder):
            from uni_train.models.janus.deepseek import load as load_deepseek

            parts = load_deepseek(folder, weights, empty.config, dtype)
        else:
            parts = (
                JanusForConditionalGeneration.from_pretrained(
                    folder, dtype=dtype, use_safetensors=True, local_files_only=True
                ),
                AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False),
                JanusImageProcessorPil.from_pretrained(folder),
            )
        if parts[1].convert_tokens_to_ids(IMAGE) in (None, parts[1].unk_token_id):
            raise ValueError(f"its tokenizer has no {IMAGE}")
    except ImportError as error:
        raise UserError(
            f"model={config.name} needs transformers ({error})", "Install it: pip install -e '.[hf]'."
        ) from error
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{folder} cannot be loaded: {error}", _HINT) from error
    model = TrainableJanus(config.name, *parts, config.sampling)
    model.source = folder
    return model


def skeleton(config: ModelConfig) -> tuple[TrainableJanus, bool]:
    """The model without weights, of the sizes of its folder or else of the recipe. Its tokenizer is a guess."""
    here = config.checkpoint is not None and Path(config.checkpoint).exists()
    janus = on_meta(Path(config.checkpoint or "") if here else _sizes_of_recipe(config))
    return TrainableJanus(config.name, janus, Guess(), None, config.sampling), True


def on_meta(sizes: Path | dict[str, Any]) -> Any:
    """transformers' module of a folder's config.json or of given sizes, without weights."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import JanusConfig, JanusForConditionalGeneration

    values = sizes if isinstance(sizes, dict) else read_object(sizes / "config.json", _HINT)
    if values.get("model_type") == DEEPSEEK:
        from uni_train.models.janus.deepseek import transformers_config

        values = transformers_config(values, sizes)
    try:
        with without_weights():
            return JanusForConditionalGeneration(JanusConfig.from_dict(values))
    except (StrictDataclassError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"the sizes of {sizes} are those of no Janus: {first_line(error)}", _HINT) from error


def shapes(janus: nn.Module) -> dict[str, Sequence[int]]:
    """Names and shapes as they are stored: a head that is the embedding is not."""
    stored = shapes_of(janus)
    if janus.config.tie_word_embeddings:  # type: ignore[union-attr]
        del stored[_HEAD]
    return stored


def _sizes_of_recipe(config: ModelConfig) -> dict[str, Any]:
    sizes = config.architecture
    return {
        "text_config": {
            "model_type": "llama",
            "hidden_size": sizes.hidden_size,
            "intermediate_size": sizes.intermediate_size,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.kv_heads,
            "vocab_size": _VOCABULARY,
            "max_position_embeddings": sizes.max_text_tokens,
        },
        "vision_config": {
            "hidden_size": sizes.vit_hidden_size,
            "num_hidden_layers": sizes.vit_layers,
            "num_attention_heads": sizes.vit_heads,
            "mlp_ratio": sizes.vit_intermediate_size / sizes.vit_hidden_size,
            "patch_size": sizes.vit_patch,
            "image_size": sizes.image_size,
            "num_image_tokens": (sizes.image_size // sizes.vit_patch) ** 2,
            "projection_dim": sizes.hidden_size,
        },
        "vq_config": {
            "embed_dim": sizes.latent_channels,
            "projection_dim": sizes.hidden_size,
            "image_token_embed_dim": sizes.hidden_size,
        },
        "tie_word_embeddings": False,
    }


def is_deepseek(folder: Path) -> bool:
    """Whether a folder is in DeepSeek's own layout, not in transformers'."""
    return read_object(folder / "config.json", _HINT).get("model_type") == DEEPSEEK


def open_weights(folder: Path) -> Weights:
    """The headers of a folder's weights, by transformers' names. Raises UserError: missing or damaged files."""
    if is_deepseek(folder):
        from uni_train.models.janus.deepseek import DeepSeekWeights

        return DeepSeekWeights(_stored(folder))
    return _stored(folder)


def _stored(folder: Path) -> Weights:
    return Weights(weight_files(folder, (f"{_STEM}.safetensors",), _HINT))


def export(source: Path, out: Path, start: Start, form: Format) -> None:
    """Copy a folder tensor by tensor in the layout that it has, its small files as they are."""
    weights = _stored(source)
    _carry(source, out)
    copy(weights.read, weights.described, out, _STEM, start, form)


def _carry(source: Path, out: Path) -> None:
    """Copy all files but the weights."""
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.suffix in (".json", ".jinja", ".txt", ".model") and "safetensors" not in file.name:
            with atomic_path(out / file.name) as temporary:
                shutil.copyfile(file, temporary)


def save(model: TrainableJanus, folder: Path, form: Format) -> None:
    """Write transformers' layout, whichever the model came in; the weights last."""
    _carry(model.source, folder)
    if is_deepseek(model.source):
        with TemporaryDirectory(dir=folder) as made:
            for part in (model.janus.config, model.tokenizer, model.image_processor):
                part.save_pretrained(made)
            _carry(Path(made), folder)
    state = model.janus.state_dict()
    write_state({name: state[name] for name in shapes(model.janus)}, folder, _STEM, form)


def load(model: TrainableJanus, folder: Path) -> None:
    """Take the weights of a folder of the same sizes."""
    weights = open_weights(folder)
    check(weights.shapes, shapes(model.janus), folder, _HINT)
    fill(model.janus, lambda name: weights.read(name if name in weights else _EMBEDDING))
