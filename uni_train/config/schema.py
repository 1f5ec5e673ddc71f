"""Every key that a recipe may hold, with its type and its range. A new key is one new line here.

A recipe names its `kind`; that picks the class below (`KINDS`). Values are checked once, when a recipe is composed
(`uni_train.config.build`), and nowhere else. Shares and probabilities are in [0, 1]; sizes and counts are positive.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from data_gen.registry import set_name

# --- ranges, written beside the field that they bound ---------------------------------------------------------------


def ranged(
    default: Any = dataclasses.MISSING,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
) -> Any:
    """A number (or each number of a list or mapping) with low <= value <= high and value > above."""
    return dataclasses.field(default=default, metadata={"low": low, "high": high, "above": above})


def count(default: Any = dataclasses.MISSING) -> Any:
    """At least one."""
    return ranged(default, low=1)


def share(default: Any = dataclasses.MISSING) -> Any:
    """A probability or a part of a whole."""
    return ranged(default, low=0.0, high=1.0)


def positive(default: Any = dataclasses.MISSING) -> Any:
    """Greater than zero."""
    return ranged(default, above=0.0)


# --- names ----------------------------------------------------------------------------------------------------------

Mode = Literal["normal", "cot"]
EvaluationMode = Literal["normal", "cot", "said"]  # said: the answer in words at once, nothing is drawn
SIX_SETS = ("math1", "math2", "math3", "mapping1", "mapping2", "mapping3")  # of UniSandbox
LEVELS = (1, 2, 3)


# --- model (configs/model/*.yaml) -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How a model thinks and draws."""

    steps: int = count(10)  # Euler steps from noise to image
    timestep_shift: float = positive(1.0)
    cfg_text_scale: float = ranged(1.0, low=0.0)  # 1 = no guidance by text
    cfg_img_scale: float = ranged(1.0, low=0.0)  # 1 = no guidance by input images
    cfg_interval: tuple[float, float] = share((0.4, 1.0))  # guidance acts between these times
    cfg_renorm: Literal["global", "channel", "text_channel"] = "global"
    cfg_renorm_min: float = share(0.0)
    edit_text_scale: float = ranged(1.0, low=0.0)  # the same four where a picture is drawn from images
    edit_img_scale: float = ranged(1.0, low=0.0)
    edit_interval: tuple[float, float] = share((0.0, 1.0))
    edit_renorm: Literal["global", "channel", "text_channel"] = "text_channel"
    max_think_tokens: int = count(64)
    temperature: float = ranged(0.0, low=0.0)  # of thoughts and answers; 0 = greedy


@dataclass(frozen=True, kw_only=True)
class ArchitectureConfig:
    """Sizes of a BAGEL: a decoder with twin weights, a vision encoder, and the latents of a VAE."""

    hidden_size: int = count()
    intermediate_size: int = count()
    layers: int = count()
    heads: int = count()
    kv_heads: int = count()
    image_size: int = count()  # pixels a side of the pictures it draws
    latent_downsample: int = count(8)  # pixels a side of one VAE latent
    latent_channels: int = count(16)
    latent_patch: int = count(1)  # latents a side of one token
    rope_theta: float = positive(1e6)
    vit_patch: int = count(14)
    vit_hidden_size: int = count(1152)
    vit_intermediate_size: int = count(4304)
    vit_layers: int = count(26)
    vit_heads: int = count(16)
    max_text_tokens: int = count(64)


