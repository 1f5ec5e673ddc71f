"""Keys of trainings without their sections, so that a test names what it is about and nothing else; killed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import pytest

from uni_train.config.kinds import Updates
from uni_train.config.schema import OptimizerConfig, StrategyConfig, TrainingConfig
from uni_train.training.callbacks import PeriodicCheckpoint
from uni_train.training.supervised import FitOptions

C = TypeVar("C", bound=TrainingConfig)
_UPDATES = {"updates": "total", "accumulate": "accumulate", "rows": "rows", "tokens": "tokens"}


def changed(config: C, **keys: Any) -> C:
    """`config` with other values of keys, wherever they are in it."""
    for key, value in keys.items():
        sections = {one.name: getattr(config, one.name) for one in fields(config)}
        if key in sections:
            config = replace(config, **{key: value})
            continue
        name = next(n for n, one in sections.items() if is_dataclass(one) and key in {f.name for f in fields(one)})
        config = replace(config, **{name: replace(sections[name], **{key: value})})  # type: ignore[arg-type]
    return config


def given(**keys: Any) -> dict[str, Any]:
    """`config`, `updates`, `options` and further arguments of `fit_supervised`."""
    config = TrainingConfig(optimizer=OptimizerConfig(lr=1e-3), strategy=StrategyConfig(accelerator="cpu"))
    known = {one.name for one in fields(config)}
    known |= {one.name for section in (config.optimizer, config.strategy) for one in fields(section)}
    length = {_UPDATES[key]: keys.pop(key) for key in list(keys) if key in _UPDATES}
    own = {key: keys.pop(key) for key in list(keys) if key in known}
    options = FitOptions(**{name: keys.pop(name) for name in FitOptions.__dataclass_fields__ if name in keys})
    return {"config": changed(config, **own), "updates": Updates(**length), "options": options, **keys}


class Killed(BaseException):
    """What nothing catches."""


@contextmanager
def killed_after(update: int) -> Iterator[None]:
    """The training within is killed after this update and, if there is one, its checkpoint."""
    saved = PeriodicCheckpoint.on_train_batch_end

    def die(self: Any, trainer: Any, *rest: Any) -> None:
        saved(self, trainer, *rest)
        if trainer.global_step == update:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(PeriodicCheckpoint, "on_train_batch_end", die)
        yield
