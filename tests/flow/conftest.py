"""The golden cases of Flow-GRPO, Flow-Factory and DanceGRPO; `UNI_TRAIN_GOLDEN` names another folder with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from torch import Tensor

from tests.models.bagel.conftest import FOLDER, Golden, tiny_config, tiny_model  # noqa: F401  (fixtures)


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """A case by its name."""
    return partial(Golden.read, FOLDER.parent / "flow_grpo")


@pytest.fixture(scope="session")
def close() -> Callable[..., None]:
    """max|a - b| <= tolerance * max|b|, after broadcasting of single elements and rows."""

    def check(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5, what: object = "") -> None:
        ours = ours.detach()
        ours = ours.reshape(theirs.shape) if ours.numel() == theirs.numel() else ours.expand_as(theirs)
        error = float((ours.double() - theirs.double()).abs().max())
        assert error <= tolerance * float(theirs.abs().max()), f"{what}: off by {error:.2g}"

    return check
