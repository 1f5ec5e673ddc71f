from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.eval.sample_evaluation import make_run


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run, for reading only."""
    return make_run(tmp_path_factory.mktemp("run") / "seed0", n=6)


@pytest.fixture
def run_dir(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))
