"""The sections of recipes that models and training take, with the type and range of every key.

A recipe's own keys are those of its kind (`uni_train/recipes`). Values are checked once, when a recipe is composed
(`uni_train.config.build`), and nowhere else. Shares and probabilities are in [0, 1]; sizes and counts are positive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from annotated_types import Interval

from uni_train.core.addresses import SERVICES, checked_address
from uni_train.core.errors import UsageError

# --- ranges: the largest values are far beyond what anybody trains, and far below what takes a machine down -----------

Share = Annotated[float, Interval(ge=0.0, le=1.0)]  # a probability, or a part of a whole
Decay = Annotated[float, Interval(ge=0.0, lt=1.0)]  # of a moving average
Positive = Annotated[float, Interval(gt=0.0, le=1e6)]
Weight = Annotated[float, Interval(ge=0.0, le=1e6)]  # of a part of the loss; 0 = without
Scale = Annotated[float, Interval(ge=0.0, le=1_000.0)]  # of guidance or noise
Temperature = Annotated[float, Interval(ge=0.0, le=100.0)]
Seconds = Annotated[float, Interval(gt=0.0, le=604_800.0)]  # at most a week
Dollars = Annotated[float, Interval(ge=0.0, le=1e6)]
Seed = Annotated[int, Interval(ge=0, le=2**63 - 1)]
Count = Annotated[int, Interval(ge=1, le=10_000_000)]  # of what is done one after the other: updates, prompts
CountOrZero = Annotated[int, Interval(ge=0, le=10_000_000)]  # the same, or 0
Prompts = Annotated[int, Interval(ge=1, le=100_000)]  # of prompts of a set that is measured
Few = Annotated[int, Interval(ge=1, le=1_000)]  # layers, heads, steps of drawing, candidates
Draws = Annotated[int, Interval(ge=1, le=256)]  # of noise levels for one image
Rows = Annotated[int, Interval(ge=1, le=65_536)]  # of one batch or update
Size = Annotated[int, Interval(ge=1, le=262_144)]  # of a layer
Pixels = Annotated[int, Interval(ge=1, le=8_192)]  # a side of an image
Tokens = Annotated[int, Interval(ge=1, le=1_048_576)]
Level = Annotated[int, Interval(ge=1, le=3)]  # of UniSandbox
TaskLevel = Annotated[int, Interval(ge=1, le=1_000)]  # of any task; the task says which it has

# --- names ----------------------------------------------------------------------------------------------------------

Mode = Literal["normal", "cot"]
MazeStyle = Literal["classic", "bold", "blocks", "navy", "sand", "slate", "night", "varied", "nano"]
Augment = Literal["symmetries"]  # of a task that has them: another view of an item, as likely as it
Quantised = Literal["nf4", "int8", "fp8"]  # forms of weights (uni_train/models/quantised.py)
EvaluationMode = Literal["normal", "cot", "said"]  # said: the answer in words at once, nothing is drawn
SIX_SETS = ("math1", "math2", "math3", "mapping1", "mapping2", "mapping3")  # of UniSandbox
LEVELS = (1, 2, 3)


# --- model (configs/model/*.yaml) -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How a model thinks and draws."""

    steps: Few = 10  # Euler steps from noise to image
    timestep_shift: Positive = 1.0
    cfg_text_scale: Scale = 1.0  # 1 = no guidance by text
    cfg_img_scale: Scale = 1.0  # 1 = no guidance by input images
    cfg_interval: tuple[Share, Share] = (0.4, 1.0)  # guidance acts between these times
    cfg_renorm: Literal["global", "channel", "text_channel"] = "global"
    cfg_renorm_min: Share = 0.0
    edit_text_scale: Scale = 1.0  # the same four where an image is drawn from images
    edit_img_scale: Scale = 1.0
    edit_interval: tuple[Share, Share] = (0.0, 1.0)
    edit_renorm: Literal["global", "channel", "text_channel"] = "text_channel"
    max_think_tokens: Tokens = 64
    temperature: Temperature = 0.0  # of thoughts and answers; 0 = greedy
    # pipelines of diffusers: a step takes all but the first layer from an earlier one while that layer's output changes
    # by less; null = exact
    first_block_cache: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    # BAGEL: how an answer takes turns at writing and drawing; null = it does not
    interleaving: Literal["chain", "thinkmorph", "zebra_cot"] | None = None
    max_images: Few | None = None  # most images of such an answer; null = 3, of zebra_cot 10


