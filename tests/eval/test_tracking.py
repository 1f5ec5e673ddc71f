from __future__ import annotations

import os
import sys
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


@pytest.mark.slow
def test_the_same_numbers_reach_the_logger(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with offline(tmp_path, monkeypatch) as run:
        tracking.log_run(run, run_dir, n_images=5)
        logged = dict(run.summary)
    found = summary.read(run_dir)
    best = found["scores"]["after"]["normal"]["mapping1"]
    told = {part: logged[f"scores/after/normal/mapping1{part}"] for part in ("", "/low", "/high", "/n")}
    assert told == {"": best["value"], "/low": best["low"], "/high": best["high"], "/n": best["n"]}
    assert logged["wall_seconds"] == found["wall_seconds"]
    rows = {key: one["nrows"] for key, one in logged.items() if key.startswith("tables/")}
    assert sorted(rows.values()) == [3, 7, 7] and "tables/1_symbolic_mapping" in rows
    assert len(list(Path(tmp_path).glob("wandb/offline-run-*/files/media/images/gallery/*.png"))) >= 8


@pytest.mark.slow
def test_an_evaluation_is_logged_at_its_checkpoints_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sample_evaluation(tmp_path / "evals" / "sums", 8)
    with offline(tmp_path, monkeypatch) as run:
        tracking.log_evaluation(run, found, 140, n_images=5)
        logged, step = dict(run.summary), run.step
        tracking.log_evaluation(run, found, 140, n_images=1)  # once more, after a change of the code: no step back
        last = run.step
    assert logged["checkpoint/step"] == 140 and step == 141 < last
    score = found.results["sums"].scores["cot"]["math2"]
    told = {part: logged[f"sums/cot/math2{part}"] for part in ("", "/low", "/high", "/n")}
    assert told == {"": score["value"], "/low": score["low"], "/high": score["high"], "/n": score["n"]}
    outcomes = found.results["sums"].outcomes["cot"]
    failed = sum(by_set.get("generation_failed", 0) for by_set in outcomes.values())
    assert logged.get("sums/outcomes/cot/generation_failed", 0) == failed / 16
    assert logged["sums/tables/1_sums"]["nrows"] == 3
    images = list(tmp_path.glob("wandb/offline-run-*/files/media/images/sums/gallery_*.png"))
    shown = {one.sample.image for one in gallery.excerpt({"": list(found.scored("sums"))}, 5)[""]}
    assert len(images) == len(shown) + 1  # at a step, the same picture twice is one file


def test_without_wandb_the_error_names_the_extra(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"\.\[wandb\]"):
        tracking.log_run(None, run_dir)  # type: ignore[arg-type]
