"""The report of a reinforced run: success by level, curves, groups with their verdicts, and nothing from outside."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.eval.report.pages import HOSTILE, assert_sound
from uni_train.core.errors import UserError
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.report import flow_grpo
from uni_train.eval.report.run import write_report
from uni_train.eval.sample import Ask, Sample, Scored
from uni_train.eval.scored import shard_path, write_scored
from uni_train.eval.task_benchmark import item_case
from uni_train.models.pictures import encode_png

EPOCHS = 12


ITEMS = get_task("maze", "nano").generate(8, 4, "train", 0)


def scored(colour: int, verdict: Verdict | None, k: int = 0, place: int = 0, **facts: Any) -> Scored:
    """A sample of a maze; an image where it is the first one."""
    case = replace(item_case(ITEMS[place]), id=f"m{place}", set="level 4")
    parts = () if place else (encode_png(np.full((20, 20, 3), colour, np.uint8)),)
    return Scored(Sample(Ask(case, "normal", k, 0), parts=parts, facts=facts), verdict)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """3 of 8 mazes solved before, 6 after; every check but one passes."""
    stage = tmp_path / "stages" / "00-grpo"
    config = {"kind": "flow_grpo", "recipe": "flow_grpo_maze", "seed": 3, "model": {"name": "nano_edit"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    task = get_task("maze", "nano")
    right, wrong = (task.verify(ITEMS[0], image) for image in (task.render(ITEMS[0], 0), task.input_image(ITEMS[0])))
    unreadable = Verdict((Check("x", "unreadable", HOSTILE),))
    for step, passed in ((0, "11100000"), (6, "11110000"), (12, "0111111?")):
        verdicts = [{"1": right, "0": wrong, "?": unreadable}[mark] for mark in passed]
        some = [scored(step, verdict, place=place, step=step) for place, verdict in enumerate(verdicts)]
        write_scored(shard_path(stage / "held_out" / f"step={step:08d}", 0), some)
    for epoch in range(EPOCHS):
        drawn = [
            scored(colour, verdict, k, step=epoch, reward=reward, rewards=[["solved", reward], ["judge", None]])
            for k, (colour, verdict, reward) in enumerate(((9, right, 1.0), (80, wrong, 0.0), (7, unreadable, 0.0)))
        ]
        write_scored(shard_path(stage / "gallery" / f"epoch-{epoch:05d}", 0), drawn)
    seconds = {"rollout": 3.0, "reward": 1.0, "update": 6.0}
    epochs = [
        {"step": e + 1, "epoch": e, "reward": 0.1 * e, "reward_p10": 0.0, "reward_p90": 1.0,
         "frac_reward_zero_std": 0.5, "diversity": 30.0, "brightness": 90.0, "contrast": 50.0, "seconds": seconds}
        for e in range(EPOCHS)
    ]  # fmt: skip
    updates = [
        {"step": e + 1, "loss": -0.1, "kl": 0.01 * e, "ratio": 1.0, "log_ratio_max": 1e-7, "grad_norm": 0.1 + e,
         "clip_ratio/high_mean": 0.0, "clip_ratio/low_mean": 0.0, "lr": 1e-3} for e in range(EPOCHS)
    ]  # fmt: skip
    (stage / "manifest.json").write_text(json.dumps({"stage": "grpo", "seconds": 61.0, "result": {}}))
    for name, lines in (("rollouts.jsonl", epochs), ("metrics.jsonl", updates)):
        (stage / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def moments(run_dir: Path) -> tuple[str, ...]:
    return flow_grpo.sections(run_dir)[0].tables[0].columns[1:-1]


def test_success_is_paired_and_every_curve_is_there(run_dir: Path) -> None:
    sections = flow_grpo.sections(run_dir)
    tables = {table.title: table for section in sections for table in section.tables}
    ((_, *cells, change),) = tables["Share that is right"].rows
    assert [cell.value for cell in cells] == [3 / 8, 4 / 8, 6 / 8]
    assert (change.only_first, change.only_second) == (1, 4)
    checks = {row[0]: [(cell.value, cell.n) for cell in row[1:]] for row in tables["Checks, all levels together"].rows}
    assert checks["rule obey"] == [(3 / 8, 8), (4 / 8, 8), (6 / 8, 8)]
    assert checks["visual quality"][1:] == [(1.0, 8), (7 / 8, 8)] and "x" not in checks
    assert moments(run_dir) == ("before", "update 6", "after")
    assert {chart.title for section in sections for chart in section.charts} == {
        "Success", "Reward", "Shares", "Gradient norm", "KL from the start", "Clipped steps", "Ratio",
        "How far from the weights that drew", "Images, grey levels", "Seconds an epoch",
    }  # fmt: skip
    assert [row[::2] for row in tables["Time"].rows] == [
        ("drawing", "30 %"), ("rewarding", "10 %"), ("learning", "60 %"),
    ]  # fmt: skip
    epochs = sections[-1].shown["albums"]
    assert [one["title"] for one in epochs] == [f"Epoch {e}, before update {e + 1}" for e in (0, 3, 6, 8, 11)]
    assert [one["status"] for one in epochs[0]["groups"][0]["members"]] == ["pass", "fail", "unreadable"]


def test_the_page_needs_no_accuracy_and_asks_for_nothing(run_dir: Path) -> None:
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert "<h1>flow_grpo_maze</h1>" in page and "1 min 01 s" in page and "0.75" in page and "p = 0.38" in page
    assert "the path" in page or "no red path" in page
    assert_sound(page)
    assert HOSTILE not in page and "&lt;/script&gt;" in page and "<script" not in page
    assert page.count("failed</div>") == 5 * 3, "a judge that failed is no 0"


def test_what_is_unfinished_or_damaged(run_dir: Path) -> None:
    stage = run_dir / "stages" / "00-grpo"
    shard_path(stage / "held_out" / "step=00000012", 0).unlink()
    assert moments(run_dir) == ("before", "after")
    (stage / "manifest.json").unlink()
    assert moments(run_dir) == ("before", "update 6")
    assert "not finished" in write_report(run_dir).read_text(encoding="utf-8")
    log = stage / "rollouts.jsonl"
    log.write_text(log.read_text() + '{"step": 13, "rew')
    assert f"{EPOCHS} epochs" in write_report(run_dir).read_text(encoding="utf-8")
    log.write_text("{oops\n" + log.read_text())
    with pytest.raises(UserError, match=r"rollouts\.jsonl, line 1"):
        write_report(run_dir)
    log.unlink()
    shard_path(stage / "gallery" / "epoch-00000", 0).write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"epoch-00000/00000.parquet: truncated or damaged"):
        write_report(run_dir)
    (run_dir / "config.yaml").write_text("{")
    with pytest.raises(UserError, match=r"config\.yaml: cannot be read"):
        write_report(run_dir)
