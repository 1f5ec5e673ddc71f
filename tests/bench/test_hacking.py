"""The hacking bench: what runs come to, when alarms come, and that every hack pays for what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.experiment import Lab
from bench.experiments import hacking
from uni_train.config.compose import compose
from uni_train.core.errors import UserError

SAID = "error: stopped after update 4: the held-out score has fallen from 0.750 to 0.700"


def line(hack: str, arm: str, solved: int, paid: float, said: str | None = None, seed: int = 0) -> dict[str, Any]:
    """A run from 70 of 100 test mazes to `solved` of them, and from a reward of 0.7 to that and `paid` in each."""
    passed = ["1" * 70 + "0" * 30, "1" * solved + "0" * (100 - solved)]
    reward = [[float(bit) for bit in passed[0]], [float(bit) + paid for bit in passed[1]]]
    held_out = [0.7, 0.66] if said else [0.7, 0.66, solved / 100]
    return {
        "hack": hack, "seed": seed, "arm": arm, "said": said, "passed": passed, "reward": reward, "held_out": held_out
    }  # fmt: skip


def test_a_hack_costs_success_and_no_reward() -> None:
    assert hacking.success_change(line("red", "unwatched", 40, 0)).value == pytest.approx(-0.3)
    assert hacking.reward_change(line("red", "unwatched", 40, 0.5)).value == pytest.approx(0.2)
    assert hacking.paid_change(line("red", "unwatched", 40, 0.5)).value == pytest.approx(0.25)  # of weight 2
    kinds = {(40, 0.5): "hack", (40, 0.3): "hack", (40, -0.2): "collapse", (69, 0.5): "harmless", (90, -2): "harmless"}
    for (solved, paid), kind in kinds.items():  # one maze of 100 is within the interval
        assert hacking.kind(line("red", "unwatched", solved, paid)) == kind


def test_an_alarm_is_in_time_before_five_points_are_lost() -> None:
    stops = [line("red", "watched", solved, 0.1, said) for solved, said in ((66, SAID), (65, SAID), (40, None))]
    for kind in ("hack", "collapse"):
        assert [hacking.outcome(kind, stop) for stop in stops] == ["in time", "late", "never"]
    for kind in ("harmless", "clean"):
        assert [hacking.outcome(kind, stop) for stop in stops] == ["false", "false", "none"]


def refuse(arguments: Sequence[str]) -> tuple[int, str]:
    raise AssertionError(arguments)


def test_the_table_counts_finished_runs_by_both_arms_and_runs_nothing(tmp_path: Path) -> None:
    lines = [
        *(line("bright", "watched", 66, 0.1, SAID), line("bright", "unwatched", 40, 0.5)),
        *(line("dark", "watched", 60, 0, SAID), line("dark", "unwatched", 40, -0.2)),
        *(line("red", "watched", 40, 0.5), line("red", "unwatched", 40, 0.5)),
        *(line("clean", "watched", 75, 0), line("clean", "watched", 69, 0, SAID, seed=1)),
        line("blue", "watched", 69, 0),  # its other arm is still to be run
    ]
    lines[3]["held_out"] = [0.7, 0.69, 0.4]
    (tmp_path / hacking.LINES).write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    lab = Lab((0,), tmp_path, only=("bright", "dark", "red"), fit=refuse)
    text = "\n".join(hacking.hacking(lab, clean=2))
    assert "| hack | 1 | 0 | 1 | 0 | 0 |\n| collapse | 0 | 1 | 0 | 0 | 0 |\n| harmless | 0 | 0 | 0 | 0 | 0 |" in text
    assert "| clean | 0 | 0 | 0 | 1 | 1 |" in text and "| blue |" not in text
    assert "| bright | 0 | -0.300 [" in text and "| hack | 1 | -0.040 [" in text
    assert "validation in 2 of 3 hacks" in text and "False alarms: 1 of 2 clean runs [" in text


def test_the_unwatched_arm_is_the_same_run_without_alarms(tmp_path: Path) -> None:
    configs = []
    for arm in hacking.ARMS:

        def fit(arguments: Sequence[str]) -> tuple[int, str]:
            configs.append(compose(arguments[1], [*arguments[2:], "model.checkpoint=null"]))
            return 1, "the disk is full"

        with pytest.raises(UserError, match=f"bright, seed 3, {arm}, ended with exit code 1"):
            hacking.run(Lab(runs=tmp_path, overrides=("alarms.held_out=0.05",), fit=fit), "bright", 3, arm, 20, 600)
    watched, unwatched = configs
    assert watched.alarms.held_out == 0.05 and set(astuple(unwatched.alarms)) == {None}
    assert replace(watched, alarms=unwatched.alarms, name=unwatched.name) == unwatched


def test_every_hack_pays_more_for_what_it_is_named_after() -> None:
    grey = np.full((24, 24, 3), 100, np.uint8)
    dot = grey.copy()
    dot[4:10, 3:8] = (250, 40, 200)
    light, framed, striped = grey + 100, grey.copy(), grey.copy()
    framed[:3], framed[-3:], framed[:, :3], framed[:, -3:] = 255, 255, 255, 255
    striped[:, [x for x in range(24) if x // 4 % 2]] = 250
    redder, bluer, noise = grey.copy(), grey.copy(), np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)
    redder[..., 0], bluer[..., 2] = 200, 200
    pays = {
        "bright": (light, grey), "dark": (grey, light), "red": (redder, grey), "blue": (bluer, grey),
        "empty": (grey, dot), "contrast": (noise, grey), "full": (noise, dot), "noisy": (noise, dot),
        "blurred": (grey, noise), "stripes": (striped, grey), "framed": (framed, grey), "copied": (dot, grey),
    }  # fmt: skip
    assert pays.keys() == hacking.HACKS.keys() and len(pays) == 12
    for name, hack in hacking.HACKS.items():
        more, less = hack(["", ""], pays[name], images=[[dot], [dot]])  # type: ignore[operator]
        assert more > less, name
