"""What a path on disk is, told by the names in it: a model of ours, a run, or something that cannot be loaded.

Nothing is opened but small JSON files, and nothing heavy is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data_gen.reading_limits import read_json, reason
from uni_train.config import places
from uni_train.errors import UsageError, UserError, did_you_mean

Kind = Literal["nano", "bagel", "qwen_image_edit", "other"]
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, slots=True)
class Found:
    """kind: whose loader reads it; path: the folder (or weight file) that the loader is given; what: in words.

    hint: for "other": what a person could do. model: the option of configs/model/ that fits it.
    """

    kind: Kind
    path: Path
    what: str
    hint: str = ""
    model: str = ""


def expect_model(name_or_path: str) -> None:
    """Raises what `recognise` does where there is neither a model of this name nor anything at this path."""
    if name_or_path != "shipped" and name_or_path not in [option.name for option in places.options("model")]:
        recognise(Path(name_or_path))


def recognise(path: Path) -> Found:
    """What lies at `path`: a folder, a run's folder (its last finished model is meant), or one weight file.

    Raises:
        UserError: nothing lies there, or a run without a finished model. UsageError: a mistyped name.
    """
    if not path.exists():
        names = [option.name for option in places.options("model")]
        if len(path.parts) == 1:
            raise UsageError(f"no model {path}, and no such folder", did_you_mean(str(path), names, "models"))
        raise UserError(f"there is nothing at {path}", f"Give a folder, or a model's name: {', '.join(names)}.")
    if path.is_file():
        return _file(path)
    if (path / "config.yaml").is_file() and (path / "stages").is_dir():
        return recognise(final_model(path))
    if (path / "llm_config.json").is_file() or (path / "vit_config.json").is_file():
        return Found("bagel", path, "BAGEL, official layout", model="bagel_7b")
    if (path / "model_index.json").is_file():
        name = _json(path / "model_index.json").get("_class_name", "unknown")
        if name in ("QwenImageEditPipeline", "QwenImageEditPlusPipeline"):
            return _editor(path, plus=name == "QwenImageEditPlusPipeline")
        return Found(
            "other",
            path,
            f"a diffusers pipeline ({name})",
            "Of diffusers' pipelines, those of Qwen-Image-Edit can be loaded; BAGEL folders have llm_config.json.",
        )
    if (path / "adapter_config.json").is_file():
        return Found("other", path, "a peft adapter", "Give the folder of the model that it belongs to.")
    if (path / "state.safetensors").is_file():
        return Found(
            "other", path, "the state of an unfinished training", "Finish the run; its stages end in a model folder."
        )
    if (path / "config.json").is_file():
        config = _json(path / "config.json")
        if config.get("model") in ("nano", "nano_edit"):
            return Found("nano", path, str(config["model"]), model=str(config["model"]))
        if "architectures" in config or "model_type" in config:
            name = ", ".join(map(str, _list(config.get("architectures")))) or str(config.get("model_type"))
            return Found(
                "other", path, f"a transformers model ({name})", "uni_train reads nano, BAGEL and Qwen-Image-Edit."
            )
    return _unknown(path)


def final_model(run: Path) -> Path:
    """The model folder of a run's last finished stage that trained one.

    Raises:
        UserError: no stage has finished with a model yet.
    """
    finished = [stage / "model" for stage in (run / "stages").iterdir() if (stage / "manifest.json").is_file()]
    models = sorted(model for model in finished if model.is_dir())
    if not models:
        raise UserError(
            f"{run} has no finished model yet", "Run its command again to continue it, or give another run."
        )
    return models[-1]


def _editor(path: Path, plus: bool) -> Found:
    """Which Qwen-Image-Edit: 2511 gives shown images a time of their own (zero_cond_t)."""
    config = path / "transformer" / "config.json"
    late = plus and config.is_file() and bool(_json(config).get("zero_cond_t"))
    name = "qwen_image_edit_2511" if late else "qwen_image_edit_2509" if plus else "qwen_image_edit"
    return Found("qwen_image_edit", path, f"Qwen-Image-Edit, diffusers' layout{', Plus' if plus else ''}", model=name)


def _file(path: Path) -> Found:
    if path.suffix in PICKLES:
        return _pickle(path, path)
    if path.suffix == ".safetensors" and (path.parent / "llm_config.json").is_file():
        return Found("bagel", path, f"BAGEL, official layout, weights of {path.name}", model="bagel_7b")
    return Found("other", path, "a file", "Give the folder that it lies in.")


def _unknown(path: Path) -> Found:
    names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    if any(name.endswith(".safetensors") for name in names):
        return Found(
            "other",
            path,
            "safetensors without llm_config.json and vit_config.json",
            "If it was fine-tuned from BAGEL-7B-MoT, copy its JSON files, tokenizer and ae.safetensors beside them.",
        )
    pickles = [name for name in names if name.endswith(PICKLES)]
    if pickles:
        return _pickle(path, path / pickles[0])
    shown = f"a folder with {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else "an empty folder"
    return Found("other", path, shown, "A BAGEL folder has llm_config.json, vit_config.json and ema.safetensors.")


def _pickle(path: Path, file: Path) -> Found:
    return Found(
        "other",
        path,
        f"a pickle ({file.name})",
        "Pickles can run any code and are never read. Get the safetensors files, or convert it where you trust it.",
    )


def _json(file: Path) -> dict[str, object]:
    try:
        loaded = read_json(file)
    except (ValueError, OSError) as error:
        raise UserError(f"{file} is damaged ({reason(error)})", "Copy it again.") from error
    return loaded if isinstance(loaded, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
