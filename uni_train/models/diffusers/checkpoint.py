"""A folder in diffusers' layout to a model: model_index.json names the pipeline's class and its parts."""

from __future__ import annotations

import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from uni_train.config.schema import ModelConfig, Quantised
from uni_train.core.errors import UserError
from uni_train.core.files import atomic_path
from uni_train.core.reading_limits import reason
from uni_train.models.diffusers.classes import TRANSFORMERS
from uni_train.models.diffusers.flow import FlowModel
from uni_train.models.diffusers.flow_matching import FlowMatchingModel
from uni_train.models.diffusers.interface import DIPTYCHS, Interface, interface
from uni_train.models.diffusers.unified import DiffusersModel
from uni_train.models.meta import without_weights
from uni_train.models.quantised import quantise
from uni_train.models.weights import (
    Format,
    Start,
    Weights,
    check,
    copy,
    fill,
    problems,
    read_object,
    shapes_of,
    weight_files,
    write_state,
)

_HINT = "It must be a pipeline in diffusers' layout with safetensors; `uni_train models inspect` shows what it is."
_TRAINED, _STEM = "transformer", "diffusion_pytorch_model"
_SCHEDULER = "FlowMatchEulerDiscreteScheduler"
_LIBRARIES = ("diffusers", "transformers")
_READERS = ("Qwen2VLProcessor", "Qwen2_5_VLProcessor")
"""Classes of transformers that load with torchvision alone, for videos that no pipeline of images shows them."""
_FILES = ("diffusion_pytorch_model.safetensors", "model.safetensors")


def interface_of(folder: Path) -> Interface:
    """The interface of the pipeline in a folder. Raises UserError for a class that cannot be asked."""
    return interface(str(read_object(folder / "model_index.json", _HINT).get("_class_name")))


def part_weights(folder: Path, part: str) -> Weights:
    """Headers of one part's weights. Raises UserError for missing or damaged files."""
    return Weights(weight_files(folder / part, _FILES, _HINT))


def open_parts(folder: Path) -> dict[str, Weights]:
    """Headers of the weights by part. Raises UserError for damaged files."""
    parts = [part for part in _parts(folder) if any((folder / part).glob("*.safetensors"))]
    return {part: part_weights(folder, part) for part in parts}


def missing(folder: Path, weights: Mapping[str, Weights]) -> Iterator[str]:
    """Parts that are not there or have no weights, a phrase each."""
    for part in _parts(folder):
        if not (folder / part).is_dir():
            yield f"{part} is missing"
        elif (folder / part / "config.json").is_file() and part not in weights:
            yield f"{part} has no safetensors"


def misfits(folder: Path, trained: bool = True) -> list[str]:
    """What keeps the weights of its parts from fitting their sizes, in phrases.

    Args:
        trained: whether such pipelines are trained here; older names of their transformer and VAE are not known then.
    """
    phrases: list[str] = []
    for part, weights in open_parts(folder).items():
        if trained and part in (_TRAINED, "vae"):
            expected = shapes_of(part_on_meta(folder, part))
            wrong = list(problems(weights.fitted(expected).shapes, expected))
        else:
            wrong = unread(folder, part)
        phrases += [f"{part}: {problem}" for problem in wrong]
    return phrases


