"""Mapping questions of other people: rules read and followed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from uni_train.core.errors import UnreadableError

_KIND = r"(?i:(?:(?:the|a|an)\s+)?(?:symbol|letter|number|digit|character|sign|hashtag|numeral|mark|word|code)\s+)"
_QUOTED = r"""['"‘’“”`](?P<{q}>[^'"‘’“”`]+)['"‘’“”`]|['"](?P<{q}q>['"‘’“”`])['"]"""
_BARE = r"(?P<{q}b>[A-Za-z0-9]{{1,3}}|[^\w\s'\"‘’“”`]{{1,3}})"


def _term(name: str) -> str:
    quoted = _QUOTED.format(q=name)
    bare = _BARE.format(q=name)
    return rf"(?:{_KIND})?(?:{quoted}|{bare})(?:\s+(?:symbol|sign|character))?"


_LINK = (
    r"(?:is|are)\s+(?:(?:a|the)\s+(?:symbol|sign|code)\s+)?(?:[a-z]+ed\s+|tied\s+|bound\s+)?(?:to|for|with|by|as)"
    r"|(?:is|are)|[a-z]+s\s+(?:on)?(?:to|for|with|onto|as|by|the\s+same\s+as)|[a-z]+s|means|->|=>|→|⇒|↦|=|:"
)
_RULE = re.compile(
    rf"{_term('left')}\s*(?:\b|(?<=\W))(?P<link>{_LINK})(?:\s+|(?<=[>→⇒↦=:])\s*)(?P<right>.+)", re.DOTALL
)
_SYMBOL = re.compile(_term("name"))
_REQUEST = r"(?:please\s+)?(?:generate|draw|show|create|produce|paint|provide|make|render|depict|display|illustrate)\b"
_ASK = re.compile(
    _REQUEST + r"\s+"
    r"(?:(?:a|an|one)\s+(?:picture|image)\s+of\s+)?(?:(?:the|an|a)\s+)?(?P<category>[A-Za-z' -]*?)\s*"
    r"(?:(?:that\s+is\s+|which\s+is\s+)?(?:represented|denoted|symbolized|symbolised|signified|indicated|meant)\s+by"
    r"|associated\s+with|corresponding\s+to|linked\s+to|(?P<what>what|that|which))\s+(?P<asked>.+)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class MappingQuestion:
    """rules: (left, right, whether right is a symbol); asked: the symbol; category: what the question calls it."""

    rules: tuple[tuple[str, str, bool], ...]
    asked: str
    category: str


@dataclass(frozen=True, slots=True)
class Chain:
    """The way from the asked symbol: steps taken, and the object it ends in, or why it ends in none."""

    steps: tuple[str, ...]
    noun: str | None
    reason: str = ""


def _named(match: re.Match[str], name: str) -> str:
    groups = match.groupdict()
    return str(groups.get(name) or groups.get(f"{name}q") or groups.get(f"{name}b"))


def _clauses(text: str) -> list[str]:
    """Rules one by one: by "Rule 3:" where they are numbered, else by sentence."""
    text = re.sub(r"\s+", " ", text).strip()
    if re.search(r"\bRule\s*\d+\s*[:.]", text, re.IGNORECASE):
        parts = re.split(r"\bRule\s*\d+\s*[:.]\s*", text, flags=re.IGNORECASE)
    else:
        parts = re.split(r"\s?\.(?:\s|$)|;\s*|,\s+(?:and\s+)?(?=(?:the\s+)?(?:symbol|letter|number)\s)", text)
    return [part for part in (_without_stop(part.strip()) for part in parts) if part]


def _without_stop(text: str) -> str:
    """Without the full stop of the sentence (exactly one: a dot may be a symbol)."""
    return text[:-1].rstrip() if text.endswith(".") and len(text) > 1 else text


def read_mapping(question: str) -> MappingQuestion:
    """Rules and asked symbol of a mapping question. UnreadableError for a rule or request that is not understood."""
    text = re.sub(r"\s+", " ", question).strip()
    start = None
    for request in re.finditer(rf"(?:^|[.\s])({_REQUEST})", text, re.IGNORECASE):
        start = request.start(1)
    if start is None:
        raise UnreadableError('nothing is asked for: there is no "Generate the object represented by ..."')
    ask = _ASK.fullmatch(_without_stop(text[start:].strip()))
    if ask is None:
        raise UnreadableError(f'"{text[start:]}" asks for no symbol\'s meaning in a way known here')
    symbol_text = ask.group("asked").strip()
    if ask.group("what"):
        symbol_text = re.sub(
            r"\s+(?:means|represents|denotes|stands\s+for|refers\s+to|corresponds\s+to|is)$", "", symbol_text
        )
    symbol = _SYMBOL.fullmatch(symbol_text)
    if symbol is None:
        raise UnreadableError(f'"{symbol_text}" is no symbol')
    rules: list[tuple[str, str, bool]] = []
    for clause in _clauses(text[:start]):
        rules += _read_rule(clause)
    if not rules:
        raise UnreadableError("there are no rules before the request")
    lefts = {left for left, _, _ in rules}
    rules = [(left, right, is_symbol or right in lefts) for left, right, is_symbol in rules]
    return MappingQuestion(tuple(rules), _named(symbol, "name"), ask.group("category").strip().lower())


def _read_rule(clause: str) -> list[tuple[str, str, bool]]:
    match = _RULE.fullmatch(clause)
    if match is None:
        raise UnreadableError(f'"{clause}" is no rule such as "the symbol @ represents apples"')
    left, right = _named(match, "left"), match.group("right").strip()
    # "'Q' stands for the number 8, which means skateboard": two rules in one sentence
    inner = re.fullmatch(r"(.+?),?\s+(?:which|that)\s+(?:in\s+turn\s+)?(.+)", right)
    if inner is not None and (middle := _SYMBOL.fullmatch(inner.group(1))):
        name = _named(middle, "name")
        return [(left, name, True), *_read_rule(f"'{name}' {inner.group(2)}")]
    if symbol := _SYMBOL.fullmatch(right):
        name = _named(symbol, "name")
        # a bare three-letter word is a thing (cat, pen), a bare letter, number or sign a symbol
        if not (right == name and len(name) > 1 and name.isalpha() and not name.isupper()):
            return [(left, name, True)]
    noun = re.sub(r"^(?:a|an|the|some)\s+", "", right, flags=re.IGNORECASE).strip("'\"")
    return [(left, noun, False)]


def follow(question: MappingQuestion) -> list[Chain]:
    """Every way from the asked symbol along the rules; more than one only if a symbol has two meanings."""
    chains: list[Chain] = []

    def walk(symbol: str, steps: tuple[str, ...]) -> None:
        rights = list(dict.fromkeys((right, linked) for left, right, linked in question.rules if left == symbol))
        if symbol in steps:
            chains.append(Chain((*steps, symbol), None, f"{' -> '.join((*steps, symbol))} goes in a circle"))
        elif not rights:
            path = " -> ".join((*steps, symbol))
            chains.append(Chain((*steps, symbol), None, f"{path} ends there: no rule says what {symbol} means"))
        for right, linked in rights if symbol not in steps else ():
            if linked:
                walk(right, (*steps, symbol))
            else:
                chains.append(Chain((*steps, symbol, right), right))

    walk(question.asked, ())
    return chains
