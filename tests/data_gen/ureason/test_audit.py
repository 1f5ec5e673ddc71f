"""The audit of UReason files works the answers out again from what they were made of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from uni_train.data_gen import export
from uni_train.data_gen.audit import audit_file
from uni_train.data_gen.findings import AuditRow, has_wrong
from uni_train.data_gen.ureason.taxonomy import SUBCATEGORIES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "everyday"
    export.make("ureason", [1, 2, 3], 40, "test", 0, "everyday", out, force=False)
    return out


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_every_answer_that_is_made_is_worked_out_again(made: Path, tmp_path: Path) -> None:
    export.make("ureason", [1, 2, 3], 20, "train", 0, "nano", tmp_path / "nano", force=False)
    files = [file for folder in (made, tmp_path / "nano") for file in folder.glob("*.jsonl") if file.stem != "items"]
    assert len(files) == 14
    rows = [row for file in files for row in audit_file(file)]
    assert len(rows) == 2 * (120 + 60) and {row.status for row in rows} == {"ok"}
    cells = {row.id.split("/")[0].rpartition("-")[0] for row in rows}
    assert len(cells) == sum(map(len, SUBCATEGORIES.values()))


def one(file: Path, status: str) -> AuditRow:
    (found,) = [row for row in audit_file(file) if row.status == status]
    return found


def test_a_wrong_label_and_a_wrong_answer_are_told(folder: Path) -> None:
    file = folder / "attribute.jsonl"
    row = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
    change(file, json.dumps(row["expect_en"], ensure_ascii=False), '"The door is mauve."')
    found = one(file, "wrong")
    assert (found.id, found.expected, found.answer) == (row["id"], row["expect_en"], "The door is mauve.")
    assert has_wrong(audit_file(file))
    present = json.dumps(row["facts"]["outcome"]["present"], ensure_ascii=False)
    items = (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in items if json.loads(line)["id"] == row["id"]]
    change(folder / "items.jsonl", line, line.replace(f'"present": {present}', '"present": ["the door is mauve"]'))
    found = one(file, "wrong")  # label and stated outcome agree now, but what happened leads elsewhere
    assert found.id == row["id"] and "the facts in items.jsonl lead to" in found.reason


def test_nothing_is_claimed_without_the_facts(folder: Path) -> None:
    file = folder / "direct_text.jsonl"
    change(file, '"prompt": "Task: ', '"prompt": "Another: ')
    assert "the prompt is not that of its item" in one(file, "unparseable").reason
    (folder / "items.jsonl").unlink()
    assert {row.status for row in audit_file(file)} == {"unparseable"}


def test_code_that_is_not_its_program_s_is_told(folder: Path) -> None:
    items = [json.loads(line) for line in (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    item = next(item for item in items if item["facts"].get("language") == "Java")
    item["facts"]["program"].append(["set", item["facts"]["asks"], "1 + 1"])
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in items)
    (folder / "items.jsonl").write_text(lines, encoding="utf-8")
    assert "the code is not what its program writes" in one(folder / "code.jsonl", "unparseable").reason
