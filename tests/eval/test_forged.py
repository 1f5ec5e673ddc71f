"""Runs and evaluations whose files are damaged or forged: one sentence that names the file, and no file elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bench.bad_inputs_corpus import Case, outcome, run
from tests.eval.test_compare import evaluation
from uni_train.cli.main import uni_train
from uni_train.core.errors import UserError
from uni_train.core.files import below
from uni_train.eval import scored as scored_files
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.evaluation import SCORED
from uni_train.eval.report.run import evaluations
from uni_train.eval.scored import read_scored
from uni_train.models.pictures import encode_png


def refused(folder: Path, *arguments: str | Path) -> str:
    """What `uni_train` says as it refuses."""
    found = outcome(Case("", "", lambda _: run(*arguments)), folder)
    assert found.what == "refused", found
    return found.said


def forged(folder: Path, row: int = 0, **columns: Any) -> Path:
    """An evaluation whose row `row` has other columns, with digests that fit."""
    evaluation(folder, [UniSandbox(Source(n=4, sets=("math1",)))], lambda ask: True)
    (shard,) = (folder / SCORED).iterdir()
    rows = scored_files._read_rows(shard, images=True)
    for one in rows:
        one["image"] = encode_png(np.zeros((4, 4, 3), dtype=np.uint8))
    rows[row].update(columns)
    scored_files._write_rows(shard, rows, {})
    return shard


def command(name: str, one: Path, board: Path) -> list[str | Path]:
    """A command that reads the evaluation `one`."""
    leaderboard = ["eval", "leaderboard", one, "--submissions", "--out", board]
    return {"report": ["report", one], "compare": ["eval", "compare", one, one], "leaderboard": leaderboard}[name]


CHECK = {"name": "count", "status": "pass", "reason": ""}
BROKEN: dict[str, dict[str, Any]] = {
    "a verdict that is a list": {"verdict": "[]"}, "a verdict that is no JSON": {"verdict": "{"},
    "a verdict of another status": {"verdict": json.dumps({"checks": [CHECK | {"status": "x"}]})},
    "an infinite check": {"verdict": '{"checks": [{"name": "c", "status": "pass", "value": Infinity}]}'},
    "parts that are an object": {"parts": '{"a": 1}'}, "parts without images": {"parts": "[[1]]"},
    "facts that are a list": {"facts": "[]"}, "case facts that are a text": {"case_facts": '"x"'},
    "another status": {"status": "x"}, "replies that are no list": {"replies": "1"},
    "an infinite value": {"value": float("inf")}, "a negative draw": {"k": -5},
}  # fmt: skip
# A report shows these, as it counts nothing anew.
UNCOUNTABLE = {"other case facts": {"case_facts": "{}"}, "no facts of an item": {"case_facts": '{"item": {}}'}}


@pytest.mark.parametrize(
    ("name", "by"),
    [(name, "report") for name in BROKEN] + [("an infinite check", "leaderboard"), ("another status", "compare")]
    + [(name, command) for name in UNCOUNTABLE for command in ("leaderboard", "compare")],
)  # fmt: skip
def test_a_broken_row_is_a_damaged_shard(name: str, by: str, tmp_path: Path) -> None:
    one = tmp_path / "one"
    forged(one, **(BROKEN | UNCOUNTABLE)[name])
    said = refused(tmp_path, *command(by, one, tmp_path / "board"))
    assert "damaged" in said and str(one) in said


def test_what_the_files_do_not_bear_out_is_named(tmp_path: Path) -> None:
    """No image, a row that is there twice, a setting that was not asked, no samples."""
    one, board = tmp_path / "one", tmp_path / "board"
    forged(one, image=b"no image")
    assert "no image that can be read" in refused(tmp_path, "report", one)
    first = read_scored(forged(one))[0].sample.ask
    forged(one, row=1, id=first.case.id, setting=first.setting, k=first.k)
    assert "is there twice" in refused(tmp_path, "eval", "compare", one, one)
    forged(one, setting="sketched")
    for by in ("report", "leaderboard"):
        assert "scores.json has no setting sketched" in refused(tmp_path, *command(by, one, board))
    shutil.rmtree(one / SCORED)
    for by in ("report", "compare", "leaderboard"):
        assert "unisandbox.parquet is missing" in refused(tmp_path, *command(by, one, board))


def test_no_path_from_data_leads_out_of_its_folder(tmp_path: Path) -> None:
    forged(tmp_path / "one", setting="../../../x")
    board = tmp_path / "a" / "b" / "board"
    refused(tmp_path, *command("leaderboard", tmp_path / "one", board))
    theirs = {*board.rglob("*"), *(tmp_path / "one").rglob("*")}
    assert not {path for path in tmp_path.rglob("*") if path.is_file()} - theirs
    (tmp_path / "link").symlink_to("/")
    for name in ("../x", "/x", "a/../../x", "", ".", "x\0y", "link/x"):
        with pytest.raises(UserError, match="no name of a file below"):
            below(tmp_path, name)
    assert below(tmp_path, "a/b.png") == tmp_path / "a/b.png"


def test_names_do_not_steer_the_terminal(tmp_path: Path) -> None:
    escape = "\x1b]0;owned\x07"
    forged(tmp_path / "one", **{"set": f"math1{escape}"})
    name = f"{escape}a={tmp_path / 'one'}"
    case = Case("", "", lambda _: run("eval", "leaderboard", name, "--out", tmp_path / "board"), fine=True)
    assert outcome(case, tmp_path).what in ("refused", "taken")


STARTS = (3, {"a": 1}, [1], [None], [{"command": 3}], [{"command": [3]}], [{"git": [1]}], [{"versions": 3}])
LOG = "stages/12-finetune-mapping3/metrics.jsonl"
FILES: dict[str, list[bytes]] = {
    "run.json": [json.dumps({"starts": starts}).encode() for starts in STARTS],
    "config.yaml": [b"recipe: caf\xe9\n", b"\0"],
    LOG: [
        *(b'{"step": %s, "loss": 1}\n{"step": 2}\n' % step for step in (b"Infinity", b"NaN", b'"x"')),
        b"{oops\n{}\n",
    ],
    "stages/13-evaluate-after/scored/00000.parquet": [b"PAR1"],
}  # fmt: skip


def test_a_damaged_file_of_a_run_is_named(run_dir: Path) -> None:
    for file, contents in FILES.items():
        whole = (run_dir / file).read_bytes()
        for content in contents:
            (run_dir / file).write_bytes(content)
            assert file in refused(run_dir, "report", run_dir)
        (run_dir / file).write_bytes(whole)


def test_infinite_numbers_and_a_line_cut_short_are_left_out_of_the_curves(run_dir: Path) -> None:
    log = run_dir / LOG
    log.write_text('{"step": 1, "loss": Infinity, "lr": -Infinity}\n{"step": 2, "loss": 1.0}\n{"step": 3')
    assert outcome(Case("", "", lambda _: run("report", run_dir), fine=True), run_dir).what == "taken"
    log.write_text('{"step": Infinity, "loss": 1}\n{"step": 2, "loss": 1}\n')
    from uni_train.view import read

    assert read(log.parent).scalars == {}


def test_a_run_without_the_samples_of_an_evaluation_says_so(run_dir: Path) -> None:
    folder = evaluations(run_dir)["after"]
    for shard in folder.glob("*.parquet"):
        shard.unlink()
    done = CliRunner().invoke(uni_train, ["report", str(run_dir)], catch_exceptions=False)
    assert done.exit_code == 0 and done.output.count("no samples") == 1 and f"{folder}: no samples" in done.output
