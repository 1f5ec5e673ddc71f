"""One array of JSON objects, as LLaVA and DiffSynth-Studio write it, also packed by gzip."""

from __future__ import annotations

import numpy as np

from uni_train.core.errors import UserError
from uni_train.training.data.rows import FILES, Row
from uni_train.training.data.spans import BLOCK, SpanFile, begins_array

_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"[{]}"]] = 1, 1, -1, -1
_MARKS = _STEPS != 0
_MARKS[[*b'",']] = True


@FILES.register("json")
class JsonArray(SpanFile):
    """The elements of an array, of which quotes, brackets and commas alone are looked at before they are drawn."""

    unit = "row"

    def index(self) -> tuple[np.ndarray, np.ndarray]:
        """Raises UserError: it is no array, or it has no end."""
        if not begins_array(self.path):
            hint = "Write its rows as [{...}, {...}], or an object a line in a file that is named .jsonl."
            raise UserError(f"{self.path} is no JSON array of rows", hint)
        cuts, place, level, within = list[np.ndarray](), 0, 0, False
        with self.open() as file:
            while block := file.read(BLOCK):
                if (len(block) - len(block.rstrip(b"\\"))) % 2:
                    block += file.read(1)  # what the last backslash escapes
                data = np.frombuffer(block.replace(rb"\\", b"  ").replace(rb"\"", b"  "), np.uint8)
                marks = np.flatnonzero(_MARKS[data])
                quotes = data[marks] == ord('"')
                outside = (np.cumsum(quotes) + within) % 2 == 0
                within ^= bool(quotes.sum() % 2)
                marks = marks[outside & ~quotes]
                steps = _STEPS[data[marks]]
                levels = level + np.cumsum(steps, dtype=np.int64)
                cuts.append(marks[(levels == 0) | ((levels == 1) & (steps >= 0))] + place)
                if (levels == 0).any():
                    break
                level, place = int(levels[-1]) if len(levels) else level, place + len(block)
            else:
                raise UserError(f"{self.path} breaks off: its array has no end", "Copy the file again.")
            end = place + int(marks[levels == 0][0]) + 1
            file.seek(end)
            if file.read(BLOCK).strip():
                raise UserError(f"{self.path} goes on behind its array, at byte {end:,}", "Write one array a file.")
            starts = np.concatenate(cuts) + 1
            starts = starts[starts <= end]
            file.seek(int(starts[0]))
            if len(starts) == 2 and file.read(end - int(starts[0])).strip() == b"]":
                starts = starts[:1]
        return starts, np.arange(1, len(starts))

    def __getitem__(self, index: int) -> Row:
        return self.json_object(self.span(index)[:-1])
