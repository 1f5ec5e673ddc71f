"""Janus in DeepSeek's own layout, such as T2I-R1 (Jiang et al. 2025, arXiv 2505.00703), read as transformers' module.

Names and sizes are translated as by transformers' convert_janus_weights_to_hf.py. Two things are stored and not read,
as no output depends on them: the pooling head of the SigLIP, and which codes the VQ model has used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uni_train.core.errors import UserError
from uni_train.models.janus.unified import IMAGE
from uni_train.models.weights import Weights

SIZES: dict[str, dict[str, Any]] = {"siglip_large_patch16_384": {"patch_size": 16}, "VQ-16": {}}
"""What names in DeepSeek's config.json stand for, by transformers' keys; its defaults are the rest of these two."""
_TOWER, _VQ = "vision_model.vision_tower.", "gen_vision_model."
_UNREAD = (f"{_TOWER}attn_pool.", f"{_VQ}quantize.codebook_used")
_BEGINNINGS = {
    "language_model.lm_head.": "lm_head.",
    "language_model.model.": "model.language_model.",
    f"{_TOWER}pos_embed": "model.vision_model.embeddings.position_embedding.weight",
    f"{_TOWER}patch_embed.proj.": "model.vision_model.embeddings.patch_embedding.",
    f"{_TOWER}blocks.": "model.vision_model.encoder.layers.",
    f"{_TOWER}norm.": "model.vision_model.post_layernorm.",
    "aligner.layers.0.": "model.aligner.fc1.",
    "aligner.layers.2.": "model.aligner.hidden_layers.0.",
    "gen_embed.": "model.generation_embeddings.",
    "gen_aligner.layers.0.": "model.generation_aligner.fc1.",
    "gen_aligner.layers.2.": "model.generation_aligner.hidden_layers.0.",
    "gen_head.output_mlp_projector.": "model.generation_head.proj_out.",
    "gen_head.": "model.generation_head.",
    _VQ: "model.vqmodel.",
}
_INSIDE = {
    f"{_TOWER}blocks.": {
        **{".attn.proj.": ".self_attn.projection_layer.", ".attn.": ".self_attn."},
        **{".norm1.": ".layer_norm1.", ".norm2.": ".layer_norm2."},
    },
    _VQ: {
        **{"encoder.conv_blocks.": "encoder.down.", "decoder.conv_blocks.": "decoder.up.", ".res.": ".block."},
        **{".mid.0.": ".mid.block_1.", ".mid.1.": ".mid.attn_1.", ".mid.2.": ".mid.block_2."},
    },
}


def transformers_name(name: str) -> str:
    """transformers' name of a tensor; one that no Janus has stays as it is."""
    beginning = next(filter(name.startswith, _BEGINNINGS), "")
    rest = name.removeprefix(beginning)
    for theirs, ours in _INSIDE.get(beginning, {}).items():
        rest = rest.replace(theirs, ours)
    return _BEGINNINGS.get(beginning, "") + rest


class DeepSeekWeights(Weights):
    """The tensors by transformers' names: queries, keys and values apart, positions [P, D] in place of [1, P, D]."""

    def __init__(self, stored: Weights) -> None:
        super().__init__(())
        self.files = stored.files
        for name, weight in stored.items():
            translated = transformers_name(name)
            if ".qkv." in name:
                part = replace(weight, shape=(weight.shape[0] // 3, *weight.shape[1:]))
                self.update({translated.replace(".qkv.", f".{one}_proj."): part for one in "qkv"})
            elif not name.startswith(_UNREAD):
                self[translated] = replace(weight, shape=weight.shape[name.endswith(".pos_embed") :])

    def read(self, name: str) -> Tensor:
        value, stored = super().read(name), self[name]
        if ".qkv." in stored.name:
            value = value.chunk(3)["qkv".index(name.rpartition("_proj.")[0][-1])].clone()
        return value.reshape(stored.shape)


def transformers_config(values: Mapping[str, Any], folder: object) -> dict[str, Any]:
    """That of DeepSeek's config.json. Raises UserError: a key that is missing, or a name of a size that is unknown."""
    parts = ("vision", "aligner", "gen_vision", "gen_aligner", "gen_head")
    try:
        language = {key: value for key, value in values["language_config"].items() if not key.startswith("_")}
        vision, aligner, vq, gen_aligner, gen_head = (values[f"{part}_config"]["params"] for part in parts)
        tower, side = SIZES[vision["model_name"]], vision["image_size"]
        seen = {"image_size": side, "num_image_tokens": (side // tower["patch_size"]) ** 2}
        aligned = {"projection_dim": aligner["n_embed"], "depth": aligner["depth"]}
        codes = {"embed_dim": vq["n_embed"], "num_embeddings": vq["image_token_size"]}
        drawn = {"projection_dim": gen_aligner["n_embed"], "num_hidden_layers": gen_aligner["depth"]}
        return {
            "text_config": {**language, "model_type": "llama"},
            "vision_config": {**tower, **seen, **aligned},
            "vq_config": {
                **{**SIZES[values["gen_vision_config"]["cls"]], **codes, **drawn},
                "image_token_embed_dim": gen_head["n_embed"],
            },
            "tie_word_embeddings": language.get("tie_word_embeddings", False),
        }
    except (KeyError, TypeError, AttributeError) as error:
        hint = f"Copy it again. Known sizes: {', '.join(SIZES)}."
        what = f"{error} is missing or unknown" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{folder}: config.json is not that of a Janus: {what}", hint) from error


def load(folder: Path, weights: Weights, config: Any, dtype: torch.dtype) -> tuple[Any, Any, Any]:
    """transformers' module, tokenizer and image processor of a folder; `config`: transformers', of the folder."""
    from transformers import JanusForConditionalGeneration, PreTrainedTokenizerFast
    from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil

    # DeepSeek's is a LlamaTokenizerFast, which puts the first token before a text without being told.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True, add_bos_token=True)
    config.image_token_id = tokenizer.convert_tokens_to_ids(IMAGE) or 0  # the caller says that there is none
    state = {name: weights.read(name).to(dtype) for name in weights}
    janus = JanusForConditionalGeneration.from_pretrained(None, config=config, state_dict=state, dtype=dtype)
    values, _ = JanusImageProcessorPil.get_image_processor_dict(folder, local_files_only=True)
    side = values.get("image_size", config.vision_config.image_size)
    keys = {"do_normalize", "image_mean", "image_std", "min_size", "rescale_factor"} & values.keys()
    processor = JanusImageProcessorPil(size={"height": side, "width": side}, **{key: values[key] for key in keys})
    return janus, tokenizer, processor
