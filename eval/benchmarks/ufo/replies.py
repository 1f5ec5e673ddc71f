"""Reading answers: the letter of a choice, or the words of an open answer. Ours; the paper has no rule for either."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_MARKED = re.compile(r"\b(?:final\s+)?answer\b\W*(?:is\b)?\s*[:\s]\W*", re.IGNORECASE)
_LETTER = re.compile(r"[\W_]*(?:option\s+|choice\s+)?([A-D])(?:[\W_]*|[).:,]\s.*)", re.IGNORECASE | re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_CAPTION = re.compile(r"caption\s*:\s*", re.IGNORECASE)


def choice(reply: str, choices: Mapping[str, str | None]) -> str | None:
    """The letter that a reply chooses; None where it chooses none, or leaves open which.

    Read is what follows the last "Answer:", else the whole reply: a letter, alone or before its text ("(B)", "B: a
    cup"), or the very words of exactly one choice. choices: letter -> its text, None where it is an image.
    """
    said = _said(reply)
    found = _LETTER.fullmatch(said)
    if found is not None and found[1].upper() in choices:
        return found[1].upper()
    plain = normalised(said)
    same = [letter for letter, text in choices.items() if text is not None and normalised(text) == plain]
    return same[0] if len(same) == 1 and plain else None


def open_answer(reply: str) -> str:
    """The words that are compared with the reference: what follows the last "Answer:", else the whole reply."""
    return _said(reply)


def same(reply: str, answer: str) -> bool:
    """Whether an open answer is the reference word for word, but for case, articles and punctuation around words."""
    return bool(normalised(reply)) and normalised(_said(reply)) == normalised(answer)


def normalised(text: str) -> str:
    """Lower case, one blank between words, no article in front, no punctuation at the ends of words."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = [word.strip(".,;:!?\"'`*()[]{}") for word in plain.split()]
    words = [word for word in words if word]
    return " ".join(words[1:] if words[:1] and words[0] in ("a", "an", "the") and len(words) > 1 else words)


def _said(reply: str) -> str:
    text = _THOUGHT.sub("", reply).strip()
    marked = list(_MARKED.finditer(text))
    rest = text[marked[-1].end() :].strip() if marked else ""
    return _CAPTION.sub("", rest or text, count=1).strip() if _CAPTION.match(rest or text) else rest or text