def unread(folder: Path, part: str) -> list[str]:
    """What its library would draw at random, for a part's files have no such weights, in phrases. Reads headers.

    The head of a text encoder may be missing: its hidden states are all that is read.
    """
    library, name = _parts(folder)[part]
    if library not in _LIBRARIES:
        return []  # of the pipeline's own module, such as a safety checker
    kind = getattr(import_module(library), name)
    try:
        with without_bars(), _without_warnings():  # a table of the same names
            _, report = kind.from_pretrained(
                folder / part, device_map="meta", output_loading_info=True, use_safetensors=True, local_files_only=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        return [f"cannot be loaded: {reason(error)}"]
    return [f"{key} is missing" for key in sorted(report["missing_keys"]) if not key.startswith("lm_head.")]


@contextmanager
def _without_warnings() -> Iterator[None]:
    """No library logs a warning meanwhile."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def expect_whole(folder: Path, *parts: str) -> None:
    """Raises UserError where a library would draw weights of one of the parts at random."""
    if wrong := [f"{part}: {problem}" for part in parts for problem in unread(folder, part)]:
        raise UserError(f"{folder} is not whole: {'; '.join(wrong[:10])}", _HINT)


def build(config: ModelConfig, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> DiffusersModel:
    """The pipeline of the folder `config.checkpoint`, on the CPU, as diffusers reads whole parts.

    Args:
        dtype: of all weights; None: the `Weights.compute_dtype` of its largest part.
    """
    assert config.checkpoint is not None
    folder = Path(config.checkpoint)
    takes, parts = interface_of(folder), open_parts(folder)
    expect_whole(folder, *parts)
    stored = max(parts.values(), key=lambda weights: weights.bytes).compute_dtype
    how: dict[str, Any] = {"use_safetensors": True, "local_files_only": True}
    readers = _readers(folder)
    another_class = _without_warnings() if readers else nullcontext()
    try:
        with without_bars(), another_class, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch_dtype` is deprecated", FutureWarning)  # dtype is 0.41's name
            pipeline = takes.pipeline.from_pretrained(folder, torch_dtype=dtype or stored, **how, **readers)
    except (OSError, ValueError, RuntimeError, ImportError, AttributeError) as error:
        raise UserError(f"{folder} cannot be loaded: {reason(error)}", _HINT) from error
    model = _model(config, pipeline, takes)
    model.source = folder
    return model


def skeleton(config: ModelConfig) -> tuple[DiffusersModel, bool]:
    """The pipeline without weights. Raises UserError where there is no folder, which alone tells its sizes."""
    folder = Path(config.checkpoint or "")
    if not (folder / "model_index.json").is_file():
        missing = f"{folder} holds no model_index.json" if config.checkpoint else "no model.checkpoint is given"
        raise UserError(
            f"model={config.name} has the sizes of its folder, and {missing}",
            "Download a pipeline in diffusers' layout there, or give another folder with model.checkpoint=FOLDER.",
        )
    takes = interface_of(folder)
    # Others are modules of diffusers' own pipelines, such as the safety checker: they have no weights that count.
    known = [part for part, (library, _) in _parts(folder).items() if library in _LIBRARIES]
    parts = {part: part_on_meta(folder, part) for part in known}
    optional = dict.fromkeys(takes.pipeline._optional_components)
    return _model(config, takes.pipeline(**optional | parts), takes), False


def part_on_meta(folder: Path, part: str) -> Any:
    """A part of the class that model_index.json names; modules on the meta device."""
    library, name = _parts(folder)[part]
    if library not in _LIBRARIES:
        raise UserError(f"{folder / 'model_index.json'}: {part} is of {library}, no library of models", _HINT)
    if reader := _readers(folder).get(part):
        return reader
    kind, place = getattr(import_module(library), name), folder / part
    with without_weights():
        if not issubclass(kind, torch.nn.Module):
            return kind.from_pretrained(place)
        if library == "transformers":
            return kind(kind.config_class.from_pretrained(place))
        return kind.from_config(kind.load_config(place))


def _readers(folder: Path) -> dict[str, Any]:
    """What pipelines use of `_READERS`, their image processors, by part; none where torchvision is installed."""
    parts = [part for part, (_, name) in _parts(folder).items() if name in _READERS]
    if not parts or find_spec("torchvision"):
        return {}
    from transformers.processing_utils import ProcessorMixin

    from uni_train.models.qwen_image_edit.reading import image_processor

    class ImageReader(ProcessorMixin):  # type: ignore[misc]
        def __init__(self, place: Path) -> None:
            self.image_processor = image_processor(place)

    return {part: ImageReader(folder / part) for part in parts}


def _model(config: ModelConfig, pipeline: Any, takes: Interface) -> DiffusersModel:
    if takes.name in TRANSFORMERS and type(pipeline.scheduler).__name__ == _SCHEDULER:
        return FlowModel(config.name, pipeline, takes, config.sampling, config.architecture.image_size)
    if takes.video:
        from uni_train.models.diffusers.video import VideoModel

        return VideoModel(config.name, pipeline, takes, config.sampling)
    if takes.name in DIPTYCHS:
        from uni_train.models.diffusers.diptych import DiptychModel

        return DiptychModel(config.name, pipeline, takes, config.sampling)
    return DiffusersModel(config.name, pipeline, takes, config.sampling)


def image_size(folder: Path) -> int:
    """Pixels a side of what a pipeline of `TRANSFORMERS` draws by default."""
    vae, transformer = (read_object(folder / part / "config.json", _HINT) for part in ("vae", "transformer"))
    halvings = len(vae["block_out_channels"]) - 1 if "block_out_channels" in vae else len(vae["temperal_downsample"])
    return int(transformer.get("sample_size", 128) * 2**halvings)


# --- writing ----------------------------------------------------------------------------------------------------------


def save(model: FlowMatchingModel, folder: Path, form: Format) -> None:
    """Write a folder that diffusers' `from_pretrained` reads: the rest as it was, and last the new transformer."""
    _carry(model.source, folder)
    write_state(model.transformer.state_dict(), folder / _TRAINED, _STEM, _sharded(form))


def load(model: FlowMatchingModel, path: Path) -> None:
    """Take the transformer's weights from a folder that `save` has written; nothing else is ever trained."""
    fill_part(model.transformer, path, _TRAINED, None, model.device)
    model.source = path


def fill_part(
    module: torch.nn.Module,
    folder: Path,
    part: str,
    dtype: torch.dtype | None,
    device: torch.device | str,
    quantised: Quantised | None = None,
) -> None:
    """Give a part its weights, tensor by tensor.

    Args:
        dtype: of those on the meta device; None: `Weights.compute_dtype`.
        quantised: form of the decoder's layers.

    Raises:
        UserError: names and shapes that do not fit (at most ten), files that are missing or damaged.
    """
    weights = part_weights(folder, part).fitted(module.state_dict())
    check(weights.shapes, shapes_of(module), folder / part, _HINT)
    dtype = dtype or weights.compute_dtype
    quantise(module, quantised, read=lambda name: weights.read(name).to(device, dtype))
    fill(module, weights.read, dtype, device)


def export(source: Path, folder: Path, start: Start, form: Format) -> None:
    """Copy a folder, its transformer tensor by tensor. Raises UserError: its weights do not fit its JSON files."""
    if wrong := misfits(source):
        raise UserError(f"{source} does not fit its config.json: {'; '.join(wrong[:10])}", _HINT)
    _carry(source, folder)
    weights = part_weights(source, _TRAINED)
    copy(weights.read, weights.described, folder / _TRAINED, _STEM, start, _sharded(form))


def _sharded(form: Format) -> Format:
    """In files of 10 GB, as diffusers writes them, where nothing else is wanted."""
    return replace(form, shard_bytes=form.shard_bytes or 10 * 10**9)


def _carry(source: Path, folder: Path) -> None:
    """Everything but the transformer's weights, as it is."""
    if source.resolve() == folder.resolve():
        return
    files = [file for part in _parts(source) for file in sorted((source / part).glob("*")) if file.is_file()]
    for file in (*files, source / "model_index.json"):
        if file.parent.name != _TRAINED or file.name == "config.json":
            to = folder / file.relative_to(source)
            to.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(to) as temporary:
                _link_or_copy(file.resolve(), temporary)


def _link_or_copy(file: Path, to: Path) -> None:
    """Large weights take no room twice where both places are on one file system."""
    if file.suffix == ".safetensors":
        try:
            to.unlink(missing_ok=True)
            os.link(file, to)
        except OSError:
            pass
        else:
            return
    shutil.copyfile(file, to)


@contextmanager
def without_bars() -> Iterator[None]:
    """Without the progress bars of both libraries."""
    from diffusers.utils import logging as ours
    from transformers.utils import logging as theirs

    shown = [library for library in (ours, theirs) if library.is_progress_bar_enabled()]
    for library in shown:
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library in shown:
            library.enable_progress_bar()


def _parts(folder: Path) -> dict[str, list[str]]:
    """Library and class by part. Raises UserError for another library: diffusers would import whatever is named."""
    from diffusers import pipelines

    index: Mapping[str, Any] = read_object(folder / "model_index.json", _HINT)
    parts = {part: value for part, value in index.items() if isinstance(value, list) and value and value[0] is not None}
    for part, (library, *_) in parts.items():
        if library not in _LIBRARIES and not hasattr(pipelines, str(library)):
            raise UserError(f"{folder / 'model_index.json'}: {part} is of {library!r:.60}, no part of diffusers", _HINT)
    return parts