@dataclass(frozen=True, kw_only=True)
class ArchitectureConfig:
    """Sizes of a decoder, a vision encoder, and the latents of a VAE; each family takes those that it has."""

    hidden_size: Size
    intermediate_size: Size
    layers: Few
    heads: Few
    kv_heads: Few
    image_size: Pixels  # pixels a side of the images it draws
    latent_downsample: Few = 8  # pixels a side of one VAE latent
    latent_channels: Few = 16
    latent_patch: Few = 1  # latents a side of one token
    rope_theta: Annotated[float, Interval(gt=0, le=1e12)] = 1e6
    vit_patch: Few = 14
    vit_hidden_size: Size = 1152
    vit_intermediate_size: Size = 4304
    vit_layers: Few = 26
    vit_heads: Few = 16
    max_text_tokens: Tokens = 64


@dataclass(frozen=True, kw_only=True)
class EditingConfig:
    """What Qwen-Image-Edit has beside the sizes above; a size is the side of a square with an image's area."""

    plus: bool = True  # the form of 2509 and 2511: several images, looked at smaller than drawn from
    latent_size: Pixels = 1024  # plus: of input images as latents
    look_size: Pixels = 384  # plus: of input images as the Qwen2.5-VL reads them
    negative_prompt: str = " "  # what guidance leads away from, and what stands for words that are left out
    positions: Literal["spatial", "sequential"] = "spatial"  # of image tokens; sequential = as diffusers up to 0.42


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One option of configs/model/."""

    name: str
    family: str  # a folder of uni_train/models/
    edits: bool = False  # an editor, whose tasks show an image
    trains: bool | Literal["texts"] = True  # false: recipes refuse it; texts: those that train on images refuse it
    thinks: bool = True  # draws by thoughts; recipes with thoughts refuse a model that does not
    puzzles: tuple[str, ...] = ()  # nano_edit: whose prompts it reads beside that of mazes
    checkpoint: str | None = None  # 'shipped' = the one inside the package; a folder; null = random weights
    architecture: ArchitectureConfig
    editing: EditingConfig | None = None  # of Qwen-Image-Edit
    sampling: SamplingConfig = SamplingConfig()
    weights: Quantised | None = None  # of the decoder, frozen, by torchao; null = as stored
    # pixels a side of VAE tiles of larger images (BAGEL, Qwen-Image-Edit, diffusers), in steps of 32; null = whole
    vae_tile: Annotated[int, Interval(ge=64, le=8_192)] | None = None
    compile: bool = False  # steps of writing and drawing by torch.compile: minutes at first; differs by rounding
    think_batch: Rows = 128  # requests a batch while thinking or answering
    draw_batch: Rows = 256  # requests a batch while drawing
    threads: Few | Literal["auto"] = "auto"  # CPU threads; auto = the cores there are, at most 4


# --- what all recipes have ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    world: Literal["nano", "everyday"] = "nano"  # which objects, and in which words
    # mapping: each prompt has 0 to so many extra rules that nobody asks for
    distractors: Annotated[int, Interval(ge=0, le=6)] = 2
    rule_order: Literal["chain", "random"] = "random"  # mapping: chain by chain lets "the next noun" answer everything
    balanced: bool = False  # maths: questions on which no trivial strategy exceeds chance
    maze_side: Pixels | None = None  # mazes: of their images; null = 512, in the nano style what each size needs
    maze_style: MazeStyle | None = None  # mazes: null = varied, in the nano world nano
    bad_rows: Literal["error", "skip"] = "error"  # rows of your files that cannot be trained on


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW: a linear warm-up, a constant rate, and a decay over the last part of the updates."""

    lr: Positive
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    eps: Positive = 1e-8
    weight_decay: Weight = 0.0
    warmup_updates: CountOrZero = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    decay_share: Share = 0.5  # of the updates, at their end
    final_lr: Share = 0.0  # of lr, reached at the end of the decay
    clip: Weight = 1.0  # of the gradient's norm; 0 = no clipping
    state: Literal["full", "8bit"] = "full"  # of the moments: 8bit = by torchao, in blocks of 256


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """trained=lora: low-rank adapters on the decoder, merged into the weights when training ends."""

    rank: Size = 16
    alpha: Positive = 32.0
    dropout: Share = 0.0
    targets: str = "both"  # understanding, generation, both, or re:PATTERN of whole names of linear layers

    def only_generation(self, trained: str, frozen: Collection[str] = ()) -> bool:
        """Whether `trained` leaves all weights that text and images to look at pass as they are."""
        if trained == "lora":
            return self.targets == "generation"
        return trained == "moe_gen" or {"vit", "connector", "understanding"} <= {*frozen}


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Normal and CoT accuracy, as in Table 3, and of direct answers in words. `n` counts prompts of maths and pairs."""

    n: Prompts = 256
    # of tasks (data_gen.registry.sources); math1_seen, mapping1_chain, ... and those of other tasks only if named
    sets: tuple[str, ...] = SIX_SETS
    modes: tuple[EvaluationMode, ...] = ("normal", "cot")
    split: Literal["validation", "test"] = "test"  # choose settings on validation, report test
    every_round: bool = False  # also after each round, not only before and after all
    redraw: Few = 1  # the most images of a sample: the model judges its own, and draws again until it accepts one
    seed: Seed = 0


@dataclass(frozen=True, kw_only=True)
class RetentionConfig:
    """What a run does not train, measured with the weights that it starts from and with those that it ends with."""

    sets: tuple[str, ...] = ()  # of tasks; all = every set that the model draws and the run does not train
    prompts: str | None = None  # a .txt, .jsonl or .parquet file of prompts, drawn; a program scores those of items
    rows: str | None = None  # their loss: a file or folder as for sft, or pretrain: as the model's own pretraining
    n: Prompts = 32  # items a set, prompts and rows

    def __bool__(self) -> bool:
        """Whether anything is measured."""
        return bool(self.sets or self.prompts or self.rows)


@dataclass(frozen=True, kw_only=True)
class LoggerConfig:
    """One option of configs/logger/. metrics.jsonl is written whatever is chosen."""

    kind: Literal["none", "wandb"] = "none"
    project: str = "uni_train"
    group: str | None = None
    offline: bool | None = None  # wandb: null = online exactly if a key is configured


# --- servers that are asked (uni_train.core.http_client) --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How a server is asked over HTTP."""

    # the variable with the key; null = that of the service at the address (OPENAI_API_KEY of OpenAI), else no key
    key_env: str | None = None
    connections: Few = 8  # requests under way at once
    timeout: Seconds = 120.0  # seconds, of one attempt to its last byte
    retries: Annotated[int, Interval(ge=0, le=100)] = 5  # of what may pass: no connection, no reply in time, 429, 5xx
    patience: Seconds = 600.0  # seconds of a request with all its retries; of a video until it is made
    extra_body: dict[str, Any] = field(default_factory=dict)  # more keys of a request's body: quality; never a secret

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be meant."""
        section = type(self).__name__.removesuffix("Config").lower()  # judge, remote
        if any("key" in name.lower() or "token" in name.lower() for name in self.extra_body):
            raise UsageError(f"a key has no place in {section}.extra_body", f"Name its variable: {section}.key_env.")


@dataclass(frozen=True, kw_only=True)
class RemoteConfig(ServerConfig):
    """A model behind an address, URL#MODEL."""

    timeout: Seconds = 300.0  # seconds, of one attempt to its last byte
    revision: str = ""  # what is behind the model's name; other revisions have other stored answers
    temperature: Temperature | None = None  # of texts; null = the server's
    max_tokens: Tokens | None = None  # of texts; null = the server's
    text: str = "chat"  # the dialect of texts: chat, responses, gemini or a plug-in's (docs/serving.md)
    drawing: str = "images"  # of images: images, chat, responses, gemini, ark; of videos: videos, veo, seedance
    image_hosts: tuple[str, ...] = ()  # others that images and videos are fetched from: [cdn.example.com, .volces.com]
    think_system: str | None = None  # the system prompt that asks for a thought; null = BAGEL's
    thoughts: Literal["reply", "reasoning"] = "reply"  # reasoning: the trace that comes with the reply to the question


