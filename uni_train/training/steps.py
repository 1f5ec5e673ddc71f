"""Data without state: the batch of update s is a function of (seed, stage, s) and of nothing else.

So a resumed run needs no loader state, no replayed random numbers and no skipped batches: it starts at its update.
(Lightning restarts a loader that is not stateful at its first batch; `StepLoader` starts at the update instead.)

A model draws random numbers when it makes a batch or computes its loss: noise, noise levels, dropped text. They must
come from `Example.seed` (each example of an update gets its own) or from the seed given to `collate`. Then runs resume
bit for bit. With `Example.seed` alone they do not depend on the number of ranks or micro-batches either.

Left out on purpose: epochs. Examples are drawn with replacement between updates and without inside one.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from uni_train.core.errors import UsageError
from uni_train.core.seeds import derive_seed, rng

if TYPE_CHECKING:
    from uni_train.models.base import Example


class Rows(Protocol):
    """Rows that become examples when they are drawn, with random choices of their own (one of several captions)."""

    def __len__(self) -> int: ...

    def draw(self, index: int, random_: random.Random) -> Example: ...


Source = Sequence["Example"] | Rows | Callable[[random.Random], "Example | Sequence[Example]"]
"""Examples or rows to pick from, or a function that makes one row: an example, or several that belong together."""


_OFTEN = 1.5  # from here on reading rows before they are drawn saves time


@dataclass(frozen=True)
class StepBatch:
    """One micro-batch of an update, on one rank.

    content: what the model's `collate` returned; tokens: the (ce, mse) token counts of the whole update on this rank;
    None when it has only this one micro-batch.
    """

    step: int
    micro: int
    grad_accumulation_steps: int
    content: Any
    tokens: tuple[int, int] | None = None

    @property
    def last(self) -> bool:
        """Whether the optimizer steps after this micro-batch."""
        return self.micro == self.grad_accumulation_steps - 1


class Drawn(NamedTuple):
    """The examples of each micro-batch of an update on one rank, and their rows (once read) as messages name them."""

    step: int
    examples: Iterator[Sequence[Any]]
    rows: list[str]


def row_counts(mixture: Mapping[str, float], rows: int, seed: int) -> dict[str, int]:
    """Whole numbers of rows for the shares of a mixture (systematic sampling).

    Expected rows are e_i = share_i * rows, with cumulative sums C_i; one u is uniform in [0, 1) from `seed`. Source i
    gets floor(C_i + u) - floor(C_{i-1} + u): e_i rounded up or down, e_i on average. Their sum is that of the e_i,
    rounded likewise.
    """
    offset = random.Random(seed).random()
    counts, total, before = {}, 0.0, 0
    for name, share in mixture.items():
        total += share * rows
        # Without the rounding, 0.1 + 0.2 would sometimes cost a row.
        after = math.floor(round(total, 9) + offset)
        counts[name] = after - before
        before = after
    return counts


class StepDataset:
    """Item s: the micro-batches of update s for one rank, made by `collate` from hash-seeded draws.

    All ranks draw the same global batch; with stride = world_size * grad_accumulation_steps, micro-batch m of rank r
    takes every stride-th example from r + world_size * m on. With `tokens` each micro-batch draws for itself instead,
    example by example, until it has that many tokens. The example that reaches them is the last, so long ones are not
    left out more often than short ones. A batch has fewer than `tokens` plus those of the longest example.

    Args:
        collate: the model's `collate(examples, seed) -> batch`.
        sources: name -> examples, or a function making a row from a random.Random.
        mixture: update -> shares by source name; a share of 1.0 is `rows` rows.
        token_counts: the model's `token_counts(batch) -> (ce, mse)`; needed when `grad_accumulation_steps` is above
            1, because the loss of each micro-batch is divided by the counts of all.
        tokens: fill batches up to so many tokens instead of `rows` rows; shares are then odds.
        example_tokens: the model's `example_tokens(example)`; needed with `tokens`.
    """

    def __init__(
        self,
        collate: Callable[[Sequence[Any], int], Any],
        sources: Mapping[str, Source],
        mixture: Callable[[int], Mapping[str, float]],
        *,
        rows: int,
        updates: int,
        seed: int,
        stage: str = "",
        rank: int = 0,
        world_size: int = 1,
        grad_accumulation_steps: int = 1,
        token_counts: Callable[[Any], tuple[int, int]] | None = None,
        tokens: int | None = None,
        example_tokens: Callable[[Any], int] | None = None,
    ) -> None:
        if tokens is not None and example_tokens is None:
            raise UsageError(
                f"tokens={tokens}: this model cannot count the tokens of an example", "Give batches by rows instead."
            )
        if grad_accumulation_steps > 1 and token_counts is None:
            raise UsageError(
                f"accumulate={grad_accumulation_steps}: this model cannot count the tokens of a batch beforehand, so "
                "its loss cannot be normalised over several micro-batches",
                "Give the model `token_counts(batch) -> (ce, mse)`, or use accumulate=1.",
            )
        for name, source in sources.items():
            if not callable(source) and not len(source):
                raise UsageError(f"the training source {name} has no examples")
        self.collate, self.sources, self.mixture = collate, dict(sources), mixture
        self.rows, self.updates, self.seed, self.stage = rows, updates, seed, stage
        self.rank, self.world_size = rank, world_size
        self.grad_accumulation_steps, self.token_counts = grad_accumulation_steps, token_counts
        self.tokens, self.example_tokens = tokens, example_tokens
        self.read, self._reading = list[str](), list[str]()  # rows of the latest item, as messages name them

    def counts(self, step: int) -> dict[str, int]:
        """Rows of each source in the global batch of update `step`."""
        shares = self.mixture(step)
        self._check_names(shares)
        return row_counts(shares, self.rows, derive_seed(self.seed, self.stage, "counts", step))

    def _check_names(self, shares: Mapping[str, float]) -> None:
        unknown = [name for name in shares if name not in self.sources]
        if unknown:
            known = ", ".join(self.sources)
            raise UsageError(f"the mixture asks for {', '.join(unknown)}; there are sources for: {known}")

    def often(self) -> Iterator[Any]:
        """The rows of sources whose rows come more than `_OFTEN` times each on this rank, on average."""
        if self.tokens is not None:
            return
        shares = Counter[str]()
        for step in range(self.updates):
            shares.update(self.mixture(step))
        for name, source in self.sources.items():
            if not callable(source) and shares[name] * self.rows > _OFTEN * len(source) * self.world_size:
                yield from (self._taken(name, index, "often", name, index) for index in range(len(source)))

    def _places(self, step: int) -> list[Callable[[], Any]]:
        """What reads each example of the global batch, source by source; a rank reads its own alone."""
        drawn: list[Callable[[], Any]] = []
        for name, count in self.counts(step).items():
            source = self.sources[name]
            if callable(source):
                for row in range(count):
                    made = source(rng(self.seed, self.stage, "row", step, name, row))
                    examples = cast("Sequence[Any]", made) if isinstance(made, Sequence) else [made]
                    drawn.extend(partial(_unchanged, example) for example in examples)
            else:
                picked = _picked(len(source), count, rng(self.seed, self.stage, "pick", step, name))
                drawn.extend(partial(self._taken, name, index, step, name, row) for row, index in enumerate(picked))
        return [partial(self._seeded, read, step, position) for position, read in enumerate(drawn)]

    def _seeded(self, read: Callable[[], Any], step: int, position: int) -> Any:
        return dataclasses.replace(read(), seed=derive_seed(self.seed, self.stage, "example", step, position))

    def _taken(self, name: str, index: int, *place: int | str) -> Any:
        source: Any = self.sources[name]
        self._reading.append(source.where(index) if hasattr(source, "where") else f"{name} {index + 1}")
        if hasattr(source, "draw"):
            return source.draw(index, rng(self.seed, self.stage, "row", *place))
        return source[index]

    def filled(self, step: int, slot: int) -> list[Any]:
        """The examples of one place of update `step`, up to `tokens`; none twice before its source is through."""
        assert self.tokens is not None and self.example_tokens is not None
        mixture = {name: share for name, share in self.mixture(step).items() if share > 0}
        self._check_names(mixture)
        unused: dict[str, Iterator[int]] = {}
        drawn: list[Any] = []
        tokens = 0
        while tokens < self.tokens:
            at = len(drawn)
            random_ = rng(self.seed, self.stage, "fill", step, slot, at)
            (name,) = random_.choices(list(mixture), list(mixture.values()))
            source = self.sources[name]
            if callable(source):
                made = source(random_)
                new = list(made) if isinstance(made, Sequence) else [made]
            else:
                if name not in unused:
                    unused[name] = _shuffled(len(source), rng(self.seed, self.stage, "pick", step, slot, name))
                new = [self._taken(name, next(unused[name]), step, slot, at)]
            for example in new:
                seed = derive_seed(self.seed, self.stage, "example", step, slot, len(drawn))
                drawn.append(dataclasses.replace(example, seed=seed))
                tokens += self.example_tokens(drawn[-1])
        return drawn

    def _examples_of(self, step: int, micro: int, everything: Sequence[Callable[[], Any]]) -> Sequence[Any]:
        slot = self.rank + self.world_size * micro
        if self.tokens is not None:
            return self.filled(step, slot)
        return [read() for read in everything[slot :: self.world_size * self.grad_accumulation_steps]]

    def batches(self, start: int, read: Callable[..., Iterator[Drawn]] = map) -> Iterator[StepBatch]:
        """The micro-batches of update `start` and those behind it. `read`: maps `drawn` over updates."""
        for drawn in read(self.drawn, range(start, self.updates)):
            yield from self._made(drawn)

    def __getitem__(self, step: int) -> list[StepBatch]:
        return self._made(self.drawn(step))

    def drawn(self, step: int) -> Drawn:
        """The examples of update `step` on this rank; they are read as they are taken."""
        everything = self._places(step) if self.tokens is None else []
        stride = self.world_size * self.grad_accumulation_steps
        if self.tokens is None and len(everything) < stride:
            raise UsageError(
                f"update {step} has {len(everything)} rows for {self.world_size} ranks of "
                f"{self.grad_accumulation_steps} micro-batches",
                "Raise rows, or lower devices or accumulate.",
            )
        self._reading = list[str]()
        micros = range(self.grad_accumulation_steps)
        return Drawn(step, (self._examples_of(step, micro, everything) for micro in micros), self._reading)

    def _made(self, drawn: Drawn) -> list[StepBatch]:
        step, examples, self.read = drawn
        contents = [
            self.collate(some, derive_seed(self.seed, self.stage, "batch", step, self.rank, micro))
            for micro, some in enumerate(examples)
        ]
        tokens = None
        if self.token_counts is not None and self.grad_accumulation_steps > 1:
            ce, mse = zip(*(self.token_counts(content) for content in contents), strict=True)
            tokens = (int(sum(ce)), int(sum(mse)))
        return [
            StepBatch(step, micro, self.grad_accumulation_steps, content, tokens)
            for micro, content in enumerate(contents)
        ]


@dataclass(frozen=True)
class StepLoader:
    """The micro-batches of all updates that are not done, in order; `length` is that of the whole run.

    `batches` is called when iteration begins (Lightning has restored its checkpoint by then). Lightning compares the
    length with its own count of all micro-batches, those before a resume included. With a length, Lightning also
    fetches a batch only after the previous update has finished.
    """

    length: int
    batches: Callable[[], Iterator[StepBatch]]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[StepBatch]:
        return self.batches()


def _picked(rows: int, count: int, generator: random.Random) -> list[int]:
    """`count` numbers of rows; each one once before any comes twice."""
    picked: list[int] = []
    while len(picked) < count:
        picked += generator.sample(range(rows), min(rows, count - len(picked)))
    return picked


def _shuffled(rows: int, generator: random.Random) -> Iterator[int]:
    """Numbers of rows without end, each one once before any comes twice; few of many cost little."""
    while True:
        used: set[int] = set()
        while len(used) < rows:
            index = generator.randrange(rows)
            if index not in used:
                used.add(index)
                yield index


def _unchanged(value: Any) -> Any:
    return value
