"""A Janus small enough for a test: every part of the real one, random weights, a tokenizer of letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from uni_train.models.janus.unified import BEGIN, END, IMAGE

SIDE = 32
"""Pixels a side: four image tokens of eight pixels each way."""
MARKERS = ("<s>", "</s>", "<pad>", IMAGE, BEGIN, END)


def tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    letters = [one for one in sorted(pre_tokenizers.ByteLevel.alphabet()) if one.isascii() or one in "ĠĊ"]
    vocabulary = {letter: i for i, letter in enumerate(letters)}  # no halves of letters, so that all it says is read
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(MARKERS))
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def published(folder: Path, seed: int = 0) -> Path:
    """A folder such as people download."""
    from transformers import JanusConfig, JanusForConditionalGeneration
    from transformers.models.janus.image_processing_pil_janus import JanusImageProcessorPil

    words = tokenizer()
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {f"{name}_token_id": getattr(words, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    text = {"model_type": "llama", "intermediate_size": 64, "num_key_value_heads": 2, "vocab_size": len(words)}
    vision = {"patch_size": 8, "image_size": SIDE, "num_image_tokens": (SIDE // 8) ** 2, "projection_dim": 32}
    config = JanusConfig(
        text_config=sizes | text | ids,
        vision_config=sizes | vision,
        vq_config={
            **{"embed_dim": 8, "num_embeddings": 64, "latent_channels": 32, "base_channels": 32},
            **{"channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1, "projection_dim": 32},
            "image_token_embed_dim": 32,
        },
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        tie_word_embeddings=False,
    )
    janus = JanusForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in janus.parameters():
            if parameter.dim() == 2:
                parameter.mul_(8)  # or noise alone would choose its tokens
    janus.save_pretrained(folder)
    words.save_pretrained(folder)
    JanusImageProcessorPil(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    return folder
