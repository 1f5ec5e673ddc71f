"""CSV, also packed by gzip."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import decoded, read_unpacked
from uni_train.training.data.rows import FILES, BadRow, Row, RowFile, missing


@FILES.register("csv")
class CsvFile(RowFile):
    """One row a line below a line of names; fields in quotes may have line breaks."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        reader = csv.DictReader(io.StringIO(decoded(read_unpacked(path), path), newline=""))
        try:
            self._rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: not CSV ({error})", "Save it as CSV again.") from None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        _, values = self._rows[index]
        if None in values:
            raise BadRow("has more fields than the first line names: put texts with commas in quotes")
        return Row({key: None if missing(text, cell=True) else text for key, text in values.items()}, self.folder)

    def where(self, index: int) -> str:
        return f"{self.path}, line {self._rows[index][0]}"
