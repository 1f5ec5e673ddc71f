"""Settings of all tests: no time limits inside hypothesis, no debug mode, no logger online; one finished run.

They work in an empty folder: what lies about in the checkout (`runs/`, `evals/`, `data/`) is not seen.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.processes import wait_for_no_disk
from uni_train.core import registry

settings.register_profile("uni_train", deadline=None, derandomize=True)
settings.load_profile("uni_train")

os.environ.pop("UNI_TRAIN_DEBUG", None)
os.environ.setdefault("WANDB_MODE", "offline")
os.environ["UNI_TRAIN_CACHE"] = ""  # each test plans anew
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny, and a file of tests runs on each core
wait_for_no_disk()


@pytest.fixture(scope="session", autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The current folder of all tests; they write to `tmp_path`."""
    folder, before = tmp_path_factory.mktemp("elsewhere"), Path.cwd()
    os.chdir(folder)
    yield
    os.chdir(before)
    assert not [*folder.iterdir()], "a test wrote to the current folder in place of tmp_path"


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that a test or a shown command names is named for no later test, nor for a process that it starts."""
    monkeypatch.setenv(registry.ENVIRONMENT, os.environ.get(registry.ENVIRONMENT, ""))
    monkeypatch.setattr(registry, "_named", set(registry._named))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished tiny run, with the steps of its trainings; read-only."""
    from tests.once import once
    from tests.tiny import TINY, finish, keeping_steps

    def make(folder: Path) -> str:
        with keeping_steps():
            return str(finish(folder, *TINY).relative_to(folder))

    folder, run = once(tmp_path_factory, "finished", make)
    return folder / run


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change; `fit(tmp_path, *TINY)` continues it."""
    target = tmp_path / finished.parent.name / finished.name
    shutil.copytree(finished, target)
    return target
