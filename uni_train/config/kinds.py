"""The keys and stages of kinds of recipes, and which there are: a module each of `uni_train.recipes`, and plug-ins.

Nothing heavy is imported here, nor by the modules of `uni_train.recipes` themselves: composing a recipe and naming its
stages need no torch. What a stage does is imported when it is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from uni_train.config.messages import Where, wrong
from uni_train.config.schema import JudgeConfig, RunConfig
from uni_train.core.errors import DataError, UsageError
from uni_train.core.registry import Registry
from uni_train.data_gen.registry import TASKS, get_task, sources
from uni_train.data_gen.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from uni_train.models.base import Example, FlowPolicy, Request, Trainable
    from uni_train.models.shapes import ImageRequest

C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One stage. Its folder is stages/<index>-<name>.

    Attributes:
        kind: what it does; "evaluate" is common to all recipes, the others belong to their kind of recipe.
        name: the kind, with a suffix where a recipe has several of it.
        summary: what `fit --dry-run` says of it.
        rounds: stars: the indices of the rounds that it serves.
        base: whether later stages start from the model that it trains.
        images: that it draws at most.
    """

    kind: str
    name: str
    summary: str
    rounds: tuple[int, ...] = ()
    index: int = 0
    base: bool = True
    images: int = 0


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of a recipe's training.

    Attributes:
        total: how many there are, at most.
        accumulate: micro-batches of one, of all ranks together; with `tokens`, or without `rows`, of each rank.
        rows: examples of one. tokens: in place of it, tokens of a micro-batch on each rank.
        notes: what `total` assumes.
    """

    total: int
    accumulate: int = 1
    rows: int | None = None
    tokens: int | None = None
    notes: tuple[str, ...] = ()

    def shared(self, ranks: int) -> Updates:
        """With the micro-batches of each of so many ranks in `accumulate`: none has fewer than one row."""
        if self.rows is None or self.tokens is not None:
            return self
        return replace(self, accumulate=max(1, min(-(-self.accumulate // ranks), self.rows // ranks)))


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What a recipe that learns from its own images draws and learns; an *epoch* draws, and has some updates.

    Attributes:
        prompt: the first one. UserError: it cannot be read.
        images: of an epoch, on all ranks. steps: of drawing one. guidance: of drawing; None: the model's own.
        updates: in all; updates_per_epoch.
        rows: the rows of an update that so many images give. micro_batches: in which so many ranks learn them.
        other_micro_batches: of an update, beside these.
        losses: the losses of a model whose parameters of these names are trained, with shapes alone.
        notes: what a plan of them assumes.
        described: lines for people, by the number of ranks.
        unsharded: what this recipe asks for that cannot be done where ranks hold parts of the weights.
    """

    prompt: Callable[[], Request]
    images: int
    steps: int
    guidance: float | None
    updates: int
    updates_per_epoch: int
    rows: Callable[[int], int]
    micro_batches: Callable[[int], int]
    other_micro_batches: int
    losses: Callable[[FlowPolicy, set[str]], PlannedLosses]
    described: Callable[[int], list[str]]
    notes: tuple[str, ...] = ()
    unsharded: str | None = None


class PlannedLosses(Protocol):
    """Losses on images that the model has drawn, with shapes alone (tensors on the meta device)."""

    @property
    def others(self) -> list[Any]:
        """Tensors of other weights that are kept beside the trained ones."""

    def requests(self, images: int) -> int:
        """How many conditions so many images have."""

    def stored(self, image: ImageRequest, images: int) -> list[Tensor]:
        """What is kept of so many images until they are learned."""

    def sampling(self) -> AbstractContextManager[object]:
        """Within it the model has the weights that draw."""

    def loss(self, image: ImageRequest, rows: int, condition: Any) -> Tensor:
        """Of a micro-batch of so many rows under a condition of as many."""


