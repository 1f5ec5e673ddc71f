"""`uni_train data make|show|audit`, on files that they write themselves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from uni_train.cli.main import uni_train


def run(*arguments: object) -> Result:
    return CliRunner().invoke(uni_train, ["data", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize(("task", "file"), [("maths", "math_2.jsonl"), ("mapping", "mapping2.jsonl")])
def test_what_make_writes_passes_the_audit_until_a_label_is_changed(tmp_path: Path, task: str, file: str) -> None:
    folder = tmp_path / "made"
    made = run("make", "--task", task, "--level", 2, "--world", "everyday", "--n", 6, "--out", folder)
    assert made.exit_code == 0, made.output
    questions = folder / file
    assert str(questions) in made.output

    clean = run("audit", questions)
    assert clean.exit_code == 0 and "0 wrong" in clean.output

    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    rows[1]["Answer"] = rows[0]["Answer"] if task == "mapping" else "97 " + rows[1]["Answer"].split()[1]
    questions.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    damaged = run("audit", questions, "--json")
    assert damaged.exit_code == 1
    found = [json.loads(line) for line in damaged.output.splitlines()]
    assert [set(row) for row in found] == [{"id", "status", "expected", "reason"}] * len(rows)
    assert [row["status"] for row in found].count("wrong") == 1
    assert "1 wrong" in run("audit", questions).output


def test_make_never_overwrites_what_it_was_not_told_to(tmp_path: Path) -> None:
    assert run("make", "--n", 2, "--out", tmp_path / "made").exit_code == 0
    before = (tmp_path / "made" / "items.jsonl").read_bytes()
    again = run("make", "--n", 3, "--out", tmp_path / "made")
    assert again.exit_code == 1 and "not empty" in again.output
    assert (tmp_path / "made" / "items.jsonl").read_bytes() == before


def test_show_prints_items_and_draws_a_sheet(tmp_path: Path) -> None:
    assert run("make", "--task", "maths", "--n", 3, "--out", tmp_path / "made").exit_code == 0
    shown = run("show", tmp_path / "made", "--n", 2, "--out", tmp_path / "sheet.png")
    assert shown.exit_code == 0
    assert shown.output.count("  -> ") == 2
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert np.asarray(sheet.convert("L")).std() > 0


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["make", "--task", "math", "--out", "x"], 2, "Did you mean maths?"),
        (["make", "--level", "4", "--out", "x"], 2, "--level"),
        (["show", "--split", "tests"], 2, "Did you mean test?"),
        (["show", "--out", "sheet.gif"], 2, ".png"),
        (["audit", "nowhere.jsonl"], 1, "nowhere.jsonl"),
    ],
)
def test_wrong_input_is_named(arguments: list[str], exit_code: int, message: str, tmp_path: Path) -> None:
    result = run(*arguments)
    assert result.exit_code == exit_code
    assert message in result.output and "Traceback" not in result.output


def test_a_line_that_does_not_parse_is_named_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "math_1.jsonl"
    file.write_text('{"Question": "Draw as many cats as 1 + 1.", "Answer": "2 cats", "id": "1"}\n{"Question": \n')
    result = run("audit", file)
    assert result.exit_code == 1
    assert str(file) in result.output and "line 2" in result.output