@dataclass(frozen=True, kw_only=True)
class EditingConfig:
    """What Qwen-Image-Edit has beside the sizes above; a size is the side of a square with a picture's area."""

    plus: bool = True  # the form of 2509 and 2511: several images, looked at smaller than drawn from
    latent_size: int = count(1024)  # plus: of shown images as latents
    look_size: int = count(384)  # plus: of shown images as the Qwen2.5-VL sees them
    negative_prompt: str = " "  # what guidance leads away from, and what stands for words that are left out
    positions: Literal["spatial", "sequential"] = "spatial"  # of image tokens; sequential = as diffusers up to 0.42


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One option of configs/model/."""

    name: str
    family: str = "bagel"  # a folder of uni_train/models/
    edits: bool = False  # draws from an image and an instruction, never from words alone
    checkpoint: str | None = None  # 'shipped' = the one inside the package; a folder; null = random weights
    architecture: ArchitectureConfig
    editing: EditingConfig | None = None  # of Qwen-Image-Edit
    sampling: SamplingConfig = SamplingConfig()
    think_batch: int = count(128)  # requests a batch while thinking or answering
    draw_batch: int = count(256)  # requests a batch while drawing
    threads: int | Literal["auto"] = ranged("auto", low=1)  # CPU threads; auto = the cores there are, at most 4


# --- what all recipes have ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    world: Literal["nano", "everyday"] = "nano"  # which objects, and in which words
    distractors: int = ranged(2, low=0)  # mapping: each prompt has 0 to so many extra rules that nobody asks for
    rule_order: Literal["chain", "random"] = "random"  # mapping: chain by chain lets "the next noun" answer everything
    bad_rows: Literal["error", "skip"] = "error"  # sft: rows that cannot be trained on; skipped ones are counted


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW: a linear warm-up, a constant rate, and a decay over the last part of the updates."""

    lr: float = positive()
    betas: tuple[float, float] = share((0.9, 0.95))
    eps: float = positive(1e-8)
    weight_decay: float = ranged(0.0, low=0.0)
    warmup_updates: int = ranged(0, low=0)
    decay: Literal["constant", "linear", "cosine"] = "constant"
    decay_share: float = share(0.5)  # of the updates, at their end
    final_lr: float = share(0.0)  # of lr, reached at the end of the decay
    clip: float = ranged(1.0, low=0.0)  # of the gradient's norm; 0 = no clipping


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """trained=lora: low-rank adapters on the decoder, merged into the weights when training ends."""

    rank: int = count(16)
    alpha: float = positive(32.0)
    dropout: float = share(0.0)
    targets: str = "both"  # understanding, generation, both, or re:PATTERN of whole names of linear layers


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Normal and CoT accuracy, as in Table 3, and of direct answers in words. `n` counts prompts of maths and pairs."""

    n: int = count(256)
    # of tasks (data_gen.registry.sources); math1_seen, mapping1_chain, ... and those of other tasks only if named
    sets: tuple[str, ...] = SIX_SETS
    modes: tuple[EvaluationMode, ...] = ("normal", "cot")
    split: Literal["validation", "test"] = "test"  # choose settings on validation, report test
    every_round: bool = False  # also after each round, not only before and after all
    seed: int = ranged(0, low=0)


@dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """One option of configs/logger/. metrics.jsonl is written whatever is chosen."""

    kind: Literal["none", "wandb"] = "none"
    project: str = "uni_train"
    group: str | None = None
    offline: bool | None = None  # wandb: null = online exactly if a key is configured


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """A model that judges images: behind an OpenAI-compatible address (its key comes from the environment), or a
    checkpoint that the run serves itself. One of `address` and `checkpoint` is given."""

    address: str | None = None  # http://HOST:PORT/v1#MODEL
    checkpoint: str | None = None  # 'shipped' or a folder of weights: a run serves it on this machine while it asks
    dialect: Literal["paper", "nano"] = "paper"  # nano: the few sentences that nano understands
    key_env: str | None = None  # the variable with the key; null = OPENAI_API_KEY for OpenAI's own address, else none
    question: str | None = None  # of a reward; {prompt} stands for the prompt; it must ask for "Score: N", 0 to 10
    connections: int = count(8)  # requests under way at once
    timeout: float = positive(120.0)  # seconds
    retries: int = ranged(5, low=0)
    max_tokens: int = count(1024)


StrategyName = Literal["single", "ddp", "deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3", "fsdp2"]


@dataclass(frozen=True, kw_only=True)
class StrategyConfig:
    """One option of configs/strategy/."""

    kind: StrategyName = "single"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    precision: Literal["32-true", "bf16-true", "bf16-mixed"] = "32-true"
    devices: int = count(1)  # processes a node, one a device; under torchrun: as many as it started
    nodes: int = count(1)
    offload_optimizer: bool = False  # its state in the memory of the CPU, where it steps (deepspeed_*)
    timeout: float = positive(1800.0)  # seconds that ranks wait for one of them before the run ends with its name
    offload_weights: bool = False  # weights there as well, fetched layer by layer (deepspeed_zero3, fsdp2)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The keys of every recipe."""

    recipe: str
    kind: str
    seed: int = ranged(0, low=0)
    name: str | None = None  # of the run folder; null = seed<seed>
    out: str = "runs"
    model: ModelConfig
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig
    ce_weight: float = ranged(1.0, low=0.0)  # of the loss on text
    mse_weight: float = ranged(1.0, low=0.0)  # of the loss on images
    ema: float | None = share(None)  # decay of averaged weights; null = none
    text_dropout: float = share(0.0)  # of training prompts, for classifier-free guidance
    activation_checkpointing: bool = False  # compute activations twice instead of keeping them: less memory
    lora: LoraConfig = LoraConfig()
    checkpoint_every: int = count(100)  # updates
    evaluation: EvaluationConfig = EvaluationConfig()
    judge: JudgeConfig | None = None  # says what images show that no program can read (data.world=everyday)
    logger: LoggerConfig = LoggerConfig()
    strategy: StrategyConfig = StrategyConfig()

    @property
    def run_name(self) -> str:
        return self.name if self.name is not None else f"seed{self.seed}"