class RecipeKeys(ABC, Generic[C]):
    """A kind of recipe as far as its configuration goes: its keys, their rules, the names of its stages.

    `uni_train.stages.kind.RecipeKind` adds what each stage does.

    Attributes:
        config: the dataclass of its keys. texts: those of sections that may be text, which `complete` makes a section.
        trains_editors: whether its rows and prompts may have images, which an editor such as Qwen-Image-Edit needs.
        trains_texts: whether its rows are texts alone, which a model with `trains: texts` needs.
        reference: whether the weights of its start stay beside the trained ones, unless these are adapters.
        keeps_rows: whether its rows are kept in memory. less_memory: what to change where an update is too large.
        report: the module whose `page` makes report.html of a run's folder, summary and configuration.
    """

    config: type[C]
    texts: tuple[str, ...] = ()
    trains_editors = trains_texts = reference = False
    keeps_rows = False
    less_memory = ""
    report = "uni_train.eval.report.run"

    # --- its keys

    def complete(self, values: dict[str, Any]) -> None:
        """Fill in, in place, what the composed `values` leave to other keys of theirs. They are not checked yet."""

    def check(self, config: C, where: Where) -> None:
        """Rules between keys. Raises UsageError."""

    def rows(self, config: C) -> Mapping[str, int]:
        """Key -> examples of an update on all ranks together, of every training whose batches have so many."""
        return {}

    def check_ranks(self, config: C, ranks: int) -> None:
        """Raises UsageError where so many processes cannot share the work; it names the nearest numbers."""
        for key, rows in self.rows(config).items():
            if rows < ranks:
                raise UsageError(
                    f"{key}={rows} cannot be divided among {ranks} devices: each trains on a row of every update",
                    f"The nearest number is {key}={ranks}.",
                )

    def evaluates(self, config: C) -> bool:
        """Whether images are scored before or after training, by a program or the run's judge."""
        return True

    def asks_judge(self, config: C) -> bool:
        """Whether the run's judge is asked where a program could read the images."""
        return False

    def servers(self, config: C) -> Mapping[str, Callable[[], object]]:
        """ "key: address" of what is asked beside the run's judge -> what raises UserError where it does not answer."""
        return {}

    def trained(self, config: C) -> tuple[str, tuple[str, ...]]:
        """Which weights are trained (all, moe_gen or lora), and which parts are not all the same."""
        return "all", ()

    # --- its stages

    @abstractmethod
    def stages(self, config: C) -> Iterator[PlannedStage]:
        """All stages of a run, in order; `stage_list` numbers them."""

    # --- what it would train

    @abstractmethod
    def updates(self, config: C) -> Updates:
        """How much it trains. Raises UserError."""

    def first_update(self, config: C, model: Trainable, most: int | None = None) -> list[Sequence[Example]]:
        """The examples of the first update of the first training, by micro-batch.

        Args:
            most: only so many, as one micro-batch: a sample of an update that may be too large to make.

        Raises:
            UserError: rows of a source are missing or bad.
        """
        raise NotImplementedError(f"{type(self).__name__} has rollouts")

    def remarks(self, config: C, model: Trainable) -> list[str]:
        """What `fit --dry-run` should say about this recipe with this model."""
        return []

    def rollouts(self, config: C) -> Rollouts | None:
        """What is drawn in order to learn from it; None where `first_update` says what is learned."""
        return None


# --- all of them ------------------------------------------------------------------------------------------------------


KINDS = Registry[type[RecipeKeys[Any]]]("kind of recipe", "uni_train.recipes.*", ("config", "stages", "run", "updates"))
recipe_kind = KINDS.register

BEFORE_RUN = Registry[Callable[[RunConfig, int, bool], str | None]]("check before a run", "uni_train.*.before_run")
"""What looks at a run before its folder is made: (configuration, ranks, whether the run is only planned) -> what to say
of it; UserError: it cannot run here."""
before_run = BEFORE_RUN.register


def check_before_run(config: RunConfig, ranks: int, planned: bool = False) -> list[str]:
    """What all checks say. Raises UserError."""
    remarks = [BEFORE_RUN.get(name)(config, ranks, planned) for name in BEFORE_RUN.names()]
    return [line for line in remarks if line is not None]


def plugins_of(values: Mapping[str, Any]) -> list[str]:
    """The modules that unchecked `values` name under `plugins`."""
    named = values.get("plugins")
    return [text for text in named if isinstance(text, str)] if isinstance(named, list) else []


def code_of(values: Mapping[str, Any]) -> list[str]:
    """All code that unchecked `values` of a recipe name: plug-ins; modules, files and interpreters of rewards."""
    rewards = values.get("rewards")
    sections = [one for one in rewards.values() if isinstance(one, Mapping)] if isinstance(rewards, Mapping) else []
    places = [(str(one.get("function")).rpartition(":")[0], str(one.get("python") or "")) for one in sections]
    return [*plugins_of(values), *(place for pair in places for place in pair if place)]


