"""What a path on disk is: a model of ours, a run, or something that cannot be loaded; its configuration and content.

`recognise` opens small JSON files only and imports nothing heavy. Families say what is theirs (`Family.recognise`); the
rest is named here, so that a person learns why it cannot be loaded. `inspect` reads the headers of weights as well.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from uni_train.config import places
from uni_train.config.schema import ModelConfig
from uni_train.data_gen import reading_limits
from uni_train.errors import UsageError, UserError, did_you_mean
from uni_train.hub import PICKLES, local
from uni_train.models.family import FAMILIES, Found, Inspection, family_of
from uni_train.run_folder import stage_folders


def expect_model(name_or_path: str) -> None:
    """Raises what `recognise` does where there is neither a model of this name nor one at this path."""
    if name_or_path != "shipped" and name_or_path not in _names():
        recognise(local(name_or_path))


def expect_there(name_or_path: str) -> None:
    """Raises what `recognise` does where there is neither a model of this name nor anything at this path."""
    if name_or_path != "shipped" and name_or_path not in _names():
        _expect_path(local(name_or_path))


def _expect_path(path: Path) -> None:
    names = _names()
    if path.exists():
        return
    if str(path) in names:
        raise UsageError(f"{path} is a model's name, and a folder is needed", "Give a run's folder or a checkpoint's.")
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
    if not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is neither a file nor a folder", "Give a run's folder or a checkpoint's.")
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


def model_config(name_or_path: str) -> ModelConfig:
    """The configuration of a model by its name (`uni_train models`), or of the checkpoint at a path.

    "shipped" is nano with the weights inside the package. A path may be a BAGEL folder or one weight file in it, or a
    Qwen-Image-Edit as diffusers stores it. It may also be a stage's folder, a run's folder (its last finished model),
    or a Hub id (`uni_train.hub.local`). A model that a run has trained takes that run's settings.

    Raises:
        UserError: what lies there cannot be loaded. UsageError: no such name.
    """
    from uni_train.config.build import build_section
    from uni_train.data_gen.registry import load_plugins

    if name_or_path == "shipped":
        name_or_path = next(name for name in FAMILIES.names() if FAMILIES.get(name).shipped is not None)
    known = {option.name: option.path for option in places.options("model")}
    if name_or_path in known:
        return build_section(ModelConfig, reading_limits.read_yaml(known[name_or_path]))
    found = recognise(local(name_or_path))
    if found.kind == "other":
        raise UserError(f"{name_or_path} is {found.what}, not a model that can be loaded", found.hint)
    run = found.path.parent.parent.parent
    if (run / "config.yaml").is_file():
        values = reading_limits.read_yaml(run / "config.yaml")
        load_plugins(values.get("plugins") or ())  # the model may be of one
        config = build_section(ModelConfig, values.get("model"))
    else:
        values = reading_limits.read_yaml(known[found.model])
        for key, value in family_of(found.kind).folder_values(found.path).items():
            values[key] = {**values[key], **value} if isinstance(value, dict) else value
        config = build_section(ModelConfig, values)
    return replace(config, checkpoint=str(found.path))


def inspect(name_or_path: str) -> Inspection:
    """Look at a model by its name (`uni_train models`) or path. Only headers and small JSON files are read.

    Raises:
        UserError: nothing lies there, or files are damaged. UsageError: no such name.
    """
    if name_or_path in [option.name for option in places.options("model")]:
        config = model_config(name_or_path)
        family = family_of(config.family)
        if config.checkpoint == "shipped" and family.shipped is not None:
            return family.inspect(Found(family.name, family.shipped, config.name, model=config.name), lambda: config)
        if config.checkpoint is None or not Path(config.checkpoint).exists():
            return _without_weights(config)
        name_or_path = config.checkpoint
    found = recognise(local(name_or_path))
    if found.kind == "other":
        return Inspection("other", found.what, str(found.path), hint=found.hint)
    return family_of(found.kind).inspect(found, lambda: model_config(str(found.path)))


def _without_weights(config: ModelConfig) -> Inspection:
    """A model whose sizes are known, and whose weights are not on this machine."""
    family = family_of(config.family)
    model, _ = family.skeleton(config)
    problem, hint = "it is untrained: nothing is stored", "Train it first."
    if config.checkpoint is not None:
        problem = f"its folder {config.checkpoint} is not there"
        hint = "Download the checkpoint there, or give the folder's path."
    return Inspection(
        family.name,
        f"{family.title} of the sizes in configs/model/{config.name}.yaml",
        None,
        parameters=family.by_part({name: value.shape for name, value in model.named_parameters()}),
        problems=(problem,),
        hint=hint,
    )


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
