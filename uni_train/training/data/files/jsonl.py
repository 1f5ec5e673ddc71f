"""JSON lines, also packed by gzip."""

from __future__ import annotations

import numpy as np

from uni_train.training.data.rows import FILES, Row
from uni_train.training.data.spans import SpanFile


@FILES.register("jsonl")
class JsonLines(SpanFile):
    """One JSON object a line; empty lines do not count."""

    def index(self) -> tuple[np.ndarray, np.ndarray]:
        starts, numbers, end = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for place, number, block, ends in self.lines():
            begins = np.append(0, ends[:-1])
            full = np.frombuffer(block, np.uint8)[begins] > ord(" ")
            for line in np.flatnonzero(~full):
                full[line] = bool(block[begins[line] : ends[line]].strip())
            starts.append(begins[full] + place)
            numbers.append(np.flatnonzero(full) + number)
            end = place + len(block)
        return np.concatenate([*starts, [end]]), np.concatenate(numbers)

    def __getitem__(self, index: int) -> Row:
        return self.json_object(self.span(index), int(self.numbers[index]))
