"""What a person types and sees: help, listings, and one-screen errors with their exit codes."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from tests.commands import commands
from tests.processes import python
from tests.tiny import QUICK
from uni_train.cli.main import uni_train
from uni_train.console.failures import as_user_error
from uni_train.core.errors import DataError, UsageError, UserError

ROOT = Path(__file__).resolve().parents[2]
UNI_TRAIN = (sys.executable, "-m", "uni_train")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(uni_train, arguments, catch_exceptions=False, terminal_width=100)


def assert_one_screen(result: Result, exit_code: int, *parts: str) -> None:
    assert result.exit_code == exit_code, result.output
    assert "Traceback" not in result.output
    assert len(result.output.splitlines()) <= 6, result.output
    for part in parts:
        assert part in result.output


def test_without_its_environment_one_sentence_says_so() -> None:
    bare = subprocess.run(
        [sys.executable, "-S", "-m", "uni_train", "recipes"], cwd=ROOT, capture_output=True, text=True
    )
    assert bare.returncode == 1 and bare.stderr.count("\n") == 1
    assert "lacks click, hydra, lightning, torch" in bare.stderr and ". .venv/bin/activate" in bare.stderr


def test_what_cannot_be_a_folder_of_results_is_refused_before_any_work(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("mine")
    result = run("fit", "--recipe", "stars_curriculum", f"out={file}")
    assert_one_screen(result, 1, "cannot write to the run folder", "out=")
    result = run(*f"insight links -c shipped --task mapping --n 1 --out {file}".split())
    assert_one_screen(result, 2, "page.html", "file")
    assert file.read_text() == "mine"


def test_a_real_process_prints_the_error_on_stderr_and_nothing_else() -> None:
    command = [sys.executable, "-m", "uni_train", "fit", "--recipe", "stars_maths"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown recipe stars_maths\n")
    environment = {**os.environ, "UNI_TRAIN_DEBUG": "1"}
    debug = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert "Traceback" in debug.stderr


LOST = "error: output is lost, and the command goes on: No space left on device"


@pytest.mark.parametrize("words", ["recipes", "fit --help"])
def test_a_full_disk_under_the_output_ends_no_command_and_is_said_once(words: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*UNI_TRAIN, *words.split()], stdout=full, stderr=PIPE, text=True, cwd=ROOT)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == LOST, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("error: ") == 1, done.stderr


@pytest.mark.slow
def test_a_run_and_an_evaluation_go_on_without_their_output(tmp_path: Path) -> None:
    full = "import os, sys\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
    evaluation = "eval -c shipped --n 2 --sets math1 --settings normal --out evals --name mine"
    for words, written in (
        (["fit", "-r", "stars_mapping", *QUICK], "runs/stars_mapping/*/report.html"),
        (evaluation.split(), "evals/mine/scores.json"),
    ):
        command = f"{full}sys.argv[1:] = {words}\nfrom uni_train.cli.main import main\nmain()"
        done = python("-c", command, cwd=tmp_path)
        assert done.returncode == 1 and len(list(tmp_path.glob(written))) == 1, done
        assert "Traceback" not in done.stderr and done.stderr.count(LOST) == 1, done.stderr


@pytest.mark.parametrize(
    ("shell", "codes"),
    [("recipes >&-", "0"), ("recipes 2>&-", "0"), ("fitt 2>/dev/full", "2"), ("fitt >/dev/full", "2"),
     ("recipes --keys | true", "1 0"), ("recipes | head -1", "[01] 0")],
)  # fmt: skip
def test_closed_outputs_and_readers_that_have_enough_are_no_defect(shell: str, codes: str) -> None:
    script = f"{shlex.join(UNI_TRAIN)} {shell}; echo codes ${{PIPESTATUS[*]}} >&3"
    done = subprocess.run(["bash", "-c", f"exec 3>&1; {script}"], capture_output=True, text=True, cwd=ROOT)
    assert re.search(f"^codes {codes}$", done.stdout, re.MULTILINE), done
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr


def test_unbuffered_output_does_not_wait_for_the_end() -> None:
    code = "import os; from uni_train.console.terminal import print_anything as p; p(); print('said'); os._exit(0)"
    done = subprocess.run([sys.executable, "-u", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "said\n", done.stderr


HEAVY = "hydra lightning numpy omegaconf pyarrow PIL pydantic rich torch yaml"
NOWHERE = [
    ("fit -r sft_maze", ["sources.mazes.path: there is nothing at data/maze4", "recipes sft_maze"]),
    ("fit -r flow_grpo_maze", ["model.checkpoint", "Train it first: uni_train fit sft_maze"]),
    ("fit -r flow_grpo_math rewards.a.function=a.py:f", ["rewards.a.function: there is nothing"]),
    ("fit -r stars_curriculum model=bagel_7b", ["nothing at checkpoints/BAGEL-7B-MoT"]),
    ("generate -m nano -p x --image no.png", ["no.png: no such file"]),
    ("generate -m no/where -p x", ["there is nothing at no/where"]),
    ("export no/where out", ["there is nothing at no/where"]),
    ("models inspect no/where", ["there is nothing at no/where"]),
    ("eval -c no/where", ["there is nothing at no/where"]),
]
ALONE = """
import json, sys
from uni_train.cli.main import uni_train
for words, heavy in json.loads(sys.argv[1]):
    try:
        uni_train(words.split())
    except SystemExit as end:
        print("ended", end.code, file=sys.stderr)
    assert not {*heavy.split()} & {*sys.modules}, (words, {*heavy.split()} & {*sys.modules})
