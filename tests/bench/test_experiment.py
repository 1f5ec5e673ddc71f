"""Experiments: what is run, what is only read, and the arithmetic of scores from stored answers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import experiment
from bench.experiments import filters, unisandbox
from tests.tiny import TINY
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UserError
from uni_train.eval import summary as run_summary
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.scored import write_scored
from uni_train.eval.sets.names import SAID
from uni_train.eval.task_benchmark import item_case
from uni_train.recipes.stars.config import StarsConfig
from uni_train.recipes.stars.rounds import most_updates


def chosen(*words: str) -> argparse.Namespace:
    return experiment.parser().parse_args(words)


def refuse(arguments: Sequence[str]) -> tuple[int, str]:
    raise AssertionError(arguments)


@pytest.mark.slow
def test_a_table_is_made_for_real_and_its_runs_are_then_only_read(tmp_path: Path) -> None:
    tiny = [word for one in (*TINY, "evaluation.n=1") for word in ("--set", one)]
    given = chosen("table_5", "--seeds", "0", "--runs", str(tmp_path), *tiny)
    ran: list[str] = []

    def fit(arguments: Sequence[str]) -> tuple[int, str]:
        ran.append(arguments[1])
        return CliRunner().invoke(uni_train, ["fit", *arguments], catch_exceptions=False).exit_code, ""

    ((_, lines),) = experiment.pages(given, fit)
    text = "\n".join(lines)
    assert ran == ["stars_curriculum", "stars_mixed", "stars_mixed", "stars_mixed"]
    # Nine updates each, all with the settings of the curriculum: three rounds of three, or one level for as many.
    alone = [f"STARS on M{level} alone" for level in (2, 3)]
    for label in ("STARS with CL, round 3", "STARS with Mix", *alone):
        assert f"| shipped + {label} | 1 | 9 |" in text
    assert "| shipped + STARS with CL, round 1 | 1 | 3 |" in text
    assert "| paper: BAGEL + STARS with Mix |  |  | 0.63 | 0.37 | 0.25 | 0.70 | 0.45 | 0.35 | 0.46 | +0.16 |" in text
    assert "| chance |  |  | 0.25 |" in text and "mapping2 1 pairs (both right), 1 distinct" in text
    ((_, again),) = experiment.pages(given, refuse)
    assert "\n".join(again) == text
    folders = [str(tmp_path / "shipped" / name) for name in ("stars_curriculum/rounds-seed0", "stars_mixed/seed0")]
    ((_, compared),) = experiment.pages(chosen(*folders), refuse)
    assert "| stars_mixed - stars_curriculum rounds | " in "\n".join(compared)
    with pytest.raises(UserError, match="second run of stars_mixed"):
        unisandbox.grouped([Path(folders[1])] * 2)


def test_arms_of_table_5_are_equally_long_where_a_model_counts_epochs() -> None:
    ran: list[Sequence[str]] = []

    def fit(arguments: Sequence[str]) -> tuple[int, str]:
        ran.append(arguments)
        return 0, ""

    ((_, lines),) = experiment.pages(chosen("table_5", "--seeds", "0", "--set", "model=bagel_7b"), fit)
    with pytest.raises(UserError):  # nothing was trained
        list(lines)
    rounds = []
    for _, recipe, *overrides in ran:
        config = compose(recipe, overrides)
        assert isinstance(config, StarsConfig) and not any(one.replay.get("mapping1") for one in config.rounds)
        rounds.append(([one.epochs for one in config.rounds], sum(most_updates(config, range(len(config.rounds))))))
    assert rounds == [([6, 6, 6], 1407), ([6, 6, 6], 1407), ([18], 1407), ([18], 1407)]  # 18 x 10,000 / 128


# --- from stored answers --------------------------------------------------------------------------------------------


def stored(folder: Path, right: Mapping[str, Sequence[bool]]) -> unisandbox.Run:
    """A run's shards after training: setting -> which of the answers to mapping1 are right."""
    items = get_task("mapping", "nano").generate(len(right["normal"]) // 2, 1, "test", 0)
    samples = []
    for setting, marks in right.items():
        for item, ok in zip(items, marks, strict=True):
            verdict = Verdict((Check("object", "pass" if ok else "unreadable"),))
            samples.append(Scored(Sample(Ask(item_case(item), setting, 0, 0), parts=(b"png",)), verdict))
    write_scored(folder / "stages" / "03-evaluate-after" / "scored" / "00000.parquet", samples)
    calls = {"thoughts": 8, "images": 8, "velocities": 80, "rollout": 0}
    entry = {"sampled": 8, "kept": 6, "precision": 0.5, "updates": 3, "seconds": 30.0, "calls": calls}
    about = {"recipe": "r", "model": "nano", "seed": 0, "wall_seconds": 1, "peak_rss_bytes": 1, "scores": {}}
    run_summary.write(folder, about | {"rounds": [entry] * 2})
    return unisandbox.Run(folder)


def test_scores_count_pairs_and_both_kinds_of_interval(tmp_path: Path) -> None:
    yes, no = [True, True], [True, False]  # a pair with one right image is wrong
    first = stored(tmp_path / "0", {"normal": [*yes * 6, *no * 2], SAID: yes * 8})
    other = stored(tmp_path / "1", {"normal": [*yes * 4, *no * 4], SAID: yes * 8})
    row = unisandbox.Row("both", (first, other), "after")
    both, one = (
        unisandbox.Row("", runs, "after").score([("normal", "mapping1")]) for runs in ((first, other), (first,))
    )
    assert both is not None and one is not None
    # 0.75 and 0.5: t(1) = 12.7, so two seeds say nothing. One run has the interval of its questions, eight pairs.
    assert (both.value, both.n, both.low, both.high) == (0.625, 2, 0.0, 1.0)
    assert one.value == 0.75 and 0 < one.low < 0.75 < one.high <= 1
    unclear = row.share(("normal", "mapping1"), unisandbox._unreadable)
    assert unclear is not None and unclear.value == pytest.approx((1 / 8 + 2 / 8) / 2)
    said = row.score([(SAID, "mapping1")])
    assert said is not None and said.value == 1.0
    assert row.score([("normal", "mapping1"), ("cot", "mapping1")]) is None  # CoT was not asked
    last = list(unisandbox._costs({"shipped": {"both": [first, other]}}))[-1]
    assert "| 16 | 0.00 | 12 | 0.50 | 0 | - | 16 | 16 | 160 | 0 | 1.0 |" in last
    with pytest.raises(UserError, match="no answers of its evaluation before"):
        first.answers("before")


def test_counts_of_a_file_get_intervals_over_seeds_and_questions() -> None:
    page = Path(__file__).parents[2] / "research/curriculum.md"
    text = "\n".join(unisandbox.counted(page.parent / "data/nano_curriculum.csv"))
    assert "| 0.71 [0.61, 0.79] |" in text and "0.71 [0.61, 0.79]" in page.read_text(encoding="utf-8")


# --- what is asked --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_run_composes_and_slips_show_before_anything_runs(tmp_path: Path) -> None:
    names = [name for name, module in experiment.EXPERIMENTS.items() if module == "unisandbox" and name != "seeds"]
    assert len(experiment.pages(chosen(*names, "--seeds", "0"), refuse)) == 8
    for words, message in (
        (("table_2", "--set", "batch.promts=3"), "batch.promts"),
        (("table_2", "--base", "mine"), "NAME=FOLDER"),
        (("table_2", "--base", f"mine={tmp_path / 'gone'}"), "there is no folder"),
        (("table_2", "--seeds", "0;1"), "cannot read --seeds"),
        (("tabel_2",), "no experiment and no folder"),
        (("hacking", "-o", "epochs=many"), "hacking: epochs"),
        *(((name, "--only", "sft_some"), "cannot read --only") for name in ("mazes", "hacking", "unigrpo")),
        (("--run", "stars_mixd"), "unknown recipe"),
        ((), "nothing was asked for"),
    ):
        with pytest.raises(UserError, match=message):
            experiment.pages(chosen(*words), refuse)


def test_only_can_name_every_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--only separates labels by commas, so none has one."""
    from bench.experiments import unisandbox

    found: list[str] = []
    monkeypatch.setattr(unisandbox, "page", lambda lab, what: found.extend(what.arms))
    for name in ("table_2", "table_3", "table_5", "figure_5", "distil_mapping", "distil_maths", "distil_speed"):
        getattr(unisandbox, name)(experiment.Lab(runs=tmp_path))
    assert len(found) > 20 and not [label for label in found if "," in label]


def test_a_plan_names_each_seed() -> None:
    one, other = experiment.plan("stars_mapping level=3 budget.mapping3.updates=900 name=long", [0, 7])
    assert (str(one.folder), str(other.folder)) == ("runs/stars_mapping/long-seed0", "runs/stars_mapping/long-seed7")
    assert one.arguments[-2:] == ("name=long-seed0", "seed=0")


@pytest.mark.parametrize("jobs", [1, 2])
def test_after_an_error_no_new_run_is_started(jobs: int) -> None:
    ran: list[str] = []

    def fit(arguments: Sequence[str]) -> tuple[int, str]:
        ran.append(arguments[0])
        return int(arguments[0] == "b"), ""

    lab = experiment.Lab(fit=fit, jobs=jobs)
    with pytest.raises(UserError, match="b ended with 1"):
        lab.each([lambda name=name: lab.train([name]) for name in "abcdef"])  # type: ignore[misc]
    assert set(ran) >= {"a", "b"} and (jobs > 1 or len(ran) == 2)


def test_every_filter_is_asked_about_the_same_thoughts() -> None:
    lines = list(filters.filters(experiment.Lab(), 4, 1.0, [("maths", 1)]))
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells[0] == "maths1" and float(cells[2]) == 1.0, "none keeps all"
    spread, agreement = float(cells[1]), float(cells[3])
    assert 0 <= spread <= 1 and agreement >= 1 - spread, "thoughts that all agree are kept"
    assert all("[" in cell or cell == "-" for cell in cells[6:]) and "4 prompts a set, 4 thoughts each" in lines[-3]
