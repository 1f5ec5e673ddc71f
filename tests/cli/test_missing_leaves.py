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
from subprocess import CompletedProcess

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
    said, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error), contextlib.suppress(SystemExit):
        uni_train.main(words.split(), prog_name="uni_train")
    ends.append([said.getvalue(), error.getvalue()])
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


def python(tree: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    place = {**os.environ, "PYTHONPATH": str(tree), **environment}
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=place, capture_output=True, text=True)


def test_commands_whose_leaves_are_gone_end_in_one_message_and_all_have_their_help(tree: Path) -> None:
    """All leaves at once; which needs which is in tests/test_structure.py."""
    with ExitStack() as stack:
        for leaf in LEAVES:
            stack.enter_context(without(tree, leaf))
        typed = [*(command for command, _ in LEAVES.values()), *(f"{words} --help" for words, _ in commands())]
        done = python(tree, "-c", TYPED, *typed)
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    for (leaf, (_, name)), end in zip(LEAVES.items(), ends, strict=False):
        module = f"uni_train.{leaf.removeprefix('uni_train/').removesuffix('.py').replace('/', '.')}"
        assert end == ["", GONE.format(name, module)]
    for words, (said, error) in zip(typed[len(LEAVES) :], ends[len(LEAVES) :], strict=True):
        assert "Usage:" in said and error == "", (words, said, error)


@pytest.mark.parametrize(
    ("leaf", "command", "code", "message"),
    [
        ("uni_train/recipes/distil", "fit distil_math", 2, "kind must be one of flow_grpo, knowledge, pretrain, sft, "
         "stars, not 'distil' ({}/recipes/distil_math.yaml)"),
        ("eval/benchmarks/wise", "eval shipped -b wise", 2, "there is no benchmark wise"),
        ("uni_train/models/janus", "models inspect janus_pro_1b", 1, 'there is no model family "janus": known: '),
        ("data_gen/hanoi", "data make --task hanoi", 2, 'there is no task "hanoi": known: '),
        ("uni_train/rewards/judging.py", "data audit-verifier judge", 1, "judging is not in this installation"),
    ],
)  # fmt: skip
def test_what_a_leaf_registers_is_unknown_by_its_name(
    tree: Path, leaf: str, command: str, code: int, message: str
) -> None:
    with without(tree, leaf):
        done = python(tree, "-m", "uni_train", *command.split())
        assert done.returncode == code and done.stderr.startswith(f"error: {message.format(tree)}"), done.stderr


def test_python_says_the_same_and_a_command_without_its_file_is_none(tree: Path) -> None:
    code = "import uni_train\ntry: uni_train.analyse('links', 'shipped', task='mapping')\n"
    code += "except uni_train.UserError as error: print(error)"
    with without(tree, "uni_train/insight"):
        said = python(tree, "-c", code).stdout
        assert f"error: {said}" == GONE.format("insight", "uni_train.insight")
    with without(tree, "uni_train/cli/insight.py"):
        assert "insight" not in python(tree, "-m", "uni_train", "--help").stdout
        unknown = python(tree, "-m", "uni_train", "insight", "links", "shipped")
        assert unknown.returncode == 2 and "No such command 'insight'." in unknown.stderr


def test_a_run_of_a_kind_that_is_gone_is_still_reported_and_read(tree: Path) -> None:
    run = tree / "runs" / "distil_math" / "seed0"
    stage = run / "stages" / "00-train"
    shutil.copytree(ASSETS, stage / "model")
    (stage / "manifest.json").write_text(
        json.dumps({"stage": "train", "status": "done", "key": "", "seconds": 1.0, "outputs": [], "result": {}})
    )
    (run / "config.yaml").write_text(yaml.safe_dump(to_plain(compose("distil_math"))))
    with without(tree, "uni_train/recipes/distil"):
        for command, code, said in (
            (f"report {run}", 0, f"report: {run}/report.html\n"),
            (f"models inspect {run}", 0, "complete: it can be loaded"),
            (
                f"fit {run}/config.yaml",
                2,
                "kind must be one of flow_grpo, knowledge, pretrain, sft, stars, not 'distil'",
            ),
        ):
            done = python(tree, "-m", "uni_train", *command.split())
            assert done.returncode == code and said in done.stdout + done.stderr, done


def test_a_plug_in_takes_the_name_of_a_leaf_only_where_that_is_gone(tree: Path) -> None:
    (tree / "mine.py").write_text(
        "from uni_train.eval.benchmark import benchmark\n"
        "from uni_train.eval.benchmarks.ufo.benchmark import Ufo\n"
        "@benchmark('wise')\n"
        "class Mine(Ufo):\n"
        "    'Mine.'\n"
    )
    command = ("-m", "uni_train", "eval", "--help-benchmark", "wise")
    taken = python(tree, *command, UNI_TRAIN_PLUGINS="mine")
    assert taken.returncode == 1 and 'registers the benchmark "wise", a name that uni_train has taken' in taken.stderr
    with without(tree, "eval/benchmarks/wise"):
        assert python(tree, *command, UNI_TRAIN_PLUGINS="mine").stdout.startswith("wise: Mine.")
