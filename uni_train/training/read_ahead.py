"""The rows of the next update, read and decoded while a GPU computes this one.

Rows alone: what `collate` makes of them needs the device. On a CPU nothing is gained, as both take the same cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from uni_train.training.steps import Drawn


def read_ahead(
    draw: Callable[[int], Drawn], steps: range, mixture: Callable[[int], Mapping[str, float]]
) -> Iterator[Drawn]:
    """`draw` of each of `steps`, in order; each is begun when the one before is taken.

    What it raises is raised in its turn. Rows are read again where an evaluation has changed the mixture meanwhile.
    """

    def read(step: int) -> Drawn:
        drawn = draw(step)
        examples = [*drawn.examples][::-1]
        return drawn._replace(examples=(examples.pop() for _ in range(len(examples))))  # none stays once it is taken

    with ThreadPoolExecutor(1, "rows") as reader:
        begun = None
        for step in steps:
            if begun is None or begun[0] != mixture(step):
                begun = mixture(step), reader.submit(read, step)
            taken = begun[1].result()
            begun = (mixture(step + 1), reader.submit(read, step + 1)) if step + 1 in steps else None
            yield taken
