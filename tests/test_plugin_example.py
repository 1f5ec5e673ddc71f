"""examples/plugin as a stranger would use it: installed, trained with, evaluated; and a plug-in that is missing.

The stranger's folder has packages of its own called eval and data_gen, as research repositories have: ours are imported
all the same. The wheel is tried likewise by .ci/wheel-check.
"""

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
from uni_train.models.checkpoint import recognise
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
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example is installed, by pip, without a network."""
    site, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source") / "plugin"
    for file in [EXAMPLE / "pyproject.toml", *(EXAMPLE / "shades").glob("*.*")]:
        copy = source / file.relative_to(EXAMPLE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", str(site), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


def python(folder: Path, packages: Path, *words: str, plugins: str = "") -> subprocess.CompletedProcess[str]:
    place = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)]), "UNI_TRAIN_PLUGINS": plugins}
    environment = {**os.environ, **place, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run([sys.executable, *words], env=environment, cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_it_is_trained_with_and_evaluated(site: Path, tmp_path: Path) -> None:
    for name in ("eval", "data_gen"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('this {name} is not of uni_train')\n")
    done = python(tmp_path, site, "-c", USE, str(EXAMPLE / "shades.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["package"] == "shades" and said["family"] == "pocket"
    assert len(said["rewards"]) == 2 and all(0 < one < 1 for one in said["rewards"])
    assert said["held_out"]["step"] == 2
    assert {name: one["n"] for name, one in said["scores"].items()} == {"shades1": 3, "shades2": 3, "overall": 6}


NAMING = """
import json, sys
from pathlib import Path
import numpy as np
from uni_train.eval.benchmark import BENCHMARKS, Scored, Source
from uni_train.eval.generation import asks_of

class Painter:
    def think(self, requests, **_):
        return ["It is 2 tenths."] * len(requests)
    def draw(self, requests, **_):
        return [np.full((8, 8, 3), 51 if one.thought else 255, np.uint8) for one in requests]

for folder in sys.argv[1:]:
    benchmark = BENCHMARKS.get("shade_naming").open(Source(data=Path(folder)), tolerance=0.5)
    samples = benchmark.respond(Painter(), asks_of(benchmark.cases(), benchmark.settings))
    scored = [Scored(sample, benchmark.check(sample)) for sample in samples]
    scores, tables = benchmark.scores(scored), benchmark.tables(scored)
    print(json.dumps([benchmark.questions(), scores, [table.to_dict() for table in tables]]))
"""


def test_a_benchmark_of_one_file_has_the_tables_of_its_paper(tmp_path: Path) -> None:
    """The paper's rows stand there where all of its questions are asked."""
    for n in (200, 20):
        rows = (
            {"id": i, "set": ("named", "mixed")[i % 2], "prompt": f"{i} .", "tenths": i % 10} for i in range(1, n + 1)
        )
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = python(tmp_path, EXAMPLE, "-c", NAMING, "200", "20", plugins="shades.naming")
    assert done.returncode == 0, done.stderr
    for line, published in zip(done.stdout.splitlines(), (True, False), strict=True):
        questions, scores, tables = json.loads(line)
        assert ("published files" in questions) == published
        assert {name: one["value"] for name, one in scores["cot"].items()} == {"named": 0.2, "mixed": 0, "overall": 0.1}
        assert [table["columns"][1:] for table in tables] == [
            ["Named", "Mixed", "Average"],
            ["Dark", "Middle", "Light"],
        ]
        first, second = ({row[0]: row[1:] for row in table["rows"]} for table in tables)
        assert (first["cot"][2]["value"], second["cot"][0]["value"]) == (0.1, 0.25)
        printed = {"Pen in the paper, cot": ["0.600", "0.485", "0.543"]} if published else {}
        assert {name: cells for name, cells in first.items() if "cot" in name and name != "cot"} == printed
    assert len((EXAMPLE / "shades" / "naming.py").read_text().splitlines()) <= 80


def test_the_readme_is_one_screen_and_names_every_file() -> None:
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    for file in (EXAMPLE / "shades").glob("[a-z]*.py"):
        assert f"`shades/{file.name}`" in text and f"shades.{file.stem}" in text


def test_a_plug_in_that_cannot_be_imported_is_one_error_that_names_it_and_help_works(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import a_module_that_is_missing\n")
    make = "data make --task maths --level 1 --n 2 --out out"
    for words, code in ((make, 1), ("--help", 0)):
        done = python(tmp_path, tmp_path, "-m", "uni_train", *words.split(), plugins="broken")
        said = "the plug-in broken (named in UNI_TRAIN_PLUGINS) cannot be imported" in done.stderr
        assert (done.returncode, said) == (code, bool(code)) and "Traceback" not in done.stderr, done.stderr
