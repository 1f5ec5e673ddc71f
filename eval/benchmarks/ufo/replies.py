"""Reading answers: the letter of a choice, or the words of an open answer. Ours; the paper has no rule for either."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

_MARKED = re.compile(r"\bfinal\s+answer\b\W+(?:is\b\W*)?|\banswer\b[^\w\n]*(?:is\b|:|\n)\W*", re.IGNORECASE)
_END = r"\W*$|[^\w\s]+(?:\s|$)|\s*\n|\s+(?:[-–—:=(]|(?:because|since|as|or|and)\b)"  # no word, such as in "A cup"
_NAME = rf"(?:option\s+|choice\s+)?([A-D])(?=_*(?:{_END}))"
_LETTER = re.compile(rf"[\W_]*{_NAME}", re.IGNORECASE)
_ANOTHER = re.compile(rf"[\W_]*?(?:\b(?:or|and)\b|[,/&+])[\W_]*{_NAME}", re.IGNORECASE)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_CAPTION = re.compile(r"caption\s*:\s*", re.IGNORECASE)


def choice(reply: str, choices: Mapping[str, str | None]) -> str | None:
    """The letter that a reply chooses; None where it chooses none, or leaves open which.

    Read is what follows the last "Answer:" or "answer is" that chooses, else the whole reply: a letter, alone or before
    its text or a reason ("(B)", "B: a cup", "B because ..."), or the very words of exactly one choice, alone or on the
    first line. choices: letter -> its text, None where it is an image.
    """
    text = _THOUGHT.sub("", reply).strip()
    for start in [*reversed([marked.end() for marked in _MARKED.finditer(text)]), 0]:
        words = _uncaptioned(text[start:])
        match = _LETTER.match(words)
        if match is not None and (letter := match[1].upper()) in choices:
            rest = words[match.end(1) :]
            own = re.match(rf"[\W_]*{re.escape(choices[letter] or '')}", rest, re.IGNORECASE)
            others = [one[1].upper() for at in (rest, rest[own.end() :] if own else "") if (one := _ANOTHER.match(at))]
            return None if {*others} - {letter} else letter
        plain = {normalised(words), normalised(words.partition("\n")[0])} - {""}
        same = [letter for letter, choice in choices.items() if choice is not None and normalised(choice) in plain]
        if len(same) == 1:
            return same[0]
    return None


def open_answer(reply: str) -> str:
    """The words that are compared with the reference: what follows the last "Answer:", else the whole reply."""
    text = _THOUGHT.sub("", reply).strip()
    marked = list(_MARKED.finditer(text))
    return _uncaptioned((text[marked[-1].end() :].strip() if marked else "") or text)


def same(reply: str, answer: str) -> bool:
    """Whether an open answer is the reference word for word, but for case, articles and punctuation around words."""
    return bool(normalised(reply)) and normalised(open_answer(reply)) == normalised(answer)


def normalised(text: str) -> str:
    """Lower case, one blank between words, no article in front, no punctuation at the ends of words."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = [word.strip(".,;:!?\"'`*()[]{}") for word in plain.split()]
    words = [word for word in words if word]
    return " ".join(words[1:] if words[:1] and words[0] in ("a", "an", "the") and len(words) > 1 else words)


def _uncaptioned(text: str) -> str:
    return _CAPTION.sub("", text, count=1).strip() if _CAPTION.match(text) else text