# --- kind: stars ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """How much one round samples and trains, where the round does not say so itself."""

    prompts: int = count()
    kept: int | None = ranged(None, low=1)
    updates: int | None = ranged(None, low=1)
    epochs: float | None = positive(None)


@dataclass(frozen=True, kw_only=True)
class RoundConfig:
    """Sample, filter, finetune once. `replay`: set names or 'pretrain' -> share of each batch."""

    task: str  # one that has sets
    level: int = ranged(low=1)
    prompts: int = count()  # sampled, with `kept` at most; a mapping pair counts as two
    kept: int | None = ranged(None, low=1)  # sample until so many samples are kept; a whole mapping pair counts as two
    updates: int | None = ranged(None, low=1)  # one of updates and epochs
    epochs: float | None = positive(None)  # over the kept samples
    replay: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def set_name(self) -> str:
        return set_name(self.task, self.level)


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How rounds follow one another.

    sequential: one after the other (the paper's curriculum). The others sample all rounds first, train once:
    mixed: all levels from the first update; ramp: the mixture moves linearly from the first level to the last;
    threshold: the next level joins when Normal accuracy on the current one reaches `threshold`.
    """

    kind: Literal["sequential", "mixed", "ramp", "threshold"] = "sequential"
    threshold: float = share(0.6)
    check_every: int = count(50)  # updates between two looks at the accuracy
    check_prompts: int = count(64)


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    prompts: int = count()  # an update
    noise_draws: int = count(1)  # noise levels drawn for each prompt's image
    accumulate: int = count(1)  # micro-batches an update is made of: less memory


@dataclass(frozen=True, kw_only=True)
class StarsConfig(RunConfig):
    """Self-training with rejection sampling (UniSandbox 3.4)."""

    kind: Literal["stars"] = "stars"
    level: int | None = ranged(None, low=1)  # for recipes of one level: level=2
    rounds: tuple[RoundConfig, ...]
    # set name -> what a round of it does by default
    budget: dict[str, BudgetConfig] = dataclasses.field(default_factory=dict)
    pretrain_replay: float = share(0.0)  # for rounds[].replay.pretrain in recipes; 0 where a model has no such rows
    schedule: ScheduleConfig = ScheduleConfig()
    candidates: int = count(1)  # pictures drawn a prompt, before the filter
    temperature: float | None = ranged(None, low=0.0)  # of thoughts while sampling; null = model.sampling.temperature
    filter: Literal["self", "judge", "verifier", "none"] = "self"  # judge: the run's `judge`, asked as the model is
    whole_pairs: bool = False  # mapping: keep a sample only if the filter accepts its pair's other one too
    teacher: Literal["base", "current"] = "base"  # who samples the later rounds
    trained: Literal["all", "moe_gen", "lora"] = "all"
    timestep_shift: float = positive(1.0)  # of the noise levels in training
    batch: BatchConfig


# --- kind: pretrain -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    """Rows of each kind in one update. There is no kind (reasoning prompt -> image without a thought): that is
    what STARS is to teach."""

    text_to_image: int = ranged(0, low=0)
    control: int = ranged(0, low=0)  # text -> image behind rules or sums that do not matter
    cot_image: int = ranged(0, low=0)
    cot_text: int = ranged(0, low=0)
    mapping_answer: int = ranged(0, low=0)  # a mapping prompt answered in words at once
    maths_answer: int = ranged(0, low=0)  # a maths prompt answered in words at once
    meanings: int = ranged(0, low=0)  # what every symbol of a set of rules means in the end
    questions: int = ranged(0, low=0)  # the same, asked one after the other in the words of the prompts
    facts: int = ranged(0, low=0)  # expressions of one operation, of every split
    sums: int = ranged(0, low=0)  # expressions and their values
    counting: int = ranged(0, low=0)  # number lines
    compare: int = ranged(0, low=0)  # what is asked against what is seen, both in words
    caption: int = ranged(0, low=0)
    verify: int = ranged(0, low=0)
    noise_draws: int = count(1)  # for each row with a target image
    levels: tuple[int, ...] = ranged(LEVELS, low=1, high=3)  # of the answers; one named twice comes twice as often

    @property
    def rows(self) -> dict[str, int]:
        """Kind -> rows an update, of the kinds that there are."""
        kinds = {kind: n for kind, n in vars(self).items() if kind not in ("noise_draws", "levels")}
        return {kind: n for kind, n in kinds.items() if n}

    @property
    def images(self) -> int:
        """Noised images an update."""
        return self.noise_draws * (self.text_to_image + self.control + self.cot_image)


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """A stretch of the pretraining with a mixture and a rate of its own."""

    updates: int = count()
    lr: float | None = positive(None)  # null: optimizer.lr
    mixture: MixtureConfig


@dataclass(frozen=True, kw_only=True)
class VaeConfig:
    """The tiny VAE, trained first."""

    updates: int = count()
    batch: int = count()
    lr: float = positive()
    kl_weight: float = ranged(1e-6, low=0.0)


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """The shipped nano checkpoint, from data_gen alone."""

    kind: Literal["pretrain"] = "pretrain"
    vae: VaeConfig
    parts: dict[str, PartConfig]  # name -> part, one after the other
    timestep_shift: float = positive(1.0)


# --- kind: sft ------------------------------------------------------------------------------------------------------

Form = Literal["text_to_image", "edit", "conversations", "items"]
Part = Literal["vit", "connector", "understanding", "generation"]


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """Rows on disk; docs/training.md shows the forms."""

    form: Form
    path: str | tuple[str, ...]  # a .jsonl or .parquet file, a folder of Parquet files, or a list of such
    images: str | None = None  # the folder that image paths start from; null = that of the file
    weight: float = positive(1.0)  # how often it is drawn, beside the other sources
    learn: tuple[Literal["thought", "answer", "image"], ...] = ("image",)  # form=items: what of a row
    image_size: tuple[int, int] | None = ranged(None, low=1)  # shortest, longest side as latents; null = as drawn
    vit_size: tuple[int, int] | None = ranged(None, low=1)  # the same for the ViT; null = as when it is asked
    vit_pixels: int | None = ranged(None, low=1)  # most of a row's images together, for the ViT


@dataclass(frozen=True, kw_only=True)
class SftBatchConfig:
    """An update, on each rank: `accumulate` micro-batches of `tokens` tokens, or `rows` examples over all of them."""

    rows: int | None = ranged(None, low=1)
    tokens: int | None = ranged(None, low=1)
    example_tokens: int | None = ranged(None, low=1)  # a longer example is a bad row; null = model...max_text_tokens
    accumulate: int = count(1)
    noise_draws: int = count(1)  # noise levels drawn for each image that is learned


@dataclass(frozen=True, kw_only=True)
class SftHeldOutConfig:
    """Success on prompts of a task while training, by the verifier, drawn as the model always draws."""

    task: str | None = None  # null = no such look
    levels: tuple[int, ...] = ranged((1,), low=1)
    n: int = count(64)  # prompts a level
    every: int = count(250)  # updates
    split: Literal["validation", "test"] = "validation"


@dataclass(frozen=True, kw_only=True)
class SftConfig(RunConfig):
    """Supervised fine-tuning on rows of text and images."""

    kind: Literal["sft"] = "sft"
    sources: dict[str, SourceConfig | None]  # by a name of yours; null leaves one of a base recipe out
    updates: int = count()
    batch: SftBatchConfig
    trained: Literal["all", "moe_gen", "lora"] = "all"
    frozen: tuple[Part, ...] = ()  # parts that are not trained all the same
    timestep_shift: float = positive(1.0)  # of the noise levels in training
    vit_dropout: float = share(0.0)  # of shown images as the ViT sees them, where an image is drawn
    vae_dropout: float = share(0.0)  # of shown images as latents, where an image is drawn
    held_out: SftHeldOutConfig = SftHeldOutConfig()
    evaluate: bool = False  # Normal and CoT accuracy before and after

    @property
    def used_sources(self) -> dict[str, SourceConfig]:
        """The sources that are not null."""
        return {name: source for name, source in self.sources.items() if source is not None}


# --- kind: flow_grpo ------------------------------------------------------------------------------------------------

GrpoVariant = Literal["flow_grpo", "fast", "cps", "dance", "guard", "mix", "diffusion_nft"]


@dataclass(frozen=True, kw_only=True)
class PromptsConfig:
    """What is asked. A task draws prompts of its train split; a file has rows as `data make` writes them."""

    task: str | None = None
    levels: tuple[int, ...] = ranged((1,), low=1)  # in turns
    n: int | None = ranged(None, low=1)  # draws of the task, asked again and again; null = new ones every epoch
    path: str | None = None  # a .jsonl or .parquet file, in place of a task's draws
    images: str | None = None  # the folder that its image paths start from; null = that of the file


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """function: verifier, verifier_dense, self_check, judge; MODULE:FUNCTION or FILE.py:FUNCTION (trl's contract)."""

    function: str
    weight: float = 1.0
    judge: JudgeConfig | None = None  # function=judge
    apart: bool = False  # ask it in a thread, some pictures at a time, while others are drawn; a judge always is
    patience: float = positive(600.0)  # seconds that such a one may take longer than the drawing


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How pictures are drawn for training."""

    prompts_per_epoch: int = count()
    group_size: int = ranged(low=2)  # pictures a prompt
    steps: int = count()
    noise_level: float | None = ranged(None, low=0.0)  # null = the variant's published one
    window: int | None = ranged(None, low=1)  # random steps; null = all between first_step and last_step (fast, mix: 2)
    first_step: int = ranged(0, low=0)
    last_step: int | None = ranged(None, low=1)  # random steps end before it; null = the last step is Euler's
    window_every: int = count(25)  # mix: epochs before the window moves on
    latents: Literal["float32", "bfloat16"] = "float32"  # as stored and scored


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is learned from them."""

    clip_low: float = positive(1e-3)
    clip_high: float = positive(1e-3)
    advantage_clip: float = positive(5.0)
    kl: float = ranged(0.0, low=0.0)  # weight of the penalty towards the starting weights; diffusion_nft: the anchor
    scale_rewards: Literal["group", "batch", "each"] = "group"  # whose deviation divides advantages; each: by reward
    drop_zero_std: bool = True  # leave out groups whose rewards are all equal
    noise_draws: int = count(4)  # diffusion_nft: noise levels drawn for each picture
    nft_beta: float = positive(1.0)
    nft_decay: float = share(0.9)  # diffusion_nft: how much of the drawing weights is kept after an epoch
    on_policy_check: float = positive(0.5)  # before weights change, |log ratio| may be this share of the clip range


@dataclass(frozen=True, kw_only=True)
class AlarmsConfig:
    """When to stop, after a checkpoint; null = never."""

    log_ratio: float | None = positive(1.0)  # largest |log ratio| of a step
    diversity: float | None = share(0.1)  # smallest share left of the spread within groups
    held_out: float | None = positive(None)  # largest fall of the held-out score below its best
    zero_std_epochs: int | None = ranged(20, low=1)  # epochs in a row without a group whose rewards differ


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """Success on prompts of the task that are not trained on, by the verifier, drawn as the model always draws."""

    n: int = ranged(64, low=0)  # prompts a level; 0 = no such look
    levels: tuple[int, ...] | None = ranged(None, low=1)  # null = prompts.levels
    every: int = count(10)  # epochs
    split: Literal["validation", "test"] = "validation"


@dataclass(frozen=True, kw_only=True)
class FlowGrpoConfig(RunConfig):
    """Reinforcement of a flow by rewards on its pictures."""

    kind: Literal["flow_grpo"] = "flow_grpo"
    variant: GrpoVariant = "flow_grpo"
    epochs: int = count()
    updates_per_epoch: int = count(1)
    rows: int = count(64)  # random steps of pictures in a micro-batch
    prompts: PromptsConfig
    rewards: dict[str, RewardConfig | None]  # by a name of yours; null leaves one of a base recipe out
    rollout: RolloutConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    alarms: AlarmsConfig = AlarmsConfig()
    held_out: HeldOutConfig = HeldOutConfig()
    trained: Literal["all", "moe_gen", "lora"] = "all"
    evaluate: bool = False  # Normal and CoT accuracy before and after

    @property
    def used_rewards(self) -> dict[str, RewardConfig]:
        """The rewards that are not null."""
        return {name: reward for name, reward in self.rewards.items() if reward is not None}


# --- kind: knowledge ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CharactersConfig:
    """Who is invented. Forward trains a model a character, inverse one a pair: n and n / 2 models."""

    n: int = count(10)
    split: Literal["train", "validation", "test"] = "test"  # which names; choose settings on validation, report test
    seed: int = ranged(0, low=0)  # who they are, the same whatever the run's seed
    path: str | None = None  # a folder in the published layout: its first n characters instead


@dataclass(frozen=True, kw_only=True)
class KnowledgeConfig(RunConfig):
    """Knowledge injected in text, asked for in pictures (UniSandbox 4)."""

    kind: Literal["knowledge"] = "knowledge"
    characters: CharactersConfig = CharactersConfig()
    directions: tuple[Literal["forward", "inverse"], ...] = ("forward", "inverse")
    modes: tuple[Mode, ...] = ("normal", "cot")
    draws: int = count(1)  # pictures of each question in each mode
    epochs: int = count()  # through the lessons, at most
    least_epochs: int = ranged(0, low=0)  # before the exam may end the training
    exam_every: int = count(10)  # updates between two exams
    rows: int = count()  # lessons an update
    accumulate: int = count(1)  # micro-batches an update is made of: less memory
    trained: Literal["understanding", "lora"] = "understanding"
    keep_models: bool = True  # each model's weights, after its pictures are drawn


Config = StarsConfig | PretrainConfig | SftConfig | FlowGrpoConfig | KnowledgeConfig
KINDS: dict[str, type[Config]] = {
    "stars": StarsConfig,
    "pretrain": PretrainConfig,
    "sft": SftConfig,
    "flow_grpo": FlowGrpoConfig,
    "knowledge": KnowledgeConfig,
}
