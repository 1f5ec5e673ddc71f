"""The experiment on other teachers: its arms compose before the teachers are there, and name what will be trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import experiment
from bench.experiments.teachers import teachers
from uni_train.core.errors import UserError


def test_teachers_are_trained_first_and_arms_name_their_last_model(tmp_path: Path) -> None:
    asked: list[str] = []

    def fit(arguments: list[str]) -> tuple[int, str]:
        asked.append(" ".join(arguments))
        return int(len(asked) == 3), ""

    lines = teachers(experiment.Lab(runs=tmp_path, fit=fit), strong=90)  # type: ignore[arg-type]
    assert not asked, "all arms are composed before anything is trained"
    with pytest.raises(UserError, match="ended with 1"):
        list(lines)
    assert "teacher=reference" in asked[0] and "name=strong1-90-seed0" in asked[0] and "updates=90" in asked[0]
    assert "name=weak1-60-seed0" in asked[1] and "name=stars1-seed0" in asked[2]
