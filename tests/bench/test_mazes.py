"""The maze table: what is run for how long, what is not run again, and the arithmetic of the tables."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bench.experiment import Lab
from bench.experiments import maze_sizes, mazes
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.core.errors import UsageError
from uni_train.data_gen.registry import task_of
from uni_train.eval.statistics import paired
from uni_train.training.metric_log import read_metrics

BRIGHT = "rewards.solved.function=tests.training.flow_grpo.toy:bright"
EASY = {"stars": ("filter=none",), "grpo_same": (BRIGHT,)}  # what has learned for a second solves nothing
SMALL = ("model.architecture.layers=1", "model.architecture.hidden_size=32", "model.architecture.intermediate_size=32")


def test_every_arm_composes_and_begins_with_the_model_of_its_seed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mazes, "FRESH", 3)
    plan = mazes.Plan(tmp_path, n=2)
    for key, arm in mazes.ARMS.items():
        _, recipe, *overrides = mazes.arguments(plan, 1, key, f"seed1-{key}")
        config = compose(recipe, [*overrides, plan.lasting(arm, 7)])
        assert (config.recipe, config.seed, config.out) == (arm.recipe, 1, str(tmp_path))
        name = f"seed1-{arm.begins}"
        model = None if arm.begins is None else str(tmp_path / "sft_maze" / name / "stages" / "00-sft" / "model")
        assert config.model.checkpoint == model
        if key == "stars":
            assert [one.draw for one in config.rounds] == [1, 2, 3, 4, 5, 6, 7] and config.solved is not None
    first, more = (read_metrics(tmp_path / f"{kind}-seed1" / "items.jsonl") for kind in ("limited", "more"))
    assert (len(first), len(more)) == (2, 3)
    assert {item["split"] for item in (*first, *more)} == {"train"}


def test_a_family_of_puzzles_takes_the_place_of_mazes(tmp_path: Path) -> None:
    plan = mazes.Plan(tmp_path, n=2, task="sudoku", level=1, prompts=100, rows=6)
    for key in ("start", "stars", "nft_sft"):
        arm = mazes.ARMS[key]
        _, recipe, *overrides = mazes.arguments(plan, 1, key, key)
        config = compose(recipe, [*overrides, plan.lasting(arm, 2)])
        assert config.model.puzzles == ("sudoku",)
        if key == "stars":
            asked = {(one.task, one.level, one.prompts, one.updates) for one in config.rounds}
            assert (asked, config.batch.prompts) == ({("sudoku", 1, 100, 30)}, 6)
            assert config.evaluation.sets == ("sudoku1",)
        if key == "nft_sft":
            assert (config.prompts.task, config.prompts.levels) == ("sudoku", (1,))
    solved = read_metrics(tmp_path / "limited-seed1" / "items.jsonl")
    assert [(item["task"], item["split"]) for item in solved] == [("sudoku", "train")] * 2


def test_puzzles_are_beside_a_lazy_strategy_and_clustered_by_their_form() -> None:
    items = mazes.held_out_items(1, 40, task="tic_tac_toe")
    task = task_of(items[0])
    states = [task.lazy(item.facts, random.Random())["where most X are in line"] for item in items]
    passes = [task.verify(item, task.picture(item.facts, s)).passed for item, s in zip(items, states, strict=True)]
    about = {"task": "tic_tac_toe", "level": 1, "updates": 9, "seconds": 9.0, "seen": [1, 2], "best": [1, 2]}
    made = [
        {**about, "seed": 0, "arm": arm, "test": {"1": [n, 40]}, "passed": "1" * n + "0" * (40 - n)}
        for arm, n in (("start", 10), ("settled", 20))
    ]
    text = "\n".join(mazes.tables(made))
    assert f"| lazy: where most X are in line | - | - | - | {100 * sum(passes) / 40:.1f} |" in text
    forms = [item.facts["canonical"] for item in items]
    assert f"40 different test puzzles, {len(set(forms))} but for views and names." in text and "maze" not in text
    gain = paired([n < 10 for n in range(40)], [n < 20 for n in range(40)], clusters=forms).difference
    assert f"| SFT, once more | +25.0 [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}] |" in text


@pytest.mark.slow
def test_arms_last_equally_long_and_are_not_run_twice(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mazes, "PACE", {"updates": 2, "epochs": 2, "rounds": 1})
    monkeypatch.setattr(mazes, "ROUND", mazes.ROUND | {"prompts": 4, "updates": 2})
    easier = {key: replace(one, overrides=(*one.overrides, *EASY.get(key, ()))) for key, one in mazes.ARMS.items()}
    monkeypatch.setattr(mazes, "ARMS", easier)
    ran: list[Sequence[str]] = []

    def fit(arguments: Sequence[str]) -> tuple[int, str]:
        ran.append(arguments)
        result = CliRunner().invoke(uni_train, ["fit", *arguments])
        return result.exit_code, result.output

    lasting = {"start": 0.2, "settle": 0.2, "seconds": 0.2}
    plan = mazes.Plan(tmp_path, n=8, **lasting, common=("model.threads=1", *SMALL), asked={3: 2, mazes.LEVEL: 4})
    for _ in range(2):
        mazes.make(plan, Lab(fit=fit), ["grpo_same", "stars"])
    names = [next(one for one in given if one.startswith("name=")) for given in ran]
    arms = ["start", "settled", "grpo_same", "stars"]
    assert names == [f"name={what}-{arm}" for arm in arms for what in ("pace", "seed0")]
    lines = read_metrics(plan.lines)
    assert [line["arm"] for line in lines] == arms
    pace = json.loads((tmp_path / "pace.json").read_text())
    assert [line["updates"] for line in lines] == [max(1, round(0.2 / pace[key])) for key in arms]
    assert {key: n for key, (_, n) in lines[0]["test"].items()} == {"3": 2, "4": 4}
    assert lines[0]["seen"][1] == 8 and lines[0]["best"][1] == 4
    assert [line["mazes"] for line in lines] == [8, 8, 8, 12]


def test_mazes_are_counted_once_whatever_their_view(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mazes, "FRESH", 40)
    monkeypatch.setattr(mazes, "ROUND", mazes.ROUND | {"prompts": 30})
    plan = mazes.Plan(tmp_path, n=5)
    assert [mazes.mazes_seen(plan, 0, key, 9) for key in ("start", "plain", "grpo_same")] == [5, 5, 5]
    assert mazes.mazes_seen(plan, 0, "grpo_kl", 2) == 5 + 2 * 48
    assert mazes.mazes_seen(plan, 0, "nft_sft", 1) == 5 + 64
    assert mazes.mazes_seen(plan, 0, "stars", 2) == 5 + 2 * 30
    assert mazes.mazes_seen(plan, 0, "sft_more", 1) == 5 + 16


def test_settings_are_tuned_on_a_seed_and_a_split_that_no_table_tests(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(UsageError, match="tune=1: --seeds are tested"):
        mazes.mazes(Lab(seeds=(0, 1)), tune=1)
    made: list[Any] = []
    monkeypatch.setattr(mazes, "make", lambda plan, lab, arms: made.append((plan, lab, arms)))
    tuned = {**line(7, "start", 600), "split": "validation"}
    (tmp_path / "tuned.jsonl").write_text(json.dumps(tuned) + "\n")
    text = "\n".join(mazes.mazes(Lab(seeds=(0, 1), runs=tmp_path), tune=7))
    ((plan, lab, arms),) = made
    assert (plan.split, plan.asked, lab.seeds, plan.lines.name) == ("validation", {4: 500}, (7,), "tuned.jsonl")
    assert {"plain", "grpo_kl"} <= set(arms)
    assert "Seeds 7; percent of the validation mazes solved" in text


def line(seed: int, arm: str, right: int, seconds: float = 150.0) -> dict[str, Any]:
    test = {"3": [50, 100], "4": [right, 1000]}
    about = {
        "seed": seed,
        "arm": arm,
        "updates": 90,
        "mazes": 700,
        "seconds": seconds,
        "seen": [9, 10],
        "best": [8, 10],
    }
    return {**about, "test": test, "passed": "1" * right + "0" * (1000 - right)}


def test_tables_give_means_over_seeds_and_differences_by_seed() -> None:
    lines = [line(0, "start", 600), line(1, "start", 700), line(0, "settled", 700), line(1, "settled", 800)]
    lines += [line(0, "sft_same", 690), line(1, "sft_same", 810)]
    lines += [line(0, "grpo_new", 750, 149.0), line(1, "grpo_new", 870, 152.4)]
    text = "\n".join(mazes.tables(lines))
    # 60 and 70: t(1) = 12.706, half width 12.706 * 5 = 63.5, so it spans nearly everything.
    assert "| SFT | 150 | 90 | 700 | 65.0 [1.5, 100.0] | 80.0 [80.0, 80.0] | 90.0 [90.0, 90.0] |" in text
    assert "| + Flow-GRPO, new mazes, unsolved | 149-152 | 90 | 700 | 81.0 [" in text
    # What came before is what it began with. Gains of 5 and 7 points: mean 6, half width 12.7; over SFT 6 and 6.
    assert "| SFT, once more | +10.0 | +10.0 | +10.0 [+10.0, +10.0] | - |" in text
    assert "| + SFT, same mazes | -1.0 | +1.0 | +0.0 [-12.7, +12.7] | - |" in text
    assert "| + Flow-GRPO, new mazes, unsolved | +5.0 | +7.0 | +6.0 [-6.7, +18.7] | +6.0 [+6.0, +6.0] |" in text
    # 120 of 1,000 mazes change in one of two seeds: cluster sums vary by sqrt(120 * 0.88^2 + 880 * 0.12^2) = 10.28,
    # so by Student's t(999) = 1.962 the half width of the mean over 2,000 would be 1.0 points; Newcombe's is near it.
    gain = re.escape("+6.0 [+5.0, +7.1]")
    assert re.search(rf"\| \+ Flow-GRPO, new mazes, unsolved \| {gain} \| \S+ \| {gain} \| \S+ \|", text)
    assert "| + SFT, new mazes, solved" not in text
    answers = [item.answer for item in mazes.held_out_items(4, 1000)]
    straight = [one for one in answers if sum((a in "LR") != (b in "LR") for a, b in itertools.pairwise(one)) <= 1]
    guesses = [sum(one[0] in way or one[-1] not in way for one in straight) for way in ("LR", "UD")]
    assert f"| walls ignored: one turn at most | - | - | - | {max(guesses) / 10:.1f} |" in text


def test_sft_goes_on_until_the_validation_split_gains_less_than_asked(tmp_path: Path, monkeypatch: Any) -> None:
    rates = {"seed3-start": 0.5, "seed3-settled": 0.6, "seed3-settled-2": 0.65, "seed3-settled-3": 0.655}
    monkeypatch.setattr(mazes, "right", lambda weights, items: np.array([rates[weights.parents[2].name]]))
    ran: list[Sequence[str]] = []
    plan = mazes.Plan(tmp_path, n=2, flat=1.0)
    name, found = mazes._until_flat(plan, 3, 7, Lab(fit=lambda given: (ran.append(given) or 0, "")))
    assert name == "seed3-settled-3" and found == [0.5, 0.6, 0.65, 0.655]
    begins = [[one for one in given if one.startswith("model.checkpoint=")][-1] for given in ran]
    assert ["seed3-settled/" in begins[0], "seed3-settled-2/" in begins[1], len(begins)] == [True, True, 2]
    plan.lines.write_text(json.dumps({"seed": 3, "arm": "settled", "name": name}) + "\n")
    (given,) = [one for one in mazes.arguments(plan, 3, "grpo_new", "x") if one.startswith("model.checkpoint=")]
    assert "seed3-settled-3/" in given


def test_each_size_is_trained_on_a_canvas_and_tested_on_all(tmp_path: Path) -> None:
    job = maze_sizes._job(Lab(runs=tmp_path), 3, 8, n=2, updates=5, augment=True)
    config: Any = job.config
    assert (config.data.maze_side, config.model.architecture.image_size, job.folder.name) == (40, 40, "size8-seed3")
    (source,) = config.used_sources.values()
    solved = read_metrics(Path(source.path))
    assert source.augment == "symmetries" and [item["facts"]["picture"]["side"] for item in solved] == [40, 40]
    shares = {(seed, 4): dict.fromkeys(maze_sizes.TESTED, 0.0) | {4: 0.6 + 0.1 * seed, 5: 0.25} for seed in (0, 1)}
    text = "\n".join(maze_sizes.sizes_table(shares))
    # As above: 60 and 70, t(1) = 12.706.
    assert "| 4 x 4 | 0.0 [0.0, 0.0] | 0.0 [0.0, 0.0] | 65.0 [1.5, 100.0] | 25.0 [25.0, 25.0] | 0.0" in text
    with pytest.raises(UsageError, match="sizes=4,9"):
        maze_sizes.maze_sizes(Lab(runs=tmp_path), sizes="4,9")