@dataclass(frozen=True, kw_only=True)
class JudgeConfig(ServerConfig):
    """A model that judges images and texts. One of `model` and `checkpoint` is given."""

    model: str | None = None  # URL#MODEL of an OpenAI-compatible server, or SERVICE/MODEL such as openai/gpt-4o
    checkpoint: str | None = None  # 'shipped' or a folder of weights: a run serves it on this machine while it asks
    revision: str = ""  # what is behind the model's name; it replaces the address in what is stored
    dialect: Literal["paper", "nano"] = "paper"  # nano: the few sentences that nano understands
    # how a question is asked (eval/judges/ways.py)
    way: Literal["published", "binary", "chain_of_thought", "majority", "confidence", "tournament"] = "published"
    draws: Few = 5  # of majority and confidence
    first_draw: CountOrZero = 0  # its number: other numbers are other replies
    temperature: Temperature | None = None  # null = 0; 0.7 of several draws
    seed: Seed | None = None  # of the first draw; null = left to the server
    max_tokens: Tokens = 1024  # of a reply
    attempts: Few = 3  # times that it is asked until a reply answers
    small: tuple[JudgeConfig, ...] = ()  # judges that are asked first; this one only about what they do not settle
    sure: Share = 0.8  # a small judge that states less confidence settles nothing
    price: tuple[Dollars, Dollars] | None = None  # dollars a million tokens, read and written
    cost_limit: Dollars | None = None  # dollars for judging an evaluation, earlier starts included; needs a price
    question: str | None = None  # of a reward: filter, or words with {prompt} that ask for "Score: N", 0 to 10
    served: str = ""  # what its server says of itself; set by the program

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be meant."""
        super().__post_init__()
        if self.model is not None:
            _check_judge_name(self.model)
        if self.dialect == "nano" and self.way not in ("published", "majority"):
            raise UsageError(f"nano cannot be asked by judge.way={self.way}", "It knows published and majority.")
        if self.way == "majority" and self.draws % 2 == 0:
            raise UsageError(f"a majority of judge.draws={self.draws} may be a tie", "Ask an odd number of draws.")
        if self.votes > 1 and self.temperature == 0:
            raise UsageError(
                f"judge.way={self.way} asks {self.draws} draws, which at temperature 0 are one reply",
                "Set judge.temperature above 0, such as 0.7.",
            )
        if self.cost_limit is not None and self.price is None:
            raise UsageError("judge.cost_limit needs a price", "judge.price=[1.25,10]: dollars a million tokens.")
        self._check_small()

    def _check_small(self) -> None:
        if self.small and sum(judge.votes for judge in self.small) < 2 and self.small[0].way != "confidence":
            raise UsageError(
                "one small judge that is asked once is never in doubt: all would be its own",
                "Name a second one in judge.small, or ask it by way=majority or way=confidence.",
            )
        if self.model is not None and self.name in (judge.name for judge in self.small):
            raise UsageError(
                f"a small judge is called {self.name}, as the large one",
                "Scores say by name who made them: serve one of the two under another name.",
            )
        if "tournament" in (self.way, *(judge.way for judge in self.small)) and self.small:
            raise UsageError("a cascade settles samples one by one, a tournament all of a case", "Choose one of them.")

    @property
    def name(self) -> str:
        """The model's name: behind the # of an address, else with its service."""
        return str(self.model).rpartition("#")[2]

    @property
    def base_url(self) -> str | None:
        """The address of its server, with /v1 where it has no path; None for a service's."""
        address = str(self.model).rpartition("#")[0]
        return checked_address(address) if address else None

    @property
    def address(self) -> str:
        """URL#MODEL of where it is asked, a service's too."""
        service, _, name = self.name.partition("/")
        return f"{self.base_url}#{self.name}" if self.base_url else f"{SERVICES[service][0]}#{name}"

    @property
    def where(self) -> str:
        """For messages: " at http://...", or "" for a service's."""
        return f" at {self.base_url}" if self.base_url else ""

    @property
    def votes(self) -> int:
        """How many draws one verdict takes."""
        return self.draws if self.way in ("majority", "confidence") else 1

    @property
    def effective_temperature(self) -> float:
        """The temperature that it is asked with."""
        return self.temperature if self.temperature is not None else 0.7 if self.votes > 1 else 0.0

    def dollars(self, read: int, written: int) -> float | None:
        """What tokens cost; None without a price."""
        return None if self.price is None else (read * self.price[0] + written * self.price[1]) / 1e6

    @property
    def label(self) -> str:
        """The way in words: "published", "majority of 5", "published, after small (published)"."""
        own = self.way.replace("_", " ") + (f" of {self.votes}" if self.votes > 1 else "")
        before = " and ".join(f"{judge.name} ({judge.label})" for judge in self.small)
        return f"{own}, after {before}" if before else own

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides a reply besides the question itself; JSON-able, without secrets."""
        revision = self.revision or self.served
        address = None if revision else self.base_url
        who = {"model": self.name, "revision": revision, "base_url": address, "temperature": self.effective_temperature}
        return who | {"max_tokens": self.max_tokens, "seed": self.seed, "provider_args": dict(self.extra_body)}

    @property
    def protocol(self) -> dict[str, Any]:
        """The identity, and in what words and which way it is asked: what makes two judgings the same."""
        way = {"way": self.way, "draws": self.votes} if self.way != "published" else {}
        small = {"small": [judge.protocol for judge in self.small], "sure": self.sure} if self.small else {}
        return {**self.identity, "dialect": self.dialect, **way, **small}

    @property
    def configured(self) -> JudgeConfig:
        """Without what its server says, which it does only while it is up."""
        return replace(self, served="", small=tuple(judge.configured for judge in self.small))

    @property
    def key(self) -> str:
        """Hash of the identity."""
        plain = json.dumps(self.identity, sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.blake2b(plain.encode(), digest_size=16).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """For evaluation.json: the identity, and how it is asked."""
        names = ("dialect", "way", "attempts", "connections", "cost_limit", "price", "sure")
        how = {name: getattr(self, name) for name in names} | {"small": [judge.to_dict() for judge in self.small]}
        return {"name": self.name, **self.identity, "draws": self.votes, **how}


def _check_judge_name(model: str) -> None:
    """Raises UsageError for what is neither URL#MODEL nor SERVICE/MODEL. Shows no secret."""
    address, _, name = model.rpartition("#")
    if "://" in model or address:
        checked_address(address or model.partition("#")[0])
        if not address or not name:
            raise UsageError("judge.model does not say which model", "Write http://HOST:PORT/v1#MODEL.")
    elif name.partition("/")[0] not in SERVICES or not name.partition("/")[2]:
        raise UsageError(
            f"judge.model={model!r:.80} is no judge",
            f"Write SERVICE/MODEL with one of {', '.join(SERVICES)}; or http://HOST:PORT/v1#MODEL of a server.",
        )


