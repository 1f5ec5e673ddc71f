"""The model of a step is what training would have left had it ended there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.tiny import QUICK, finish, keeping_steps
from uni_train.errors import UserError
from uni_train.models.load import model_config
from uni_train.stages.snapshot import write_snapshot
from uni_train.training.checkpoint_io import DamagedCheckpoint, list_checkpoints


def last_steps(run: Path) -> list[Path]:
    return [list_checkpoints(stage)[-1] for stage in sorted(run.glob("stages/*/checkpoints"))]


def test_the_last_step_of_a_stage_is_its_model(finished: Path, tmp_path: Path) -> None:
    steps = last_steps(finished)
    assert len(steps) == 3  # the third began where the second one ended
    for step in steps:
        stage = step.parent.parent
        folder = write_snapshot(step, tmp_path)
        assert folder == tmp_path / finished.name / "stages" / f"{stage.name}-step{int(step.name[5:])}" / "model"
        mine, theirs = (load_file(one / "model.safetensors") for one in (folder, stage / "model"))
        assert mine.keys() == theirs.keys() and all(mine[name].equal(theirs[name]) for name in mine)
        assert model_config(str(folder)).sampling == model_config(str(finished)).sampling


def test_a_finished_copy_is_taken_as_it_is_and_damage_is_named(copy: Path, tmp_path: Path) -> None:
    step = last_steps(copy)[-1]
    folder = write_snapshot(step, tmp_path / "copies")
    written = (folder / "model.safetensors").stat().st_mtime_ns
    state = step / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-7])
    assert write_snapshot(step, tmp_path / "copies") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(DamagedCheckpoint, match=r"step=.* is damaged"):
        write_snapshot(step, tmp_path / "others")
    shutil.rmtree(step)
    with pytest.raises(UserError, match="no checkpoint at"):
        write_snapshot(step, tmp_path / "others")


@pytest.mark.slow
def test_adapters_are_merged(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    with keeping_steps():
        run = finish(tmp_path, *QUICK, "trained=lora", recipe="stars_mapping")
    (step,) = last_steps(run)
    folders = (write_snapshot(step, tmp_path / "copies"), step.parent.parent / "model")
    mine, theirs = (load_file(folder / "model.safetensors") for folder in folders)
    assert mine.keys() == theirs.keys() and all(mine[name].equal(theirs[name]) for name in mine)
