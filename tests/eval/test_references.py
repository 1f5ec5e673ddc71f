"""`eval questions --references`: a benchmark's own reference answers as a folder, scored like a model's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tests.eval.benchmarks.published import PNG, row, write
from tests.eval.judges.server import JudgeServer
from uni_train.cli.main import uni_train
from uni_train.core.errors import DataError
from uni_train.eval.benchmarks.ueval.cases import read_references
from uni_train.eval.images import bytes_of


def run(*words: Any) -> Result:
    return CliRunner().invoke(uni_train, ["eval", *map(str, words)])


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]


UEVAL = [row("ueval"), row("ueval", id=8, task="art", image_ref=["a.png", "b.png"]),
         row("ueval", id=9, task="tech", image_ref=None), row("ueval", id=10, image_ref=[], text_ref=None)]  # fmt: skip
UFO = [row("ufo"), row("ufo", id="2", answer="A", text_cue=None, cue_image=None)]
VIGOR = [row("vigor"), row("vigor", gt_image="b.png")]


@pytest.mark.parametrize(
    ("name", "published", "first", "said"),
    [
        ("ueval", (UEVAL, ""), {"id": "7", "text": "By stairs.", "images": ["images/00001-0.png"]},
         ["two_passes: no answer to 2 of 4 questions: 9, 10"]),
        ("ufo", (UFO, ""), {"id": "mcq/1", "text": "Answer: B", "thought": "A horn.", "images": ["images/00001-0.png"]},
         ["textual_cue: no answer to 1 of 2 questions: mcq/2", "visual_cue: no answer to 1 of 2 questions: mcq/2"]),
        ("vigor", (VIGOR, "Biology/records.json"), {"id": "biology/1"},
         ["direct: no answer to 1 of 2 questions: biology/0"]),
        ("unisandbox", None, {"setting": "normal"}, ["score them: uni_train eval"]),  # drawn by a program
        ("ueval", None, {"setting": "two_passes"}, ["score them: uni_train eval"]),
        ("ureason", ([row("ureason")], ""), None, ["none of the 1 questions of ureason has a reference"]),
        ("wise", ([row("wise")], ""), None, ["none of the 1 questions of wise has a reference"]),
    ],
)  # fmt: skip
def test_each_benchmark_writes_the_references_that_it_has(
    tmp_path: Path, name: str, published: Any, first: dict[str, Any] | None, said: list[str]
) -> None:
    asked = ["-b", name, "--n", 2, "world=nano", "--out", tmp_path / "out"]
    if published is not None:
        asked.append(f"data.{name}={write(tmp_path / 'data', name, *published[0], file=published[1])}")
    written = run("questions", *asked, "--references")
    printed = " ".join(written.output.split())
    assert all(words in printed for words in said), printed
    assert written.exit_code == (first is None)
    if first is not None:
        rows = rows_of(tmp_path / "out" / name)
        assert first.items() <= rows[0].items()
        assert all((tmp_path / "out" / name / image).is_file() for row in rows for image in row.get("images", ()))


def test_the_judge_scores_all_reference_images_and_a_part_that_lacks_fails(tmp_path: Path) -> None:
    data = write(tmp_path / "data", "ueval", *UEVAL)
    asked = ["-b", "ueval", f"data.ueval={data}", "--settings", "two_passes"]
    out = tmp_path / "reference"
    assert run("questions", *asked, "--references", "--out", out).exit_code == 0
    with JudgeServer(lambda _: json.dumps({"explanation": "", "criteria_met": True})) as server:
        scored = run(out, *asked, f"judge.model={server.url}#judge", "--out", tmp_path / "evals")
    assert scored.exit_code == 0, scored.output
    assert {len(asked.images) for asked in server.asked if "stairs" in asked.words} == {0, 1, 2}
    (scores,) = (tmp_path / "evals").glob("*/scores.json")
    found = json.loads(scores.read_text())["results"][0]["scores"]
    values = {part: found[part]["two_passes"] for part in ("image", "text")}
    assert (values["image"]["space"]["value"], values["text"]["space"]["value"]) == (0.5, 0.5)  # 7 has both, 10 none
    assert (values["image"]["art"]["value"], values["text"]["tech"]["value"]) == (1.0, 1.0)
    again = run("questions", *asked, "--references", "--out", out)
    assert again.exit_code == 1 and "holds answers already" in again.output
    both = run("questions", *asked, "--references", "--from", out)
    assert both.exit_code == 2 and "--references asks nothing" in both.output


def test_references_of_alike_ids_are_two_files_and_frames_have_none(tmp_path: Path) -> None:
    alike = [row("ueval", id="a/b", image_ref=["a.png"]), row("ueval", id="a-b", image_ref=["b.png"])]
    data = write(tmp_path / "data", "ueval", *alike)
    asked = ["-b", "ueval", f"data.ueval={data}", "--settings", "two_passes", "--references"]
    assert run("questions", *asked, "--out", tmp_path / "out").exit_code == 0
    names = [image for each in rows_of(tmp_path / "out/ueval") for image in each["images"]]
    assert len(set(names)) == len(names) == 2
    turns = ["-b", "vigor", "--n", 1, "sets=[maze_navigation]", "options.vigor.interleaved=yes", "--references"]
    said = run("questions", *turns, "--out", tmp_path / "turns")
    assert {each["setting"] for each in rows_of(tmp_path / "turns/vigor")} == {"direct", "cot"}
    assert "vigor has no parts in interleaved" in said.output
    video = ["-b", "vigor", "--n", 1, "sets=[maze_navigation]", "options.vigor.video=yes", "--references"]
    refused = run("questions", *video, "--out", tmp_path / "videos")
    assert refused.exit_code == 1 and "none of the 1 questions of vigor has a reference" in refused.output


def test_reference_images_are_files_or_bytes_of_parquet(tmp_path: Path) -> None:
    one = row("ueval", id="a", image_ref=[{"bytes": PNG, "path": None}, {"bytes": PNG, "path": None}])
    pq.write_table(pa.table({key: [value] for key, value in one.items()}), tmp_path / "test.parquet")
    assert [bytes_of(image) for image in read_references(tmp_path)["a"]()] == [PNG, PNG]
    (tmp_path / "test.parquet").unlink()
    write(tmp_path, "ueval", row("ueval", image_ref=["a.png", "c.png"]))
    references = read_references(tmp_path)
    with pytest.raises(DataError, match=r'test\.jsonl, line 1: "image_ref" 2: .*c\.png cannot be read'):
        references["7"]()
