"""Janus and Janus-Pro, in the layouts of transformers and of DeepSeek."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.models.family import CONFIG, FAMILIES, Checkpoint, Inspection, PublishedFamily, read_json
from uni_train.models.janus import DEEPSEEK

if TYPE_CHECKING:
    from uni_train.config.schema import ModelConfig
    from uni_train.models.janus.shapes import JanusShapes

_SMALL = 2048  # the width of the 1B
_PARTS = {
    "vision_model": "vision encoder",
    "aligner": "vision encoder",
    "vqmodel": "VQ model",
    "generation_embeddings": "image tokens",
    "generation_aligner": "image tokens",
    "generation_head": "image tokens",
}


@FAMILIES.register("janus")
class JanusFamily(PublishedFamily):
    title = "Janus"
    parts = ("decoder", "vision encoder", "image tokens", "VQ model")

    def recognise(self, path: Path) -> Checkpoint | None:
        """DeepSeek's own layout is named and not read where its weights are pickles, as it publishes them."""
        config = read_json(path / CONFIG) if (path / CONFIG).is_file() else {}
        kind = config.get("model_type")
        if kind not in ("janus", DEEPSEEK):
            return None
        text = config.get("text_config" if kind == "janus" else "language_config")
        small = isinstance(text, dict) and text.get("hidden_size") == _SMALL
        model = "janus_pro_1b" if small else "janus_pro_7b"
        if kind == "janus":
            return Checkpoint(self.name, path, "Janus, transformers' layout", model=model)
        if not any(path.glob("*.safetensors*")):
            hint = "Pickles are never read. Take it in transformers' layout, such as deepseek-community/Janus-Pro-7B."
            return Checkpoint("other", path, "a Janus in DeepSeek's own layout without safetensors", hint)
        return Checkpoint(self.name, path, "Janus, DeepSeek's layout", model=model)

    def part_of(self, name: str) -> str:
        """Of "model.vqmodel.decoder...", as stored, or with "janus." before it, as in the model."""
        return _PARTS.get(name.removeprefix("janus.").removeprefix("model.").split(".")[0], "decoder")

    def shapes(self, model: Any) -> JanusShapes:
        from uni_train.models.janus.shapes import JanusShapes

        return JanusShapes(model)

    def inspect(self, checkpoint: Checkpoint, config: ModelConfig) -> Inspection:
        from uni_train.models.janus.checkpoint import on_meta, open_weights, shapes
        from uni_train.models.weights import problems

        stored = open_weights(checkpoint.path)
        wrong = problems(stored.shapes, shapes(on_meta(checkpoint.path)))
        return self.inspected(checkpoint, [stored], stored.shapes, wrong, "Copy the folder again.")
