"""The tokenizer of a BAGEL folder: Qwen2's byte-level BPE, and the four markers.

Read with the `tokenizers` library alone (importing transformers takes seconds, and this is all that would be used of
it): `tokenizer.json` where there is one, else `vocab.json` and `merges.txt`, with the added tokens of
`tokenizer_config.json`. A marker that the files lack gets the next free id, as in the released loader. The order is
bos, eos, start of image, end of image.

Unlike there, a marker written inside a text is text: nobody ends a prompt by typing `<|im_end|>` into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import read_json
from uni_train.models.bagel.config import SpecialTokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MARKERS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
)
"""What a folder may hold about its tokenizer; an export carries these along."""

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where Qwen2 cuts a text before BPE."""


class QwenTokenizer:
    """Text to ids and back, without markers.

    Attributes:
        tokens: the ids of the markers.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        from tokenizers import AddedToken

        missing = [marker for marker in MARKERS if tokenizer.token_to_id(marker) is None]
        tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in missing])
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab()
        self.tokens = SpecialTokens(*(ids[marker] for marker in MARKERS))

    def __len__(self) -> int:
        """One more than the largest id."""
        return max(self._tokenizer.get_vocab().values()) + 1

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; nothing is put around it."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; markers and other special tokens are left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def read_tokenizer(folder: Path) -> QwenTokenizer:
    """The tokenizer of a folder.

    Raises:
        UserError: the folder holds none, or a damaged one.
    """
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    try:
        if file.is_file():
            return QwenTokenizer(Tokenizer.from_file(str(file)))
        file = folder / "vocab.json"
        if file.is_file() and (folder / "merges.txt").is_file():
            return QwenTokenizer(_from_vocabulary(folder))
    except UserError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{file} is damaged ({error})", "Copy it again.") from error
    raise UserError(
        f"{folder} holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt",
        "Copy these files from the folder of BAGEL-7B-MoT: its descendants have the same ones.",
    )


def has_tokenizer(folder: Path) -> bool:
    """Whether `read_tokenizer` would find files in a folder."""
    return (folder / "tokenizer.json").is_file() or all((folder / name).is_file() for name in FILES[2:4])


def _from_vocabulary(folder: Path) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, folder / "tokenizer_config.json")
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, file: Path) -> None:
    """The added tokens that a `tokenizer_config.json` lists, each under its own id."""
    from tokenizers import AddedToken

    if not file.is_file():
        return
    try:
        added: dict[str, Any] = read_json(file).get("added_tokens_decoder", {})
        for key in sorted(added, key=int):
            content = str(added[key]["content"])
            token = AddedToken(content, special=bool(added[key].get("special")), normalized=False)
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
            if tokenizer.token_to_id(content) != int(key):
                raise UserError(f"{file} gives {content} the id {key}, which the vocabulary does not leave free")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged ({error})", "Copy it again.") from error
