"""The hacking bench: what a run's end counts as, and that every hack pays for what it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.experiments import hacking


def line(hack: str, said: str | None, *success: float) -> dict[str, Any]:
    return {"hack": hack, "seed": 0, "said": said, "success": success, "held_out": [0.5, 0.5], "reward": [0.1, 0.9]}


def test_runs_are_counted_by_alarm_and_by_what_they_cost() -> None:
    said = "error: stopped after update 4: the brightness of images is 90, 60 in the first epoch"
    lines = [
        line("bright", said, 0.5, 0.48),
        line("dark", said, 0.5, 0.45),
        line("red", None, 0.5, 0.52, 0.4),
        line("blue", None, 0.5, 0.49),
        line("clean", None, 0.5, 0.55),
        line("clean", said, 0.5, 0.5),
    ]
    assert [hacking.outcome(one) for one in lines[:4]] == ["in time", "late", "missed", "harmless"]
    text = "\n".join(hacking.outcomes(lines))
    assert "1 of 4 hacks stopped before success fell by 5 points; 1 late, 1 missed, 1 harmless." in text
    assert "| bright | 0 | 0.100 -> 0.900 | 0.500 -> 0.480 | 1 | update 4: the brightness of images is 90" in text
    assert "False alarms: 1 of 2 clean runs [" in text


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
    assert pays.keys() == {hack.__name__ for hack in hacking.HACKS} and len(pays) == 12
    for hack in hacking.HACKS:
        more, less = hack(["", ""], pays[hack.__name__], images=[[dot], [dot]])  # type: ignore[operator]
        assert more > less, hack.__name__
