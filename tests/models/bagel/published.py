"""The tiny golden model as people get BAGEL: weights, autoencoder, JSON files and a tokenizer in one folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from uni_train.models.bagel.tokenizer import MARKERS

NAMES = ("ema.safetensors", "ae.safetensors", "llm_config.json", "vit_config.json")


def published(golden_folder: Path, folder: Path) -> Path:
    """Copy the golden model to `folder`, with a byte-level tokenizer whose markers have the golden ids."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        shutil.copyfile(golden_folder / name, folder / name)
    ids = json.loads((golden_folder / "tiny_config.json").read_text())["new_token_ids"]
    places = dict(
        zip(MARKERS, (ids[n] for n in ("bos_token_id", "eos_token_id", "start_of_image", "end_of_image")), strict=True)
    )
    byte_level(places).save(str(folder / "tokenizer.json"))
    return folder


def byte_level(places: dict[str, int]) -> Tokenizer:
    """A token a byte, unused ones up to the markers, and the markers at their places."""
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    first = min(places.values())
    assert len(vocabulary) <= first
    vocabulary |= {f"<unused{i}>": i for i in range(len(vocabulary), first)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(sorted(places, key=places.__getitem__))
    assert {marker: tokenizer.token_to_id(marker) for marker in places} == places
    return tokenizer
