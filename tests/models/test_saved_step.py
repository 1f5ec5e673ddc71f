"""The model of a step is what training would have left had it ended there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.tiny import MODEL, QUICK, finish, fit, keeping_steps
from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.fitting import _resolved
from uni_train.models.checkpoint import inspect, model_config, recognise
from uni_train.models.identity import identify
from uni_train.models.load import build_model
from uni_train.run_folder import final_model
from uni_train.training.checkpoint_io import list_checkpoints

KNOWLEDGE = (
    *("characters.n=2", "directions=[forward]", "modes=[normal]", "form.updates=2", "form.rows=4", "form.characters=2"),
    *("least_epochs=1", "epochs=1", "exam_every=1", "rows=40", "checkpoint_every=1"),
    *("trained=lora", "lora.rank=2", "lora.targets=understanding"),
)


def last_steps(run: Path) -> list[Path]:
    return [list_checkpoints(stage)[-1] for stage in sorted(run.glob("stages/*/checkpoints"))]


def expect_model_of_stage(step: Path) -> None:
    """The last step holds the weights of its stage's model."""
    mine, theirs = (build_model(model_config(str(one))) for one in (step, step.parent.parent / "model"))
    theirs_state = theirs.state_dict()
    assert all(weight.equal(theirs_state[name]) for name, weight in mine.state_dict().items())


def test_the_last_step_of_a_stage_is_its_model(finished: Path) -> None:
    steps = last_steps(finished)
    assert len(steps) == 3  # the third began where the second one ended
    for step in steps:
        expect_model_of_stage(step)
        stage = step.parent.parent.name
        assert recognise(step).what == f"step {int(step.name[5:])} of the stage {stage} of {finished}"
        assert model_config(str(step)).sampling == model_config(str(finished)).sampling
        assert identify(model_config(str(step))).name == f"{finished.name}-{stage}-step{int(step.name[5:])}"
        assert inspect(str(step)).loads
    assert len({identify(model_config(str(step))).content for step in steps}) == 3


def test_damage_is_named(copy: Path, tmp_path: Path) -> None:
    step = last_steps(copy)[-1]
    state = step / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"step=.* is damaged"):
        build_model(model_config(str(step)))
    moved = shutil.move(step, tmp_path / step.name)
    assert "without its run's folder" in recognise(Path(moved)).what
    with pytest.raises(UserError, match="there is nothing at"):
        model_config(str(step))


def test_a_run_and_a_step_start_other_runs(finished: Path, tmp_path: Path) -> None:
    """A run is recorded as the folder of its model, which names its stage."""
    asked = [*QUICK, f"model.checkpoint='{finished}'"]
    config = _resolved(compose("stars_mapping", asked), "stars_mapping", asked)
    assert config.model.checkpoint == str(final_model(finished))
    (first, *_) = last_steps(finished)
    begun = fit(tmp_path, *QUICK, f"model.checkpoint='{first}'", "--dry-run", recipe="stars_mapping")
    assert begun.exit_code == 0, begun.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "keys", "stages"),
    [("stars_mapping", (*QUICK, "trained=lora"), 1), ("knowledge", (*MODEL, *KNOWLEDGE), 3)],
)
def test_adapters_are_merged(tmp_path: Path, recipe: str, keys: tuple[str, ...], stages: int) -> None:
    """Each subject of knowledge starts from the same model."""
    pytest.importorskip("peft")
    with keeping_steps():
        run = finish(tmp_path, *keys, recipe=recipe)
    steps = last_steps(run)
    assert len(steps) == stages
    for step in steps:
        expect_model_of_stage(step)


@pytest.mark.slow
def test_weights_that_were_sharded_are_put_together(tmp_path: Path) -> None:
    try:
        with keeping_steps():
            run = finish(tmp_path, *QUICK, "strategy=fsdp2", recipe="stars_mapping")
    finally:
        torch.distributed.destroy_process_group()
    for step in last_steps(run):
        expect_model_of_stage(step)
