"""Folders of tiny pipelines, and models of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("diffusers")

from tests.models.diffusers import tiny
from uni_train.models.diffusers.unified import DiffusersModel
from uni_train.models.load import build_model, model_config


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a pipeline, made when it is asked for."""
    place = tmp_path_factory.mktemp("pipelines")

    def made(name: str) -> Path:
        if not (place / name).is_dir():
            tiny.pipeline(name).save_pretrained(place / name)
        return place / name

    return made


def build(folder: Path | str, **sampling: Any) -> DiffusersModel:
    config = model_config(str(folder))
    model = build_model(replace(config, sampling=replace(config.sampling, **{"steps": 2} | sampling)))
    assert isinstance(model, DiffusersModel)
    return model
