from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.eval.sample_evaluation import sample_evaluation
from uni_train.core.errors import UserError
from uni_train.eval import summary, tracking
from uni_train.eval.report import gallery


def offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    wandb = pytest.importorskip("wandb")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    settings = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True)
    return wandb.init(project="test", mode="offline", dir=folder, settings=settings)


def told(logged: dict[str, Any], name: str) -> dict[str, Any]:
    """A score as the logger has it."""
    return {key: logged[name + part] for key, part in (("value", ""), ("low", "/low"), ("high", "/high"), ("n", "/n"))}


@pytest.mark.slow
def test_the_numbers_of_runs_and_evaluations_reach_the_logger_at_their_step(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = sample_evaluation(tmp_path / "evals" / "maths", 8)
    with offline(tmp_path, monkeypatch) as run:
        tracking.log_evaluation(run, done, 140, n_images=5)
        step = run.step
        tracking.log_evaluation(run, done, 140, n_images=1)  # once more, after a change of the code: no step back
        again = run.step
        tracking.log_run(run, run_dir, n_images=5)
        logged = dict(run.summary)
    assert logged["checkpoint/step"] == 140 and step == 141 < again
    result, found = done.results["unisandbox"], summary.read(run_dir)
    score, best = result.scores["cot"]["math2"], found["scores"]["after"]["normal"]["mapping1"]
    assert told(logged, "unisandbox/cot/math2").items() <= score.items()
    assert told(logged, "scores/after/normal/mapping1").items() <= best.items()
    assert logged["wall_seconds"] == found["wall_seconds"]
    passed = sum(by_set["pass"] for by_set in result.outcomes["cot"].values())
    assert logged["unisandbox/outcomes/cot/pass"] == passed / 16
    rows = {key: one["nrows"] for key, one in logged.items() if key.startswith("tables/")}
    assert sorted(rows.values()) == [3, 7, 7] and "tables/1_symbolic_mapping" in rows
    images = [file.parts[-2:] for file in tmp_path.glob("wandb/offline-run-*/files/media/images/**/*.png")]
    shown = {one.sample.image for one in gallery.excerpt({"": list(done.scored("unisandbox"))}, 5)[""]}
    by_folder = Counter(folder for folder, _ in images)
    assert by_folder["unisandbox"] == len(shown) + 1  # at a step, the same picture twice is one file
    assert by_folder["gallery"] >= 8


def test_without_wandb_the_error_names_the_extra(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"\.\[wandb\]"):
        tracking.log_run(None, run_dir)  # type: ignore[arg-type]
