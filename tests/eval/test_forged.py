"""Evaluations from somebody else whose files are forged: no file elsewhere, and no words that steer the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.bad_inputs_corpus import Case, outcome, run
from tests.eval.test_compare import evaluation
from uni_train.core.errors import UserError
from uni_train.core.files import below
from uni_train.eval import scored as scored_files
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.evaluation import SCORED
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


def test_an_image_that_is_none_is_named(tmp_path: Path) -> None:
    forged(tmp_path / "one", image=b"no image")
    assert "no image that can be read" in refused(tmp_path, "report", tmp_path / "one")


def test_no_path_from_data_leads_out_of_its_folder(tmp_path: Path) -> None:
    forged(tmp_path / "one", setting="../../../x")
    board = tmp_path / "a" / "b" / "board"
    refused(tmp_path, "eval", "leaderboard", tmp_path / "one", "--submissions", "--out", board)
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
