"""What a person types and sees: help, listings, and one-screen errors with their exit codes."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from uni_train.cli.main import uni_train
from uni_train.console.failures import as_user_error
from uni_train.data_gen.errors import DataError
from uni_train.errors import UsageError, UserError

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(uni_train, arguments, catch_exceptions=False, terminal_width=100)


def assert_one_screen(result: Result, exit_code: int, *parts: str) -> None:
    assert result.exit_code == exit_code, result.output
    assert "Traceback" not in result.output
    assert len(result.output.splitlines()) <= 6, result.output
    for part in parts:
        assert part in result.output


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fit", "--recipe", "stars_curiculum"], ["unknown recipe", "Did you mean stars_curriculum?"]),
        (["fit", "--recipe", "stars_curriculum", "model=bagel7b"], ["unknown model", "Did you mean bagel_7b?"]),
        (["fit", "--recipe", "stars_curriculum", "optimizer.lrr=1"], ["unknown key", "Did you mean optimizer.lr?"]),
        (["fit", "--recipe", "stars_curriculum", "seed=one"], ["seed must be a whole number", "override seed=one"]),
        (["fit", "--recipe", "stars_math", "level=4"], ["level must be one of 1, 2, 3"]),
        (["fit"], ["--recipe"]),
        (["fit", "stars_curiculum"], ["unknown recipe", "Did you mean stars_curriculum?"]),
        (["fit", "-r", "stars_math", "stars_mixed"], ["cannot read the override stars_mixed"]),
        (["recipes", "sft_mase"], ["unknown recipe", "Did you mean sft_maze?"]),
        (["fit", "--recip", "x"], ["--recip"]),
        (["fitt"], ["Did you mean fit?"]),
    ],
)
def test_usage_errors_exit_with_2(arguments: Sequence[str], parts: Sequence[str]) -> None:
    assert_one_screen(run(*arguments), 2, *parts)


def test_without_its_environment_one_sentence_says_so() -> None:
    bare = subprocess.run(
        [sys.executable, "-S", "-m", "uni_train", "recipes"], cwd=ROOT, capture_output=True, text=True
    )
    assert bare.returncode == 1 and bare.stderr.count("\n") == 1
    assert "lacks click, hydra, lightning, torch" in bare.stderr and ". .venv/bin/activate" in bare.stderr


def test_an_unwritable_run_folder_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("fit", "--recipe", "stars_curriculum", f"out={tmp_path / 'file'}")
    assert_one_screen(result, 1, "cannot write to the run folder", "out=")


def test_insight_refuses_a_file_for_its_folder_before_any_work(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("mine")
    arguments = ("insight", "links", "-c", "shipped", "--task", "mapping", "--n", "1", "--out", str(file))
    assert_one_screen(run(*arguments), 2, "page.html", "file")
    assert file.read_text() == "mine"


def test_a_real_process_prints_the_error_on_stderr_and_nothing_else() -> None:
    command = [sys.executable, "-m", "uni_train", "fit", "--recipe", "stars_maths"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown recipe stars_maths\n")
    environment = {**os.environ, "UNI_TRAIN_DEBUG": "1"}
    debug = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert "Traceback" in debug.stderr


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


def test_a_path_that_leads_nowhere_is_told_before_torch_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom uni_train.cli.main import uni_train\n"
        f"for words in {[words for words, _ in NOWHERE]!r}:\n"
        "    try:\n        uni_train(words.split())\n"
        "    except SystemExit as end:\n        print('ended', end.code, file=sys.stderr)\n"
        "    assert 'torch' not in sys.modules, words\n"
    )
    place = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=place)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    said = done.stderr.split("ended 1\n")[:-1]
    for (words, parts), message in zip(NOWHERE, said, strict=True):
        assert all(part in message for part in parts), (words, message)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_of_an_evaluation_that_the_guide_shows_needs_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/eval_cli.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("    python ") and " --plan " in line]
    result = run(*shlex.split(line.partition("uni_train ")[2], comments=True))
    assert result.exit_code == 0 and "judge, dollars" in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_prompt_that_readme_shows_first_is_thought_through_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = next(
        line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "uni_train generate" in line
    )
    assert run(*shlex.split(line.partition("uni_train ")[2])).exit_code == 0
    assert (tmp_path / "tree.txt").read_text(encoding="utf-8").strip().endswith("So draw 1 tree .")


def commands() -> list[list[str]]:
    def below(group: click.Group, path: list[str]) -> list[list[str]]:
        found = []
        for name, command in group.commands.items():
            found.append([*path, name])
            if isinstance(command, click.Group):
                found += below(command, [*path, name])
        return found

    return below(uni_train, [])


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_each_command_has_help_with_an_example(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"uni_train {' '.join(command)}" in result.output.split("Usage:")[1].split("\n", 1)[1]


def test_dry_run_shows_configuration_and_stages_and_writes_nothing(tmp_path: Path) -> None:
    asked = ["fit", "--recipe", "stars_curriculum", "seed=7", f"out={tmp_path}"]
    short, whole = run(*asked, "--dry-run"), run(*asked, "--config")
    assert short.exit_code == whole.exit_code == 0
    stages, costs = (short.output.index(part) for part in ("09-finetune-mapping3", "costs: nano: about 200 seconds"))
    assert stages < costs and "seed: 7" not in short.output
    assert "09-finetune-mapping3" in whole.output.split("seed: 7")[0], "the configuration comes last"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["stars_math", "level=2"], ["level=2", "stars_math"], ["-r", "stars_math", "level=2"]]
)
def test_the_recipe_is_an_option_or_an_argument(arguments: list[str]) -> None:
    result = run("fit", *arguments, "--dry-run")
    assert result.exit_code == 0 and "finetune-math2" in result.output


def test_a_recipe_tells_what_it_needs_and_does() -> None:
    told = run("recipes", "sft_maze").output
    for part in (
        "An editor learns mazes",
        "uni_train data make --task maze",
        "00-sft",
        "recipes/sft_maze.yaml",
        "Costs:",
    ):
        assert part in told


def test_the_shell_completes_commands_and_recipes() -> None:
    def completed(*words: str) -> list[str]:
        line = {"COMP_WORDS": " ".join(["uni_train", *words]), "COMP_CWORD": str(len(words))}
        place = {**os.environ, "_UNI_TRAIN_COMPLETE": "bash_complete", **line}
        done = subprocess.run([sys.executable, "-m", "uni_train"], capture_output=True, text=True, cwd=ROOT, env=place)
        return [found.split(",")[1] for found in done.stdout.split()]

    assert completed("gen") == ["generate"]
    assert completed("fit", "sft_m") == completed("fit", "-r", "sft_m") == ["sft_maze", "sft_maze_told"]
    assert completed("fit", "sft_maze", "sft_m") == []


def test_answers_at_once_because_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom uni_train.cli.main import uni_train\n"
        "heavy = {'torch', 'lightning', 'hydra', 'omegaconf', 'numpy', 'yaml', 'rich', 'pyarrow', 'PIL', 'pydantic'}\n"
        "for words in ('--help', 'recipes', 'models', 'fit --help', 'data --help'):\n"
        "    uni_train(words.split(), standalone_mode=False)\n"
        "    assert not heavy & set(sys.modules), (words, heavy & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_dry_runs_and_plans_of_our_own_models_import_no_trainer_and_no_library_of_models() -> None:
    code = (
        "import sys\nfrom uni_train.cli.main import uni_train\n"
        "for words in ('fit stars_curriculum --dry-run', 'fit distil_curriculum --dry-run',"
        " 'fit flow_grpo_math --dry-run', 'plan stars_curriculum', 'plan flow_grpo_math'):\n"
        "    uni_train(words.split(), standalone_mode=False)\n"
        "    heavy = {'lightning', 'transformers', 'diffusers', 'torchmetrics', 'peft', 'torchao', 'PIL', 'wandb'}\n"
        "    assert not heavy & set(sys.modules), (words, heavy & set(sys.modules))\n"
        "    assert words.startswith('plan') or 'torch._dynamo' not in sys.modules, words\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/runs/a/00012.parquet"), "no space left"),
        (PermissionError(errno.EACCES, "Permission denied", "/runs/a/00012.parquet"), "no permission"),
        (OSError(errno.EROFS, "Read-only file system", "/runs/a/00012.parquet"), "read-only"),
        (DataError("/runs/a/00012.parquet: line 3 does not parse"), "line 3"),
        (UserError("/runs/a/00012.parquet is damaged"), "damaged"),
    ],
)
def test_what_a_person_can_put_right_names_the_file(error: Exception, message: str) -> None:
    shown = as_user_error(error)
    assert shown is not None and shown.exit_code == 1
    assert "/runs/a/00012.parquet" in shown.message and message in shown.message


def test_defects_keep_their_traceback() -> None:
    assert as_user_error(KeyError("x")) is None
    assert as_user_error(OSError("no path, no number")) is None


def test_errors_cross_process_boundaries_whole() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(UsageError("what", "remedy")))
    assert (type(error), error.message, error.hint) == (UsageError, "what", "remedy")
