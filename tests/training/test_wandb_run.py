"""One W&B run per folder, offline."""

from __future__ import annotations

import time

import pytest

from uni_train.core.errors import UserError
from uni_train.training.wandb_run import RUN_FILE, group_of, offline_folders, open_run, run_id, wandb_logger, wandb_mode


def test_the_id_stays_and_damage_is_reported(tmp_path):
    assert run_id(tmp_path / "run") == run_id(tmp_path / "run") != run_id(tmp_path / "other")
    (tmp_path / "run" / RUN_FILE).write_text("{")
    with pytest.raises(UserError, match=r"wandb\.json does not hold a run id"):
        run_id(tmp_path / "run")


def test_a_run_and_the_evaluations_of_its_checkpoints_share_a_group(tmp_path):
    assert group_of(None, tmp_path / "stars_curriculum" / "seed0") == "stars_curriculum/seed0"
    assert group_of("ablation", tmp_path / "stars_curriculum" / "seed0") == "ablation"


def test_the_recipe_decides_the_mode_then_the_environment_then_whether_there_is_a_key():
    for offline, environment, mode in (
        (None, {}, "offline"),
        (None, {"WANDB_API_KEY": "key"}, "online"),
        (None, {"WANDB_API_KEY": "key", "WANDB_MODE": "offline"}, "offline"),
        (None, {"WANDB_MODE": "disabled"}, "disabled"),
        (None, {"WANDB_MODE": "dryrun"}, "offline"),
        (False, {"WANDB_MODE": "offline"}, "online"),
    ):
        assert wandb_mode(offline, environment) == mode
    with pytest.raises(UserError, match="WANDB_MODE is nowhere"):
        wandb_mode(None, {"WANDB_MODE": "nowhere"})


@pytest.mark.parametrize(
    ("about", "said"),
    [({"project": "a/b"}, "Invalid project name 'a/b'"), ({"offline": False}, "WANDB_API_KEY invalid")],
)
def test_what_wandb_refuses_is_one_sentence(tmp_path, monkeypatch, about, said):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_API_KEY", "short")
    with pytest.raises(UserError, match=f"logger=wandb: {said}") as refused, open_run(tmp_path, **about):
        pass
    assert "logger.offline=true" in refused.value.hint


@pytest.mark.slow
def test_stages_and_resumes_share_one_offline_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    logger = wandb_logger(tmp_path, project="test", prefix="finetune")
    logger.log_metrics({"loss": 1.0}, step=1)
    assert wandb_logger(tmp_path).experiment is logger.experiment
    with open_run(tmp_path) as run:
        assert run.id == run_id(tmp_path) and run.offline
        assert run.summary["finetune-loss"] == 1.0
    time.sleep(1.1)  # wandb names the folder of an offline start by the second
    with open_run(tmp_path) as again:
        assert again.id == run.id and again is not run
    folders = offline_folders(tmp_path)  # what fit and eval name at their end
    assert len(folders) == 2 and all(folder.name.endswith(run.id) for folder in folders)
