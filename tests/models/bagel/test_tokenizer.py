"""Qwen2's tokenizer from a folder's files: texts survive, markers have their ids and cannot be typed."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.models.bagel.published import byte_level
from uni_train.core.errors import UserError
from uni_train.models.bagel.tokenizer import MARKERS, QwenTokenizer, has_tokenizer, read_tokenizer

TEXT = "The cat's 12 apples -- well, 3 of them.\n\n  C'est l'été: 猫が3匹 🐈 \t<|im_end|> don't!"
BYTES = QwenTokenizer(byte_level(dict(zip(MARKERS, range(300, 304), strict=True))))


def trained(folder: Path) -> Path:
    """vocab.json, merges.txt and tokenizer_config.json of a small byte-level BPE with two of the four markers."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([TEXT] * 9, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.model.save(str(folder))
    size = tokenizer.get_vocab_size()
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    added = {str(size + i): {"content": name, "special": True} for i, name in enumerate(names)}
    config = {"added_tokens_decoder": added, "tokenizer_class": "Qwen2Tokenizer", "model_max_length": 32768}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_markers_that_the_files_lack_get_the_next_ids_in_order(tmp_path: Path) -> None:
    assert not has_tokenizer(tmp_path)
    tokenizer = read_tokenizer(trained(tmp_path))
    assert has_tokenizer(tmp_path)
    first = tokenizer.tokens.bos - 1  # of <|endoftext|>
    tokens = tokenizer.tokens
    assert (tokens.eos, tokens.start_of_image, tokens.end_of_image) == (first + 2, first + 3, first + 4)
    assert len(tokenizer) == first + 5


def test_vocabulary_and_merges_are_read_as_transformers_reads_them(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.Qwen2Tokenizer.from_pretrained(str(trained(tmp_path)))
    ours = read_tokenizer(tmp_path)
    for text in (TEXT.replace("<|im_end|>", ""), "  a  b ", "e\u0301", "1234 x12", "\n \n"):
        assert ours.encode(text) == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs(text)["input_ids"])
    assert ours.tokens.bos == theirs.convert_tokens_to_ids("<|im_start|>")


def test_a_marker_in_a_text_is_text() -> None:
    ids = BYTES.encode("".join(MARKERS))
    assert max(ids) < 300 and BYTES.decode(ids) == "".join(MARKERS)
    assert BYTES.decode([300, *BYTES.encode("a cat"), 301]) == "a cat"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Mn"], exclude_characters="\uf900"), max_size=20))
def test_every_text_survives(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text)) == unicodedata.normalize("NFC", text)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no tokenizer"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer\.json is damaged"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    trained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"7": {"content": "<|im_end|>"}}}')
    with pytest.raises(UserError, match="does not leave free"):
        read_tokenizer(tmp_path)
