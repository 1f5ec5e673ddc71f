"""The loss of single rows: a function of the weights, the seed, the row and the level alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks import on_ranks
from tests.tiny import MODEL, save_drawer
from uni_train.config.compose import compose
from uni_train.distributed.ranks import Ranks
from uni_train.models.base import Dropout, Example, Trainable, expect_skill
from uni_train.models.load import build_model
from uni_train.stages.held_out_loss import row_losses

LEVELS = (0.2, 0.8)


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (24, 24, 3), np.uint8)


ROWS = {
    "images/0": Example("Draw 2 apples .", target=image(0), noise_draws=3),
    "texts/0": Example("Draw 2 apples .", answer="2 apples"),
    "both/0": Example("Draw 3 trees .", thought="So draw 3 trees .", target=image(1)),
    "images/1": Example("Draw 3 trees .", target=image(2), seed=9),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trainable:
    folder = save_drawer(tmp_path_factory.mktemp("nano") / "nano")
    made = build_model(compose("sft_nano", [*MODEL, f"model.checkpoint={folder}", "sources=x"]).model)
    return expect_skill(made, Trainable).eval()


Losses = tuple[np.ndarray, np.ndarray]


def same(some: Losses, others: Losses) -> bool:
    return all(np.array_equal(one, other, equal_nan=True) for one, other in zip(some, others, strict=True))


def test_texts_and_images_are_apart_and_rows_do_not_know_each_other(model: Trainable) -> None:
    ce, mse = row_losses(model, ROWS, LEVELS, 0)
    assert mse.shape == (4, 2)
    assert np.isnan(ce).tolist() == [True, False, False, True]
    assert np.isnan(mse).tolist() == [[False] * 2, [True] * 2, [False] * 2, [False] * 2]
    for place, row in enumerate(ROWS):
        ce_alone, mse_alone = row_losses(model, {row: ROWS[row]}, LEVELS[::-1], 0)
        assert same((ce_alone, mse_alone[:, ::-1]), (ce[[place]], mse[[place]]))
    assert not same((ce, mse), row_losses(model, ROWS, LEVELS, 1)), "another seed, other noise"


def test_nothing_is_left_out_and_the_models_own_shift_does_not_count(model: Trainable) -> None:
    _, before = row_losses(model, ROWS, LEVELS, 0)
    model.prepare_training(timestep_shift=4.0, text_dropout=1.0, vit_dropout=1.0, vae_dropout=1.0)
    _, after = row_losses(model, ROWS, LEVELS, 0)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0)
    np.testing.assert_allclose(after, before, rtol=1e-5)
    assert model.examples.dropout == Dropout()  # type: ignore[union-attr]


HELD: list[Any] = []


def test_ranks_share_the_rows_and_get_the_same(model: Trainable, tmp_path: Path) -> None:
    expected = row_losses(model, ROWS, LEVELS, 0)

    def body(rank: int) -> None:
        import torch.distributed as dist

        if dist.is_initialized():  # by another test of the process that this one is forked from
            HELD.extend(dist.distributed_c10d._world.pg_map)  # their threads are not here, so that their end would wait
            dist.destroy_process_group()
        dist.init_process_group("gloo")
        asked: list[str] = []

        class Noted(dict[str, Example]):
            def __getitem__(self, row: str) -> Example:
                asked.append(row)
                return ROWS[row]

        got = row_losses(model, Noted(ROWS), LEVELS, 0, Ranks(rank, 3, rank, 3))
        assert asked == [*ROWS][rank::3] and same(got, expected)
        dist.destroy_process_group()

    report: dict[str, Any] = on_ranks(tmp_path / "ranks", 3, body)
    assert report["codes"] == [0, 0, 0], report["said"]
