"""What a family of models declares about itself, and where families are found.

A family is one folder under uni_train/models/ (or a plug-in). Its `family.py` registers a subclass of `Family`:

    @FAMILIES.register("bagel")
    class BagelFamily(Family): ...

`model.family` in a model's YAML names it. Only `recognise`, `build` and `part_of` must be written; the rest has
defaults for models that are stored as model.safetensors and config.json; `PublishedFamily` is for other layouts.
Nothing heavy is imported by a family.py, so that paths can be recognised before torch is there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from uni_train.core import reading_limits
from uni_train.core.errors import UserError
from uni_train.core.registry import Registry

if TYPE_CHECKING:
    import torch

    from uni_train.config.schema import ModelConfig
    from uni_train.models.base import UnifiedModel
    from uni_train.models.shapes import Shapes
    from uni_train.models.weights import Format, Start, Weights

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
NEVER_READ = "Pickles can run any code and are never read. Get the safetensors files, or convert it where you trust it."
"""The hint where weights are pickles."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """kind: the family that reads it, or "other"; path: the folder (or weight file) that it is given; what: in words.

    hint: for "other": what a person could do. model: the option of configs/model/ that fits it.
    """

    kind: str
    path: Path
    what: str
    hint: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What lies at a path, or is meant by a name.

    Attributes:
        kind: its family, or other. what: the same in words.
        path: where it lies; None for a model whose weights are not on this machine.
        weights: file (of a diffusers folder: subfolder) -> its dtypes, most bytes first.
        bytes: of all weight files.
        parameters: by part; the VAE is the last one.
        problems: what is missing, extra or misshapen, a phrase each; with any of them the model does not load.
        hint: what to do about it.
    """

    kind: str
    what: str
    path: str | None
    weights: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bytes: int = 0
    parameters: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    hint: str = ""

    @property
    def total(self) -> int:
        """All parameters, the VAE's too."""
        return sum(self.parameters.values())

    @property
    def loads(self) -> bool:
        """Whether `build_model` would take it."""
        return self.kind != "other" and self.path is not None and not self.problems

    def lines(self) -> list[str]:
        """Everything in words, ten problems at most."""
        lines = [f"{self.path or '(no weights here)'}: {self.what}"]
        lines += [f"  {file:<34}{', '.join(dtypes)}" for file, dtypes in self.weights.items()]
        lines += [f"  {'weights':<22}{self.bytes:>16,} bytes"] if self.bytes else []
        lines += [f"  {part:<22}{count:>16,}" for part, count in self.parameters.items()]
        lines += [f"  {'total':<22}{self.total:>16,}"] if self.parameters else []
        lines += [f"  {problem}" for problem in self.problems[:10]]
        if len(self.problems) > 10:
            lines.append(f"  and {len(self.problems) - 10} more (--json lists them all)")
        if self.loads:
            return [*lines, "  complete: it can be loaded"]
        return [*lines, f"  cannot be loaded: {self.hint}" if self.hint else "  cannot be loaded"]


