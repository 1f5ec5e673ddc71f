"""Pipelines of diffusers that make images, in diffusers' layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from uni_train.core.reading_limits import PICKLES
from uni_train.models.family import FAMILIES, Checkpoint, Inspection, PublishedFamily, read_json

if TYPE_CHECKING:
    from uni_train.config.schema import ModelConfig
    from uni_train.models.base import UnifiedModel
    from uni_train.models.shapes import Shapes

EDITORS = "QwenImageEditPipeline", "QwenImageEditPlusPipeline"
"""Pipelines of the family qwen_image_edit."""
_PARTS = {"unet": "denoiser", "transformer": "denoiser", "prior": "denoiser", "decoder": "denoiser"}
_PARTS |= {"vae": "VAE", "vqvae": "VAE", "vqgan": "VAE", "movq": "VAE"}


class PipelineFamily(PublishedFamily):
    """Folders in diffusers' layout."""

    optional_keys: ClassVar[tuple[str, ...]] = ("vae_tile", "compile", "sampling.first_block_cache")

    def shapes(self, model: UnifiedModel) -> Shapes:
        from uni_train.models.base import expect_skill
        from uni_train.models.diffusers.flow_matching import FlowMatchingModel
        from uni_train.models.diffusers.shapes import FlowShapes

        return FlowShapes(expect_skill(model, FlowMatchingModel))

    def inspect(self, checkpoint: Checkpoint, config: ModelConfig) -> Inspection:
        from uni_train.models.diffusers.checkpoint import interface_of, misfits, missing, open_parts
        from uni_train.models.diffusers.classes import TRANSFORMERS

        trained = interface_of(checkpoint.path).name in (*TRANSFORMERS, *EDITORS)
        weights = open_parts(checkpoint.path)
        shapes = {f"{part}.{name}": tensor.shape for part, stored in weights.items() for name, tensor in stored.items()}
        wrong = list(missing(checkpoint.path, weights)) or misfits(checkpoint.path, trained)
        seen = self.inspected(checkpoint, list(weights.values()), shapes, wrong, "Copy the folder again.")
        return replace(seen, weights={part: stored.dtype_names for part, stored in weights.items()})


@FAMILIES.register("diffusers")
class DiffusersFamily(PipelineFamily):
    title = "diffusers pipeline"
    parts = ("denoiser", "text encoder", "other", "VAE")

    def recognise(self, path: Path) -> Checkpoint | None:
        """Any pipeline but those of qwen_image_edit; one with code of its own or with pickles alone is not read."""
        if not (path / "model_index.json").is_file():
            return None
        index = read_json(path / "model_index.json")
        name = index.get("_class_name")
        if name in EDITORS:
            return None
        modules = [(part, value[0]) for part, value in index.items() if isinstance(value, list) and value]
        if not isinstance(name, str) or any((path / part / f"{module}.py").is_file() for part, module in modules):
            hint = "Code of a checkpoint is never run. Give a pipeline of diffusers' own classes."
            return Checkpoint("other", path, f"a diffusers pipeline with code of its own ({name})", hint)
        what = f"a diffusers pipeline ({name})"
        if not any(path.glob("*/*.safetensors")):
            pickled = any(file.suffix in PICKLES for file in path.glob("*/*"))
            hint = "Pickles can run any code and are never read. " if pickled else ""
            what += " whose weights are pickles" if pickled else " without weights"
            return Checkpoint("other", path, what, f"{hint}Get the safetensors files of its parts.")
        return Checkpoint(self.name, path, what, model="diffusers")

    def folder_values(self, path: Path) -> dict[str, Any]:
        from uni_train.models.diffusers.checkpoint import image_size, interface_of
        from uni_train.models.diffusers.classes import TRANSFORMERS

        takes = interface_of(path)
        values = {"edits": takes.needs_image, "sampling": takes.sampling, "trains": takes.name in TRANSFORMERS}
        return values | ({"architecture": {"image_size": image_size(path)}} if values["trains"] else {})

    def part_of(self, name: str) -> str:
        first = name.split(".")[0]
        return "text encoder" if first.startswith("text_encoder") else _PARTS.get(first, "other")
