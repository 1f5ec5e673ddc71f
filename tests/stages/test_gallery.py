"""Groups of an epoch as people see them: verdicts and rewards, a sheet, the same pictures in W&B."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from uni_train.data_gen.registry import get_task
from uni_train.recipes.flow_grpo.training import SHOWN_GROUPS, shown_groups
from uni_train.rewards.contract import Reward, score
from uni_train.rewards.registry import find_reward
from uni_train.stages.gallery import caption, log_images, write_sheet
from uni_train.stages.validation import prompt_of
from uni_train.training.flow_grpo.rollout import ScoredImages


@pytest.fixture
def drawn() -> ScoredImages:
    """More groups of two than are shown: of each the solved maze, and the maze as it was; a judge that failed once."""
    task = get_task("maze", "nano")
    items = [task.sample(seed, 3 + seed % 2)[0] for seed in range(SHOWN_GROUPS + 1)]
    images = [image for item in items for image in (task.render(item, 0), task.input_image(item))]
    judged = [None, *[0.5] * (len(images) - 1)]
    rewards = [Reward("solved", find_reward("verifier")), Reward("judge", lambda **_: judged, 2.0)]
    columns = {"item": [item for item in items for _ in range(2)]}
    scores = score(rewards, [""] * len(images), images, columns, group_size=2)
    return ScoredImages([prompt_of(item) for item in items], images, scores)


def test_the_first_groups_have_what_the_verifier_and_the_rewards_said(drawn: ScoredImages) -> None:
    groups = shown_groups(drawn, 2, step=3)
    levels = [group[0].sample.ask.case.facts["level"] for group in groups]
    assert len(groups) == SHOWN_GROUPS and levels == [3, 4] * (SHOWN_GROUPS // 2)
    right, wrong = groups[0]
    assert right.passed and right.sample.facts["rewards"] == [["solved", 1.0], ["judge", None]]
    totals = [one.sample.facts["reward"] for one in groups[0]]
    assert totals == [2.0, 1.0], "the other picture of the group stands for what failed"
    assert caption(right) == ["pass", "reward 2 (solved 1, judge failed)"]
    assert caption(wrong)[0].startswith("fail: there is no red path")


def test_a_sheet_has_a_row_a_group_and_borders_by_reward(drawn: ScoredImages, tmp_path: Path) -> None:
    groups = shown_groups(drawn, 2, step=3)
    write_sheet(groups, tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    side = max(image.shape[0] for image in drawn.images) + 4
    zoom = sheet.shape[0] // (side * len(groups))
    assert sheet.shape[:2] == (side * len(groups) * zoom, side * 3 * zoom)
    corners = [tuple(sheet[0, column * side * zoom].tolist()) for column in range(3)]
    assert corners == [(128, 128, 128), (0, 180, 40), (220, 0, 40)]


def test_captions_in_wandb_say_what_was_asked(drawn: ScoredImages) -> None:
    logged: dict[str, Any] = {}
    scored = [one for group in shown_groups(drawn, 2, step=3) for one in group]
    log_images(SimpleNamespace(log_image=lambda **what: logged.update(what)), "gallery", scored, step=3)
    asked = [one.sample.prompt for one in scored for _ in (*one.sample.ask.case.images, *one.sample.parts)]
    assert [caption.split("\n")[0] for caption in logged["caption"]] == asked


@pytest.mark.slow
def test_the_pictures_are_in_wandb_too(drawn: ScoredImages, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from uni_train.training.wandb_run import wandb_logger

    logger = wandb_logger(tmp_path, offline=True, prefix="00-grpo")
    try:
        log_images(logger, "gallery", itertools.chain(*shown_groups(drawn, 2, step=3)), step=3)
    finally:
        logger.experiment.finish()
    logged = list(tmp_path.glob("wandb/offline-run-*/files/media/images/*gallery*"))
    assert len(logged) == SHOWN_GROUPS * 2, "the mazes that were shown are also what was drawn wrong"
    assert len({Image.open(path).size for path in logged}) == 1
