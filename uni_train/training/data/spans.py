"""Rows that are spans of a text file: their places are in memory, 16 bytes a row; a row is read when it is drawn."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import LINE_BYTES, MIB, open_file, parse_json, read_unpacked, reason
from uni_train.training.data.rows import BadRow, Row, RowFile

BLOCK = 4 * MIB


def opener(path: Path) -> Callable[[], IO[bytes]]:
    """Opens a file; one that ends in .gz is unpacked once, in memory. Raises Unreadable."""
    if path.suffix.lower() != ".gz":
        return partial(open_file, path)
    return partial(io.BytesIO, read_unpacked(path))


def begins_array(path: Path) -> bool:
    """Whether a file may be a JSON array, by its first 1,024 bytes. Raises OSError; Unreadable."""
    with opener(path)() as file:
        return file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


class SpanFile(RowFile):
    """A text file, which is unpacked once into memory where its name ends in .gz.

    Attributes:
        starts: int64 [rows + 1]; a row ends where the next one starts.
        numbers: int64 [rows], which messages count by.
        unit: what is counted.
    """

    unit = "line"

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder, self.open = path, folder, opener(path)
        self.starts, self.numbers = self.index()
        if len(self) and (largest := np.diff(self.starts)).max() > LINE_BYTES:
            raise self.too_long(int(self.numbers[largest.argmax()]))

    def index(self) -> tuple[np.ndarray, np.ndarray]:
        """`starts` and `numbers`. Raises UserError for a damaged file."""
        raise NotImplementedError

    def too_long(self, number: int) -> UserError:
        """The error of a row that no reader takes."""
        return UserError(
            f"{self.path}, {self.unit} {number}: more than {LINE_BYTES // MIB} MiB", "Give one row a line."
        )

    def lines(self) -> Iterator[tuple[int, int, bytes, np.ndarray]]:
        """(place of the first line, its number, bytes, int64 [lines] where each ends) of pieces of whole lines."""
        place, number, rest = 0, 1, b""
        with self.open() as file:
            while block := file.read(BLOCK):
                block = rest + block
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
                cut = int(ends[-1]) if len(ends) else 0
                if len(block) - cut > LINE_BYTES:
                    raise self.too_long(number + len(ends))
                if cut:
                    yield place, number, block[:cut], ends
                place, number, rest = place + cut, number + len(ends), block[cut:]
        if rest:
            yield place, number, rest, np.array([len(rest)])

    def span(self, index: int) -> bytes:
        """A row as it stands in the file."""
        index %= len(self)
        with self.open() as file:
            file.seek(int(self.starts[index]))
            return file.read(int(self.starts[index + 1] - self.starts[index]))

    def json_object(self, text: bytes, line: int | None = None) -> Row:
        """A row of JSON. Raises BadRow."""
        try:
            values = parse_json(text.rstrip(), self.path, line)
        except ValueError as error:
            raise BadRow(f"is not a JSON object ({reason(error)})") from None
        if not isinstance(values, dict):
            raise BadRow("is not a JSON object")
        return Row(values, self.folder)

    def __len__(self) -> int:
        return len(self.numbers)

    def where(self, index: int) -> str:
        return f"{self.path}, {self.unit} {self.numbers[index]}"
