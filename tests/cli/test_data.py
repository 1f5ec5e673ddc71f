"""`uni_train data make|show|audit|verify`, on files that they write themselves."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from uni_train.cli.main import uni_train
from uni_train.data_gen.audit import tally_file
from uni_train.data_gen.jsonl import read_items
from uni_train.data_gen.registry import TASKS, get_task
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.ureason import UReason


def run(*arguments: object) -> Result:
    return CliRunner().invoke(uni_train, ["data", *map(str, arguments)], catch_exceptions=False)


def made(*arguments: object) -> str:
    """What `data make` prints where it succeeds."""
    result = run("make", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_what_make_writes_passes_the_audit_until_a_label_is_changed(tmp_path: Path) -> None:
    questions = tmp_path / "made" / "mapping2.jsonl"
    assert str(questions) in made("--level", 2, "--n", 30, "--out", questions.parent)
    for file in (questions, questions.parent):
        clean = run("audit", file)
        assert clean.exit_code == 0 and "60 labels: 60 ok" in clean.output
        assert "coin between chain ends" in clean.output and "SHORTCUT" not in clean.output

    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    rows[1]["Answer"] = rows[0]["Answer"]
    questions.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    damaged = run("audit", questions, "--json")
    assert damaged.exit_code == 1
    found = [json.loads(line) for line in damaged.output.splitlines()]
    assert [set(row) for row in found] == [{"id", "status", "expected", "reason"}] * len(rows)
    assert [row["status"] for row in found].count("wrong") == 1
    assert "1 wrong" in run("audit", questions).output

    (questions.parent / "items.jsonl").unlink()
    refused = run("audit", questions.parent)
    assert refused.exit_code == 2 and "has no items.jsonl" in refused.output
    questions.write_text('{"Question": "Draw as many cats as 1 + 1.", "Answer": "2 cats", "id": "1"}\n{"Question": \n')
    refused = run("audit", questions)
    assert refused.exit_code == 1 and str(questions) in refused.output and "line 2" in refused.output


def test_audit_names_the_test_questions_that_a_file_asks_too(tmp_path: Path) -> None:
    for split in ("train", "test"):
        made("--task", "maths", "--world", "everyday", "--split", split, "--n", 12, "--out", tmp_path / split)
    rows = [json.loads(line) for line in (tmp_path / "test/math_1.jsonl").read_text(encoding="utf-8").splitlines()]
    clean = run("audit", tmp_path / "train", "--against", tmp_path / "test")
    assert clean.exit_code == 0 and re.search(r"math_1\.jsonl +12 +0 +0 +0", clean.output), clean.output
    with (tmp_path / "train/math_1.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(rows[3]) + "\n")
    shared = run("audit", tmp_path / "train/math_1.jsonl", "--against", tmp_path / "test/math_1.jsonl")
    assert re.search(r"math_1\.jsonl +12 +1 +1 +1", shared.output) and f"math_1.jsonl: {rows[3]['id']}" in shared.output
    both = run("audit", tmp_path / "train", "--against", tmp_path / "test", "--json")
    assert both.exit_code == 2 and "Give one of the two" in both.output


def test_a_folder_is_named_after_its_task_and_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for asked in ("", "--task maze --size 3-4", "--task maze --size 3"):
        made("--n", 1, *asked.split())
    assert {path.name for path in Path("data").iterdir()} == {"mapping1", "maze3-4", "maze3"}


def test_make_says_how_many_of_the_questions_are_distinct(tmp_path: Path) -> None:
    for split in ("train", "test"):
        output = made("--task", "maths", "--split", split, "--n", 90, "--out", tmp_path / split)
        forms = {item.facts["canonical"] for item in read_items(tmp_path / split / "items.jsonl")}
        repeats = f", {len(forms)} distinct" if split == "train" else ""
        assert f"90 questions{repeats}, 90 images" in output and (len(forms) < 90) == (split == "train")


def test_balanced_maths_has_no_shortcut(tmp_path: Path) -> None:
    made("--task", "maths", "--split", "test", "--balanced", "--n", 90, "--out", tmp_path / "made")
    shown = run("audit", tmp_path / "made")
    assert "90 labels: 90 ok" in shown.output and "SHORTCUT" not in shown.output
    assert max(one.share for one in tally_file(tmp_path / "made" / "items.jsonl")["maths level 1"]) < 0.2


def test_audit_marks_a_shortcut(tmp_path: Path) -> None:
    rules = "Rule 1: A means 7. Rule 2: 7 means {}. Rule 3: B means 9. Rule 4: 9 means {}."
    asked = "Please generate the object represented by"
    rows = [
        {"ID": str(i), f"Question_{which}": f"{rules.format(a, b)} {asked} {which}.", "Answer": answer}
        for i, (a, b) in enumerate([("cats", "cups"), ("keys", "cats"), ("cups", "keys")] * 10)
        for which, answer in (("A", a), ("B", b))
    ]
    (tmp_path / "theirs.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    found = run("audit", tmp_path / "theirs.jsonl").output
    (line,) = [line for line in found.splitlines() if "first noun after the symbol" in line]
    assert "1.00" in line and "SHORTCUT" in line and "Chance: 0.25" in found


@pytest.mark.parametrize(
    "asked", ["--task maths", "--task ureason", "--task ureason --world everyday", "{made}"], ids=str
)
def test_show_prints_items_and_draws_a_sheet(asked: str, tmp_path: Path) -> None:
    made("--task", "maths", "--n", 3, "--out", tmp_path / "made")
    sheet = tmp_path / "sheet.png"
    shown = run("show", *asked.format(made=tmp_path / "made").split(), "--n", 2, "--out", sheet)
    assert shown.exit_code == 0 and shown.output.count("  -> ") == 2
    with Image.open(sheet) as image:
        assert np.asarray(image.convert("L")).std() > 0


@pytest.fixture(scope="module")
def mazes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "mazes"
    asked = "--task maze --size 3-4 --style nano --split test --n 2 --out"
    assert "4 questions, 8 images" in made(*asked.split(), folder)
    return folder


def test_verify_judges_a_folder_and_lists_what_is_missing(mazes: Path, tmp_path: Path) -> None:
    items, verdicts = mazes / "items.jsonl", tmp_path / "verdicts.jsonl"
    assert run("verify", "--items", items, "--images", mazes / "images", "--out", verdicts).exit_code == 0
    assert [json.loads(line)["status"] for line in verdicts.read_text().splitlines()] == ["pass"] * 4
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    ids = [json.loads(line)["id"] for line in items.read_text().splitlines()]
    (drawn / f"{ids[0].replace('/', '-')}.png").write_bytes((mazes / f"inputs/{ids[0][-16:]}.png").read_bytes())
    (drawn / f"{ids[1][-16:]}.jpg").write_bytes(b"no picture")
    (drawn / "maze4" / "test").mkdir(parents=True)
    (drawn / f"{ids[2]}.png").write_bytes((mazes / f"images/{ids[2][-16:]}.png").read_bytes())
    result = run("verify", "--items", items, "--images", drawn, "--out", verdicts)
    assert result.exit_code == 1 and ids[3] in result.output
    found = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert [(one["id"], one["status"]) for one in found] == list(
        zip(ids, ("fail", "unreadable", "pass", "missing"), strict=True)
    )
    assert found[0]["score"] == 0 and {check["name"] for check in found[0]["checks"]} >= {"rule_obey"}


def test_verify_judges_one_picture_and_names_a_wrong_one(mazes: Path, tmp_path: Path) -> None:
    items = mazes / "items.jsonl"
    item = json.loads(items.read_text().splitlines()[0])
    first = item["id"]
    for arguments, message in (
        (("--item", first[:-1], "--image", "x.png"), f'did you mean "{first}"'),
        (("--item", first, "--image", "x.png"), "x.png: there is no such file"),
        (("--images", tmp_path / "nowhere", "--out", tmp_path / "v.jsonl"), "is no folder"),
    ):
        result = run("verify", "--items", items, *arguments)
        assert result.exit_code == 1 and message in result.output and "Traceback" not in result.output
    result = run("verify", "--items", items, "--item", first[-16:], "--image", mazes / item["image"])
    verdict = json.loads(result.output)
    assert (result.exit_code, verdict["status"], verdict["id"]) == (0, "pass", first)


def test_invented_people_are_written_and_can_be_asked_about(tmp_path: Path) -> None:
    first = run("knowledge", "--n", 2, "--out", tmp_path / "people")
    assert first.exit_code == 0 and "2 characters, 80 lessons, 10 questions" in first.output
    assert len(UniSandbox(Source(data=tmp_path / "people")).cases()) == 10
    again = run("knowledge", "--n", 2, "--out", tmp_path / "people")
    assert again.exit_code == 1 and "is not an empty folder" in again.output


def test_all_tasks_are_made_with_a_page_that_links_their_images(tmp_path: Path) -> None:
    out = tmp_path / "all"
    said = made("--task", "all", "--level", 1, "--n", 2, "--style", "nano", "--out", out)
    assert "maze has no level 1 of the split train: level 3" in said
    assert sorted(path.name for path in out.iterdir()) == sorted([*TASKS.names(), "index.html"])
    items = {name: read_items(out / name / "items.jsonl") for name in TASKS.names()}
    assert {item.task for item in items["maze"]} == {"maze"} and items["maze"][0].facts["picture"]["style"] == "nano"
    assert items["maths"] == get_task("maths").generate(2, 1, "train", 0)
    page = (out / "index.html").read_text()
    images = re.findall(r'src="(?!data:)([^"]+)"', page)
    assert sorted(images) == sorted(str(path.relative_to(out)) for path in out.rglob("*.png"))
    for item in items["maths"]:
        assert html.escape(item.prompt) in page and html.escape(item.thought) in page
    made("--task", "all", "--n", 1, "--format", "parquet", "--out", out, "--force")
    assert [path.name for path in (out / "maths").iterdir()] == ["train.parquet"]


def test_a_page_of_a_task_shows_steps_and_why_images_are_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    shown = run("show", "--task", "maze", "--size", "3-4", "--style", "nano", "--n", 2, "--out", page)
    assert shown.exit_code == 0 and f"page: {page}" in shown.output
    text = page.read_text()
    assert text.count("there is no red path") >= 4  # copied inputs of two items a level
    assert text.count("another item&#39;s answer</figcaption>") == 4 and '<p class="verdict">pass' not in text
    assert run("show", "--task", "maths", "--n", 2, "--out", page).exit_code == 0
    assert all(f"level {level}</h2>" in page.read_text() for level in (1, 2, 3))


def test_escape_sequences_in_a_folder_s_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    output = made("--n", 1, "--out", tmp_path / "\x1b[31mred")
    assert "[31mred: 2 questions" in output and "\x1b" not in output


def test_ureason_s_folder_is_a_benchmark_and_can_be_replaced(tmp_path: Path) -> None:
    make = ("--task", "ureason", "--out", tmp_path / "made")
    made(*make, "--world", "everyday", "--n", 30, "--level", "2-3")
    items = read_items(tmp_path / "made" / "items.jsonl")
    assert {item.level for item in items} == {2, 3} and len(items) == 60
    benchmark = UReason(Source(data=tmp_path / "made"))
    assert {case.id for case in benchmark.cases()} == {item.id for item in items} and len(benchmark.sets) == 5
    assert run("make", *make, "--n", 5).exit_code == 1  # not empty
    made(*make, "--n", 5, "--force")
    names = ["arithmetic", "code", "direct_arithmetic", "direct_code", "items"]
    assert sorted(path.stem for path in (tmp_path / "made").glob("*.jsonl")) == names
    assert len(list((tmp_path / "made" / "images").glob("*.png"))) == 15  # five of each level, in the nano world
