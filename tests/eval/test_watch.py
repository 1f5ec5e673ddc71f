"""What counts as a complete checkpoint, and that each is evaluated once whatever happens in between."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from uni_train.core.errors import UserError
from uni_train.eval.watch import ATTEMPTS, STATE, Outcome, watch
from uni_train.run_folder import RunCheckpoint, place_of, run_checkpoints


def save_step(stage: Path, step: int, content: bytes = b"weights") -> None:
    folder = stage / "checkpoints" / f"step={step:08d}"
    folder.mkdir(parents=True)
    (folder / "state.safetensors").write_bytes(content)
    files = [{"name": "state.safetensors", "bytes": len(content)}]
    (folder / "state.json").write_text(json.dumps({"sha256": f"{step}{content!r}", "content": {"files": files}}))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Its first stage is finished after 100 updates."""
    folder = tmp_path / "runs" / "stars" / "seed0"
    first, second = folder / "stages" / "03-finetune-a", folder / "stages" / "05-finetune-b"
    for stage, step in ((first, 100), (second, 20), (second, 40)):
        save_step(stage, step)
    (folder / "config.yaml").write_text("recipe: stars\n")
    (first / "model").mkdir()
    (first / "model" / "model.safetensors").write_bytes(b"model")
    outputs = [{"path": "model/model.safetensors", "sha256": "", "bytes": 5}]
    manifest = {"stage": first.name, "key": "key of the first", "outputs": outputs, "result": {"updates": 100}}
    (first / "manifest.json").write_text(json.dumps(manifest))
    return folder


def look(run: Path, out: Path, evaluate: Callable[[RunCheckpoint], Outcome]) -> list[tuple[str, int]]:
    """What happened to which step as what was there was evaluated."""
    return [(event.kind, event.checkpoint.step) for event in watch(run, out, evaluate, once=True)]


def names(run: Path) -> list[tuple[str, int]]:
    return [(one.name, one.updates) for one in run_checkpoints(run)]


def test_steps_count_from_the_start_of_the_run(run: Path) -> None:
    # The last step of a finished stage is its model.
    assert names(run) == [("03-finetune-a", 100), ("05-finetune-b-step20", 120), ("05-finetune-b-step40", 140)]
    newest = run_checkpoints(run)[-1]
    assert place_of(newest.path) == newest
    model = place_of(run)
    assert model is not None and model.path == run / "stages" / "03-finetune-a" / "model"
    assert place_of(run.parent) is None
    with pytest.raises(UserError, match="no run folder"):
        run_checkpoints(run.parent)


def test_what_is_torn_or_half_copied_is_not_there_yet(run: Path) -> None:
    stage = run / "stages" / "05-finetune-b"
    (stage / "checkpoints" / "step=00000040" / "state.safetensors").write_bytes(b"wei")
    (stage / "checkpoints" / "step=00000060").mkdir()
    (stage / "checkpoints" / ".step=00000080.new-0a1b").mkdir()
    (stage / "checkpoints" / "step=00000020" / "state.json").write_text('{"format": 1, "tens')
    assert names(run) == [("03-finetune-a", 100)]
    (run / "stages" / "03-finetune-a" / "model" / "model.safetensors").write_bytes(b"mod")
    assert names(run) == [("03-finetune-a-step100", 100)]  # the copy in checkpoints/ is whole


def test_each_is_evaluated_once_newest_first_and_new_ones_as_they_come(run: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def evaluate(one: RunCheckpoint) -> Outcome:
        seen.append(one.name)
        if one.step == 40:
            save_step(run / "stages" / "05-finetune-b", 60)
        return Outcome(0)

    look(run, tmp_path / "evals", evaluate)
    assert seen == ["05-finetune-b-step40", "05-finetune-b-step60", "05-finetune-b-step20", "03-finetune-a"]
    assert look(run, tmp_path / "evals", evaluate) == [] and len(seen) == 4  # a later start finds nothing to do
    shutil.rmtree(run / "stages" / "05-finetune-b" / "checkpoints" / "step=00000060")
    save_step(run / "stages" / "05-finetune-b", 60, b"trained again")
    look(run, tmp_path / "evals", evaluate)
    assert seen[4:] == ["05-finetune-b-step60"]


def test_a_step_that_training_removes_meanwhile_is_no_failure(run: Path, tmp_path: Path) -> None:
    def evaluate(one: RunCheckpoint) -> Outcome:
        if one.step != 20:
            return Outcome(0)
        shutil.rmtree(one.path)
        return Outcome(1, "there is nothing")

    events = look(run, tmp_path / "evals", evaluate)
    assert ("gone", 20) in events and not any(kind in ("failed", "given up") for kind, _ in events)


def test_a_failure_is_tried_again_at_later_looks_and_given_up_in_the_end(run: Path, tmp_path: Path) -> None:
    kinds, looks = [], iter(range(ATTEMPTS + 1))
    evaluate = lambda one: Outcome(1, "torn") if one.step == 20 else Outcome(0)  # noqa: E731
    with pytest.raises(RuntimeError, match="StopIteration"):
        for event in watch(run, tmp_path, evaluate, poll=1, sleep=lambda seconds: next(looks)):
            kinds += [event.kind] if event.checkpoint.step == 20 else []
    assert kinds == ["found", "failed"] * (ATTEMPTS - 1) + ["found", "given up"]


def test_a_watch_that_is_killed_goes_on_where_it_was(run: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def evaluate(one: RunCheckpoint) -> Outcome:
        seen.append(one.name)
        if len(seen) == 2:
            raise KeyboardInterrupt  # in the middle of the second evaluation
        return Outcome(0)

    with pytest.raises(KeyboardInterrupt):
        look(run, tmp_path, evaluate)
    look(run, tmp_path, evaluate)
    assert seen == ["05-finetune-b-step40", "05-finetune-b-step20", "05-finetune-b-step20", "03-finetune-a"]
    (tmp_path / STATE).write_text("{")
    with pytest.raises(UserError, match=r"watch\.json"):
        look(run, tmp_path, evaluate)
