"""The hacking bench: what runs come to, when alarms come, and that every hack pays for what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from bench.experiment import Lab
from bench.experiments import hacking
from uni_train.config.compose import compose
from uni_train.core.errors import UserError


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
