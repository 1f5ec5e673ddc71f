"""BAGEL in its official layout: BAGEL-7B-MoT and what was fine-tuned from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.models.family import FAMILIES, Checkpoint, Inspection, PublishedFamily

if TYPE_CHECKING:
    from uni_train.config.schema import ModelConfig
    from uni_train.models.bagel.shapes import BagelShapes
    from uni_train.models.bagel.unified import BagelUnified

_SIZES = ("llm_config.json", "vit_config.json")
_WEIGHTS = ("ema", "model_bf16")  # files with these names are a BAGEL's, though its sizes are missing
VAE = "VAE"


@FAMILIES.register("bagel")
class BagelFamily(PublishedFamily):
    title = "BAGEL"
    tf32 = True
    optional_keys = ("vae_tile", "compile", "sampling.interleaving")
    parts = (
        *("understanding", "generation", "text embeddings", "text head", "ViT", "connector", "latents", "positions"),
        VAE,
    )

    def recognise(self, path: Path) -> Checkpoint | None:
        if path.is_file():
            if path.suffix == ".safetensors" and (path.parent / _SIZES[0]).is_file():
                return Checkpoint(self.name, path, f"BAGEL, official layout, weights of {path.name}", model="bagel_7b")
            return None
        if any((path / name).is_file() for name in _SIZES):
            return Checkpoint(self.name, path, "BAGEL, official layout", model="bagel_7b")
        if any((path / f"{stem}.safetensors").is_file() for stem in _WEIGHTS):
            hint = "Copy the JSON files, tokenizer and ae.safetensors of BAGEL-7B-MoT, if it was fine-tuned from that."
            return Checkpoint("other", path, f"safetensors without {' and '.join(_SIZES)}", hint)
        return None

    def part_of(self, name: str) -> str:
        from uni_train.models.bagel.checkpoint import part_of

        return VAE if name.startswith("vae.") else part_of(name.removeprefix("bagel."))

    def shapes(self, model: BagelUnified) -> BagelShapes:  # type: ignore[override]
        from uni_train.models.bagel.shapes import BagelShapes

        return BagelShapes(model)

    def inspect(self, checkpoint: Checkpoint, config: ModelConfig) -> Inspection:
        from uni_train.models.bagel.checkpoint import compare, open_folder
        from uni_train.models.bagel.tokenizer import has_tokenizer

        folder = open_folder(checkpoint.path)
        shapes, wrong = compare(folder)
        if folder.vae is None:
            wrong.append("ae.safetensors is missing")
        if not has_tokenizer(folder.path):
            wrong.append("tokenizer.json is missing")
        files = [folder.weights] if folder.vae is None else [folder.weights, folder.vae]
        named = {f"bagel.{name}": shape for name, shape in shapes.items()}
        named |= {f"vae.{name}": shape for name, shape in folder.vae.shapes.items()} if folder.vae is not None else {}
        hint = "Copy what is missing from the folder of BAGEL-7B-MoT; see docs/models/bagel.md."
        return self.inspected(checkpoint, files, named, wrong, hint)
