"""Families whose checkpoints have a layout that others have published."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.errors import UserError
from uni_train.models.family import Family
from uni_train.models.recognise import expect_family

if TYPE_CHECKING:
    import torch

    from uni_train.config.schema import ModelConfig
    from uni_train.models.base import UnifiedModel
    from uni_train.models.weights import Start


class PublishedFamily(Family):
    """Its `checkpoint.py`, beside the `family.py`, reads and writes the published layout.

    That module has `build(config, dtype)`, `skeleton(config)`, `save(model, folder, dtype)`, `load(model, folder)` and
    `export(source, out, start, dtype, shard_bytes)`, as the methods here; it is imported when one is called.
    """

    def _checkpoint(self) -> Any:
        return import_module(f"{type(self).__module__.rpartition('.')[0]}.checkpoint")

    def build(self, config: ModelConfig, seed: int, dtype: torch.dtype | None) -> UnifiedModel:
        if config.checkpoint is None:
            raise UserError(
                f"model={config.name} has no random weights to start from",
                f"Give the folder of a {self.title} checkpoint with model.checkpoint=FOLDER.",
            )
        self._expect(Path(config.checkpoint), config.name)
        return self._checkpoint().build(config, dtype)

    def skeleton(self, config: ModelConfig, seed: int = 0) -> tuple[UnifiedModel, bool]:
        return self._checkpoint().skeleton(config)

    def save(self, model: UnifiedModel, folder: Path, dtype: torch.dtype | None = None) -> None:
        """With what is not trained, such as the tokenizer, from the folder that the model came from."""
        self._checkpoint().save(model, folder, dtype)

    def load(self, model: UnifiedModel, folder: Path) -> None:
        self._expect(folder, model.name)
        self._checkpoint().load(model, folder)

    def export(
        self,
        source: Path,
        out: Path,
        start: Start,
        dtype: torch.dtype | None = None,
        shard_bytes: int | None = None,
    ) -> None:
        self._checkpoint().export(source, out, start, dtype, shard_bytes)

    def _expect(self, folder: Path, model: str) -> None:
        expect_family(self.name, folder, model)
