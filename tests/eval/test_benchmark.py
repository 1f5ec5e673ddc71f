"""Benchmarks by name: what registering takes, their options, and one from a package outside this repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.data_gen.registry import PluginError
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UsageError
from uni_train.eval.benchmark import BENCHMARKS, Ask, Benchmark, Case, Option, Sample, Scored

PLUGIN = """
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Benchmark, Case, Option, Sample, Table, benchmark
from uni_train.eval.statistics import proportion

@benchmark("echo")
class Echo(Benchmark):
    '''Says back what it is told.'''

    name, revision, settings, sets, known_sets = "echo", "1", ("plain",), ("words",), ("words",)
    options = (Option("times", 2, "how many cases"),)

    def __init__(self, times):
        self._cases = [Case(f"echo{i}", "words", "Draw 2 apples .") for i in range(times)]

    @classmethod
    def open(cls, source, *, times):
        return cls(times)

    def cases(self):
        return self._cases

    def respond(self, model, asks, on_step=None):
        from uni_train.models.base import Request
        said = model.answer([Request(ask.case.id, ask.case.prompt, seed=ask.seed) for ask in asks])
        return [Sample(ask, parts=(text,)) for ask, text in zip(asks, said)]

    def check(self, sample):
        return Verdict((Check("said something", "pass" if sample.text else "fail"),))

    def scores(self, scored):
        scored = list(scored)
        return {"plain": {"words": proportion(sum(one.passed for one in scored), len(scored)).to_dict()}}

    def tables(self, scored):
        return [Table("Echo", ("", "n"), (("all", str(len(list(scored)))),))]
"""


def command(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`uni_train`, with a package beside it that adds a benchmark."""
    (tmp_path / "echo_plugin.py").write_text(PLUGIN)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "UNI_TRAIN_PLUGINS": "echo_plugin"}
    return subprocess.run(
        [sys.executable, "-m", "uni_train", *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True
    )


def test_each_is_found_by_its_place_and_is_called_as_it_says() -> None:
    assert {"unisandbox", "ureason"} <= set(BENCHMARKS.names())  # other tests may add theirs
    for name in BENCHMARKS.names():
        assert BENCHMARKS.get(name).name == name


def test_a_verdict_is_graded_where_one_of_its_checks_is() -> None:
    plain = Verdict((Check("object", "pass"), Check("count", "fail")))
    graded = Verdict((Check("object", "pass"), Check("tone", "fail", "too dark", 0.5), Check("count", "fail")))
    assert (plain.value, Verdict((Check("object", "pass"),)).value, graded.value) == (0.0, 1.0, 0.5)
    assert Verdict.from_dict(json.loads(json.dumps(graded.to_dict()))) == graded
    assert "value" not in plain.to_dict()["checks"][0]
    ask = Ask(Case("a", "words", "Say it."), "plain", 0, 0)
    assert Scored(Sample(ask), graded).value == 0.5 and not Scored(Sample(ask), graded).passed
    assert Scored(Sample(ask, "generation_failed"), None).value == 0.0


def test_a_sample_is_an_ordered_list_of_texts_and_images() -> None:
    ask = Ask(Case("a", "words", "Say it."), "plain", 0, 0)
    sample = Sample(ask, parts=("First", b"one", "then", b"two"))
    assert (sample.text, sample.image, sample.images) == ("First\nthen", b"two", (b"one", b"two"))
    assert Sample(ask).text is None and Sample(ask).image is None and Sample(ask, parts=("",)).text == ""
    swapped = Sample(ask, parts=("First", b"two", "then", b"one"))
    assert len({sample.key, swapped.key, Sample(ask, parts=("First", b"one", b"two", "then")).key}) == 3


def test_one_that_lacks_what_it_needs_is_refused() -> None:
    with pytest.raises(PluginError, match='the benchmark "half" has no known_sets, open, respond'):

        @BENCHMARKS.register("half")
        class Half(Benchmark):
            name = "half"


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (Option("a", 3, ""), "5", 5),
        (Option("b", ("x",), ""), "u, v", ("u", "v")),
        (Option("c", "", "", ("p",)), "p", "p"),
    ],
)
def test_options_are_read_by_the_kind_of_their_default(option: Option, text: str, value: object) -> None:
    assert option.read(text) == value


def test_an_option_that_cannot_be_is_named() -> None:
    with pytest.raises(UsageError, match="a=many: no number"):
        Option("a", 3, "").read("many")
    run = CliRunner()
    for typed, said in (
        ("unisandbox.lables=both", "unisandbox has no option lables"),
        ("unisandbox.labels=bth", "labels=bth: no such value"),
        ("ureason.prompt_model=nano", "ureason is not asked"),
    ):
        result = run.invoke(uni_train, ["eval", "-c", "shipped", "--plan", f"options.{typed}"])
        assert result.exit_code == 2 and said in " ".join(result.output.split()), result.output
    assert "did you mean" in run.invoke(uni_train, ["eval", "--help-benchmark", "ureasn"]).output.lower()


def test_a_benchmark_says_its_sets_and_options() -> None:
    result = CliRunner().invoke(uni_train, ["eval", "--help-benchmark", "unisandbox"])
    assert result.exit_code == 0
    for part in ("math1,math2", "options.unisandbox.labels=both", "official, corrected, both"):
        assert part in result.output


def test_a_package_elsewhere_adds_a_benchmark(tmp_path: Path) -> None:
    shown = command(tmp_path, "eval", "--help-benchmark", "echo")
    assert shown.returncode == 0 and "Says back what it is told." in shown.stdout, shown.stderr
    assert "options.echo.times=2" in shown.stdout


@pytest.mark.slow
def test_a_benchmark_of_a_package_is_evaluated_and_compared(tmp_path: Path) -> None:
    typed = ["eval", "-c", "shipped", "-b", "echo", "options.echo.times=3", "--name", "a"]
    done = command(tmp_path, *typed)
    assert done.returncode == 0 and "3 samples: right 3" in done.stdout, done.stdout + done.stderr
    compared = command(tmp_path, "eval", "compare", "evals/a", "evals/a")
    assert compared.returncode == 0 and "echo" in compared.stdout, compared.stdout + compared.stderr
