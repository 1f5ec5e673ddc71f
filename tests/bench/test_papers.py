"""Ours beside the paper's: what is run, what is only read, and the arithmetic of scores from stored answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import distillation, papers, stars
from tests.tiny import TINY
from uni_train.cli.main import uni_train
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Item, Verdict
from uni_train.errors import UsageError, UserError
from uni_train.eval import summary as run_summary
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.benchmarks.unisandbox import SAID
from uni_train.eval.sampler import item_case
from uni_train.eval.scored import write_scored


def fit(arguments: Sequence[str]) -> int:
    return CliRunner().invoke(uni_train, list(arguments), catch_exceptions=False).exit_code


@pytest.mark.slow
def test_a_table_is_made_for_real_and_its_runs_are_then_only_read(tmp_path: Path) -> None:
    given = ["--table", "5", "--seeds", "0", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    chosen = papers.parser().parse_args([*given, *(word for one in TINY for word in ("--set", one))])
    ran: list[str] = []

    def noted(arguments: Sequence[str]) -> int:
        ran.append(arguments[2])
        return fit(arguments)

    (page, text), *_ = papers.run(chosen, "the command", noted)
    assert ran == ["stars_curriculum", "stars_mixed", "stars_mapping"]
    # Nine updates each: the curriculum's three rounds of three, and level 3 alone for as many.
    for label in ("STARS with CL, round 3", "STARS with Mix", "STARS on M3 alone, as many updates"):
        assert f"| shipped + {label} | 1 | 9 |" in text
    assert "| shipped + STARS with CL, round 1 | 1 | 3 |" in text
    assert "| paper: BAGEL + STARS with Mix |  |  | 0.63 | 0.37 | 0.25 | 0.70 | 0.45 | 0.35 | 0.46 | +0.16 |" in text
    assert "| chance |  |  | 0.25 |" in text and "mapping2 2 pairs (both right), 2 distinct" in text
    summary = run_summary.read(tmp_path / "runs" / "shipped" / "stars_mixed" / "seed0")
    assert set(summary["scores"]["after"]) == {"normal", "cot", SAID}

    def refuse(arguments: Sequence[str]) -> int:
        raise AssertionError(arguments)

    assert list(papers.run(chosen, "the command", refuse)) == [(page, text)]


# --- from stored answers --------------------------------------------------------------------------------------------


def stored(folder: Path, name: str, right: Mapping[str, Sequence[bool]], each: int = 1) -> Path:
    """A run's shards after training: setting -> which of the set's items are answered right. Of the items so many
    neighbours have one expression."""
    task = "maths" if name.startswith("math") else "mapping"
    n = len(right["normal"]) // (2 if task == "mapping" else 1)
    items: list[Item] = get_task(task, "nano").generate(n, 1, "test", 0)
    items = [
        replace(item, facts={**item.facts, "canonical": items[i - i % each].facts["canonical"]})
        for i, item in enumerate(items)
    ]
    samples = []
    for setting, marks in right.items():
        for item, ok in zip(items, marks, strict=True):
            verdict = Verdict((Check("object", "pass" if ok else "unreadable"),))
            samples.append(Scored(Sample(Ask(item_case(item), setting, 0, 0), parts=(b"png",)), verdict))
    write_scored(folder / "stages" / "03-evaluate-after" / "scored" / "00000.parquet", samples)
    return folder


def test_scores_count_pairs_and_both_kinds_of_interval(tmp_path: Path) -> None:
    yes, no = [True, True], [True, False]  # a pair with one right image is wrong
    first = stored(tmp_path / "0", "mapping1", {"normal": [*yes * 6, *no * 2], SAID: yes * 8})
    other = stored(tmp_path / "1", "mapping1", {"normal": [*yes * 4, *no * 4], SAID: yes * 8})
    row = papers.Row("both", (papers.Run(first, {}), papers.Run(other, {})), "after")
    seeds, questions = row.score([("normal", "mapping1")])
    assert seeds is not None and questions is not None
    # 0.75 and 0.5: t(1) = 12.7, so two seeds say nothing; eight pairs, whatever the number of seeds.
    assert (seeds.value, seeds.n, seeds.low, seeds.high) == (0.625, 2, 0.0, 1.0)
    assert (questions.value, questions.n) == (0.625, 8) and 0 < questions.low < 0.625 < questions.high <= 1
    assert row.unreadable("normal", "mapping1") == pytest.approx((1 / 8 + 2 / 8) / 2)
    said, _ = row.score([(SAID, "mapping1")])
    assert said is not None and said.value == 1.0
    assert row.score([("normal", "mapping1"), ("cot", "mapping1")]) == (None, None)  # CoT was not asked


def test_questions_with_one_expression_are_one_cluster(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0", "math1", {"normal": [True, False] * 20}, each=4)
    answers = papers.answers(folder, "after")["normal", "math1"]
    _, questions = papers.Row("one", (papers.Run(folder, {}),), "after").score([("normal", "math1")])
    assert (len(answers.right), len(set(answers.clusters))) == (40, 10)
    assert questions is not None and (questions.value, questions.n) == (0.5, 10)
    with pytest.raises(UserError, match="no answers of its evaluation before"):
        papers.answers(folder, "before")


def test_a_distilled_row_is_compared_with_that_of_stars_in_its_place(tmp_path: Path) -> None:
    half, most = [True, False] * 8, [*[True] * 12, *[True, False] * 2]
    marks = {"STARS on Math1": half, "STARS on Math2": [False] * 16, "distilled on Math1": most}
    rows = []
    for number, (label, right) in enumerate(marks.items()):
        folder = stored(tmp_path / str(number), "math1", {"normal": right, "cot": [True] * 16})
        rows.append(papers.Row(f"shipped + {label}", (papers.Run(folder, {}),), "after"))
    maths = papers.distilled_pages([])[1]
    page = replace(maths, levels=(1,))
    (compared,) = [line for line in distillation._differences(page, rows) if line.startswith("| distilled")]
    assert compared.startswith("| distilled on Math1 - STARS on Math1 | +0.38 (")
    (scored,) = [line for line in distillation._scores(page, rows) if "distilled on Math1" in line]
    assert scored.endswith("| 0.88 |")  # Normal / CoT


def test_calls_are_summed_over_rounds() -> None:
    rounds = [{"updates": 3, "seconds": 30.0, "calls": {"thoughts": 8, "images": 8, "velocities": 80, "rollout": 0}}]
    runs = {"distilled": [papers.Run(Path(), {"rounds": rounds * 2})]}
    assert list(distillation._costs(runs))[-1] == "| distilled | 6 | 16 | 16 | 160 | 0 | 1.0 |"


def test_unequal_numbers_of_samples_are_said(tmp_path: Path) -> None:
    def run(used: int) -> papers.Run:
        stage = tmp_path / str(used) / "stages" / "02-filter-math3"
        stage.mkdir(parents=True, exist_ok=True)
        (stage / "manifest.json").write_text(json.dumps({"result": {"kept": 100, "used": used}}))
        rounds = [{"sampled": 100, "kept": 100, "precision": 0.6, "recall_estimate": {"n": 40}, "updates": 1}]
        return papers.Run(stage.parents[1], {"rounds": rounds})

    (page,) = papers.pages([], [5], [])
    said = list(papers._findings(page, {"shipped": {"none": [run(100)], "self": [run(60)]}}))
    assert said == [
        "shipped: each run trained on 60 or 100 samples, so numbers are not equal here.",
        "shipped: the teacher is right 0.40 of the time, not half to two thirds as meant.",
    ]
    equal = papers._findings(page, {"shipped": {"none": [run(60)], "self": [run(60)]}})
    assert list(equal) == ["shipped: each run trained on 60 samples.", said[1]]


def test_all_pages_plan_their_runs_and_slips_show_before_anything_runs(tmp_path: Path) -> None:
    for page in (*papers.pages([2, 3, 5], [5], []), *papers.distilled_pages([])):
        for line in page.arms.values():
            assert stars.plan(line, [0])
    good = ["--table", "2", "--runs", str(tmp_path)]
    for slip, message in (
        (["--set", "batch.promts=3"], "batch.promts"),
        (["--base", "mine"], "NAME=FOLDER"),
        (["--base", f"mine={tmp_path / 'gone'}"], "there is no folder"),
        (["--seeds", "0;1"], "cannot read --seeds"),
    ):
        with pytest.raises(UserError, match=message):
            list(papers.run(papers.parser().parse_args([*good, *slip]), "", fit))
    with pytest.raises(UsageError, match="nothing was asked for"):
        list(papers.run(papers.parser().parse_args([]), "", fit))