class Family(ABC):
    """One architecture: how its models are recognised, built, stored and counted.

    Attributes:
        name: under which it is registered. title: for people.
        parts: of its models, in the order in which they are listed.
        world: of the questions that its models are asked: "nano" or "everyday".
        bfloat16: whether GPUs take its weights in bfloat16.
        tf32: whether GPUs may round factors of float32 products to TF32. Not where transformers computes rotary
            positions, by such a product (huggingface/transformers issue 48428).
        optional_keys: of "vae_tile", "editing", "puzzles" (of editors), "compile", "sampling.first_block_cache" and
            "sampling.interleaving", those that its models take.
        shipped: the folder of the checkpoint inside the package (`checkpoint: shipped`).
    """

    name: str
    title: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    world: ClassVar[str] = "everyday"
    bfloat16: ClassVar[bool] = True
    tf32: ClassVar[bool] = False
    optional_keys: ClassVar[tuple[str, ...]] = ()
    shipped: ClassVar[Path | None] = None

    @property
    def shipped_folder(self) -> Path:
        """`shipped`. Raises UserError where nothing is."""
        if self.shipped is None:
            raise UserError(f"no {self.title} is shipped", "Give a folder with model.checkpoint=FOLDER.")
        return self.shipped

    @abstractmethod
    def recognise(self, path: Path) -> Checkpoint | None:
        """What lies at an existing file or folder, told by names and small JSON files; None: nothing of this family.

        `Checkpoint.kind` is the family's name, or "other" for what it knows and cannot load.
        """

    def folder_values(self, path: Path) -> Mapping[str, Any]:
        """Values of a model's YAML that a recognised folder knows better, nested as there.

        Raises:
            UserError: the folder holds a model that cannot be built.
        """
        return {}

    @abstractmethod
    def build(
        self, config: ModelConfig, seed: int, dtype: torch.dtype | None, device: torch.device | str = "cpu"
    ) -> UnifiedModel:
        """The model with the weights that `config.checkpoint` names (None: random ones from `seed`).

        Args:
            device: where weights that are read one by one may be put, quantised as `config.weights` says; the caller
                sees to all others.

        Raises:
            UserError: weights that are missing, damaged or of another shape; a folder that is something else.
        """

    @abstractmethod
    def part_of(self, name: str) -> str:
        """Which of `parts` a parameter belongs to, by its name."""

    def skeleton(self, config: ModelConfig, seed: int = 0) -> tuple[UnifiedModel, bool]:
        """The model for counting and shapes, on the meta device where it is large; whether its tokenizer is a guess.

        Raises:
            UserError: the checkpoint folder holds something else than this model.
        """
        from dataclasses import replace

        return self.build(replace(config, checkpoint=None), seed, None), False

    def shapes(self, model: UnifiedModel) -> Shapes:
        """What `plan` and `--dry-run` ask about a skeleton. Raises UserError where the family cannot tell."""
        raise UserError(
            f"model={model.name} cannot be planned",
            f"The family {self.name} does not describe the shapes of its batches (Family.shapes).",
        )

    def save(self, model: UnifiedModel, folder: Path, form: Format) -> None:
        """Write a folder that `build` and `load` read. Every file is atomic.

        Raises:
            UserError, OSError: the disk is full or the folder cannot be written; an older checkpoint is untouched.
        """
        from uni_train.core.files import atomic_write_json
        from uni_train.models.weights import write_state

        folder.mkdir(parents=True, exist_ok=True)
        write_state(model.state_dict(), folder, Path(WEIGHTS).stem, form)
        atomic_write_json(folder / CONFIG, {"model": model.name, **model.describe()})

    def load(self, model: UnifiedModel, folder: Path) -> None:
        """Load what `save` wrote into a model of the same sizes.

        Raises:
            UserError: a missing or damaged file, or tensors that do not fit (at most ten are named).
        """
        from uni_train.models.weights import Weights, check, fill, shapes_of

        file = folder / WEIGHTS
        if not file.is_file():
            raise UserError(
                f"{folder} holds no {WEIGHTS}", "Give a folder that a run has written, e.g. runs/.../model."
            )
        stored = Weights([file]).fitted(model.state_dict())
        check(stored.shapes, shapes_of(model), file, "Check model=...")
        fill(model, stored.read)

    def export(self, source: Path, out: Path, start: Start, form: Format) -> None:
        """Copy a checkpoint to the folder `out` for others to load, tensor by tensor; the model is never built.

        Raises:
            UserError, OSError: weights that do not fit, or a disk that is full.
        """
        import shutil

        from uni_train.core.files import atomic_path
        from uni_train.models.weights import Weights, copy

        weights = Weights([source / WEIGHTS])
        out.mkdir(parents=True, exist_ok=True)
        with atomic_path(out / CONFIG) as temporary:
            shutil.copyfile(source / CONFIG, temporary)
        copy(weights.read, weights.described, out, Path(WEIGHTS).stem, start, form)

    def phrases(self) -> Mapping[str, str]:
        """The fixed sentences of models that understand few others: "caption", "verify" with {question} in it, "draw
        some" with {objects}, and the caption "unclear". Others have none."""
        return {}

    def inspect(self, checkpoint: Checkpoint, config: ModelConfig) -> Inspection:
        """What a checkpoint of this family holds, from its headers alone. Raises UserError for damaged files."""
        from uni_train.models.weights import Weights, problems, shapes_of

        expected = shapes_of(self.skeleton(config)[0])
        weights = Weights([checkpoint.path / WEIGHTS]).fitted(expected)
        wrong = problems(weights.shapes, expected)
        return self.inspected(checkpoint, [weights], weights.shapes, wrong)

    def inspected(
        self,
        checkpoint: Checkpoint,
        files: Sequence[Weights],
        shapes: Mapping[str, Sequence[int]],
        problems: Iterable[str],
        hint: str = "",
    ) -> Inspection:
        """What a checkpoint with the weights `files` holds.

        Args:
            shapes: of all its tensors, by the names that the model has for them.
            problems: what is wrong with it. hint: what to do about that.
        """
        wrong = tuple(problems)
        return Inspection(
            self.name,
            checkpoint.what,
            str(checkpoint.path),
            {file.name: weights.dtype_names for weights in files for file in weights.files},
            sum(weights.bytes for weights in files),
            self.by_part(shapes),
            wrong,
            hint if wrong else "",
        )

    def by_part(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Numbers of parameters by part, in the order of `parts`; `shapes` by the names that the model has for them."""
        counts = dict.fromkeys(self.parts, 0)
        for name, shape in shapes.items():
            counts[self.part_of(name)] += math.prod(shape)
        return counts


class PublishedFamily(Family):
    """One whose checkpoints have a layout that others have published; `checkpoint.py` beside its `family.py` reads it.

    That module has `build(config, dtype, device)`, `skeleton(config)`, `save(model, folder, form)`,
    `load(model, folder)` and `export(source, out, start, form)`, as the methods here. It is imported when one is
    called.
    """

    def _checkpoint(self) -> Any:
        return import_module(f"{type(self).__module__.rpartition('.')[0]}.checkpoint")

    def build(
        self, config: ModelConfig, seed: int, dtype: torch.dtype | None, device: torch.device | str = "cpu"
    ) -> UnifiedModel:
        if config.checkpoint is None:
            raise UserError(
                f"model={config.name} has no random weights to start from",
                f"Give the folder of a {self.title} checkpoint with model.checkpoint=FOLDER.",
            )
        return self._checkpoint().build(config, dtype, device)

    def skeleton(self, config: ModelConfig, seed: int = 0) -> tuple[UnifiedModel, bool]:
        return self._checkpoint().skeleton(config)

    def save(self, model: UnifiedModel, folder: Path, form: Format) -> None:
        """With what is not trained, such as the tokenizer, from the folder that the model came from."""
        self._checkpoint().save(model, folder, form)

    def load(self, model: UnifiedModel, folder: Path) -> None:
        self._checkpoint().load(model, folder)

    def export(self, source: Path, out: Path, start: Start, form: Format) -> None:
        self._checkpoint().export(source, out, start, form)


def read_json(file: Path) -> dict[str, object]:
    """A small JSON object; {} where the file holds something else. Raises UserError where it cannot be read."""
    try:
        loaded = reading_limits.read_json(file)
    except (ValueError, OSError) as error:
        raise UserError(f"{file} is damaged ({reading_limits.reason(error)})", "Copy it again.") from error
    return loaded if isinstance(loaded, dict) else {}


FAMILIES: Registry[type[Family]] = Registry(
    "model family",
    "uni_train.models.*.family",
    required=("title", "parts", "recognise", "build", "load", "save", "part_of"),
)


def family_of(name: str) -> Family:
    """The family of this name.

    Raises:
        UnknownNameError: there is none. PluginError: a plug-in that cannot be used.
    """
    family = FAMILIES.get(name)()
    family.name = name
    return family
