"""The model of a step of knowledge injection, by adapters: every subject starts from the same model."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.tiny import MODEL, finish, keeping_steps
from uni_train.stages.snapshot import write_snapshot
from uni_train.training.checkpoint_io import list_checkpoints

KEYS = (
    "characters.n=2",
    "directions=[forward]",
    "modes=[normal]",
    "form.updates=2",
    "form.rows=4",
    "form.characters=2",
    "least_epochs=1",
    "epochs=1",
    "exam_every=1",
    "rows=40",
    "checkpoint_every=1",
    "trained=lora",
    "lora.rank=2",
    "lora.targets=understanding",
)


@pytest.mark.slow
def test_steps_of_the_form_and_of_later_subjects_are_their_models(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    with keeping_steps():
        run = finish(tmp_path, *MODEL, *KEYS, recipe="knowledge")
    stages = sorted(folder.parent for folder in run.glob("stages/*/checkpoints"))
    assert [stage.name for stage in stages] == ["00-form", "02-inject-forward1", "03-inject-forward2"]
    for stage in stages:
        step = list_checkpoints(stage / "checkpoints")[-1]
        mine, theirs = (
            load_file(one / "model.safetensors") for one in (write_snapshot(step, tmp_path / "copies"), stage / "model")
        )
        assert mine.keys() == theirs.keys() and all(mine[name].equal(theirs[name]) for name in mine)
