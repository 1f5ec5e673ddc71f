"""A leaf can be deleted: what asks for it ends in one message that names it, and every other command works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.commands import commands
from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.models.nano.family import ASSETS

ROOT = Path(__file__).resolve().parents[2]
GONE = "error: {} is not in this installation: the module {} is missing\n"
TYPED = """
import contextlib, io, json, sys
from uni_train.cli.main import uni_train

ends = []
for words in sys.argv[1:]:
    said, error, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
        try:
            uni_train.main(words.split(), prog_name="uni_train")
        except SystemExit as end:
            code = end.code
    ends.append([code, said.getvalue(), error.getvalue()])
print(json.dumps(ends))
"""
LEAVES = {
    "uni_train/insight": ("insight links shipped task=mapping", "insight"),
    "uni_train/plan": ("plan sft_nano", "plan"),
    "uni_train/serving": ("serve -m nano --port 18123", "serving"),
    "uni_train/view.py": ("view .", "view"),
    "uni_train/models/doctor.py": ("doctor nano", "doctor"),
    "eval/judges/calibrate.py": ("eval calibrate -c shipped judge.model=a/b", "calibrate"),
    "eval/leaderboard.py": ("eval leaderboard evals/a", "leaderboard"),
    "eval/watch.py": ("watch runs/a", "watch"),
    "data_gen/attacks.py": ("data audit-verifier", "attacks"),
}
"""A leaf -> its command, and what the command's message calls it."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program, whose folders of data and evaluation are links as in a checkout."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("uni_train", "eval", "data_gen", "recipes", "configs"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True)  # with what is compiled already
    return copy


@contextmanager
def without(tree: Path, leaf: str) -> Iterator[None]:
    """Within it a file or a folder of the copy is gone."""
    kept = tree / f"kept-{leaf.replace('/', '-')}"
    (tree / leaf).rename(kept)
    try:
        yield
    finally:
        kept.rename(tree / leaf)


def python(tree: Path, *arguments: str, **environment: str) -> str:
    """What a process that imports the copy prints."""
    place = {**os.environ, "PYTHONPATH": str(tree), **environment}
    done = subprocess.run([sys.executable, *arguments], cwd=tree, env=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def typed(tree: Path, *commands: str, **environment: str) -> list[tuple[int, str, str]]:
    """How each command ends, all in one process: its exit code, and what is on stdout and stderr."""
    return [tuple(end) for end in json.loads(python(tree, "-c", TYPED, *commands, **environment))]


def test_commands_whose_leaves_are_gone_end_in_one_message_and_all_have_their_help(tree: Path) -> None:
    """All leaves at once; which needs which is in tests/test_structure.py."""
    helps = [f"{words} --help" for words, _ in commands()]
    analysis = "import uni_train\ntry: uni_train.analyse('links', 'shipped', task='mapping')\n"
    analysis += "except uni_train.UserError as error: print(error)"
    with ExitStack() as stack:
        for leaf in LEAVES:
            stack.enter_context(without(tree, leaf))
        ends = typed(tree, *(command for command, _ in LEAVES.values()), *helps)
        in_python = python(tree, "-c", analysis)
    for (leaf, (_, name)), (_, said, error) in zip(LEAVES.items(), ends, strict=False):
        module = f"uni_train.{leaf.removeprefix('uni_train/').removesuffix('.py').replace('/', '.')}"
        assert (said, error) == ("", GONE.format(name, module))
    for words, (_, said, error) in zip(helps, ends[len(LEAVES) :], strict=True):
        assert "Usage:" in said and error == "", (words, said, error)
    assert f"error: {in_python}" == GONE.format("insight", "uni_train.insight")


def test_what_a_leaf_registers_is_unknown_by_its_name_and_its_runs_are_still_read(tree: Path) -> None:
    run = tree / "runs" / "distil_math" / "seed0"
    stage = run / "stages" / "00-train"
    shutil.copytree(ASSETS, stage / "model")
    (stage / "manifest.json").write_text(
        json.dumps({"stage": "train", "status": "done", "key": "", "seconds": 1.0, "outputs": [], "result": {}})
    )
    (run / "config.yaml").write_text(yaml.safe_dump(to_plain(compose("distil_math"))))
    kinds = "kind must be one of dpo, flow_grpo, knowledge, pretrain, sft, stars, not 'distil'"
    rows = (
        ("fit distil_math", 2, f"error: {kinds} ({tree}/recipes/distil_math.yaml)"),
        ("eval shipped -b wise", 2, "error: there is no benchmark wise"),
        ("models inspect janus_pro_1b", 1, 'error: there is no model family "janus": known: '),
        ("data make --task hanoi", 2, 'error: there is no task "hanoi": known: '),
        ("data audit-verifier judge", 1, "error: judging is not in this installation"),
        (f"report {run}", 0, f"report: {run}/report.html\n"),
        (f"models inspect {run}", 0, "complete: it can be loaded"),
        (f"fit {run}/config.yaml", 2, f"error: {kinds}"),
    )
    leaves = ("uni_train/recipes/distil", "eval/benchmarks/wise", "uni_train/models/janus", "data_gen/hanoi")
    with ExitStack() as stack:
        for leaf in (*leaves, "uni_train/rewards/judging.py"):
            stack.enter_context(without(tree, leaf))
        ends = typed(tree, *(command for command, _, _ in rows))
    for (command, code, message), (ended, said, error) in zip(rows, ends, strict=True):
        assert ended == code and message in said + error, (command, ended, said, error)
        assert error.count("error: ") == (code != 0), (command, error)


def test_a_command_without_its_file_is_none_and_a_plug_in_takes_the_name_of_a_leaf_only_where_that_is_gone(
    tree: Path,
) -> None:
    (tree / "mine.py").write_text(
        "from uni_train.eval.benchmark import benchmark\n"
        "from uni_train.eval.benchmarks.ufo.benchmark import Ufo\n"
        "@benchmark('wise')\n"
        "class Mine(Ufo):\n"
        "    'Mine.'\n"
    )
    command = "eval --help-benchmark wise"
    with without(tree, "uni_train/cli/insight.py"):
        helped, unknown, taken = typed(tree, "--help", "insight links shipped", command, UNI_TRAIN_PLUGINS="mine")
    assert "insight" not in helped[1]
    assert unknown[0] == 2 and "No such command 'insight'." in unknown[2]
    assert taken[0] == 1 and 'registers the benchmark "wise", a name that uni_train has taken' in taken[2]
    with without(tree, "eval/benchmarks/wise"):
        ((_, said, _),) = typed(tree, command, UNI_TRAIN_PLUGINS="mine")
    assert said.startswith("wise: Mine.")
