"""Curricula: shares per update, and state that survives a resume."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uni_train.core.errors import UsageError
from uni_train.training.curriculum import Constant, Level, Ramp, Threshold


@given(st.integers(1, 50), st.integers(-5, 80))
def test_ramp_is_linear_and_keeps_the_total(updates, step):
    curriculum = Ramp([{"m1": 1}, {"m2": 1}, {"m3": 1}], updates)
    shares = curriculum.mixture(step)
    assert math.isclose(sum(shares.values()), 1) and all(share >= 0 for share in shares.values())
    mean_level = sum(int(name[1]) * share for name, share in shares.items())
    position = min(max(step / max(updates - 1, 1), 0), 1)
    assert math.isclose(mean_level, 1 + 2 * position)


def threshold() -> Threshold:
    return Threshold([Level({name: 1}, name, 0.8, 30) for name in ("m1", "m2", "m3")], check_every=10)


def test_threshold_advances_on_the_metric_or_when_its_updates_are_spent():
    curriculum = threshold()
    curriculum.observe(10, {"m1": 0.7})
    assert curriculum.mixture(10) == {"m1": 1}
    curriculum.observe(20, {"m1": 0.9})
    assert [curriculum.level(step) for step in (0, 19, 20, 49, 50)] == [0, 0, 1, 1, 2]
    curriculum.observe(30, {"m2": 0.1})
    curriculum.observe(50, {"m3": 1.0})
    assert curriculum.level(500) == 2, "the last level stays"
    # What past updates were drawn from does not change afterwards.
    assert [curriculum.level(step) for step in (0, 19, 20, 49, 50)] == [0, 0, 1, 1, 2]


def test_threshold_state_round_trip_and_missing_metric():
    curriculum, resumed = threshold(), threshold()
    curriculum.observe(20, {"m1": 0.9})
    resumed.load_state_dict(curriculum.state_dict())
    assert [resumed.mixture(s) for s in range(60)] == [curriculum.mixture(s) for s in range(60)]
    with pytest.raises(UsageError, match="m2; the evaluation gave: accuracy"):
        resumed.observe(30, {"accuracy": 1.0})


def test_nonsense_is_refused():
    for kind, *asked in ((Constant, {}), (Constant, {"a": -1}), (Constant, {"a": math.nan}), (Ramp, [{"a": 1}], 10)):
        with pytest.raises(UsageError):
            kind(*asked)
    with pytest.raises(UsageError):
        Threshold([], 10)
