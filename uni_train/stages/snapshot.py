"""A step of an unfinished stage as a model's folder, so that it can be evaluated while training goes on.

A step's checkpoint holds what training needs to continue: the weights that are trained, their averages, the optimizer.
What is not trained is where the stage began: in the model of the stage before it, or in the recipe's.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from torch import Tensor

from uni_train.config.build import build, without_former_keys
from uni_train.config.kinds import stage_list
from uni_train.config.schema import RunConfig
from uni_train.data_gen.reading_limits import read_yaml, reason
from uni_train.data_gen.seeds import derive_seed
from uni_train.errors import UserError
from uni_train.eval.respondent import is_remote
from uni_train.eval.watch import Checkpoint, place_of
from uni_train.files import remove_partials
from uni_train.models.base import UnifiedModel
from uni_train.models.load import build_model, dtype_for, load_weights, save_model
from uni_train.models.quantised import quantise
from uni_train.run_folder import stage_folders
from uni_train.stages.work import MODEL
from uni_train.training.checkpoint_io import load_folder
from uni_train.training.ema import Ema
from uni_train.training.lora import adapted

SNAPSHOTS = ".snapshots"
_STEP = re.compile(r"step=\d{8,}")


@contextmanager
def loadable(checkpoint: str, out: Path, say: Callable[[str], None]) -> Iterator[tuple[str, Checkpoint | None]]:
    """What can be loaded, and the place in a run that it is; a step of a training is written as a model below `out`.

    The written model is removed behind the block, but kept by an error or a kill, for the next start.
    """
    if is_remote(checkpoint) or not Path(checkpoint).exists():
        yield checkpoint, None
        return
    place = place_of(Path(checkpoint))
    if not _STEP.fullmatch(Path(checkpoint).name):
        yield checkpoint, place
        return
    name = place.key if place else checkpoint
    copies = out / SNAPSHOTS / "".join(c if c.isalnum() or c in "-_.=" else "-" for c in name)
    say(f"writing the model of {checkpoint}")
    copies.mkdir(parents=True, exist_ok=True)
    remove_partials(copies)
    yield str(write_snapshot(Path(checkpoint), copies)), place
    shutil.rmtree(copies, ignore_errors=True)


def write_snapshot(checkpoint: Path, root: Path) -> Path:
    """Write the model that `runs/<recipe>/<name>/stages/<stage>/checkpoints/step=<N>` would be if training ended there.

    Args:
        root: it is written to `root`/<name>/stages/<stage>-step<N>/model, with the run's config.yaml: it is loaded by
            the run's own settings, and named after run, stage and step.

    Returns:
        The model's folder; that of an earlier call, if it was finished.

    Raises:
        UserError: the checkpoint is damaged or gone, its run has no configuration, or the disk is full.
    """
    stage = checkpoint.parent.parent
    run = stage.parent.parent
    copy = root / run.name
    folder = copy / "stages" / f"{stage.name}-step{int(checkpoint.name.partition('=')[2])}" / MODEL
    if (copy / "config.yaml").is_file() and folder.is_dir():
        return folder
    try:
        plain = read_yaml(run / "config.yaml")
    except (OSError, ValueError) as error:
        raise UserError(f"{run / 'config.yaml'} cannot be read ({reason(error)})", "Restore it.") from error
    config = build(without_former_keys(plain))
    model = build_model(config.model, config.seed, dtype_for(config.strategy.precision))
    before = _model_before(stage, config)
    if before is not None:
        load_weights(model, before)
        quantise(model, config.model.weights)  # adapters were trained on that
    weights = _trained(checkpoint)
    # What was trained says it, not config.trained: a stage may train all weights before others train adapters.
    has_adapters = any(".lora_A." in name for name in weights)
    with adapted(model, config.lora, derive_seed(config.seed, stage.name, "lora")) if has_adapters else nullcontext():
        _load(model, weights, checkpoint)
    shutil.rmtree(copy, ignore_errors=True)
    save_model(model, folder)
    shutil.copyfile(run / "config.yaml", copy / "config.yaml")  # last: with it, the copy counts as finished
    return folder


def _trained(checkpoint: Path) -> dict[str, Tensor]:
    """The weights that training would end with, by their names in the model: averages where there are such."""
    state = load_folder(checkpoint)
    trained = state["state_dict"] | state["callbacks"].get(Ema.__qualname__, {}).get("averages", {})
    return {name.removeprefix("model."): value for name, value in trained.items() if name.startswith("model.")}


def _load(model: UnifiedModel, weights: Mapping[str, Tensor], checkpoint: Path) -> None:
    try:
        model.load_state_dict(model.state_dict() | dict(weights))
    except RuntimeError as error:
        raise UserError(
            f"the checkpoint {checkpoint} does not fit the model of its run's config.yaml",
            str(error).splitlines()[-1].strip(),
        ) from error


def _model_before(stage: Path, config: RunConfig) -> Path | None:
    """The model that a stage began with: that of the last finished one before it that others start from; else None, the
    recipe's own."""
    bases = {one.name for one in stage_list(config) if one.base}
    stages = stage_folders(stage.parent.parent)
    earlier = [one for one in stages[: stages.index(stage)] if one.name.partition("-")[2] in bases]
    models = [one / MODEL for one in earlier if (one / "manifest.json").is_file()]
    return next((model for model in reversed(models) if model.is_dir()), None)
