"""`pocket`: nano's architecture in another size, which knows the words of the task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shades.task import WORDS
from uni_train.models.family import CONFIG, FAMILIES, Checkpoint
from uni_train.models.nano.family import NanoFamily

if TYPE_CHECKING:
    import torch

    from uni_train.config.schema import ModelConfig
    from uni_train.models.base import UnifiedModel


@FAMILIES.register("pocket")
class Pocket(NanoFamily):
    title = "pocket"
    shipped = None  # type: ignore[assignment]

    def recognise(self, path: Path) -> Checkpoint | None:
        from uni_train.models.family import read_json

        if not (path / CONFIG).is_file() or read_json(path / CONFIG).get("model") != "pocket":
            return None
        return Checkpoint(self.name, path, "pocket")

    def build(
        self, config: ModelConfig, seed: int, dtype: torch.dtype | None, device: torch.device | str = "cpu"
    ) -> UnifiedModel:
        from uni_train.models.nano import language, nano

        model = nano.build(config, seed, (*language.vocabulary(), *WORDS))
        model.family = "pocket"  # type: ignore[misc]  # by which it is saved and loaded
        if config.checkpoint is not None:
            self.load(model, Path(config.checkpoint))
        return model if dtype is None else model.to(dtype)