"""


def ended(folder: Path, *commands: tuple[str, str]) -> list[str]:
    """What each command writes on stderr; in one process of its own, which may not import what is named."""
    place = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = [sys.executable, "-c", ALONE, json.dumps(commands)]
    done = subprocess.run(code, capture_output=True, text=True, cwd=folder, env=place)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return re.split(r"ended \d\n", done.stderr)[:-1]


def test_help_and_a_path_that_leads_nowhere_are_told_at_once_because_nothing_heavy_is_imported(tmp_path: Path) -> None:
    helps = [(words, HEAVY) for words in ("--help", "recipes", "models", "fit --help", "data --help")]
    said = ended(tmp_path, *helps, *((words, "torch") for words, _ in NOWHERE))
    assert said[: len(helps)] == [""] * len(helps)
    for (words, parts), message in zip(NOWHERE, said[len(helps) :], strict=True):
        assert all(part in message for part in parts), (words, message)


@pytest.mark.slow
def test_dry_runs_and_plans_of_our_own_models_import_no_trainer_and_no_library_of_models(tmp_path: Path) -> None:
    heavy = "lightning transformers diffusers torchmetrics peft torchao PIL wandb"
    recipes = ("stars_mapping", "distil_curriculum", "flow_grpo_math")
    dry = [(f"fit {recipe} --dry-run", f"{heavy} torch._dynamo") for recipe in recipes]
    ended(tmp_path, *dry, ("plan flow_grpo_math", heavy))


def test_each_command_has_help_with_an_example() -> None:
    for words, _ in commands():
        result = run(*words.split(), "--help")
        assert result.exit_code == 0
        assert f"uni_train {words}" in result.output.split("Usage:")[1].split("\n", 1)[1], words


def test_dry_run_shows_configuration_and_stages_and_writes_nothing(tmp_path: Path) -> None:
    asked = ["fit", "--recipe", "stars_curriculum", "seed=7", f"out={tmp_path}"]
    short, whole = run(*asked, "--dry-run"), run(*asked, "--config")
    assert short.exit_code == whole.exit_code == 0
    stages, costs = (short.output.index(part) for part in ("09-finetune-mapping3", "costs: nano: about 120 seconds"))
    assert stages < costs and "seed: 7" not in short.output
    assert "09-finetune-mapping3" in whole.output.split("seed: 7")[0], "the configuration comes last"
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_tells_what_it_needs_and_does() -> None:
    told = run("recipes", "sft_maze").output
    for part in ("An editor learns mazes", "data make --task maze", "00-sft", "recipes/sft_maze.yaml", "Costs:"):
        assert part in told


def test_the_shell_completes_commands_and_recipes() -> None:
    line = {"COMP_WORDS": "uni_train gen", "COMP_CWORD": "1", "_UNI_TRAIN_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "uni_train"], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **line}
    )
    assert done.stdout.split() == ["plain,generate"]
    shell = ShellComplete(uni_train, {}, "uni_train", "_UNI_TRAIN_COMPLETE")
    for words in (["fit"], ["fit", "-r"]):
        assert [one.value for one in shell.get_completions(words, "sft_m")] == ["sft_maze", "sft_maze_told"]
    assert shell.get_completions(["fit", "sft_maze"], "sft_m") == []


def test_what_a_person_can_put_right_names_the_file_and_defects_keep_their_traceback() -> None:
    file = "/runs/a/00012.parquet"
    for error, message in (
        (OSError(errno.ENOSPC, "No space left on device", file), "no space left"),
        (PermissionError(errno.EACCES, "Permission denied", file), "no permission"),
        (OSError(errno.EROFS, "Read-only file system", file), "read-only"),
        (DataError(f"{file}: line 3 does not parse"), "line 3"),
        (UserError(f"{file} is damaged"), "damaged"),
    ):
        shown = as_user_error(error)
        assert shown is not None and shown.exit_code == 1
        assert file in shown.message and message in shown.message
    assert as_user_error(KeyError("x")) is None and as_user_error(OSError("no path, no number")) is None


def test_errors_cross_process_boundaries_whole() -> None:
    error = pickle.loads(pickle.dumps(UsageError("what", "remedy")))
    assert (type(error), error.message, error.hint) == (UsageError, "what", "remedy")


@pytest.mark.parametrize(("flag", "code"), [("--version", 0), ("--verison", 2)])
def test_a_rank_ends_after_its_exit_handlers_and_without_the_end_of_the_interpreter(flag: str, code: int) -> None:
    body = (
        "import atexit, uni_train.cli.main as cli\n"
        "class End:\n"
        "    __del__ = lambda self: print('end of the interpreter')\n"
        "end = End()\n"
        "atexit.register(print, 'handler')\n"
        "cli.main()"
    )
    for world_size in ("1", "2"):
        environment = os.environ | {"WORLD_SIZE": world_size}
        ended = subprocess.run([sys.executable, "-c", body, flag], env=environment, capture_output=True, text=True)
        assert ended.returncode == code, ended.stderr
        lines = ended.stdout.splitlines()
        assert "handler" in lines and ("end of the interpreter" in lines) is (world_size == "1")
