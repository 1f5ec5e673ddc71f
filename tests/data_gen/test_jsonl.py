"""Reading and writing JSON lines: round trips, errors with file and line, files that are whole or untouched."""

import pytest

from uni_train.core.errors import DataError
from uni_train.data_gen import jsonl
from uni_train.data_gen.registry import get_task


def test_items_and_published_rows_round_trip(tmp_path):
    maths = get_task("maths", "everyday").generate(5, 3, "test", 0)
    mapping = get_task("mapping", "nano").generate(5, 2, "test", 0)
    jsonl.write_items(tmp_path / "items.jsonl", maths + mapping)
    assert jsonl.read_items(tmp_path / "items.jsonl") == maths + mapping
    jsonl.write_rows(tmp_path / "math.jsonl", jsonl.published_rows(maths))
    rows = jsonl.read_published(tmp_path / "math.jsonl")
    assert [(r.id, r.question, r.answer, r.line) for r in rows] == [
        (item.id, item.prompt, item.answer, line) for line, item in enumerate(maths, 1)
    ]
    jsonl.write_rows(tmp_path / "mapping.jsonl", jsonl.published_rows(mapping))
    rows = jsonl.read_published(tmp_path / "mapping.jsonl")
    assert [(f"{r.id}/{r.which}", r.question, r.answer) for r in rows] == [(i.id, i.prompt, i.answer) for i in mapping]


GOOD = '{"Question": "Draw as many owls as 1 + 1.", "Answer": "2 owls", "id": "1"}'


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ('{"Question": ', r"rows.jsonl, line 3: not JSON \(.*\); expected one complete JSON object a line"),
        ('{"Question": "x", "id": "2"}', 'rows.jsonl, line 3: no "Answer"; expected'),
        ('{"Question": "x", "Answer": null, "id": "2"}', 'line 3: "Answer" is null; expected text'),
        (GOOD, "line 3: the id 1 was used before, in line 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path, second, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{GOOD}\n\n{second}\n")
    with pytest.raises(DataError, match=message):
        jsonl.read_published(path)


def test_missing_empty_and_undecodable_files(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        jsonl.read_published(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="has no rows"):
        jsonl.read_published(tmp_path / "empty.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(GOOD.encode() + b'\n{"Question": "caf\xe9"}\n')
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        jsonl.read_published(tmp_path / "latin.jsonl")
    (tmp_path / "items.jsonl").write_text(GOOD + "\n")
    with pytest.raises(DataError, match=r"items.jsonl, line 1: not an item .* expected the keys id, task"):
        jsonl.read_items(tmp_path / "items.jsonl")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "rows.jsonl"
    jsonl.write_rows(path, [{"a": 1}])

    def rows():
        yield {"a": 2}
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"rows.jsonl cannot be written: No space left on device"):
        jsonl.write_rows(path, rows())
    assert path.read_text() == '{"a": 1}\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]
