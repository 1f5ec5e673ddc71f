"""nano, which draws in a world of its own, and nano_edit, which draws ways into mazes and solves puzzles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from uni_train.core.errors import UserError
from uni_train.core.reading_limits import reason
from uni_train.models.bagel.family import BagelFamily
from uni_train.models.family import CONFIG, FAMILIES, Checkpoint, Family, read_json

if TYPE_CHECKING:
    import torch

    from uni_train.config.schema import ModelConfig
    from uni_train.models.bagel.config import BagelConfig
    from uni_train.models.bagel.shapes import BagelShapes
    from uni_train.models.bagel.unified import BagelUnified
    from uni_train.models.base import UnifiedModel

MODELS = ("nano", "nano_edit")
ASSETS = Path(__file__).parent / "assets"


@FAMILIES.register("nano")
class NanoFamily(Family):
    title = "nano"
    parts = BagelFamily.parts
    world = "nano"
    bfloat16 = False
    tf32 = True
    optional_keys = ("puzzles", "compile", "sampling.interleaving")
    shipped: ClassVar[Path | None] = ASSETS
    part_of = BagelFamily.part_of

    def recognise(self, path: Path) -> Checkpoint | None:
        if not (path / CONFIG).is_file():
            return None
        name = read_json(path / CONFIG).get("model")
        return Checkpoint(self.name, path, str(name), model=str(name)) if name in MODELS else None

    def folder_values(self, path: Path) -> dict[str, Any]:
        sizes, side, known = _described(path)
        assert sizes.vit is not None  # as `_described` says
        architecture = {
            "hidden_size": sizes.llm.hidden_size,
            "intermediate_size": sizes.llm.intermediate_size,
            "layers": sizes.llm.num_hidden_layers,
            "heads": sizes.llm.num_attention_heads,
            "kv_heads": sizes.llm.num_key_value_heads,
            "image_size": side,
            "latent_downsample": side // sizes.max_latent_size // sizes.latent_patch_size,
            "latent_channels": sizes.latent_channels,
            "latent_patch": sizes.latent_patch_size,
            "rope_theta": sizes.llm.rope_theta,
            "vit_patch": sizes.vit.patch_size,
            "vit_hidden_size": sizes.vit.hidden_size,
            "vit_intermediate_size": sizes.vit.intermediate_size,
            "vit_layers": sizes.vit.num_hidden_layers,
            "vit_heads": sizes.vit.num_attention_heads,
        }
        return {"architecture": architecture, **known}

    def build(
        self, config: ModelConfig, seed: int, dtype: torch.dtype | None, device: torch.device | str = "cpu"
    ) -> UnifiedModel:
        model: UnifiedModel
        if config.edits:
            from uni_train.models.nano import edit

            model = edit.build(config, seed)
        else:
            from uni_train.models.nano import nano

            model = nano.build(config, seed)
        if config.checkpoint is not None:
            self.load(model, ASSETS if config.checkpoint == "shipped" else Path(config.checkpoint))
        return model if dtype is None else model.to(dtype)

    def skeleton(self, config: ModelConfig, seed: int = 0) -> tuple[UnifiedModel, bool]:
        from uni_train.models.meta import without_weights

        with without_weights():
            return super().skeleton(config, seed)

    def shapes(self, model: BagelUnified) -> BagelShapes:  # type: ignore[override]
        from uni_train.models.bagel.shapes import BagelShapes

        shapes = BagelShapes(model)
        shapes.prompt = next(iter(getattr(model.tokenizer, "sentences", ())), shapes.prompt)  # all that an editor reads
        return shapes

    def phrases(self) -> dict[str, str]:
        from uni_train.models.nano.language import CAPTION_PROMPT, SOME, UNCLEAR, VERIFY_PROMPT

        return {"caption": CAPTION_PROMPT, "verify": VERIFY_PROMPT, "draw some": SOME, "unclear": UNCLEAR}


def _described(folder: Path) -> tuple[BagelConfig, int, dict[str, Any]]:
    """Sizes of a stored model, its images' side in pixels, what it reads. Raises UserError where they are damaged."""
    from uni_train.models.bagel.config import BagelConfig

    try:
        described: Any = read_json(folder / CONFIG)
        sizes = BagelConfig.from_dict(described["bagel"])
        if sizes.vit is None:
            raise ValueError("vit is missing")
        known = {"puzzles": described.get("puzzles", [])} | ({"thinks": True} if described.get("thinks") else {})
        return sizes, int(described["image_size"]), known
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / CONFIG} is damaged ({reason(error)})", "Copy it again.") from error
