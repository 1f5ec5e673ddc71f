"""The published schema: read and written, and every way in which it is not what it should be."""

import json

import pytest

from uni_train.core.errors import DataError
from uni_train.data_gen.objects import EVERYDAY, NANO
from uni_train.data_gen.ureason.files import row_of, write_folder
from uni_train.data_gen.ureason.published import read_folder
from uni_train.data_gen.ureason.task import UReason

ROWS = [
    {"id": 301, "prompt": "Task: a\nScenario: ...", "expect_en": "Left is a dock.", "category": "spatial"},
    {"id": 302, "prompt": "Task: b", "expect_en": "Left is a pen.", "category": "spatial", "expect_zh": "..."},
]


def write(folder, rows, direct=None, task="spatial"):
    folder.mkdir(exist_ok=True)
    plain = [{**row, "prompt": "Draw it."} for row in ROWS] if direct is None else direct
    for name, some in ((f"{task}.jsonl", rows), (f"direct_{task}.jsonl", plain)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in some))
    return folder


def test_published_rows_are_read_with_their_direct_prompts(tmp_path):
    first, second = read_folder(write(tmp_path, ROWS), ["spatial"])
    assert (first.id, first.task, first.criterion) == ("301", "spatial", "Left is a dock.")
    assert (first.prompt, first.direct) == ("Task: a\nScenario: ...", "Draw it.")
    assert second.subcategory == "" and second.facts == {}


def changed(place, **values):
    rows = [dict(row) for row in ROWS]
    rows[place].update(values)
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize(
    ("rows", "direct", "said"),
    [
        (changed(1, expect_en=None), None, 'line 2: no "expect_en"; its keys are id, prompt, category, expect_zh'),
        (changed(1, id=301), None, "spatial.jsonl, line 2: the id 301 was used in "),
        (changed(1, prompt=" "), None, '"prompt" is " "; expected some text'),
        (changed(1, category="text"), None, '"category" is "text", but the file is of spatial'),
        (changed(1, subcategory="Diagonal"), None, 'no subcategory "Diagonal"'),
        (changed(1, facts=3), None, '"facts" is 3; expected a'),
        (changed(1, facts={"outcome": {"kind": "smell"}}), None, 'line 2: there is no outcome "smell"'),
        (ROWS, ROWS[:1], "direct_spatial.jsonl has no row for the ids 302 of spatial.jsonl"),
        (ROWS, changed(1, expect_en="Left is a cup."), "both must be judged by the same criterion"),
        ([], None, "has no rows"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_line(tmp_path, rows, direct, said):
    with pytest.raises(DataError) as caught:
        read_folder(write(tmp_path, rows, direct), ["spatial"])
    assert said in str(caught.value) and "spatial.jsonl" in str(caught.value)


def test_missing_files_and_ids_in_two_tasks_are_named(tmp_path):
    with pytest.raises(DataError, match="is no folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"has no code\.jsonl, direct_code\.jsonl, arithmetic\.jsonl, .*leave out"):
        read_folder(write(tmp_path, ROWS))
    (tmp_path / "direct_spatial.jsonl").unlink()
    with pytest.raises(DataError, match=r"has no direct_spatial\.jsonl"):
        read_folder(tmp_path, ["spatial"])
    other = [{**row, "category": "text"} for row in ROWS]
    write(write(tmp_path, ROWS), other, other, "text")
    with pytest.raises(DataError, match=r"text\.jsonl, line 1: the id 301 was used in .*spatial\.jsonl, line 1"):
        read_folder(tmp_path, ["spatial", "text"])


@pytest.mark.parametrize("world", [NANO, EVERYDAY])
def test_what_we_write_is_read_back_as_it_was(tmp_path, world):
    task = UReason(world)
    items = task.generate(len(task.cells), 2, "validation", 0)
    write_folder(tmp_path, items)
    tasks = list(dict.fromkeys(item.facts["task"] for item in items))
    assert read_folder(tmp_path, tasks) == [row_of(i) for task in tasks for i in items if i.facts["task"] == task]
