"""CSV, also packed by gzip."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import decoded
from uni_train.training.data.rows import FILES, BadRow, Row, missing
from uni_train.training.data.spans import SpanFile

_HINT = "Save it as CSV again. A quote that is not closed takes all that follows."


@FILES.register("csv")
class CsvFile(SpanFile):
    """One row a line below a line of names; fields in quotes may have line breaks. Numbers are those of last lines."""

    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(path, folder)
        if len(self) and [*csv.reader(io.StringIO(self._text(-1) + "\nx", newline=""))][-1] != ["x"]:
            raise UserError(f"{path}, line {self.numbers[-1]}: a quote before it is not closed", _HINT)
        self._names = self._fields(0) if len(self) else []
        self.starts, self.numbers = self.starts[1:], self.numbers[1:]

    def index(self) -> tuple[np.ndarray, np.ndarray]:
        """By counting quotes, while each that opens a field stands at its beginning; otherwise as csv reads them."""
        starts, numbers, end, within, plain = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0, False, True
        for place, number, block, ends in self.lines():
            decoded(block, self.path, number)
            data, begins = np.frombuffer(block, np.uint8), np.append(0, ends[:-1])
            quotes = np.flatnonzero(data == ord('"'))
            opening = quotes[int(within) :: 2]
            plain &= bool(np.isin(data[opening[opening > 0] - 1], [*b'\n,"']).all())
            plain &= block.count(b"\r") == block.count(b"\r\n")
            closed = (np.searchsorted(quotes, ends) + within) % 2 == 0
            outside = np.append(not within, closed[:-1])
            blank = outside & np.isin(data[begins], [*b"\r\n"])
            starts.append(begins[outside & ~blank] + place)
            numbers.append(np.flatnonzero(closed & ~blank) + number)
            end, within = place + len(block), not closed[-1]
        spans = np.concatenate([*starts, [end]])
        if not plain or within or (np.diff(spans) > csv.field_size_limit()).any():
            return self._slow_index()
        return spans, np.concatenate(numbers)

    def _slow_index(self) -> tuple[np.ndarray, np.ndarray]:
        starts, numbers, end = array("q"), array("q"), 0

        def lines(text: io.TextIOWrapper) -> Iterator[str]:
            nonlocal end
            for line in text:
                end += len(line.encode())
                yield line.removeprefix("\ufeff")

        with io.TextIOWrapper(self.open(), "utf-8", newline="") as text:
            start, reader = 0, csv.reader(lines(text))
            try:
                for fields in reader:
                    if fields:
                        starts.append(start)
                        numbers.append(reader.line_num)
                    start = end
            except csv.Error as error:
                raise UserError(f"{self.path}, line {reader.line_num}: not CSV ({error})", _HINT) from None
        return np.array([*starts, end]), np.array(numbers, np.int64)

    def _text(self, index: int) -> str:
        return decoded(self.span(index), self.path)

    def _fields(self, index: int) -> list[str]:
        """Of a row of several lines, only those are taken that follow the rules to the letter."""
        text = self._text(index)
        try:
            return next(filter(None, csv.reader(io.StringIO(text, newline=""), strict="\n" in text.strip())))
        except csv.Error as error:
            raise BadRow(f"is not CSV ({error}); perhaps a quote is not closed") from None

    def __getitem__(self, index: int) -> Row:
        fields = self._fields(index)
        if len(fields) > len(self._names):
            raise BadRow("has more fields than the first line names: put texts with commas in quotes")
        values = zip_longest(self._names, fields)
        return Row({key: None if missing(text, cell=True) else text for key, text in values}, self.folder)
