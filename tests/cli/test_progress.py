"""Tables on the console: every value whole, however narrow it is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from uni_train.cli.progress import ConsoleProgress

COLUMNS = ["model", *(f"setting {i}" for i in range(8))]
ROWS = [[name, *(f"0.{i}2 [0.{i}0, 0.{i}7]" for i in range(8))] for name in ("nano before", "nano after")]


def shown(width: int, *table: object) -> str:
    console = Console(file=io.StringIO(), width=width)
    ConsoleProgress(console).table("Accuracy", *table)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return "\n".join(lines)


@pytest.mark.parametrize(("width", "parts"), [(240, 1), (100, 2), (60, 4), (30, 8)])
def test_a_table_that_is_too_wide_is_folded_between_columns(width: int, parts: int) -> None:
    text = shown(width, COLUMNS, ROWS)
    if width > 40:
        assert all(cell in text for row in [COLUMNS, *ROWS] for cell in row)
        assert text.count("nano before") == text.count("model") == parts
    assert text.count("┏") == parts and text.count("Accuracy") == 1


def test_sentences_are_wrapped_and_keep_every_word() -> None:
    why = "the judge was not calibrated against references, so its scores are not to be compared with others"
    text = shown(80, ["metric", "n", "note"], [["accuracy", 128, why]])
    assert text.count("┏") == 1 and "128" in text
    assert all(word in text for word in why.split())
