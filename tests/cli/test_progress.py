"""Tables on the console: every value whole, however narrow it is."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from uni_train.console.progress import ConsoleProgress

COLUMNS = ["model", *(f"setting {i}" for i in range(8))]
ROWS = [[name, *(f"0.{i}2 [0.{i}0, 0.{i}7]" for i in range(8))] for name in ("nano before", "nano after")]


def shown(width: int, *table: object, terminal: bool = False, longest: int = 0) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal)
    ConsoleProgress(console).table("Accuracy", *table)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    lines = re.sub("\x1b[^m]*m", "", console.file.getvalue()).splitlines()
    assert all(len(line) <= (longest or width) for line in lines)
    return "\n".join(lines)


@pytest.mark.parametrize(("width", "parts"), [(240, 1), (100, 2), (60, 4), (30, 8)])
def test_a_table_that_is_too_wide_is_folded_between_columns(width: int, parts: int) -> None:
    text = shown(width, COLUMNS, ROWS)
    if width > 40:
        assert all(cell in text for row in [COLUMNS, *ROWS] for cell in row)
        assert text.count("nano before") == text.count("model") == parts
    assert sum(set(line.strip()) == {"─"} for line in text.splitlines()) == parts and text.count("Accuracy") == 1


def test_sentences_are_wrapped_and_every_part_has_the_columns_that_tell_its_rows_apart() -> None:
    why = "the judge was not calibrated against references, so its scores are not to be compared with others"
    text = shown(80, ["metric", "n", "note"], [["accuracy", 128, why]])
    assert text.count("metric") == 1 and "128" in text and all(word in text for word in why.split())
    columns = ["Question", *(f"answered right by-programme {i}" for i in range(4))]
    text = shown(80, columns, [["a question of many words", *["0.50\n.32-.68"] * 4]])
    assert text.count("by-programme") == 4 and text.count("a question of many words") == 2
    rows = [[setting, level, *["0.50 (0.32-0.68)"] * 5] for setting in ("normal", "cot") for level in ("M1", "M2")]
    lines = shown(80, ["setting", "set", *(f"model {i}" for i in range(5))], rows).splitlines()
    assert sum("normal" in line and "M2" in line for line in lines) == sum("model" in line for line in lines) == 2


def test_notes_end_their_lines_between_words_on_terminals_and_stay_whole_in_pipes() -> None:
    words = "incomprehensibilities " * 12
    for terminal, longest in ((True, 80), (False, len(words) + 2)):
        text = shown(80, ["a", "b"], [["c", "d"]], words, terminal=terminal, longest=longest)
        assert text.count("incomprehensibilities") == 12
        assert 80 - len("incomprehensibilities") < max(map(len, text.splitlines()))
