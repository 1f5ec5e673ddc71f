"""Looking at a model by its name or path: only headers and small JSON files are read."""

from __future__ import annotations

from pathlib import Path

from uni_train.config import places
from uni_train.config.schema import ModelConfig
from uni_train.models.contents import Inspection, by_part
from uni_train.models.family import Found, family_of
from uni_train.models.load import model_config
from uni_train.models.recognise import recognise


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
    found = recognise(Path(name_or_path))
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
        parameters=by_part(family, {name: value.shape for name, value in model.named_parameters()}),
        problems=(problem,),
        hint=hint,
    )