def kind_named(name: str) -> RecipeKeys[Any]:
    """The kind of a name. Raises DataError: there is none, or a plug-in cannot be used."""
    return KINDS.get(name)()


def kind_of(config: RunConfig) -> RecipeKeys[Any]:
    """The kind of a recipe."""
    return kind_named(config.kind)


def check_ranks(config: RunConfig, ranks: int) -> None:
    """Raises UsageError where so many processes cannot run a recipe; it names the nearest numbers."""
    kind_of(config).check_ranks(config, ranks)
    replicas = config.strategy.replicas
    if ranks > 1 and ranks % replicas:  # one has all weights, whatever is asked
        nearest = min((n for n in range(1, ranks + 1) if ranks % n == 0), key=lambda n: abs(n - replicas))
        raise UsageError(
            f"strategy.replicas={replicas} does not divide {ranks} devices: each copy of the weights is on as many",
            f"The nearest number is strategy.replicas={nearest}.",
        )


def reads_images(config: RunConfig) -> bool:
    """Whether the run's judge, and no program, says what the images of this run show."""
    names = {sources()[name].task for name in (*config.evaluation.sets, *config.retention.sets) if name in sources()}
    names |= {round_.task for round_ in getattr(config, "rounds", ()) if round_.task in TASKS.names()}
    return config.data.world == "everyday" and not all(TASKS.get(name).readable for name in names)


def judge_of(config: RunConfig) -> JudgeConfig | None:
    """The run's judge where it is asked."""
    return config.judge if kind_of(config).asks_judge(config) or reads_images(config) else None


def run_task(config: RunConfig, name: str) -> Task:
    """A task in the world of a run, as its section `data` wants it."""
    return get_task(name, config.data.world).configured(asdict(config.data))


def check_fits(config: RunConfig, name: str, levels: Sequence[int], key: str, where: Where) -> None:
    """Raises UsageError for a level without a set, or too large for an editor of pixels; it names those that fit."""
    kind = TASKS.get(name)
    for level in levels:
        if kind.sets and level in kind.levels and level not in kind.sets:
            message = f"{key}: {name} of level {level} has no set in which images are scored"
            raise wrong(message, key, where, f"Levels with a set: {', '.join(map(str, kind.sets))}.")
    model, side = config.model, config.model.architecture.image_size
    if not (model.edits and kind.edits and model.architecture.latent_downsample == 1):
        return  # only where pixels are the latents images keep their size
    task = run_task(config, name)

    def fits(level: int) -> bool:
        try:
            return max(task.render(task.sample(0, level, "test")[0], 0).shape[:2]) <= side
        except DataError:
            return False

    for level in levels:
        if level in task.levels and not fits(level):
            known = ", ".join(str(other) for other in task.levels if fits(other)) or "none"
            message = f"{key}: {model.name} has {side} x {side} pixels, on which {name} of level {level} does not fit"
            hint = f"Levels that fit: {known}. model.architecture.image_size and data.maze_side set the room."
            raise wrong(message, key, where, hint)


def stage_list(config: RunConfig) -> tuple[PlannedStage, ...]:
    """All stages of a run, from index 0 on. A name that comes again gets a number: finetune-mapping2-2."""
    stages: list[PlannedStage] = []
    times: Counter[str] = Counter()
    for index, stage in enumerate(kind_of(config).stages(config)):
        times[stage.name] += 1
        again = f"-{times[stage.name]}" if times[stage.name] > 1 else ""
        stages.append(replace(stage, name=f"{stage.name}{again}", index=index))
    return tuple(stages)


def evaluation(config: RunConfig, label: str, rounds: tuple[int, ...] = ()) -> PlannedStage:
    """The stage that measures accuracy; `label`: before, after, ..."""
    section = config.evaluation
    measured = f"{' and '.join(section.modes)} accuracy on {', '.join(section.sets)}"
    draws = sum(TASKS.get(sources()[name].task).items_per_draw for name in section.sets)
    images = section.n * draws * len({"normal", "cot"}.intersection(section.modes))
    return PlannedStage("evaluate", f"evaluate-{label}", measured, rounds, images=images)
