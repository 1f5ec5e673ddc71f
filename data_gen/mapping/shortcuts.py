"""Trivial strategies for mapping: answers from where objects stand in a prompt, without following its rules.

They read prompts of both worlds and the published ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from uni_train.core.errors import UnreadableError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.mapping.reading import MappingQuestion, follow, read_mapping
from uni_train.data_gen.task import Strategy


@dataclass(frozen=True, slots=True)
class _Rules:
    """mentions: (place, name, whether it is an object) in the rules, in order; ends: objects of the longest chains."""

    asked: str
    mentions: tuple[tuple[int, str, bool], ...]
    ends: tuple[str, ...]
    links: int

    @property
    def nouns(self) -> list[str]:
        return [name for _, name, noun in self.mentions if noun]

    def nouns_after(self, among: Sequence[str] | None = None) -> list[str]:
        """Objects named after the first mention of the asked symbol."""
        places = [place for place, name, noun in self.mentions if not noun and name == self.asked]
        return [
            name
            for place, name, noun in self.mentions
            if noun and places and place > places[0] and (among is None or name in among)
        ]


@lru_cache(maxsize=4096)
def _rules(text: str) -> _Rules | None:
    try:
        question = read_mapping(text)
    except UnreadableError:
        return None
    nouns = dict.fromkeys(right for _, right, linked in question.rules if not linked)
    symbols = dict.fromkeys(name for left, right, linked in question.rules for name in (left, *([right] * linked)))
    # The number of a rule ("Rule 3:") is no symbol, and the request is no rule.
    stated = re.sub(r"\bRule\s*\d+\s*[:.]", lambda match: " " * len(match.group()), text, flags=re.IGNORECASE)
    mentions = sorted(
        (match.start(), name, name in nouns)
        for name in (*nouns, *symbols)
        for match in re.finditer(_whole(name), stated)
    )
    request = [place for place, name, _ in mentions if name == question.asked]
    mentions = [mention for mention in mentions if not request or mention[0] < request[-1]]
    depth = {noun: _depth(question, noun) for noun in nouns}
    ends = tuple(noun for noun in nouns if depth[noun] == max(depth.values()))
    links = max((len(chain.steps) - 1 for chain in follow(question)), default=0)
    return _Rules(question.asked, tuple(mentions), ends, links)


def _whole(name: str) -> str:
    """`name` as a whole word; a sign between spaces, quotes or stops."""
    if name[:1].isalnum():
        return rf"(?<!\w){re.escape(name)}(?!\w)"
    return rf"""(?<![^\s'"‘’“”`]){re.escape(name)}(?![^\s'"‘’“”`.,;:])"""


def _depth(question: MappingQuestion, noun: str) -> int:
    """Links of the longest chain that ends in `noun`."""
    above = [left for left, right, _ in question.rules if right == noun]
    seen: set[str] = set()
    depth = 0
    while above:
        depth += 1
        seen.update(above)
        above = [left for left, right, _ in question.rules if right in above and left not in seen]
    return depth


def _noun(pick: Callable[[_Rules], str | None]) -> Callable[[str], str | None]:
    def answer(text: str) -> str | None:
        rules = _rules(text)
        return pick(rules) if rules is not None and rules.nouns else None

    return answer


def _first(nouns: Sequence[str]) -> str | None:
    return nouns[0] if nouns else None


def _last(nouns: Sequence[str]) -> str | None:
    return nouns[-1] if nouns else None


def _before(rules: _Rules) -> str | None:
    places = [place for place, name, noun in rules.mentions if not noun and name == rules.asked]
    return _last([name for place, name, noun in rules.mentions if noun and places and place < places[0]])


def _nearest(rules: _Rules) -> str | None:
    """By distance in the text, from the last rule that names the asked symbol."""
    places = [place for place, name, noun in rules.mentions if not noun and name == rules.asked]
    distances = [(abs(place - places[-1]), name) for place, name, noun in rules.mentions if noun and places]
    return min(distances)[1] if distances else None


def _coin(text: str) -> str | None:
    """One of the chain ends, by a hash of the prompt: chance, measured."""
    rules = _rules(text)
    if rules is None or not rules.ends:
        return None
    return rules.ends[derive_seed("coin", text) % len(rules.ends)]


def _links(text: str) -> int | None:
    rules = _rules(text)
    return None if rules is None else rules.links


STRATEGIES = (
    Strategy("first noun after the symbol", _noun(lambda rules: _first(rules.nouns_after())), _links),
    Strategy("last noun after the symbol", _noun(lambda rules: _last(rules.nouns_after()))),
    Strategy("next chain end", _noun(lambda rules: _first([*rules.nouns_after(rules.ends), *rules.ends])), _links),
    Strategy("last noun before the symbol", _noun(_before)),
    Strategy("noun nearest to the symbol", _noun(_nearest), _links),
    Strategy("first noun", _noun(lambda rules: _first(rules.nouns))),
    Strategy("last noun", _noun(lambda rules: _last(rules.nouns))),  # of the rule nearest to the question
    Strategy("coin between chain ends", _coin),
)
