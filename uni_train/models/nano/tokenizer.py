"""nano's tokenizer: one token a word or punctuation mark. It knows nano's world alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from uni_train.core.errors import UserError
from uni_train.models.bagel.config import SpecialTokens

SPECIAL = ("<pad>", "<bos>", "<eos>", "<start_of_image>", "<end_of_image>")
_CHUNK = re.compile(r"\n|[^\s]+")
_PIECE = re.compile(r"<\w+>|\w+|[^\w\s]")  # <eos> stays whole, so that the error about it names it


class WordTokenizer:
    """Splits at blanks, and around punctuation where the whole is no word: "tree." is "tree" and ".".

    A line break is a word of its own.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = (*SPECIAL, *words)
        # Markers have no word: a prompt cannot end its own text.
        self.ids = {word: index for index, word in enumerate(self.words) if index >= len(SPECIAL)}
        self.pad_id, *markers = range(len(SPECIAL))
        self.tokens = SpecialTokens(*markers)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without markers.

        Raises:
            UserError: a word outside the vocabulary; it is named, with the nearest known ones.
        """
        try:
            return [self.ids[word] for chunk in _CHUNK.findall(text) for word in self._split(chunk)]
        except KeyError as error:
            word = error.args[0]
            near = difflib.get_close_matches(word, self.ids, n=3)
            hint = f"nearest: {', '.join(near)}" if near else "write it in the words of `data make --world nano`"
            raise UserError(f"nano does not know the word {word!r} in {text[:120]!r}", hint=hint) from None

    def _split(self, chunk: str) -> list[str]:
        return [chunk] if chunk in self.ids else _PIECE.findall(chunk)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; markers are left out."""
        return " ".join(self.words[index] for index in ids if index >= len(SPECIAL)).replace(" \n ", "\n")
