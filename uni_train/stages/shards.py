"""Batches of samples as shards, made by all ranks; where a judge has to look at them, by the first one afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from uni_train.eval.benchmark import Scored
from uni_train.eval.scored import completed, read_scored, shard_path, write_scored
from uni_train.stages.work import SHARDS, Work

DRAWN = "drawn"
AT_ONCE = 256  # images that are in memory while a judge looks at them

Judged = Callable[[Sequence[Scored]], list[Scored]]
"""Samples with what a judge says of them."""


def make_shards(
    work: Work[Any],
    folder: Path,
    sizes: Sequence[int],
    make: Callable[[int], list[Scored]],
    title: str,
    judged: Judged | None = None,
    quiet: bool = False,
) -> None:
    """Have the shards of the batches 0 .. len(sizes) - 1 in `folder`/shards. All ranks call it and share the batches.

    With `judged`, a batch waits in `folder`/drawn until the first rank has had it judged. A start after a kill draws
    nothing twice.

    Args:
        sizes: how many samples each batch has.
        make: draws one batch.

    Raises:
        UserError: a shard is damaged, the disk is full, or the judge does not answer.
    """
    shards, drawn = folder / SHARDS, folder / DRAWN
    done = work.ranks.from_main(lambda: completed(shards) | completed(drawn))
    mine = work.share(len(sizes), done)
    finished = sum(sizes[index] for index in done if index < len(sizes))
    place = shards if judged is None else drawn
    bar = work.bar(title, sum(sizes[index] for index in mine), finished) if not quiet else nullcontext()
    with bar as shown:
        for index in mine:
            samples = make(index)
            write_scored(shard_path(place, index), samples)
            if shown is not None:
                shown.advance(sizes[index])
    work.ranks.barrier()
    if judged is not None:
        work.ranks.from_main(lambda: _judge(shards, drawn, judged))


def _judge(shards: Path, drawn: Path, judged: Judged) -> None:
    """Move every drawn batch to its shard, judged, some at a time."""
    todo = sorted(completed(drawn) - completed(shards))
    while todo:
        batches: list[tuple[int, list[Scored]]] = []
        while todo and sum(len(samples) for _, samples in batches) < AT_ONCE:
            index = todo.pop(0)
            batches.append((index, read_scored(shard_path(drawn, index))))
        verdicts = iter(judged([sample for _, samples in batches for sample in samples]))
        for index, samples in batches:
            write_scored(shard_path(shards, index), [next(verdicts) for _ in samples])
            shard_path(drawn, index).unlink()
    shutil.rmtree(drawn, ignore_errors=True)
