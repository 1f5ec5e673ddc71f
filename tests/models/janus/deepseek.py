"""A Janus written in DeepSeek's own layout, by the attributes of transformers' modules and the names of DeepSeek's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import pre_tokenizers, processors
from torch import Tensor, nn

from tests.models.janus.tiny import SIDE, tokenizer
from uni_train.models.janus.unified import Janus

TOWER, CODES = "siglip_tiny_patch8_32", "VQ-8"
SIZES = {
    TOWER: {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 4.0, "patch_size": 8},
    CODES: {"base_channels": 32, "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1, "latent_channels": 32},
}
"""What the tiny model's names stand for: DeepSeek's are of full size alone."""


def state(janus: Any) -> dict[str, Tensor]:
    """Tensors as MultiModalityCausalLM of deepseek-ai/Janus names and shapes them."""
    inner, stored = janus.model, {"language_model.lm_head.weight": janus.lm_head.weight}
    tower, vq = inner.vision_model, inner.vqmodel

    def put(**modules: nn.Module) -> None:
        for name, module in modules.items():
            prefix = name.replace("__", ".")
            stored.update({f"{prefix}.{key}": value for key, value in module.state_dict(keep_vars=True).items()})

    def levels(name: str, blocks: Any, resampled: str) -> None:
        for i, block in enumerate(blocks):
            put(**{f"{name}__{i}__res": block.block, f"{name}__{i}__attn": block.attn})
            if hasattr(block, resampled):
                put(**{f"{name}__{i}__{resampled}": getattr(block, resampled)})

    put(language_model__model=inner.language_model, gen_embed=inner.generation_embeddings)
    for name, mlp in (("aligner", inner.aligner), ("gen_aligner", inner.generation_aligner)):
        put(**{f"{name}__layers__0": mlp.fc1, f"{name}__layers__2": mlp.hidden_layers[0]})
    head = inner.generation_head
    put(gen_head__output_mlp_projector=head.proj_out, gen_head__vision_head=head.vision_head)

    width = tower.post_layernorm.weight.shape[0]
    put(vision_model__vision_tower__norm=tower.post_layernorm)
    put(vision_model__vision_tower__patch_embed__proj=tower.embeddings.patch_embedding)
    stored["vision_model.vision_tower.pos_embed"] = tower.embeddings.position_embedding.weight[None]
    for i, layer in enumerate(tower.encoder.layers):
        block, attention = f"vision_model__vision_tower__blocks__{i}", layer.self_attn
        put(**{f"{block}__norm1": layer.layer_norm1, f"{block}__norm2": layer.layer_norm2})
        put(**{f"{block}__attn__proj": attention.projection_layer})
        put(**{f"{block}__mlp__fc1": layer.mlp.fc1, f"{block}__mlp__fc2": layer.mlp.fc2})
        for kind in ("weight", "bias"):
            three = [getattr(part, kind) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
            stored[f"{block.replace('__', '.')}.attn.qkv.{kind}"] = torch.cat(three)
    stored["vision_model.vision_tower.attn_pool.latent"] = torch.zeros(1, 1, width)
    rows = {"q": width, "kv": 2 * width, "proj": width, "norm": 0, "mlp.fc1": 4 * width, "mlp.fc2": width}
    for name, out in rows.items():
        pool = f"vision_model__vision_tower__attn_pool__{name.replace('.', '__')}"
        columns = 4 * width if name == "mlp.fc2" else width
        put(**{pool: nn.Linear(columns, out) if out else nn.LayerNorm(width)})

    levels("gen_vision_model__encoder__conv_blocks", vq.encoder.down, "downsample")
    levels("gen_vision_model__decoder__conv_blocks", vq.decoder.up, "upsample")
    for name, coder in (("encoder", vq.encoder), ("decoder", vq.decoder)):
        prefix = f"gen_vision_model__{name}__"
        put(**{f"{prefix}{part}": getattr(coder, part) for part in ("conv_in", "norm_out", "conv_out")})
        for i, part in enumerate(("block_1", "attn_1", "block_2")):
            put(**{f"{prefix}mid__{i}": getattr(coder.mid, part)})
    put(gen_vision_model__quant_conv=vq.quant_conv, gen_vision_model__post_quant_conv=vq.post_quant_conv)
    put(gen_vision_model__quantize__embedding=vq.quantize.embedding)
    stored["gen_vision_model.quantize.codebook_used"] = torch.zeros(65_536)
    return stored


def sizes(janus: Any, tower: str, codes: str, **language: int) -> dict[str, Any]:
    """DeepSeek's config.json."""
    width, patch = janus.lm_head.weight.shape[1], janus.model.vision_model.post_layernorm.weight.shape[0]
    entries, numbers = janus.model.generation_embeddings.weight.shape
    mlp = {"depth": 2, "n_embed": width, "projector_type": "mlp_gelu"}
    parts = {
        "vision": (
            "CLIPVisionTower",
            {"image_size": janus.config.vision_config.image_size, "model_name": tower, "select_layer": -1},
        ),
        "aligner": ("MlpProjector", {**mlp, "input_dim": patch}),
        "gen_vision": (codes, {"image_token_size": entries, "n_embed": numbers}),
        "gen_aligner": ("MlpProjector", {**mlp, "input_dim": numbers}),
        "gen_head": (
            "vision_head",
            {"image_token_embed": width, "image_token_size": entries, "n_embed": width},
        ),
    }
    return {
        "model_type": "multi_modality",
        "architectures": ["MultiModalityCausalLM"],
        **{
            f"{part}_config": {"cls": cls, "model_type": part, "params": values}
            for part, (cls, values) in parts.items()
        },
        "language_config": {"model_type": "llama", "_attn_implementation": "flash_attention_2", **language},
    }


def published(folder: Path, model: Janus) -> Path:
    """A tiny model's folder as VLChatProcessor and MultiModalityCausalLM save it, in two shards."""
    folder.mkdir()
    tensors = {name: value.detach().clone() for name, value in state(model.janus).items()}
    names = sorted(tensors)
    shards = {f"model-{i + 1:05d}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    language = model.janus.config.text_config
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    values = sizes(model.janus, TOWER, CODES, **{key: getattr(language, key) for key in keys})
    (folder / "config.json").write_text(json.dumps(values))
    words = tokenizer()
    words._tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)  # of DeepSeek's tokenizer.json
    words._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.save_pretrained(folder)
    saved = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**saved, "tokenizer_class": "LlamaTokenizerFast"}))
    processor = model.image_processor
    (folder / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_processor_type": "VLMImageProcessor",
                "processor_class": "VLChatProcessor",
                "background_color": [127, 127, 127],
                "image_size": SIDE,
                "min_size": processor.min_size,
                "do_normalize": True,
                "rescale_factor": 1 / 255,
                "image_mean": [0.5, 0.5, 0.5],
                "image_std": [0.5, 0.5, 0.5],
            }
        )
    )
    return folder