# --- eval, watch, evaluate ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CostsConfig:
    """What `eval --plan` reckons with."""

    seconds: dict[str, Seconds] = field(default_factory=dict)  # of a call on one GPU: {draw: 9, think: 4}
    gpu_hour: Dollars | None = None  # dollars of an hour of one GPU
    image_tokens: Size = 1000  # of an image, as the judge counts it
    reply_tokens: Size = 200  # of a judge's reply


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """What a checkpoint is asked, and who scores it: the keys of `uni_train eval`, `watch` and `evaluate`."""

    benchmarks: tuple[str, ...] = ("unisandbox",)  # [all] = every one
    data: dict[str, str] = field(default_factory=dict)  # benchmark -> folder of its published files
    world: Literal["nano", "everyday"] | None = None  # of generated questions; null = nano's for nano, else everyday
    n: Prompts = 100  # generated questions of each set
    split: Literal["test", "validation", "train"] = "test"  # of generated questions
    sets: tuple[str, ...] = ()  # such as [math1,spatial]; [] = all
    settings: tuple[str, ...] = ()  # such as [normal,cot]; [] = all, but said (answers in words)
    subset: Count | None = None  # about so many cases of each benchmark, over all its sets; null = all
    k: Few = 1  # draws of each case
    redraw: Few = 1  # the most images of a draw: the model judges its own, and draws again until it accepts one
    seed: Seed = 0  # of the draws and the subset
    # benchmark -> its own options, which `eval --help-benchmark NAME` lists
    options: dict[str, dict[str, str | int | float | tuple[str, ...]]] = field(default_factory=dict)
    compat: Literal["paper", "official"] = "paper"  # where paper and published code differ; official = the code
    verifier: Literal["program", "judge"] = "program"  # judge = it also scores what a program could
    weights: Quantised | None = None  # of the decoder, in 4 or 8 bits; null = as stored, or as its run has them
    compile: bool = False  # steps of writing and drawing by torch.compile: minutes at first; differs by rounding
    sampling: dict[str, Any] = field(default_factory=dict)  # replaces settings of the model: {steps: 10}
    batch: Rows | None = None  # requests at once; null = the model's
    devices: Few = 1  # processes that share the questions, one a GPU; they change no number
    text_model: str | None = None  # another model that thinks and answers, where the checkpoint draws alone
    remote: RemoteConfig = RemoteConfig()  # how a model behind an address is asked
    retry_failed: bool = False  # make calls again that brought no answer
    judge: JudgeConfig | None = None  # scores what no program can; null = those sets have no score
    out: str = "evals"  # folder of evaluations
    store: str | None = None  # folder of finished calls and replies; null = store in `out`
    name: str | None = None  # of the evaluation's folder; null = model, benchmarks and a hash
    logger: LoggerConfig = LoggerConfig()
    costs: CostsConfig = CostsConfig()

    def __post_init__(self) -> None:
        """Raises UsageError for folders that cannot be."""
        expect_folders(out=self.out, store=self.store, name=self.name)
        if self.name is not None and ("/" in self.name or self.name.startswith(".")):
            raise UsageError(f"name must be usable as a folder name, not {self.name!r:.60}", "out is its place.")

    @property
    def store_folder(self) -> str:
        return self.store or f"{self.out}/store"


