"""The rows of the next update, read and decoded while a GPU computes this one.

Only rows: what `collate` makes of them needs the device. On a CPU nothing is gained, as both take the same cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(draw: Callable[[int], T], steps: range, mixture: Callable[[int], Mapping[str, float]]) -> Iterator[T]:
    """`draw` of each of `steps`, in order; each is begun when the one before is taken.

    What it raises is raised in its turn. Rows are read again where an evaluation has changed the mixture meanwhile.
    """
    with ThreadPoolExecutor(1, "rows") as reader:
        begun = None
        for step in steps:
            if begun is None or begun[0] != mixture(step):
                begun = mixture(step), reader.submit(draw, step)
            taken = begun[1].result()
            begun = (mixture(step + 1), reader.submit(draw, step + 1)) if step + 1 in steps else None
            yield taken
