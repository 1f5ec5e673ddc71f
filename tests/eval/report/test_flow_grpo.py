"""The report of a reinforced run: success by level, curves, groups with their verdicts, and nothing from outside."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.eval.report.pages import HOSTILE, assert_sound
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UserError
from uni_train.eval import groups
from uni_train.eval.groups import Group, Member
from uni_train.eval.report import flow_grpo
from uni_train.eval.report.run import write_report
from uni_train.models.pictures import encode_png

EPOCHS = 12


def member(colour: int, verdict: Verdict | None, total: float | None = None) -> Member:
    rewards = {} if total is None else {"solved": total, "judge": None}
    return Member(encode_png(np.full((20, 20, 3), colour, np.uint8)), verdict, total, rewards)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """3 of 8 mazes solved before, 6 after; every check but one passes."""
    stage = tmp_path / "stages" / "00-grpo"
    (tmp_path / "stages").mkdir()
    config = {"recipe": "flow_grpo_maze", "seed": 3, "model": {"name": "nano_edit"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    task = get_task("maze", "nano")
    (item,) = task.sample(0, 4)
    right, wrong = task.verify(item, task.render(item, 0)), task.verify(item, task.input_image(item))
    asked = {"prompt": item.prompt, "inputs": [encode_png(task.input_image(item))], "level": 4}
    for step, passed in ((0, "11100000"), (6, "11110000"), (12, "01111110")):
        obeyed = [*({"1": "pass", "0": "fail"}[mark] for mark in passed[:-1]), None]
        checks = {"rule_obey": obeyed, "readable": [*[None] * 7, "unreadable"]}
        shown = Group("m1", members=[member(step, right if passed[0] == "1" else wrong)], **asked)
        about = {"step": step, "task": "maze", "split": "test"}
        levels = {"4": {"n": 8, "passed": passed, "checks": checks}}
        groups.write_groups(stage / "held_out" / f"step={step:08d}", [shown], levels=levels, **about)
    drawn = [member(9, right, 1.0), member(80, wrong, 0.0), member(7, Verdict((Check("x", "unreadable", HOSTILE),)))]
    for epoch in range(EPOCHS):
        groups.write_groups(stage / "gallery" / f"epoch-{epoch:05d}", [Group("m2", members=drawn, **asked)],
                            epoch=epoch, step=epoch)  # fmt: skip
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


def test_success_is_paired_and_every_curve_is_there(run_dir: Path) -> None:
    (found,) = flow_grpo.stages(run_dir)
    (row,) = found["success"]["rows"]
    assert [cell.value for cell in row["cells"]] == [3 / 8, 4 / 8, 6 / 8]
    assert (row["change"].only_first, row["change"].only_second) == (1, 4)
    (check,) = found["success"]["checks"]
    assert check["name"] == "rule obey"
    assert [(cell.value, cell.n) for cell in check["cells"]] == [(3 / 8, 8), (4 / 8, 8), (6 / 8, 8)]
    assert found["success"]["moments"] == ["before", "update 6", "after"]
    titles = {chart.title for name in found if name.endswith("_charts") for chart in found[name]}
    assert titles == {
        "Success", "Reward", "Shares", "Gradient norm", "KL from the start", "Clipped steps", "Ratio",
        "How far from the weights that drew", "Images, grey levels", "Seconds an epoch",
    }  # fmt: skip
    assert {part["name"]: part["share"] for part in found["time"]} == {
        "drawing": 0.3,
        "rewarding": 0.1,
        "learning": 0.6,
    }
    assert [one["title"] for one in found["galleries"]] == [f"Epoch {e}" for e in (0, 3, 6, 8, 11)]
    statuses = [one["status"] for one in found["galleries"][0]["groups"][0]["members"]]
    assert statuses == ["pass", "fail", "unreadable"]


def test_the_page_needs_no_accuracy_and_asks_for_nothing(run_dir: Path) -> None:
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert "<h1>flow_grpo_maze</h1>" in page and "1 min 01 s" in page and "0.75" in page and "p = 0.38" in page
    assert "the path" in page or "no red path" in page
    assert_sound(page)
    assert HOSTILE not in page and "&lt;/script&gt;" in page and "<script" not in page
    assert page.count("failed</div>") == 5 * 2, "a judge that failed is no 0"


def test_what_is_unfinished_or_damaged(run_dir: Path) -> None:
    stage = run_dir / "stages" / "00-grpo"
    (stage / "held_out" / "step=00000012" / "groups.json").unlink()
    assert flow_grpo.stages(run_dir)[0]["success"]["moments"] == ["before", "after"]
    (stage / "manifest.json").unlink()
    assert flow_grpo.stages(run_dir)[0]["success"]["moments"] == ["before", "update 6"]
    assert "not finished" in write_report(run_dir).read_text(encoding="utf-8")
    log = stage / "rollouts.jsonl"
    log.write_text(log.read_text() + '{"step": 13, "rew')
    assert flow_grpo.stages(run_dir)[0]["epochs"] == EPOCHS
    log.write_text("{oops\n" + log.read_text())
    with pytest.raises(UserError, match=r"rollouts\.jsonl, line 1"):
        write_report(run_dir)
    log.unlink()
    (stage / "gallery" / "epoch-00000" / "0-1.png").unlink()
    with pytest.raises(UserError, match=r"epoch-00000: cannot be read"):
        write_report(run_dir)
    (run_dir / "config.yaml").write_text("{")
    with pytest.raises(UserError, match=r"config\.yaml: cannot be read"):
        write_report(run_dir)


def test_groups_come_back_as_they_were_written(tmp_path: Path) -> None:
    one = Group("a", "draw", [member(3, Verdict((Check("c", "fail", "why"),), 0.5), 0.25)], [b"png"], 2, "an answer")
    (back,) = groups.read_groups(groups.write_groups(tmp_path / "x", [one], step=7))
    assert groups.read_facts(tmp_path / "x")["step"] == 7
    assert (back.id, back.prompt, back.inputs, back.level, back.answer) == ("a", "draw", [b"png"], 2, "an answer")
    assert back.members[0].verdict == one.members[0].verdict
    assert (back.members[0].image, back.members[0].total) == (one.members[0].image, 0.25)
    assert back.members[0].rewards == {"solved": 0.25, "judge": None}


def test_the_two_prompts_of_a_pair_are_not_independent() -> None:
    level = {"n": 40, "passed": "1100" * 10}
    alone, pairs = groups.passed([level]), groups.passed([level | {"pairs": [i // 2 for i in range(40)]}])
    assert alone.value == pairs.value == 0.5 and (alone.distinct, pairs.distinct) == (None, 20)
    assert pairs.high - pairs.low > 1.3 * (alone.high - alone.low)
    assert len(set(groups.clusters_of([level, level]))) == 80, "levels share no prompt"
