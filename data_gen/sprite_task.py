"""Tasks whose answer is so many of one thing: in the nano world sprites show it, and a program reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import DataError
from uni_train.core.seeds import digest, rng
from uni_train.data_gen import phrasing
from uni_train.data_gen.objects import NANO, Noun, World
from uni_train.data_gen.splits import split_of
from uni_train.data_gen.task import Item, Task, Verdict

if TYPE_CHECKING:
    import numpy as np

MAX_COUNT = 6
SEEN = {"same": 0.38, "other object": 0.22, "other count": 0.12, "both": 0.08, "unclear": 0.2}
"""What is seen beside what is asked -> share of the comparisons; equal counts or equal objects alone decide nothing."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question whose answer is `count` (1 to 6) of `noun`.

    reasoning: what a thought says before its conclusion, a step or several ("3 + 2 = 5"). canonical: what must not leak
    into another split; empty: the prompt. facts: further ones.
    """

    prompt: str
    noun: Noun
    count: int
    reasoning: str | Sequence[str]
    canonical: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SpriteTask(Task):
    """A task in a world; it needs `levels`, and `problem` or `sample`. Facts of its items have "world", "object"
    (singular), "plural" and "count" (1 to 6)."""

    chance = 1 / 6  # one count of six
    guess = "guessing the count"
    world: World = NANO

    @classmethod
    def in_world(cls, world: World) -> Task:
        return cls(world)

    def problem(self, random: Random, level: int) -> Problem:
        """A problem of a level, whatever its split."""
        raise NotImplementedError

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """The first problem from `seed` that falls into the split."""
        self.check(level, split)
        random = rng(self.name, self.world.name, level, split, seed)
        while True:
            problem = self.problem(random, level)
            self._expect(isinstance(problem, Problem), "problem", problem, "a Problem")
            if split_of(self.name, problem.canonical or problem.prompt) == split:
                return (self.item(problem, level, split),)

    def item(self, problem: Problem, level: int, split: str) -> Item:
        """The item of a problem that belongs to a split."""
        noun, count = problem.noun, problem.count
        steps = [problem.reasoning] if isinstance(problem.reasoning, str) else list(problem.reasoning)
        facts = {"world": self.world.name, "object": noun.singular, "plural": noun.plural, "count": count}
        return Item(
            id=f"{self.name}{level}/{split}/{digest(problem.prompt)}",
            task=self.name,
            level=level,
            split=split,
            prompt=problem.prompt,
            answer=noun.counted(count),
            facts={**facts, **problem.facts, "canonical": problem.canonical or problem.prompt},
            thought=phrasing.conclude_count(self.world, steps, noun, count),
        )

    def render(self, item: Item, seed: int) -> np.ndarray:
        """`count` sprites of the item's object, uint8 [24, 24, 3]. DataError for another world than nano."""
        if not self.has_image(item):
            world = item.facts.get("world")
            raise DataError(f"{item.id} is from the {world} world: only the nano world has sprites to draw")
        from uni_train.data_gen import sprites

        return sprites.render(item.facts["object"], item.facts["count"], seed)

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """Exactly the right number of the right object, and nothing else; uint8 [H, W, 3]."""
        from uni_train.data_gen import sprites

        return sprites.verify_sprites(image, item.facts["object"], item.facts["count"])


def beside(name: str, count: int, random_: Random, kind: str = "") -> tuple[str, int] | None:
    """What may be seen where `count` of `name` are asked: the same, a near miss, or nothing clear (None).

    kind: one of `SEEN`; "": as often as it says.
    """
    kind = kind or random_.choices(tuple(SEEN), tuple(SEEN.values()))[0]
    if kind == "unclear":
        return None
    if kind in ("other object", "both"):
        name = random_.choice([noun.singular for noun in NANO.nouns if noun.singular != name])
    if kind in ("other count", "both"):
        count = random_.choice([n for n in range(1, MAX_COUNT + 1) if n != count])
    return name, count


def beside_item(item: Item, random_: Random) -> tuple[str, int] | None:
    """The same of an item; another object is often one that its prompt names."""
    name = item.facts["object"]
    shown = beside(name, item.facts["count"], random_)
    if shown is not None and shown[0] != name and "other" in item.facts and random_.random() < 0.5:
        return item.facts["other"], shown[1]
    return shown
