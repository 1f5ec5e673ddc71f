"""Benchmarks by name, and their options. One of another package is in tests/test_plugin_example.py."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.core.errors import UsageError
from uni_train.core.registry import PluginError
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import BENCHMARKS, Ask, Benchmark, Case, Option, Sample, Scored

ASK = Ask(Case("a", "words", "Say it."), "plain", 0, 0)


def test_each_is_called_as_it_says_and_lacks_nothing() -> None:
    assert {"unisandbox", "ureason"} <= set(BENCHMARKS.names())  # other tests may add theirs
    assert all(BENCHMARKS.get(name).name == name for name in BENCHMARKS.names())
    with pytest.raises(PluginError, match='the benchmark "half" has no known_sets, check'):

        @BENCHMARKS.register("half")
        class Half(Benchmark):
            name = "half"


def test_a_verdict_is_graded_where_one_of_its_checks_is() -> None:
    plain = Verdict((Check("object", "pass"), Check("count", "fail")))
    graded = Verdict((Check("object", "pass"), Check("tone", "fail", "too dark", 0.5), Check("count", "fail")))
    assert (plain.value, Verdict((Check("object", "pass"),)).value, graded.value) == (0.0, 1.0, 0.5)
    assert Verdict.from_dict(json.loads(json.dumps(graded.to_dict()))) == graded
    assert "value" not in plain.to_dict()["checks"][0]
    assert Scored(Sample(ASK), graded).value == 0.5 and not Scored(Sample(ASK), graded).passed
    assert Scored(Sample(ASK, "generation_failed"), None).value == 0.0


def test_a_sample_is_an_ordered_list_of_texts_and_images() -> None:
    sample = Sample(ASK, parts=("First", b"one", "then", b"two"))
    assert (sample.text, sample.image, sample.images) == ("First\nthen", b"two", (b"one", b"two"))
    assert Sample(ASK).text is None and Sample(ASK).image is None and Sample(ASK, parts=("",)).text == ""
    orders = [("First", b"two", "then", b"one"), ("First", b"one", b"two", "then")]
    assert len({sample.key, *(Sample(ASK, parts=parts).key for parts in orders)}) == 3


def test_options_are_read_by_the_kind_of_their_default_and_named_if_they_cannot_be() -> None:
    for option, text, value in (
        (Option("a", 3, ""), "5", 5),
        (Option("b", ("x",), ""), "u, v", ("u", "v")),
        (Option("c", "", "", ("p",)), "p", "p"),
    ):
        assert option.read(text) == value
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
    shown = run.invoke(uni_train, ["eval", "--help-benchmark", "unisandbox"]).output
    for part in ("benchmark over the published files", "math1,math2", "options.unisandbox.labels=both", "official, co"):
        assert part in shown
