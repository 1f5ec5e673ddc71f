"""Qwen-Image-Edit and its successors 2509 and 2511, in diffusers' layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.models.family import FAMILIES, Found, Inspection, PublishedFamily

if TYPE_CHECKING:
    from uni_train.config.schema import ModelConfig
    from uni_train.models.qwen_image_edit.shapes import EditShapes
    from uni_train.models.qwen_image_edit.unified import QwenImageEdit

PIPELINES = _PIPELINE, _PLUS = "QwenImageEditPipeline", "QwenImageEditPlusPipeline"


@FAMILIES.register("qwen_image_edit")
class QwenImageEditFamily(PublishedFamily):
    title = "Qwen-Image-Edit"
    tiles = editing = True
    parts = ("transformer", "text encoder", "VAE")

    def recognise(self, path: Path) -> Found | None:
        """2511 gives shown images a time of their own (zero_cond_t)."""
        from uni_train.models.family import read_json

        if not (path / "model_index.json").is_file():
            return None
        pipeline = read_json(path / "model_index.json").get("_class_name")
        if pipeline not in PIPELINES:
            return None
        plus, config = pipeline == _PLUS, path / "transformer" / "config.json"
        late = plus and config.is_file() and bool(read_json(config).get("zero_cond_t"))
        model = "qwen_image_edit_2511" if late else "qwen_image_edit_2509" if plus else "qwen_image_edit"
        return Found(self.name, path, f"Qwen-Image-Edit, diffusers' layout{', Plus' if plus else ''}", model=model)

    def part_of(self, name: str) -> str:
        return {"text_encoder": "text encoder", "vae": "VAE"}.get(name.split(".")[0], "transformer")

    def shapes(self, model: QwenImageEdit) -> EditShapes:  # type: ignore[override]
        from uni_train.models.qwen_image_edit.shapes import EditShapes

        return EditShapes(model)

    def inspect(self, checkpoint: Found, config: Callable[[], ModelConfig]) -> Inspection:
        from uni_train.models.qwen_image_edit.checkpoint import compare, count_parts, open_folder

        folder = open_folder(checkpoint.path)
        wrong = compare(folder)
        return Inspection(
            self.name,
            checkpoint.what,
            str(checkpoint.path),
            {part: weights.dtype_names for part, weights in folder.weights.items()},
            sum(weights.bytes for weights in folder.weights.values()),
            count_parts(folder),
            tuple(wrong),
            "Copy the folder again." if wrong else "",
        )
