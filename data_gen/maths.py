"""Maths (UniSandbox section 3.1.1): "Draw as many apples as 3 + 2 ." - one, two or three operations, result 1 to 6.

Sampler, reference thought, renderer and verifier. The result is drawn first, so all six are equally likely; then an
expression that has it (data_gen.expressions), then the object and the phrasing. A split holds whole expressions: one
that occurs in test occurs in train with no object and in no phrasing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_gen import expressions, phrasing
from data_gen.errors import DataError
from data_gen.objects import NANO, World
from data_gen.seeds import derive_seed, digest, rng
from data_gen.splits import split_of
from data_gen.task import Item, Verdict, check_request, collect, render_sprites, verify_sprites

if TYPE_CHECKING:
    import numpy as np

EMPHASIS = 0.15  # share of prompts with parentheses that are not needed
IN_WORDS = 0.2  # share of the everyday one-operation prompts that are spelled out


@dataclass(frozen=True)
class Maths:
    """The maths task in a world. operations: which of + - * / ^ % √ may occur."""

    world: World = NANO
    operations: tuple[str, ...] = expressions.OPERATIONS
    name: str = "maths"
    levels: tuple[int, ...] = (1, 2, 3)

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """One item with `level` operations from `split`."""
        check_request(self, level, split)
        random_ = rng("maths", self.world.name, level, split, seed)
        noun = random_.choice(self.world.nouns)
        for attempt in range(3000):  # about one draw in ten falls into a test split
            if attempt % 150 == 0:  # some results have no expression there if few operations are allowed
                count = random_.randint(1, 6)
            expression = expressions.draw(
                count, level, random_, self.world.max_operand, self.world.max_value, self.operations
            )
            if expression is None:
                continue
            canonical = expressions.canonical(expression)
            if split_of(self.name, canonical) == split:
                break
        else:
            raise DataError(
                f"no maths{level} expression was found for the {split} split of the {self.world.name} world with the "
                f"operations {' '.join(self.operations)}: allow more operations"
            )
        if random_.random() < EMPHASIS:
            expression = expressions.emphasise(expression, random_)
        text = expressions.show(expression, spaced=self.world.terse)
        if not self.world.terse and random_.random() < IN_WORDS:
            text = expressions.in_words(expression) or text
        prompt = phrasing.ask_count(self.world, noun, text, random_)
        steps = expressions.steps(expression, spaced=self.world.terse)
        return (
            Item(
                id=f"maths{level}/{split}/{digest(prompt)}",
                task=self.name,
                level=level,
                split=split,
                prompt=prompt,
                answer=noun.counted(count),
                facts={
                    "world": self.world.name,
                    "object": noun.singular,
                    "plural": noun.plural,
                    "count": count,
                    "expression": text,
                    "canonical": canonical,
                },
                thought=phrasing.conclude_count(self.world, steps, noun, count),
            ),
        )

    def generate(self, n: int, level: int, split: str, seed: int) -> list[Item]:
        """`n` different prompts; DataError when this split has too few."""
        check_request(self, level, split)
        draws = collect(lambda index: self.sample(derive_seed(seed, index), level, split), n)
        if len(draws) < n:
            raise DataError(
                f"found only {len(draws)} different maths{level} prompts for the {split} split of the "
                f"{self.world.name} world, {n} were asked for: ask for fewer, or use the everyday world"
            )
        return [item for items in draws for item in items]

    def input_image(self, item: Item) -> None:
        """None: the prompt is all that is given."""

    def render(self, item: Item, seed: int) -> np.ndarray:
        """The target picture of an item of the nano world, uint8 [H, W, 3]."""
        return render_sprites(item, seed)

    def verify(self, item: Item, image: np.ndarray) -> Verdict:
        """Exactly the right number of the right object, and nothing else; uint8 [H, W, 3]."""
        return verify_sprites(image, item.facts["object"], item.facts["count"])
