"""JSON lines, also packed by gzip: the starts of lines are in memory, and a line is read when it is drawn."""

from __future__ import annotations

import io
from array import array
from pathlib import Path
from typing import IO

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import LINE_BYTES, open_file, parse_json, read_unpacked, reason
from uni_train.training.data.rows import FILES, BadRow, Row, RowFile


@FILES.register("jsonl")
class JsonLines(RowFile):
    """One JSON object a line; empty lines do not count."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self._starts, self._numbers = array("q"), array("q")
        position = 0
        self._unpacked = read_unpacked(path) if path.suffix.lower() == ".gz" else None
        with self._open() as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), start=1):
                if len(line) > LINE_BYTES:
                    raise UserError(f"{path}, line {number}: more than {LINE_BYTES >> 20} MiB", "Give one row a line.")
                if line.strip():
                    self._starts.append(position)
                    self._numbers.append(number)
                position += len(line)

    def _open(self) -> IO[bytes]:
        return open_file(self.path) if self._unpacked is None else io.BytesIO(self._unpacked)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Row:
        with self._open() as file:
            file.seek(self._starts[index])
            line = file.readline()
        try:
            values = parse_json(line, self.path, self._numbers[index])
        except ValueError as error:
            raise BadRow(f"is not a JSON object ({reason(error)})") from None
        if not isinstance(values, dict):
            raise BadRow("is not a JSON object")
        return Row(values, self.folder)

    def where(self, index: int) -> str:
        return f"{self.path}, line {self._numbers[index]}"
