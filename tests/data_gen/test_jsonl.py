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
    ("read", "content", "message"),
    [
        (
            jsonl.read_published,
            f'{GOOD}\n\n{{"Question": ',
            r"line 3: not JSON \(.*\); expected one complete JSON object a",
        ),
        (jsonl.read_published, f'{GOOD}\n{{"Question": "x", "id": "2"}}', 'line 2: no "Answer"; expected'),
        (jsonl.read_published, '{"Question": "x", "Answer": null, "id": "2"}', '"Answer" is null; expected text'),
        (jsonl.read_published, f"{GOOD}\n{GOOD}", "line 2: the id 1 was used before, in line 1"),
        (jsonl.read_published, "\n", "has no rows"),
        (jsonl.read_published, f'{GOOD}\n{{"Question": "caf\xe9"}}', "line 2: not UTF-8"),
        (jsonl.read_items, GOOD, "line 1: not an item .* expected the keys id, task"),
    ],
)
def test_a_bad_line_is_named(tmp_path, read, content, message):
    (tmp_path / "rows.jsonl").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=f"rows.jsonl.*{message}"):
        read(tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read(tmp_path / "absent.jsonl")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "rows.jsonl"
    jsonl.write_rows(path, [{"a": 1}])

    def rows():
        yield {"a": 2}
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"rows.jsonl cannot be written: No space left on device"):
        jsonl.write_rows(path, rows())
    assert path.read_text() == '{"a": 1}\n' and [*tmp_path.iterdir()] == [path]
