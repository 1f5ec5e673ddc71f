"""Qwen-Image-Edit and its successors 2509 and 2511, in diffusers' layout."""

from __future__ import annotations

from pathlib import Path

from uni_train.models.diffusers.family import EDITORS, PipelineFamily
from uni_train.models.family import FAMILIES, Checkpoint, read_json


@FAMILIES.register("qwen_image_edit")
class QwenImageEditFamily(PipelineFamily):
    title = "Qwen-Image-Edit"
    optional_keys = (*PipelineFamily.optional_keys, "editing")
    parts = ("transformer", "text encoder", "VAE")

    def recognise(self, path: Path) -> Checkpoint | None:
        """2511 gives shown images a time of their own (zero_cond_t)."""
        if not (path / "model_index.json").is_file():
            return None
        pipeline = read_json(path / "model_index.json").get("_class_name")
        if pipeline not in EDITORS:
            return None
        plus, config = pipeline == EDITORS[1], path / "transformer" / "config.json"
        late = plus and config.is_file() and bool(read_json(config).get("zero_cond_t"))
        model = "qwen_image_edit_2511" if late else "qwen_image_edit_2509" if plus else "qwen_image_edit"
        return Checkpoint(self.name, path, f"Qwen-Image-Edit, diffusers' layout{', Plus' if plus else ''}", model=model)

    def part_of(self, name: str) -> str:
        return {"text_encoder": "text encoder", "vae": "VAE"}.get(name.split(".")[0], "transformer")
