"""What a person may set about reinforcement. Plain values only, so that it can be made from a recipe without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from uni_train.errors import UsageError
from uni_train.training.settings import SupervisedSettings

Variant = Literal["flow_grpo", "fast", "cps", "dance", "guard", "mix", "diffusion_nft"]
VARIANTS: tuple[Variant, ...] = ("flow_grpo", "fast", "cps", "dance", "guard", "mix", "diffusion_nft")
NOISE_LEVELS = {"flow_grpo": 0.7, "fast": 0.7, "cps": 0.7, "dance": 0.3, "guard": 0.7, "mix": 0.7}
"""Published ones, where `noise_level` is not given."""


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """When a run is stopped, after a checkpoint. None: never."""

    log_ratio: float | None = 1.0
    """Largest |log ratio| of a step: beyond it the policy has left the samples that it is judged by."""
    diversity: float | None = 0.1
    """Smallest share that is left of the spread within groups of pictures, against the first epoch's."""
    drift: float | None = None
    """Largest change of the mean brightness or contrast of an epoch's images, as a share of the first epoch's."""
    held_out: float | None = None
    """Largest fall of the held-out score below its best."""
    zero_std_epochs: int | None = 20
    """Epochs in a row without any group whose rewards differ: nothing can be learned any more."""


