"""Arms of equal seconds: each trains for as many updates as a short run of it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import experiment
from bench.experiments.preferences import preferences
from uni_train.core.errors import UserError


def test_arms_fill_the_seconds_of_the_first(tmp_path: Path) -> None:
    fitted: list[str] = []

    def fit(arguments: list[str]) -> tuple[int, str]:
        """Sampling takes 20 seconds, an update of Flow-DPO 1 and of STARS a quarter."""
        given = dict(word.partition("=")[::2] for word in arguments[2:])
        updates = int(given.get("budget.mapping1.updates", 100))
        folder = Path(given["out"]) / arguments[1] / f"{given['name']}"
        pace = 0.25 if arguments[1] == "stars_mapping" else 1.0
        spent = {"00-evaluate-before": 99.0, "01-sample-mapping1": 20.0, "03-dpo-mapping1": pace * updates}
        for stage, seconds in spent.items():
            (folder / "stages" / stage).mkdir(parents=True, exist_ok=True)
            (folder / "stages" / stage / "manifest.json").write_text(json.dumps({"seconds": seconds}))
        fitted.append(" ".join(arguments))
        return 0, ""

    lab = experiment.Lab(runs=tmp_path, only=("Flow-DPO", "STARS"), fit=fit)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="summary"):
        list(preferences(lab))
    *paces, first, whole = fitted
    assert len(paces) == 2 and all("/pace/" in one and "updates=40" in one and "evaluation.n=1" in one for one in paces)
    assert "dpo_mapping" in first and "updates=" not in first, "the arm that says how long trains as its recipe says"
    assert "stars_mapping" in whole and "updates=600" in whole, "four times as many updates fill the same seconds"
