"""`data make --format chain`: puzzles solved step by step, as rows on which interleaved answers are learned.

The columns are those of ThinkMorph's rows, which `sft` reads: `image_list` (the puzzle, then the board after each
step), `instruction_list` (the prompt) and `output_text_list` (what is said before each of these images, a last text).
`sampling.interleaving=chain` generates such answers again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from uni_train.core.errors import DataError
from uni_train.data_gen.export import Form
from uni_train.data_gen.formats import Sample, png, write_table
from uni_train.data_gen.puzzle import END, MARK, Puzzle
from uni_train.data_gen.task import Item, Task

_TEXTS = ("id", "task", "split", "item")


def chain_samples(task: Task, items: Sequence[Item], seed: int) -> Iterator[Sample]:
    """A row an item. Raises DataError: the task has no steps."""
    if not isinstance(task, Puzzle):
        raise DataError(f"{task.name} has no steps to draw one by one: take a puzzle, such as sliding_puzzle")
    for item in items:
        row = {
            **{name: getattr(item, name) for name in ("id", "task", "split", "level")},
            "instruction_list": [item.prompt],
            "output_text_list": [*(f"{move} {MARK}" for move in task.moves(item.facts)), END],
            "item": json.dumps(item.to_dict(), ensure_ascii=False),
        }
        yield Sample(row, {str(number): png(frame) for number, frame in enumerate(task.frames(item))})


def write_chains(folder: Path, split: str, samples: Iterable[Sample]) -> None:
    """Write SPLIT.parquet."""
    import pyarrow as pa

    text, texts = {"dtype": "string", "_type": "Value"}, pa.list_(pa.string())
    fields = [*((name, pa.string()) for name in _TEXTS), ("level", pa.int64()), ("image_list", pa.list_(pa.binary())),
              ("instruction_list", texts), ("output_text_list", texts)]  # fmt: skip
    features = {name: text for name in _TEXTS} | {
        "level": {"dtype": "int64", "_type": "Value"},
        "image_list": {"feature": {"dtype": "binary", "_type": "Value"}, "_type": "List"},
        "instruction_list": {"feature": text, "_type": "List"},
        "output_text_list": {"feature": text, "_type": "List"},
    }
    rows = ({**sample.row, "image_list": [*sample.images.values()]} for sample in samples)
    write_table(folder / f"{split}.parquet", fields, features, rows)


CHAIN = Form(chain_samples, write_chains)
