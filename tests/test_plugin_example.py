"""examples/plugin as a stranger would use it: installed, trained with, evaluated; and plug-ins that are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "plugin"

USE = """
import json, sys
import uni_train
from uni_train.data_gen.registry import TASKS
from uni_train.models.recognise import recognise
from uni_train.training.metric_log import read_metrics

run = uni_train.fit(sys.argv[1], ["out=runs", "held_out.n=2"])
(stage,) = (run.path / "stages").iterdir()
found = uni_train.evaluate(run.path, "shade_test", subset=6, out="evals")
print(json.dumps({
    "package": TASKS.package_of("shades"),
    "family": recognise(run.path).kind,
    "rewards": [line["reward"] for line in read_metrics(stage / "rollouts.jsonl")],
    "held_out": read_metrics(stage / "held_out.jsonl")[-1],
    "scores": found.results["shade_test"].scores["normal"],
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the example is installed, by pip, without a network."""
    site, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source") / "plugin"
    for file in [EXAMPLE / "pyproject.toml", *(EXAMPLE / "shades").glob("*.py")]:
        copy = source / file.relative_to(EXAMPLE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", str(site), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (site / "shades" / "task.py").is_file()
    return environment(site)


def environment(folder: Path, plugins: str = "") -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(folder)])
    return {**os.environ, "PYTHONPATH": path, "UNI_TRAIN_PLUGINS": plugins, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@pytest.mark.slow
def test_it_is_trained_with_and_evaluated(installed: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE, str(EXAMPLE / "shades.yaml")]
    done = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["package"] == "shades" and said["family"] == "pocket"
    assert len(said["rewards"]) == 2 and all(0 < one < 1 for one in said["rewards"])
    assert said["held_out"]["step"] == 2
    assert {name: one["n"] for name, one in said["scores"].items()} == {"shades1": 3, "shades2": 3}


def test_the_readme_is_one_screen_and_names_every_file() -> None:
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    for file in (EXAMPLE / "shades").glob("[a-z]*.py"):
        assert f"`shades/{file.name}`" in text and f"shades.{file.stem}" in text


LACKS = "from uni_train.data_gen.registry import task\n@task('half')\nclass Half:\n    name, levels = 'half', (1,)\n"
TAKES = "from uni_train.data_gen.registry import task\n@task('maths')\nclass Maths:\n    pass\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import a_module_that_is_missing\n", "the plug-in broken (named in UNI_TRAIN_PLUGINS) cannot be imported"),
        (TAKES, 'broken (broken) registers the task "maths", a name that uni_train has taken'),
        (LACKS, 'broken (broken): the task "half" has no sample, render, verify'),
    ],
)
def test_a_broken_plug_in_is_one_error_that_names_it_and_help_works(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(text)
    words = ["data", "make", "--task", "maths", "--level", "1", "--n", "2", "--out", str(tmp_path / "out")]
    for arguments, code in ((words, 1), *([(["--help"], 0)] if text.startswith("import") else [])):
        done = subprocess.run(
            [sys.executable, "-m", "uni_train", *arguments],
            env=environment(tmp_path, "broken"), capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        if code:
            assert said in done.stderr and "Traceback" not in done.stderr
