"""What a path on disk is, told by the names in it: a model of ours, a run, or something that cannot be loaded.

Nothing is opened but small JSON files, and nothing heavy is imported. Families say what is theirs
(`Family.recognise`); the rest is named here, so that a person learns why it cannot be loaded.
"""

from __future__ import annotations

from pathlib import Path

from uni_train.config import places
from uni_train.data_gen import reading_limits
from uni_train.errors import UsageError, UserError, did_you_mean
from uni_train.models.family import FAMILIES, Found, family_of
from uni_train.run_folder import stage_folders

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def expect_model(name_or_path: str) -> None:
    """Raises what `recognise` does where there is neither a model of this name nor one at this path."""
    if name_or_path != "shipped" and name_or_path not in _names():
        recognise(Path(name_or_path))


def expect_there(name_or_path: str) -> None:
    """Raises what `recognise` does where there is neither a model of this name nor anything at this path."""
    if name_or_path != "shipped" and name_or_path not in _names():
        _expect_path(Path(name_or_path))


def _expect_path(path: Path) -> None:
    names = _names()
    if path.exists():
        return
    if len(path.parts) == 1:
        raise UsageError(f"no model {path}, and no such folder", did_you_mean(str(path), names, "models"))
    raise UserError(f"there is nothing at {path}", f"Give a folder, or a model's name: {', '.join(names)}.")


def _names() -> list[str]:
    return [option.name for option in places.options("model")]


def expect_family(family: str, path: Path, name: str) -> None:
    """Raises UserError if a path does not hold a model of `family`, saying what it is. `name`: of the model asked."""
    found = recognise(path)
    if found.kind != family:
        raise UserError(
            f"model={name} cannot be loaded from {path}: it is {found.what}",
            found.hint or f"Choose model={found.model}, or another model.checkpoint=FOLDER.",
        )


def recognise(path: Path) -> Found:
    """What lies at `path`: a folder, a run's folder (its last finished model is meant), or one weight file.

    Raises:
        UserError: nothing lies there, or a run without a finished model. UsageError: a mistyped name.
    """
    _expect_path(path)
    if (path / "config.yaml").is_file() and (path / "stages").is_dir():
        return recognise(final_model(path))
    if path.suffix in PICKLES and path.is_file():
        return _pickle(path, path)
    ours = (family_of(name).recognise(path) for name in FAMILIES.names())
    return next((found for found in ours if found is not None), None) or _other(path)


def final_model(run: Path) -> Path:
    """The model folder of a run's last finished stage that trained one.

    Raises:
        UserError: no stage has finished with a model yet.
    """
    finished = [stage / "model" for stage in stage_folders(run) if (stage / "manifest.json").is_file()]
    models = [model for model in finished if model.is_dir()]
    if not models:
        raise UserError(
            f"{run} has no finished model yet", "Run its command again to continue it, or give another run."
        )
    return models[-1]


def read_json(file: Path) -> dict[str, object]:
    """A small JSON object; {} where the file holds something else. Raises UserError where it cannot be read."""
    try:
        loaded = reading_limits.read_json(file)
    except (ValueError, OSError) as error:
        raise UserError(f"{file} is damaged ({reading_limits.reason(error)})", "Copy it again.") from error
    return loaded if isinstance(loaded, dict) else {}


def _other(path: Path) -> Found:
    """Why no family reads it."""
    titles = ", ".join(family_of(name).title for name in FAMILIES.names())
    if path.is_file():
        return Found("other", path, "a file", "Give the folder that it lies in.")
    if (path / "model_index.json").is_file():
        name = read_json(path / "model_index.json").get("_class_name", "unknown")
        return Found("other", path, f"a diffusers pipeline ({name})", f"These can be loaded: {titles}.")
    if (path / "adapter_config.json").is_file():
        return Found("other", path, "a peft adapter", "Give the folder of the model that it belongs to.")
    if (path / "state.safetensors").is_file():
        return Found(
            "other", path, "the state of an unfinished training", "Finish the run; its stages end in a model folder."
        )
    if (path / "config.json").is_file():
        config = read_json(path / "config.json")
        if "architectures" in config or "model_type" in config:
            listed = config.get("architectures")
            name = ", ".join(map(str, listed)) if isinstance(listed, list) and listed else str(config.get("model_type"))
            return Found("other", path, f"a transformers model ({name})", f"These can be loaded: {titles}.")
    return _unknown(path, titles)


def _unknown(path: Path, titles: str) -> Found:
    names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    if any(name.endswith(".safetensors") for name in names):
        return Found(
            "other",
            path,
            "safetensors without the JSON files that say what they are",
            "If it was fine-tuned from a released model, copy that one's JSON files and tokenizer beside them.",
        )
    pickles = [name for name in names if name.endswith(PICKLES)]
    if pickles:
        return _pickle(path, path / pickles[0])
    shown = f"a folder with {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else "an empty folder"
    return Found("other", path, shown, f"These can be loaded: {titles}.")


def _pickle(path: Path, file: Path) -> Found:
    return Found(
        "other",
        path,
        f"a pickle ({file.name})",
        "Pickles can run any code and are never read. Get the safetensors files, or convert it where you trust it.",
    )
