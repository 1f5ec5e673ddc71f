"""A leaf can be deleted: what asks for it ends in one message that names it, and every other command works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.commands import commands

ROOT = Path(__file__).resolve().parents[2]
GONE = "error: {} is not in this installation: the module {} is missing\n"
HELPS = """
import sys
from click.testing import CliRunner
from uni_train.cli.main import uni_train

for words in sys.argv[1:]:
    done = CliRunner().invoke(uni_train, [*words.split(), "--help"])
    assert done.exit_code == 0 and "Usage:" in done.output, (words, done.output, done.exception)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program, whose folders of data and evaluation are links as in a checkout."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("uni_train", "eval", "data_gen", "recipes", "configs"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@contextmanager
def without(tree: Path, leaf: str) -> Iterator[None]:
    """Within it a file or a folder of the copy is gone."""
    kept = tree / "kept"
    (tree / leaf).rename(kept)
    try:
        yield
    finally:
        kept.rename(tree / leaf)


def python(tree: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    place = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=place, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("leaf", "command", "name"),
    [
        ("uni_train/insight", "insight links shipped task=mapping", "insight"),
        ("uni_train/plan", "plan sft_nano", "plan"),
        ("uni_train/serving", "serve -m nano --port 18123", "serving"),
        ("uni_train/view.py", "view .", "view"),
        ("uni_train/models/doctor.py", "doctor nano", "doctor"),
        ("eval/judges/calibrate.py", "eval calibrate -c shipped judge.model=a/b", "calibrate"),
        ("eval/leaderboard.py", "eval leaderboard evals/a", "leaderboard"),
        ("eval/watch.py", "watch runs/a", "watch"),
        ("data_gen/attacks.py", "data audit-verifier", "attacks"),
    ],
)
def test_a_command_whose_leaf_is_gone_ends_in_one_message(tree: Path, leaf: str, command: str, name: str) -> None:
    module = f"uni_train.{leaf.removeprefix('uni_train/').removesuffix('.py').replace('/', '.')}"
    with without(tree, leaf):
        done = python(tree, "-m", "uni_train", *command.split())
        assert (done.returncode, done.stdout, done.stderr) == (1, "", GONE.format(name, module))
        others = python(tree, "-c", HELPS, *(words for words, _ in commands()))
        assert others.returncode == 0, others.stderr
