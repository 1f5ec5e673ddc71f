"""nano's tokenizer: one token a word. The vocabulary is the nano world's, so nothing else can be said to it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from uni_train.errors import UserError

SPECIAL = ("<pad>", "<bos>", "<eos>", "<start_of_image>", "<end_of_image>")
_PIECE = re.compile(r"\n|[^\s]+")


class WordTokenizer:
    """Splits at blanks; a line break is a word of its own."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = (*SPECIAL, *words)
        # Markers have no word: a prompt cannot end its own text.
        self.ids = {word: index for index, word in enumerate(self.words) if index >= len(SPECIAL)}
        self.pad_id, self.bos_id, self.eos_id, self.start_of_image_id, self.end_of_image_id = range(len(SPECIAL))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without markers.

        Raises:
            UserError: a word outside the vocabulary; it is named, with the nearest known ones.
        """
        try:
            return [self.ids[word] for word in _PIECE.findall(text)]
        except KeyError as error:
            word = error.args[0]
            near = difflib.get_close_matches(word, self.ids, n=3)
            hint = f"nearest: {', '.join(near)}" if near else "write it in the words of `data make --world nano`"
            raise UserError(f"nano does not know the word {word!r} in {text[:120]!r}", hint=hint) from None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; markers are left out."""
        return " ".join(self.words[index] for index in ids if index >= len(SPECIAL)).replace(" \n ", "\n")
