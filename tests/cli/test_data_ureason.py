"""`data make --task ureason`: files in the published schema that the benchmark reads; levels; what is refused."""

import json

import pytest
from click.testing import CliRunner

from uni_train.cli.main import uni_train
from uni_train.data_gen.jsonl import read_items
from uni_train.eval.benchmarks.ureason import UReason


def make(*arguments):
    return CliRunner().invoke(uni_train, ["data", "make", "--task", "ureason", *map(str, arguments)])


def test_the_folder_is_a_benchmark_and_can_be_replaced(tmp_path):
    out = tmp_path / "made"
    made = make("--world", "everyday", "--n", 30, "--level", "2-3", "--out", out)
    assert made.exit_code == 0, made.output
    items = read_items(out / "items.jsonl")
    assert {item.level for item in items} == {2, 3} and len(items) == 60
    benchmark = UReason(out)
    assert {case.id for case in benchmark.cases()} == {item.id for item in items} and len(benchmark.sets) == 5
    row = json.loads((out / "direct_code.jsonl").read_text().splitlines()[0])
    assert list(row) == ["id", "prompt", "expect_en", "category", "subcategory", "facts"]
    assert make("--n", 5, "--out", out).exit_code == 1  # not empty
    assert make("--n", 5, "--out", out, "--force").exit_code == 0
    assert sorted(path.name for path in out.glob("*.jsonl")) == [
        "arithmetic.jsonl", "code.jsonl", "direct_arithmetic.jsonl", "direct_code.jsonl", "items.jsonl",
    ]  # fmt: skip
    assert len(list((out / "images").glob("*.png"))) == 15  # five of each level, in the nano world


def test_options_of_other_tasks_are_refused(tmp_path):
    refused = make("--style", "classic", "--out", tmp_path / "x")
    assert refused.exit_code == 2 and "says nothing about ureason" in refused.output
    refused = make("--level", "4", "--out", tmp_path / "x")
    assert refused.exit_code == 2 and "not a level of ureason" in refused.output


@pytest.mark.parametrize("world", ["nano", "everyday"])
def test_questions_are_shown_without_a_folder(world):
    shown = CliRunner().invoke(uni_train, ["data", "show", "--task", "ureason", "--world", world, "--n", "3"])
    assert shown.exit_code == 0 and shown.output.count("\n  -> ") == 3