def expect_folders(**folders: str | None) -> None:
    """Raises UsageError for a key that names no folder."""
    for key, value in folders.items():
        if value is not None and (not value.strip() or not value.isprintable()):
            raise UsageError(f"{key} must be the name of a folder, not {value!r:.60}")


StrategyName = Literal["single", "ddp", "deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3", "fsdp2"]


@dataclass(frozen=True, kw_only=True)
class StrategyConfig:
    """One option of configs/strategy/."""

    kind: StrategyName = "single"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    precision: Literal["32-true", "bf16-true", "bf16-mixed"] = "32-true"
    devices: Few = 1  # processes a node, one a device; under torchrun: as many as it started
    all_cores: bool = False  # `fit` on CPUs with devices=1 and model.threads=auto: a process for each core
    nodes: Size = 1
    offload_optimizer: bool = False  # its state in the memory of the CPU, where it steps (deepspeed_*)
    timeout: Seconds = 1800.0  # seconds that ranks wait for one of them before the run ends with its name
    offload_weights: bool = False  # weights there as well, fetched layer by layer (deepspeed_zero3, fsdp2)
    deterministic: bool = False  # `fit`: kernels that add in a fixed order, on GPUs slower; or an error where none is
    offload_averages: bool = False  # averages of the weights in the memory of the CPU (all kinds)
    replicas: Size = 1  # fsdp2: copies of the sharded weights (HSDP); as many as nodes: each node has one


