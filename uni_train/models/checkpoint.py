"""What a person may type as a checkpoint: what it is, which configuration it has, and what is missing from it.

`source_of` says what a text is, for all callers. `recognise` says which family reads what lies at a path. Both open
small JSON files only and import nothing heavy. `inspect` reads the headers of weights as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from uni_train.config import places
from uni_train.config.kinds import plugins_of
from uni_train.config.schema import ModelConfig, Quantised
from uni_train.core import reading_limits
from uni_train.core.errors import UsageError, UserError, did_you_mean
from uni_train.core.folders import files_below
from uni_train.core.hub import hub_id, local, split_adapters
from uni_train.core.reading_limits import PICKLES, VIDEOS, image_suffixes
from uni_train.core.registry import expect_named
from uni_train.models.family import FAMILIES, NEVER_READ, Checkpoint, Inspection, family_of, read_json
from uni_train.models.saved_step import is_step, model_before, run_config, run_of
from uni_train.run_folder import final_model, is_run

MANIFESTS = ("manifest.jsonl", "manifest.csv")
"""Files that say which answer lies where, in a folder of answers."""
_OF_MODELS = {"config.yaml", "config.json", "model_index.json", "llm_config.json", "evaluation.json"}


@dataclass(frozen=True, slots=True)
class Source:
    """What a text stands for where a checkpoint is wanted; `base` is the text without adapters.

        endpoint   http://HOST:PORT/v1#MODEL
        model      nano, shipped               a name of `uni_train models`
        run        runs/RECIPE/NAME            its last finished model is meant
        step       .../checkpoints/step=N      of an unfinished stage (saved_step.py)
        hub        hf://ORG/NAME@REVISION      an id of the Hub (`uni_train.core.hub.local`)
        path       FOLDER, FILE.safetensors    anything else: what a family recognises, or answers

    Adapters, each behind a +, are LoRAs to be merged (adapters.py).
    """

    kind: Literal["endpoint", "model", "run", "step", "hub", "path"]
    base: str
    adapters: Sequence[str] = ()

    @property
    def is_absent(self) -> bool:
        """Whether its weights are not on this machine: an id of the Hub, or a path of several parts to nothing."""
        path = Path(self.base)
        return self.kind == "hub" or (self.kind == "path" and len(path.parts) > 1 and not path.exists())

    @property
    def holds_answers(self) -> bool:
        """Whether it is a folder of answers: it has a manifest, or images or rows and nothing of a model.

        All its files are listed for that, so only who evaluates asks.
        """
        if self.kind != "path" or not Path(self.base).is_dir():
            return False
        files = files_below(Path(self.base))
        names, suffixes = {path.name for path in files}, {path.suffix.lower() for path in files}
        if names & {*MANIFESTS}:
            return True
        if names & _OF_MODELS or suffixes & {".safetensors", ".bin", ".pt"}:
            return False
        return bool(suffixes & {*image_suffixes(), *VIDEOS, ".jsonl", ".json"})


def source_of(checkpoint: str | Path) -> Source:
    """What a checkpoint is, by its text and by the names of files. Nothing is downloaded, and nothing need be there."""
    if str(checkpoint).startswith(("http://", "https://")):
        return Source("endpoint", str(checkpoint))
    base, adapters = split_adapters(str(checkpoint))
    path = Path(base)
    if base == "shipped" or base in _names():
        return Source("model", base, adapters)
    if is_run(path):
        return Source("run", base, adapters)
    if is_step(path):
        return Source("step", base, adapters)
    return Source("path" if hub_id(base) is None else "hub", base, adapters)


def expect_there(checkpoint: str) -> None:
    """Raises where there is neither a model of this name nor anything at this path, or no adapter; imports no torch.

    Of an endpoint nothing is asked.
    """
    source = source_of(checkpoint)
    if source.kind not in ("endpoint", "model"):
        _expect_path(local(source.base))
    if source.adapters:
        from uni_train.models.adapters import open_adapter

        for adapter in source.adapters:
            open_adapter(local(adapter))


def resolve(checkpoint: str) -> str:
    """The checkpoint as runs record it: Hub ids as their downloaded folders, a run as its last finished model.

    Raises:
        UserError: nothing lies there, a run without a finished model, or a Hub id that cannot be downloaded.
    """
    source = source_of(checkpoint)
    base = source.base
    if source.kind not in ("endpoint", "model"):
        base = str(final_model(Path(base)) if source.kind == "run" else local(base))
    return "+".join([base, *(str(local(adapter)) for adapter in source.adapters)])


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


def recognise(path: Path) -> Checkpoint:
    """What lies at `path`: a folder, a run's folder (its last finished model is meant), or one weight file.

    Raises:
        UserError: nothing lies there, or a run without a finished model. UsageError: a mistyped name.
    """
    _expect_path(path)
    if not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is neither a file nor a folder", "Give a run's folder or a checkpoint's.")
    if is_run(path):
        return recognise(final_model(path))
    if is_step(path):
        model = run_config(path).model
        what = f"step {int(path.name.partition('=')[2])} of the stage {path.parent.parent.name} of {run_of(path)}"
        return Checkpoint(model.family, path, what, model=model.name)
    if path.suffix in PICKLES and path.is_file():
        return _pickle(path, path)
    ours = (family_of(name).recognise(path) for name in FAMILIES.names())
    return next((checkpoint for checkpoint in ours if checkpoint is not None), None) or _other(path)


def stored_model(config: ModelConfig) -> Checkpoint:
    """What lies at the `checkpoint`, adapters left out. UserError: nothing, or what the family cannot load."""
    base = source_of(config.checkpoint or "").base
    stored = recognise(Path(base))
    if stored.kind != config.family:
        hint = stored.hint or f"Choose model={stored.model}, or another model.checkpoint=FOLDER."
        raise UserError(f"model={config.name} cannot be loaded from {base}: it is {stored.what}", hint)
    return stored


def model_config(name_or_path: str, weights: Quantised | None = None, compile: bool = False) -> ModelConfig:
    """The configuration of a model by its name (`uni_train models`), or of a checkpoint, as `Source` lists them.

    "shipped" is nano with the weights inside the package. A model that a run has trained takes that run's settings.

    Args:
        weights: form in which the decoder's weights are held; None: as the model or its run has it.
        compile: as ModelConfig.compile, where the model or its run has not set it.

    Raises:
        UserError: what lies there cannot be loaded. UsageError: no such name.
    """
    from uni_train.config.build import build_section

    source = source_of(name_or_path)
    if (option := _option(source.base)) is not None:
        config = build_section(ModelConfig, reading_limits.read_yaml(option))
        if source.adapters and config.checkpoint is None:
            untrained = f"{source.base} is untrained: an adapter needs the weights that it was trained on"
            raise UserError(untrained, "Train it.")
    else:
        stored = find(source.base)
        known = _recorded(stored)
        if known is None:
            option = _option(stored.model)
            assert option is not None
            values = reading_limits.read_yaml(option)
            for key, value in family_of(stored.kind).folder_values(stored.path).items():
                values[key] = {**values[key], **value} if isinstance(value, dict) else value
            known = build_section(ModelConfig, values)
        config = replace(known, checkpoint=str(stored.path))
    whole = "+".join([config.checkpoint or "", *map(str, map(local, source.adapters))]) or None
    return replace(config, checkpoint=whole, weights=weights or config.weights, compile=compile or config.compile)


def find(base: str) -> Checkpoint:
    """The model at a path, of a Hub id, or that is shipped under a name; without adapters.

    Raises:
        UserError: nothing lies there, or what cannot be loaded. UsageError: a name without weights on this machine.
    """
    if (option := _option(base)) is not None:
        values = reading_limits.read_yaml(option)
        if values.get("checkpoint") == "shipped":
            return recognise(family_of(values["family"]).shipped_folder)
        base = str(values.get("checkpoint") or base)
    checkpoint = recognise(local(base))
    if checkpoint.kind == "other":
        raise UserError(f"{base} is {checkpoint.what}, not a model that can be loaded", checkpoint.hint)
    return checkpoint


def _option(name: str) -> Path | None:
    """The file of configs/model/ for a name; "shipped" is that of the model whose weights are inside the package."""
    if name == "shipped":
        name = next(family for family in FAMILIES.names() if FAMILIES.get(family).shipped is not None)
    return next((option.path for option in places.options("model") if option.name == name), None)


def _recorded(stored: Checkpoint) -> ModelConfig | None:
    """What the run was asked that a checkpoint is from."""
    from uni_train.config.build import build_section

    run = run_of(stored.path) if is_step(stored.path) else stored.path.parent.parent.parent
    if not (run / "config.yaml").is_file():
        return None
    values = reading_limits.read_yaml(run / "config.yaml")
    expect_named(plugins_of(values), run / "config.yaml")  # the model may be of one
    return build_section(ModelConfig, values.get("model"))


def on_disk(config: ModelConfig) -> ModelConfig:
    """The same model with the folder that it starts from as its checkpoint, for what needs its sizes alone."""
    if config.checkpoint is None:
        return config
    source = source_of(config.checkpoint)
    path = Path(source.base)
    if source.kind == "step":
        before = model_before(path)
        return on_disk(replace(config, checkpoint=str(before or run_config(path).model.checkpoint or "") or None))
    return replace(config, checkpoint=str(final_model(path)) if source.kind == "run" else source.base)


def inspect(name_or_path: str) -> Inspection:
    """Look at a model by its name (`uni_train models`) or path. Only headers and small JSON files are read.

    Raises:
        UserError: nothing lies there, or files are damaged. UsageError: no such name.
    """
    source = source_of(name_or_path)
    base = source.base
    if source.kind == "model":
        config = model_config(base)
        if config.checkpoint != "shipped" and not (config.checkpoint and Path(config.checkpoint).exists()):
            return _without_weights(config)
        stored = find(base)
    else:
        stored = recognise(local(base))
        if stored.kind == "other":
            return Inspection("other", stored.what, str(stored.path), hint=stored.hint)
        config = model_config(str(stored.path))
    if is_step(stored.path):
        start = on_disk(config)
        seen = replace(inspect(start.checkpoint or start.name), what=stored.what, path=str(stored.path))
    else:
        seen = family_of(stored.kind).inspect(stored, config)
    return _with_adapters(seen, config, source.adapters)


def _with_adapters(seen: Inspection, config: ModelConfig, adapters: Sequence[str]) -> Inspection:
    """With what keeps adapters from fitting the model."""
    from uni_train.models.adapters import open_adapter, problems
    from uni_train.models.weights import Weights

    for path in adapters:
        adapter = open_adapter(local(path))
        weights = Weights([adapter.file])
        wrong = problems(family_of(config.family).skeleton(on_disk(config))[0], adapter, weights)
        seen = replace(
            seen,
            what=f"{seen.what}, with {adapter.title}",
            weights={**seen.weights, adapter.file.name: weights.dtype_names},
            bytes=seen.bytes + weights.bytes,
            problems=(*seen.problems, *(f"{adapter.file.name}: {problem}" for problem in wrong)),
            hint=seen.hint or ("It was trained on another model." if wrong else ""),
        )
    return seen


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


def _other(path: Path) -> Checkpoint:
    """Why no family reads it."""
    from uni_train.models.adapters import adapter_file, open_adapter

    titles = ", ".join(family_of(name).title for name in FAMILIES.names())
    if (path / "state.json").is_file() and any(path.glob("state*.safetensors")):
        return Checkpoint(
            "other", path, "a step of a training without its run's folder", "Give it where its run wrote it."
        )
    if adapter_file(path) is not None:
        adapter = open_adapter(path)
        trained_on = adapter.setting("base_model_name_or_path", next(iter(adapter.layers)))
        base = f": {trained_on}+{path}" if trained_on else ", MODEL+ADAPTER"
        return Checkpoint("other", path, adapter.title, f"Name the model that it was trained on before it{base}.")
    if path.is_file():
        return Checkpoint("other", path, "a file", "Give the folder that it lies in.")
    if (path / "config.json").is_file():
        config = read_json(path / "config.json")
        if "architectures" in config or "model_type" in config:
            listed = config.get("architectures")
            name = ", ".join(map(str, listed)) if isinstance(listed, list) and listed else str(config.get("model_type"))
            return Checkpoint("other", path, f"a transformers model ({name})", f"These can be loaded: {titles}.")
    names = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    if any(name.endswith(".safetensors") for name in names):
        return Checkpoint(
            "other",
            path,
            "safetensors without the JSON files that say what they are",
            "If it was fine-tuned from a released model, copy that one's JSON files and tokenizer beside them.",
        )
    pickles = [name for name in names if name.endswith(PICKLES)]
    if pickles:
        return _pickle(path, path / pickles[0])
    shown = f"a folder with {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else "an empty folder"
    return Checkpoint("other", path, shown, f"These can be loaded: {titles}.")


def _pickle(path: Path, file: Path) -> Checkpoint:
    return Checkpoint("other", path, f"a pickle ({file.name})", NEVER_READ)
