"""The keys of Flow-GRPO's trainer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval

from uni_train.config.schema import Augment, Count, Draws, Few, Positive, Rows, Scale, Share, TrainingConfig, Weight
from uni_train.core.errors import UsageError
from uni_train.flow.window import Window, epoch_window, sliding_window
from uni_train.training.flow_grpo.variants import VARIANTS, GrpoVariant, ObjectiveConfig, Variant


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How images are drawn for training."""

    prompts_per_epoch: Rows
    group_size: Annotated[int, Interval(ge=2, le=1_000)]  # images a prompt
    steps: Few
    noise_level: Scale | None = None  # null = the variant's published one
    window: Few | None = None  # random steps; null = all between first_step and last_step (fast, mix: 2)
    first_step: Annotated[int, Interval(ge=0, le=1_000)] = 0
    last_step: Few | None = None  # random steps end before it; null = the last step is Euler's
    window_every: Count = 25  # mix: epochs before the window moves on
    latents: Literal["float32", "bfloat16"] = "float32"  # as stored and scored
    size: Annotated[int, Interval(ge=1, le=8_192)] | None = None  # pixels a side while training; null = the model's
    guidance: Scale | None = None  # by text while training, 1 = none; null = the model's
    shared_noise: bool = False  # all images of a group begin with the same noise


@dataclass(frozen=True, kw_only=True)
class ThoughtsConfig:
    """Thoughts that images are drawn by, and learned with them (UniGRPO)."""

    weight: Weight = 1.0  # of the loss of their tokens; 0: they are given to the images, and not learned
    loss: Literal["grpo", "cross_entropy"] = "grpo"  # cross_entropy: learn those of images above objective.baseline
    result_weight: Weight = 1.0  # of a token behind "So draw", beside 1 of the others
    clip_low: Positive = 0.2
    clip_high: Positive = 0.2
    kl: Weight = 0.0  # weight of the penalty towards the starting weights, a token


@dataclass(frozen=True, kw_only=True)
class SolvedRowsConfig:
    """Rows with their images, learned in every update beside what is rewarded: a micro-batch more."""

    path: str  # a .jsonl or .parquet file of rows with `prompt` and `image`, as `data make` writes them
    rows: Rows = 32  # of an update, on all ranks together
    weight: Positive = 1.0  # of their loss
    noise_draws: Draws = 1  # noise levels drawn for each image
    timestep_shift: Positive = 1.0  # of these noise levels
    augment: Augment | None = None  # another view of a row each time it is drawn


@dataclass(frozen=True, kw_only=True)
class AlarmsConfig:
    """When to stop, after a checkpoint; null = never."""

    log_ratio: Positive | None = 1.0  # largest |log ratio| of a step
    diversity: Share | None = 0.1  # smallest share left of the diversity within groups
    drift: Positive | None = None  # largest change of images' mean brightness or contrast, a share of the first epoch's
    held_out: Positive | None = None  # largest fall of the held-out score below its best
    zero_std_epochs: Count | None = 20  # epochs in a row without a group whose rewards differ
    collapse: Share | None = 0.5  # smallest share left of the best mean reward, both means of ten epochs


