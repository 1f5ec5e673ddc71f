"""Symbol mapping (UniSandbox section 3.1.2): "@ means 7 . 7 means apple . ... Draw what @ means ."

Two chains of one, two or three links each lead from a symbol to an object. A pair asks for both objects under the same
rules: always naming the same one of the two never solves a pair. Rules are in random order, as in the published sets.
In chain order, "the first noun after the asked symbol" would solve every question. All questions about the chains of a
pair belong to one split.
"""

from __future__ import annotations

import random
from collections.abc import Mapping as Facts
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import DataError
from uni_train.core.seeds import digest, rng
from uni_train.data_gen import phrasing
from uni_train.data_gen.mapping.prompts import FILTER
from uni_train.data_gen.mapping.shortcuts import STRATEGIES
from uni_train.data_gen.objects import Noun
from uni_train.data_gen.registry import scoring_beside, task
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.sprite_task import SpriteTask
from uni_train.data_gen.task import Item, Question, Task

if TYPE_CHECKING:
    from uni_train.data_gen.findings import AuditRow

SAME_CATEGORY = 0.4  # share of everyday pairs whose objects share a category, so that the prompt can ask for it
MAX_DISTRACTORS = 6


@task("mapping")
@dataclass(frozen=True)
class Mapping(SpriteTask):
    """Draw what a symbol means, by a chain of rules.

    distractors: the most extra rules of a prompt, about symbols that nobody asks for; their number is drawn from 0 up.
        The other chain of the pair is always there.
    shuffle: rules in random order; otherwise each chain is stated from its symbol to its object.
    """

    name = "mapping"
    title = "Symbolic mapping"
    levels = (1, 2, 3)
    items_per_draw = 2
    sets, variants, chance = scoring_beside(__file__)
    short = "M"
    guess = "picking one of the two"
    filter_question = FILTER
    strategies = STRATEGIES
    most_frequent = "most frequent noun"
    published = ("mapping1.jsonl", "mapping2.jsonl", "mapping3.jsonl")

    distractors: int = 2
    shuffle: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.distractors <= MAX_DISTRACTORS:
            raise DataError(f"distractors is {self.distractors}: choose 0 to {MAX_DISTRACTORS}")

    def configured(self, data: Facts[str, Any]) -> Task:
        return replace(self, distractors=data["distractors"], shuffle=data["rule_order"] == "random")

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """The two questions A and B of one set of rules with `level` links a chain."""
        self.check(level, split)
        world = self.world
        random_ = rng("mapping", world.name, level, split, seed, self.distractors, int(self.shuffle))
        while True:  # each draw falls into the split with a chance of at least one in ten
            distractors = random_.randint(0, self.distractors)
            nouns = self._draw_nouns(random_, distractors)
            symbols = random_.sample(world.symbols, 2 * level + distractors)
            chains = [symbols[:level], symbols[level : 2 * level]]
            links: list[tuple[str, str | Noun]] = []
            for chain, noun in zip(chains, nouns, strict=False):
                links += zip(chain, [*chain[1:], noun], strict=True)
            canonical = "; ".join(sorted(f"{left}>{_key(right)}" for left, right in links))
            if split_of(self.name, canonical) == split:
                break
        rules = list(links)
        for symbol, noun in zip(symbols[2 * level :], nouns[2:], strict=True):
            rules.insert(random_.randint(0, len(rules)), (symbol, noun))
        if self.shuffle:
            random_.shuffle(rules)
        links_said = phrasing.NANO_LINKS if world.terse else phrasing.LINKS if level > 1 else ("represents",)
        verbs = [random_.choice(links_said) for _ in rules]
        asking = phrasing.meaning_template(random_)
        stated = {left: phrasing.state_rule(world, left, right, verb)
                  for (left, right), verb in zip(rules, verbs, strict=True)}  # fmt: skip
        same = nouns[0].category == nouns[1].category
        category = nouns[0].category if same else "object"
        pair = f"mapping{level}/{split}/{digest(*stated.values())}"
        return tuple(
            Item(
                id=f"{pair}/{which}",
                task=self.name,
                level=level,
                split=split,
                prompt=phrasing.ask_meaning(world, list(stated.values()), chain[0], category, asking),
                answer=noun.singular if world.terse else noun.plural.capitalize(),
                facts={
                    "world": world.name,
                    "object": noun.singular,
                    "plural": noun.plural,
                    "count": 1,
                    "symbol": chain[0],
                    "chain": [*chain, noun.singular],
                    "rules": [[left, _key(right)] for left, right in rules],
                    "other": other.singular,
                    "canonical": canonical,
                },
                thought=phrasing.conclude_meaning(world, [stated[symbol] for symbol in chain], noun),
                pair=pair,
            )
            for which, chain, noun, other in zip("AB", chains, nouns, (nouns[1], nouns[0]), strict=False)
        )

    def _draw_nouns(self, random_: random.Random, distractors: int) -> list[Noun]:
        """The objects of the two chains, then those of the distractors, all different."""
        nouns = self.world.nouns
        if not self.world.terse and random_.random() < SAME_CATEGORY:
            first = random_.choice(nouns)
            second = random_.choice([n for n in nouns if n.category == first.category and n != first])
            rest = [n for n in nouns if n not in (first, second)]
            return [first, second, *random_.sample(rest, distractors)]
        return random_.sample(nouns, 2 + distractors)

    def question(self, item: Item) -> Question:
        return Question("mapping", item.prompt, item.answer, item.pair or item.id, str(item.facts["canonical"]))

    def audit(self, items: Sequence[Item]) -> list[AuditRow]:
        from uni_train.data_gen.jsonl import MappingRow
        from uni_train.data_gen.mapping.audit import audit_pairs

        rows = (MappingRow(item.pair or item.id, item.id[-1], item.prompt, item.answer, 0) for item in items)
        return audit_pairs(rows)

    def publish(self, folder: Path, items: Sequence[Item]) -> Path:
        """`mapping<level>.jsonl`."""
        from uni_train.data_gen.jsonl import published_rows, write_rows

        path = folder / f"mapping{items[0].level}.jsonl"
        write_rows(path, published_rows(items))
        return path


def _key(right: str | Noun) -> str:
    return right.singular if isinstance(right, Noun) else right