@dataclass(frozen=True, kw_only=True)
class ThoughtSettings:
    """How thoughts are learned that images are drawn by (thoughts.py)."""

    weight: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the weights that the run starts from, a token."""


@dataclass(frozen=True, kw_only=True)
class FlowGrpoSettings:
    """One reinforced fit. An *epoch* samples `prompts_per_epoch` x `group_size` images and makes `updates_per_epoch`
    updates."""

    variant: Variant = "flow_grpo"
    epochs: int = 100
    updates_per_epoch: int = 1
    passes: int = 1
    """Times that an epoch's images are trained on; divides `updates_per_epoch`."""
    prompts_per_epoch: int = 24
    group_size: int = 8
    """Pictures a prompt."""
    steps: int = 10
    """Of drawing while training."""
    noise_level: float | None = None
    window: int | None = None
    """Random steps of a picture; None: all between `first_step` and `last_step` (fast, mix: 2)."""
    first_step: int = 0
    last_step: int | None = None
    """The step before which random steps end; None: the last one, which is Euler's."""
    window_every: int = 25
    """mix: epochs before the window moves on."""
    noise_draws: int = 4
    """diffusion_nft: noise levels drawn for each picture."""
    clip_low: float = 1e-3
    clip_high: float = 1e-3
    advantage_clip: float = 5.0
    kl: float = 0.0
    """Weight of the penalty towards the weights that the run starts from (diffusion_nft: of the anchor)."""
    scale_rewards: Literal["group", "batch", "each"] = "group"
    """Advantages are divided by the deviation of the group or the batch; each: every reward by itself, then summed."""
    drop_zero_std: bool = True
    """Leave out groups whose rewards are all equal."""
    nft_beta: float = 1.0
    nft_decay: float = 0.9
    """diffusion_nft: how much of the sampling weights is kept after an epoch."""
    rows: int = 64
    """Random steps of pictures in a micro-batch, on each rank."""
    draw_rows: int = 256
    """Pictures drawn together."""
    latents: Literal["float32", "bfloat16"] = "float32"
    """How latents are stored and scored."""
    size: int | None = None
    """Pixels a side of the images that are trained on; None: what the model draws."""
    guidance: float | None = None
    """Scale of the guidance by text that `model.sampling_at` is asked for; None: the model's own."""
    on_policy: Literal["check", "trust", "recompute"] = "check"
    """Before weights have changed, ratios must be 1 (check) or need not (trust). recompute: the micro-batches of
    training score the steps once more, in place of what was scored while drawing; then they are checked."""
    on_policy_check: float = 0.5
    """Before weights have changed, |log ratio| may be this share of the clip range."""
    image_weight: float = 1.0
    """Of the loss of the random steps; of use beside `thoughts`."""
    penalty: Literal["step", "velocity"] = "step"
    """What `kl` weighs: the divergence of a step, or the squared distance of velocities (UniGRPO)."""
    thoughts: ThoughtSettings | None = None
    """None: images are drawn without thoughts."""
    alarms: AlarmSettings = AlarmSettings()
    seed: int = 0
    stage: str = "grpo"

    def check(self, ranks: int = 1) -> None:
        """Raises UsageError for sizes that do not fit together, with the nearest that do."""
        if self.group_size < 2:
            raise UsageError(f"group_size={self.group_size}: a group is compared with itself, so it needs at least 2")
        if self.prompts_per_epoch % ranks:
            below, above = self.prompts_per_epoch // ranks * ranks, -(-self.prompts_per_epoch // ranks) * ranks
            nearest = f"{below} or {above}" if below else str(above)
            raise UsageError(
                f"prompts_per_epoch={self.prompts_per_epoch} cannot be divided among {ranks} devices: each draws whole "
                "groups",
                f"The nearest numbers are prompts_per_epoch={nearest}.",
            )
        pictures = self.prompts_per_epoch * self.group_size
        if self.updates_per_epoch % self.passes or pictures % self.updates_per_pass:
            near = [n * self.passes for n in range(1, pictures + 1) if pictures % n == 0]
            best = min(near, key=lambda n: abs(n - self.updates_per_epoch))
            passes = f" in passes={self.passes}" if self.passes > 1 else ""
            raise UsageError(
                f"prompts_per_epoch={self.prompts_per_epoch} x group_size={self.group_size}: {pictures} pictures "
                f"cannot be divided into updates_per_epoch={self.updates_per_epoch} equal updates{passes}",
                f"The nearest number of updates is {best}.",
            )
        if self.thoughts is not None and self.variant == "diffusion_nft":
            raise UsageError(
                "variant=diffusion_nft has no thoughts: they need the weights that sampled", "thoughts=null."
            )
        if self.variant != "diffusion_nft":
            low, high = self.bounds
            if not 0 <= low < high <= self.steps or (self.window is not None and self.window > high - low):
                raise UsageError(
                    f"window={self.window} from first_step={low} to last_step={high} does not fit into "
                    f"steps={self.steps}",
                    "Raise steps, or lower the window.",
                )
            if high == self.steps and self.variant == "cps":
                raise UsageError(f"last_step={high}: the last step of cps has no noise", f"Use last_step={high - 1}.")

    @property
    def bounds(self) -> tuple[int, int]:
        """Random steps are from the first to before the second."""
        return self.first_step, self.last_step if self.last_step is not None else self.steps - 1

    @property
    def window_size(self) -> int:
        """Random steps of each picture (diffusion_nft: noise levels)."""
        if self.variant == "diffusion_nft":
            return self.noise_draws
        low, high = self.bounds
        if self.window is not None:
            return self.window
        return min(2, high - low) if self.variant in ("fast", "mix") else high - low

    @property
    def rows_an_image(self) -> int:
        """What an update trains on for each image: its random steps, and its thought."""
        return self.window_size + (self.thoughts is not None)

    @property
    def updates(self) -> int:
        return self.epochs * self.updates_per_epoch

    @property
    def updates_per_pass(self) -> int:
        return self.updates_per_epoch // self.passes

    def grad_accumulation_steps(self, ranks: int = 1) -> int:
        """Micro-batches of an update on each rank, if every group can teach something."""
        rows = self.prompts_per_epoch * self.group_size * self.rows_an_image // self.updates_per_pass
        return max(1, -(-rows // (self.rows * ranks)))


def with_layout(settings: SupervisedSettings, grpo: FlowGrpoSettings) -> SupervisedSettings:
    """The optimizer's settings with the numbers of updates and micro-batches that follow from the rollouts."""
    micros = grpo.grad_accumulation_steps(settings.devices * settings.num_nodes)
    return replace(settings, updates=grpo.updates, accumulate=micros, seed=grpo.seed, stage=grpo.stage)