@dataclass(frozen=True, kw_only=True)
class GrpoConfig(TrainingConfig):
    """The keys that the trainer of Flow-GRPO takes. An *epoch* samples `prompts_per_epoch` x `group_size` images."""

    variant: GrpoVariant = "flow_grpo"
    epochs: Count
    updates_per_epoch: Few = 1
    passes: Few = 1  # times that an epoch's images are trained on; divides updates_per_epoch
    rows: Rows = 64  # random steps of images in a micro-batch, on each rank
    rollout: RolloutConfig
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    thoughts: ThoughtsConfig | None = None  # null = images are drawn without a thought
    sft: SolvedRowsConfig | None = None  # null = rewards alone
    alarms: AlarmsConfig = AlarmsConfig()

    @property
    def updates(self) -> int:
        return self.epochs * self.updates_per_epoch

    @property
    def updates_per_pass(self) -> int:
        return self.updates_per_epoch // self.passes

    @property
    def images(self) -> int:
        """Of an epoch, on all ranks."""
        return self.rollout.prompts_per_epoch * self.rollout.group_size

    @property
    def bounds(self) -> tuple[int, int]:
        """Random steps are from the first to before the second."""
        rollout = self.rollout
        return rollout.first_step, rollout.last_step if rollout.last_step is not None else rollout.steps - 1

    @property
    def algorithm(self) -> Variant:
        """What `variant` does otherwise."""
        return VARIANTS[self.variant]

    @property
    def window_size(self) -> int:
        """Random steps of each image (of the forward process: noise levels)."""
        if self.algorithm.forward:
            return self.objective.noise_draws
        low, high = self.bounds
        if self.rollout.window is not None:
            return self.rollout.window
        return min(self.algorithm.window_size or high - low, high - low)

    def window(self, epoch: int) -> Window | None:
        """The random steps of an epoch; None: the variant has none."""
        size, place = self.window_size, self.algorithm.window
        if self.algorithm.forward:
            return None
        if place == "drawn":
            return epoch_window(self.seed, epoch, size, self.bounds)
        if place == "sliding":
            return sliding_window(epoch, size, self.bounds, self.rollout.window_every)
        return Window(self.bounds[0], size)

    @property
    def learned_thoughts(self) -> ThoughtsConfig | None:
        """The thoughts, unless their weight is 0."""
        return self.thoughts if self.thoughts is not None and self.thoughts.weight else None

    @property
    def learned_places(self) -> range:
        """What an update trains on for each image: its random steps by number, then its thought as `window_size`."""
        window = self.window_size
        return range(0 if self.objective.image_weight else window, window + (self.learned_thoughts is not None))

    @property
    def rows_an_image(self) -> int:
        return len(self.learned_places)

    @property
    def images_a_request(self) -> int:
        """Images that share a condition: those of a group, or one where each has its own thought."""
        return 1 if self.thoughts is not None else self.rollout.group_size

    def unsharded(self, trained: str) -> str | None:
        """The keys that sharded weights do not allow: a second set of weights, or different work on each rank."""
        if self.algorithm.forward:
            return f"variant={self.variant}"
        if self.thoughts is not None:
            return "thoughts"
        return f"objective.kl with trained={trained}" if self.objective.kl and trained != "lora" else None

    def rows_of(self, images: int) -> int:
        """Rows of an update that so many images of an epoch give."""
        return images * self.rows_an_image // self.updates_per_pass

    def micro_batches(self, ranks: int = 1) -> int:
        """Those of rewarded images in an update, where ranks have equally many images with an advantage."""
        return max(1, -(-self.rows_of(self.images) // (self.rows * ranks)))

    def grad_accumulation_steps(self, ranks: int = 1) -> int:
        """The most micro-batches of an update on a rank, whose images may all be of this update; the last is `sft`."""
        images = min(self.images // self.updates_per_pass, self.images // ranks)
        return max(1, -(-images * self.rows_an_image // self.rows)) + (self.sft is not None)

    def check_ranks(self, ranks: int) -> None:
        """Raises UsageError where ranks cannot draw whole groups; it names the nearest numbers that they can. Likewise
        where there are fewer rows of `sft` than ranks."""
        prompts = self.rollout.prompts_per_epoch
        if prompts % ranks:
            below, above = prompts // ranks * ranks, -(-prompts // ranks) * ranks
            raise UsageError(
                f"rollout.prompts_per_epoch={prompts} cannot be divided among {ranks} devices: each draws whole groups",
                f"The nearest numbers are rollout.prompts_per_epoch={f'{below} or {above}' if below else above}.",
            )
        if self.sft is not None and self.sft.rows < ranks:
            raise UsageError(
                f"sft.rows={self.sft.rows} are fewer than the {ranks} devices", f"Set sft.rows={ranks} or more."
            )
