"""Maths (UniSandbox section 3.1.1): "Draw as many apples as 3 + 2 ." - one, two or three operations, result 1 to 6.

Sampler, reference thought, renderer and verifier. The result is drawn first, so all six are equally likely; then an
expression that has it (`expressions`), then the object and the phrasing. A split holds whole expressions: one
that occurs in test occurs in train with no object and in no phrasing. A fourth split, "seen", has the expressions of
train with objects that they never have there: it tells a new object from a new expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from uni_train.core.errors import DataError, UnreadableError
from uni_train.core.seeds import derive_seed, rng
from uni_train.data_gen import phrasing
from uni_train.data_gen.maths import expressions
from uni_train.data_gen.maths.prompts import FILTER
from uni_train.data_gen.maths.shortcuts import STRATEGIES
from uni_train.data_gen.objects import Noun
from uni_train.data_gen.registry import scoring_beside, task
from uni_train.data_gen.sprite_task import Problem, SpriteTask
from uni_train.data_gen.task import Item, Question, Task, collect

if TYPE_CHECKING:
    from uni_train.data_gen.findings import AuditRow

COUNTS = (1, 2, 3, 4, 5, 6)
EMPHASIS = 0.15  # share of prompts with parentheses that are not needed
IN_WORDS = 0.2  # share of the prompts with one operation that are spelled out
SEEN_TENTHS = 2  # of the objects of each expression of the train split are left to the split "seen"


@task("maths")
@dataclass(frozen=True)
class Maths(SpriteTask):
    """Draw as many things as an expression says.

    operations: which of + - * / ^ % √ may occur.
    balanced: `generate` chooses questions on which no trivial strategy exceeds chance (`maths.balance`); `sample` draws
        as ever.
    """

    name = "maths"
    title = "Mathematical operations"
    levels = (1, 2, 3)
    splits = ("train", "validation", "test", "seen")
    sets, variants, chance = scoring_beside(__file__)
    short = "Math"
    filter_question = FILTER
    strategies = STRATEGIES
    known_shortcuts: ClassVar = {
        "difference of the first two (level 1)": "unless balanced, a third are subtractions, which it works out"
    }
    most_frequent = "most frequent count"
    published = ("math_1.jsonl", "math_2.jsonl", "math_3.jsonl")
    results: ClassVar[tuple[int, ...]] = COUNTS

    operations: tuple[str, ...] = expressions.OPERATIONS
    balanced: bool = False

    def configured(self, data: Mapping[str, Any]) -> Task:
        return replace(self, balanced=data["balanced"])

    def operations_of(self, level: int) -> tuple[str, ...]:
        """The operations that may occur on a level."""
        return self.operations

    def sample(self, seed: int, level: int, split: str = "train") -> tuple[Item, ...]:
        """One item with `level` operations from `split`."""
        return self._sample(seed, level, split, self.results)

    def _sample(self, seed: int, level: int, split: str, counts: tuple[int, ...]) -> tuple[Item, ...]:
        """`sample` with a result among `counts`."""
        self.check(level, split)
        random_ = rng(self.name, self.world.name, level, split, seed)
        noun = random_.choice(self.world.nouns)
        operations = self.operations_of(level)
        for attempt in range(3000):  # about one draw in ten falls into the smallest split
            if attempt % 150 == 0:  # some results have no expression there if few operations are allowed
                count = random_.choice(counts)
            largest = self.world.max_single if level == 1 else self.world.max_operand
            expression = expressions.draw(count, level, random_, largest, self.world.max_value, operations)
            if expression is None:
                continue
            canonical = expressions.canonical(expression)
            if self._split_of(canonical, noun) == split:
                break
        else:
            raise DataError(
                f"no {self.name}{level} expression was found for the {split} split of the {self.world.name} world with "
                f"the operations {' '.join(operations)}: allow more operations"
            )
        if random_.random() < EMPHASIS:
            expression = expressions.emphasise(expression, random_)
        text = expressions.show(expression, spaced=self.world.terse)
        if len(expressions.steps(expression, True)) == 1 and random_.random() < IN_WORDS:
            text = (phrasing.signs_in_words(text) if self.world.terse else expressions.in_words(expression)) or text
        prompt = phrasing.ask_count(self.world, noun, text, random_)
        steps = expressions.steps(expression, spaced=self.world.terse)
        return (self.item(Problem(prompt, noun, count, steps, canonical, {"expression": text}), level, split),)

    def _split_of(self, canonical: str, noun: Noun) -> str:
        split = expressions.split(canonical)
        if split == "train" and derive_seed("seen", canonical, noun.singular) % 10 < SEEN_TENTHS:
            return "seen"
        return split

    def generate(self, n: int, level: int, split: str, seed: int) -> list[Item]:
        """`n` items, each result equally often: different prompts in the train split, different expressions in others.

        Raises:
            DataError: the split has too few; the message says the largest `n`.
        """
        self.check(level, split)

        step = len(self.results)
        pool_size: Callable[[int], int] = int
        if self.balanced:
            from uni_train.data_gen.maths.balance import balance, pool_size

        def with_result(place: int) -> list[Item]:
            count, wanted = self.results[place], len(range(place, n, step))
            draw = lambda index: self._sample(derive_seed(seed, count, index), level, split, (count,))  # noqa: E731
            key = lambda item: item.id if split == "train" else item.facts["canonical"]  # noqa: E731
            return [item for (item,) in collect(draw, pool_size(wanted), key)]

        by_result = [with_result(place) for place in range(step)]
        unit = f"{'prompts' if split == 'train' else 'expressions'}, each result equally often,"
        if self.balanced:
            balanced = balance(by_result, n, self.strategies)
            self.expect(n, len(balanced), level, split, f"{unit} no trivial strategy above chance,")
            return balanced
        largest = min(n, *(place + step * len(items) for place, items in enumerate(by_result)))
        self.expect(n, largest, level, split, unit)
        return [item for items in zip_longest(*by_result) for item in items if item is not None]

    def question(self, item: Item) -> Question:
        return Question(self.name, item.prompt, int(item.facts["count"]), item.id, str(item.facts["canonical"]))

    @classmethod
    def published_question(cls, unit: str, text: str, answer: str) -> Question:
        from uni_train.data_gen.maths.audit import expression_of
        from uni_train.data_gen.maths.exact import read_count

        try:
            count = read_count(answer)[0].whole
        except UnreadableError:
            count = None
        return Question(cls.name, text, count, unit, expression_of(text))

    def audit(self, items: Sequence[Item]) -> list[AuditRow]:
        from uni_train.data_gen.jsonl import MathsRow
        from uni_train.data_gen.maths.audit import audit_maths

        return [audit_maths(MathsRow(item.id, item.prompt, item.answer, 0)) for item in items]

    def publish(self, folder: Path, items: Sequence[Item]) -> Path:
        """`math_<level>.jsonl`."""
        from uni_train.data_gen.jsonl import published_rows, write_rows

        path = folder / f"math_{items[0].level}.jsonl"
        write_rows(path, published_rows(items))
        return path