SHARDED = ("deepspeed_zero3", "fsdp2")
"""Strategies under which each rank holds a part of the weights."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The keys that every trainer takes. An *update* is one optimizer step, whatever the number of ranks."""

    seed: Seed = 0
    optimizer: OptimizerConfig
    ce_weight: Weight = 1.0  # of the loss on text
    mse_weight: Weight = 1.0  # of the loss on images
    ema: Decay | None = None  # decay of averaged weights, which are evaluated and kept; null = none
    checkpoint_every: Count = 100  # updates
    strategy: StrategyConfig = StrategyConfig()


@dataclass(frozen=True, kw_only=True)
class RunConfig(TrainingConfig):
    """The keys of every recipe."""

    recipe: str
    kind: str
    name: str | None = None  # of the run folder; null = seed<seed>, behind the model where it is not the recipe's own
    out: str = "runs"
    plugins: tuple[str, ...] = ()  # modules that add tasks, models, rewards, filters or kinds of recipes
    model: ModelConfig
    data: DataConfig = DataConfig()
    text_dropout: Share = 0.0  # of training prompts, for classifier-free guidance
    activation_checkpointing: bool = False  # compute activations twice instead of keeping them: less memory
    activation_checkpointing_every: Count = 1  # n-th layer; the others keep their activations: faster, more memory
    lora: LoraConfig = LoraConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    retention: RetentionConfig = RetentionConfig()
    judge: JudgeConfig | None = None  # says what images show that no program can read (data.world=everyday)
    logger: LoggerConfig = LoggerConfig()

    @property
    def checkpointed_every(self) -> int:
        """n, where every n-th layer is computed twice; 0: none is."""
        return self.activation_checkpointing_every if self.activation_checkpointing else 0

    @property
    def run_name(self) -> str:
        return self.name if self.name is not None else f"seed{self.seed}"
