"""Reports of runs and evaluations with damaged files: one clear screen each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.bad_inputs_corpus import Case, outcome, run
from tests.eval.test_compare import evaluation
from tests.eval.test_forged import refused
from uni_train.cli.main import uni_train as command
from uni_train.eval.benchmark import Source
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.report import run as run_page

STARTS = (3, {"a": 1}, [1], [None], [{"command": 3}], [{"command": [3]}], [{"git": [1]}], [{"versions": 3}])
FILES = {
    "run.json": [json.dumps({"starts": starts}).encode() for starts in STARTS],
    "config.yaml": [b"recipe: caf\xe9\n", b"\0"],
    "stages/12-finetune-mapping3/metrics.jsonl": [
        *(b'{"step": %s, "loss": 1}\n{"step": 2}\n' % step for step in (b"Infinity", b"NaN", b'"x"')), b"{oops\n{}\n"
    ],
    "stages/13-evaluate-after/scored/00000.parquet": [b"PAR1"],
}  # fmt: skip
CONFIG = "recipe: stars_mapping\nseed: 0\nmodel: {name: nano}\n"


@pytest.mark.parametrize(("file", "content"), [(file, one) for file, some in FILES.items() for one in some])
def test_a_damaged_file_of_a_run_is_named(file: str, content: bytes, run_dir: Path) -> None:
    (run_dir / "config.yaml").write_text(CONFIG)
    (run_dir / file).write_bytes(content)
    assert file in refused(run_dir, "report", run_dir)


def test_an_infinite_loss_and_a_line_cut_short_are_left_out_of_the_curves(run_dir: Path) -> None:
    (run_dir / "config.yaml").write_text(CONFIG)
    file = run_dir / "stages/12-finetune-mapping3/metrics.jsonl"
    file.write_text('{"step": 1, "loss": Infinity, "lr": -Infinity}\n{"step": 2, "loss": 1.0}\n{"step": 3')
    assert outcome(Case("", "", lambda _: run("report", run_dir), fine=True), run_dir).what == "taken"


def test_logs_with_an_infinite_step_are_left_out_of_the_view(tmp_path: Path) -> None:
    from uni_train.view import read

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": Infinity, "loss": 1}\n{"step": 2, "loss": 1}\n')
    assert read(tmp_path).scalars == {}


@pytest.mark.parametrize("command", ["report", "compare", "leaderboard"])
def test_an_evaluation_without_its_samples_says_so(command: str, tmp_path: Path) -> None:
    folder = evaluation(tmp_path / "one", [UniSandbox(Source(n=4, sets=("math1",)))], lambda ask: True)
    shutil.rmtree(folder / "scored")
    arguments = {"report": ("report", folder), "compare": ("eval", "compare", folder, folder),
                 "leaderboard": ("eval", "leaderboard", folder, "--out", tmp_path / "board")}  # fmt: skip
    assert "unisandbox.parquet is missing" in refused(tmp_path, *arguments[command])


def test_a_run_without_the_samples_of_an_evaluation_says_so(run_dir: Path) -> None:
    (run_dir / "config.yaml").write_text(CONFIG)
    folder = run_page.evaluations(run_dir)["after"]
    for shard in folder.glob("*.parquet"):
        shard.unlink()
    done = CliRunner().invoke(command, ["report", str(run_dir)], catch_exceptions=False)
    assert done.exit_code == 0 and f"{folder}: no samples" in done.output
    assert done.output.count("no samples") == 1
