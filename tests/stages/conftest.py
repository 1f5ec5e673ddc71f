"""One finished tiny run for the tests that look at one, continue it or damage a copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.stages.tiny import TINY, finish, keeping_steps


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, with the steps of its trainings; read-only."""
    with keeping_steps():
        return finish(tmp_path_factory.mktemp("runs"), *TINY)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change; `fit(tmp_path, *TINY)` continues it."""
    target = tmp_path / finished.parent.name / finished.name
    shutil.copytree(finished, target)
    return target
