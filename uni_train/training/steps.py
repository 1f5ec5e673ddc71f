"""Data without state: the batch of update s is a function of (seed, stage, s) and of nothing else.

So a resumed run needs no loader state, no replayed random numbers and no skipped batches: it starts at its update.
(Lightning restarts a loader that is not stateful at its first batch; `StepLoader` asks for the update instead.)

Whatever a model draws while it makes a batch or computes its loss (noise, noise levels, dropped text) must come from
`Example.seed` (each example of an update gets its own) or from the seed given to `collate`; then runs resume bit for
bit, and with `Example.seed` alone they do not depend on the number of ranks or micro-batches either.

Left out on purpose: epochs. Examples are drawn with replacement between updates and without inside one.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.utils.data import DataLoader, Dataset

from data_gen.seeds import derive_seed, rng
from uni_train.errors import UsageError

if TYPE_CHECKING:
    from uni_train.models.base import Example

Source = Sequence["Example"] | Callable[[random.Random], "Example | Sequence[Example]"]
"""Examples to pick from, or a function that makes one row: an example, or several that belong together."""


@dataclass(frozen=True)
class StepBatch:
    """One micro-batch of an update, on one rank.

    content: what the model's `collate` returned; tokens: the (ce, mse) token counts of the whole update on this rank,
    or None when it has only this one micro-batch.
    """

    step: int
    micro: int
    micros: int
    content: Any
    tokens: tuple[int, int] | None = None

    @property
    def last(self) -> bool:
        """Whether the optimizer steps after this micro-batch."""
        return self.micro == self.micros - 1


def row_counts(mixture: Mapping[str, float], rows: int, seed: int) -> dict[str, int]:
    """Whole numbers of rows for the shares of a mixture (systematic sampling).

    With expected rows e_i = share_i * rows, cumulative sums C_i and one u uniform in [0, 1) from `seed`, source i gets
    floor(C_i + u) - floor(C_{i-1} + u): e_i rounded up or down, e_i on average, and their sum is that of the e_i,
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


class StepDataset(Dataset[list[StepBatch]]):
    """Item s: the micro-batches of update s for one rank, made by `collate` from hash-seeded draws.

    All ranks draw the same global batch; micro-batch m of rank r takes every (ranks * micros)-th example from
    r + ranks * m on.

    Args:
        collate: the model's `collate(examples, seed) -> batch`.
        sources: name -> examples, or a function making a row from a random.Random.
        mixture: update -> shares by source name; a share of 1.0 is `rows` rows.
        token_counts: the model's `token_counts(batch) -> (ce, mse)`; needed when `micros` is above 1, because the
            loss of each micro-batch is divided by the counts of all.
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
        ranks: int = 1,
        micros: int = 1,
        token_counts: Callable[[Any], tuple[int, int]] | None = None,
    ) -> None:
        if micros > 1 and token_counts is None:
            raise UsageError(
                f"accumulate={micros}: this model cannot count the tokens of a batch beforehand, so its loss cannot be "
                "normalised over several micro-batches",
                "Give the model `token_counts(batch) -> (ce, mse)`, or use accumulate=1.",
            )
        for name, source in sources.items():
            if not callable(source) and not len(source):
                raise UsageError(f"the training source {name} has no examples")
        self.collate, self.sources, self.mixture = collate, dict(sources), mixture
        self.rows, self.updates, self.seed, self.stage = rows, updates, seed, stage
        self.rank, self.ranks, self.micros, self.token_counts = rank, ranks, micros, token_counts

    def __len__(self) -> int:
        return self.updates

    def counts(self, step: int) -> dict[str, int]:
        """Rows of each source in the global batch of update `step`."""
        shares = self.mixture(step)
        unknown = [name for name in shares if name not in self.sources]
        if unknown:
            known = ", ".join(self.sources)
            raise UsageError(f"the mixture asks for {', '.join(unknown)}; there are sources for: {known}")
        return row_counts(shares, self.rows, derive_seed(self.seed, self.stage, "counts", step))

    def examples(self, step: int) -> list[Any]:
        """The global batch of update `step`: source by source, each example with a seed of its own."""
        drawn: list[Any] = []
        for name, count in self.counts(step).items():
            source = self.sources[name]
            if callable(source):
                for row in range(count):
                    made = source(rng(self.seed, self.stage, "row", step, name, row))
                    drawn.extend(cast("Sequence[Any]", made) if isinstance(made, Sequence) else [made])
            else:
                drawn.extend(_picked(source, count, rng(self.seed, self.stage, "pick", step, name)))
        return [
            dataclasses.replace(example, seed=derive_seed(self.seed, self.stage, "example", step, position))
            for position, example in enumerate(drawn)
        ]

    def __getitem__(self, step: int) -> list[StepBatch]:
        if not 0 <= step < self.updates:
            raise IndexError(step)
        examples = self.examples(step)
        stride = self.ranks * self.micros
        if len(examples) < stride:
            raise UsageError(
                f"update {step} has {len(examples)} rows for {self.ranks} ranks of {self.micros} micro-batches",
                "Raise rows, or lower devices or accumulate.",
            )
        contents = [
            self.collate(
                examples[self.rank + self.ranks * micro :: stride],
                derive_seed(self.seed, self.stage, "batch", step, self.rank, micro),
            )
            for micro in range(self.micros)
        ]
        tokens = None
        if self.token_counts is not None and self.micros > 1:
            ce, mse = zip(*(self.token_counts(content) for content in contents), strict=True)
            tokens = (int(sum(ce)), int(sum(mse)))
        return [StepBatch(step, micro, self.micros, content, tokens) for micro, content in enumerate(contents)]


class StepLoader:
    """The micro-batches of all updates from `start()` to the last, in order.

    `start` is asked when iteration begins (Lightning has restored its checkpoint by then). Its length is that of the
    whole run, which Lightning compares with its own count of all micro-batches, those before a resume included; having
    a length also keeps Lightning from fetching a batch before the update ahead of it is finished.
    """

    def __init__(self, dataset: StepDataset, start: Callable[[], int], num_workers: int = 0) -> None:
        self.dataset, self.start, self.num_workers = dataset, start, num_workers

    def __len__(self) -> int:
        return self.dataset.updates * self.dataset.micros

    def __iter__(self) -> Iterator[StepBatch]:
        steps = range(self.start(), self.dataset.updates)
        if self.num_workers == 0:
            for step in steps:
                yield from self.dataset[step]
            return
        # A generator of its own: a DataLoader otherwise takes a number from torch's global one.
        ahead = DataLoader(
            self.dataset,
            batch_size=None,
            sampler=steps,
            num_workers=self.num_workers,
            collate_fn=_unchanged,
            generator=torch.Generator().manual_seed(0),
        )
        for batches in ahead:
            yield from batches


def _picked(source: Sequence[Any], count: int, generator: random.Random) -> list[Any]:
    """`count` examples; each one once before any comes twice."""
    picked: list[Any] = []
    while len(picked) < count:
        picked += [source[i] for i in generator.sample(range(len(source)), min(len(source), count - len(picked)))]
    return picked


def _unchanged(batches: list[StepBatch]) -> list[StepBatch]:
    return batches
