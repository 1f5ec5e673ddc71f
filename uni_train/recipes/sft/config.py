"""The keys of supervised fine-tuning, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal

from annotated_types import Interval

from uni_train.config.kinds import check_fits
from uni_train.config.messages import Where, check_known, check_rules, check_thinks
from uni_train.config.schema import (
    SHARDED,
    Augment,
    Count,
    Draws,
    Pixels,
    Positive,
    Prompts,
    Rows,
    Share,
    TaskLevel,
    Tokens,
)
from uni_train.config.training import ExtendableConfig
from uni_train.data_gen.registry import TASKS

Inside = Annotated[float, Interval(gt=0.0, lt=1.0)]
Form = Literal["text_to_image", "edit", "conversations", "items"]
Part = Literal["vit", "connector", "understanding", "generation"]


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """Rows on disk; docs/training.md shows the forms."""

    form: Form | None = None  # null = items where learn, show_thought or augment is given, else by the keys of each row
    path: str | tuple[str, ...]  # a file, a folder, hf://datasets/ORG/NAME, or a list of such
    images: str | None = None  # the folder that image paths start from; null = that of the file
    references: str | tuple[str, ...] | None = None  # folders of input images, in order; path: one of edited images
    weight: Positive = 1.0  # how often it is drawn, beside the other sources
    learn: tuple[Literal["thought", "answer", "image"], ...] = ("image",)  # form=items: what of a row
    show_thought: bool = False  # form=items: the row's thought is shown before its image, and not learned
    # form=items: each time a row is drawn, another view of it; tasks: maze
    augment: Augment | None = None
    image_size: tuple[Pixels, Pixels] | None = None  # shortest, longest side as latents; null = as drawn
    vit_size: tuple[Pixels, Pixels] | None = None  # the same for the ViT; null = as when it is asked
    # most of a row's images together, for the ViT
    vit_pixels: Annotated[int, Interval(ge=1, le=100_000_000)] | None = None

    @property
    def of_items(self) -> bool:
        """Whether its rows are items: by its form, or by keys that only they have."""
        keys = self.learn != ("image",) or self.show_thought or self.augment is not None
        return self.form == "items" or (self.form is None and keys)

    @property
    def learned(self) -> tuple[str, ...]:
        """What of a row is learned, as far as is known before it is read: "image", "thought", "answer"."""
        if self.form is None and not self.of_items:
            return "image", "answer"
        return ("answer",) if self.form == "conversations" else self.learn


@dataclass(frozen=True, kw_only=True)
class SftBatchConfig:
    """An update: `accumulate` micro-batches of `tokens` tokens on each rank, or `rows` examples in `accumulate`
    micro-batches that ranks share."""

    rows: Rows | None = None
    tokens: Tokens | None = None
    example_tokens: Tokens | None = None  # a longer example is a bad row; null = model...max_text_tokens
    accumulate: Rows = 1
    noise_draws: Draws = 1  # noise levels drawn for each image that is learned


@dataclass(frozen=True, kw_only=True)
class SftHeldOutConfig:
    """Prompts of a task or of a file while training, drawn as the model always draws. The verifier scores a task's."""

    task: str | None = None
    path: str | None = None  # a .txt, .jsonl or .parquet file of prompts, in place of a task; both null = no validation
    levels: tuple[TaskLevel, ...] = (1,)
    n: Prompts = 64  # prompts a level, or of the file
    every: Count = 250  # updates
    split: Literal["validation", "test"] = "validation"


@dataclass(frozen=True, kw_only=True)
class HeldOutLossConfig:
    """The loss of rows that are not trained on, and of as many that are, at fixed noise; docs/training.md."""

    share: Inside | None = None  # of each source's rows is held out; share and path null = no held-out loss
    path: str | None = None  # in place of a share: a file or folder of held-out rows, of the first source's form
    n: Annotated[int, Interval(ge=2, le=100_000)] = 64  # at most so many rows are held out
    every: Count = 250  # updates
    levels: tuple[Inside, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)  # noise levels: 0 = the image, 1 = noise
    keep: Literal["last", "best"] = "last"  # the update whose weights are the stage's model; best: lowest held-out loss


@dataclass(frozen=True, kw_only=True)
class SftConfig(ExtendableConfig):
    """Supervised fine-tuning on rows of text and images."""

    kind: Literal["sft"] = "sft"
    # by a name of yours (null: none); or a path, or a list of paths and sources
    sources: dict[str, SourceConfig | None]
    updates: Count
    batch: SftBatchConfig
    trained: Literal["all", "moe_gen", "lora"] = "all"
    frozen: tuple[Part, ...] = ()  # parts that are not trained all the same
    timestep_shift: Positive = 1.0  # of the noise levels in training
    vit_dropout: Share = 0.0  # of input images as ViT patches, where an image is drawn
    vae_dropout: Share = 0.0  # of input images as latents, where an image is drawn
    held_out: SftHeldOutConfig = SftHeldOutConfig()
    held_out_loss: HeldOutLossConfig = HeldOutLossConfig()
    evaluate: bool = False  # Normal and CoT accuracy before and after

    @property
    def used_sources(self) -> dict[str, SourceConfig]:
        """The sources that are not null."""
        return {name: source for name, source in self.sources.items() if source is not None}


def named_sources(given: Any) -> Any:
    """`sources` by their names, where they are a path, or a list of paths and sections: each has its file's stem."""
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list):
        return given
    named: dict[str, Any] = {}
    for place, entry in enumerate(listed, start=1):
        section = {"path": entry} if isinstance(entry, str) else entry
        path = section.get("path") if isinstance(section, dict) else None
        file = path.partition("@")[0] if isinstance(path, str) and path.startswith("hf:") else path
        name = PurePath(file).stem.replace(".", "_") if isinstance(file, str) else ""
        named[name if name and name not in named else f"source{place}"] = section
    return named


def check(config: SftConfig, where: Where) -> None:
    """Rules between the keys. Raises UsageError."""
    check_known(config.held_out.task, TASKS.names(), "task", "held_out.task", where)
    if config.held_out.task is not None:
        check_fits(config, config.held_out.task, config.held_out.levels, "held_out.levels", where)
    batch, sources, loss = config.batch, config.used_sources, config.held_out_loss
    learned = {part for source in sources.values() for part in source.learned}
    deaf = config.lora.only_generation(config.trained, config.frozen)
    images, texts = config.mse_weight and "image" in learned, config.ce_weight and learned - {"image"}
    check_rules([
        ("held_out", config.held_out.task is not None and config.held_out.path is not None,
         "held_out takes one of task and path", "held_out.task=null, or held_out.path=null."),
        ("held_out_loss", loss.share is not None and loss.path is not None,
         "held_out_loss takes one of share and path", "held_out_loss.share=null, or held_out_loss.path=null."),
        ("held_out_loss.levels", not loss.levels or len({*loss.levels}) < len(loss.levels),
         "held_out_loss.levels is empty, or names a level twice", None),
        ("held_out_loss.keep", loss.keep == "best" and loss.share is None and loss.path is None,
         "held_out_loss.keep=best: nothing is held out",
         "Add held_out_loss.share=0.1, or held_out_loss.path=FILE."),
        ("held_out_loss.keep", loss.keep == "best" and config.strategy.kind in SHARDED,
         f"held_out_loss.keep=best cannot be done with strategy={config.strategy.kind}, which shards the weights",
         "Take strategy=ddp, deepspeed_zero1 or deepspeed_zero2, or held_out_loss.keep=last."),
        ("sources", not sources, "sources is empty: there is nothing to train on",
         "Give your data: sources=FOLDER, or sources.mine.path=FILE; docs/training.md shows the forms."),
        ("batch", (batch.rows is None) == (batch.tokens is None), "batch needs one of rows and tokens",
         "batch.tokens=32768 or batch.rows=64."),
        ("batch.accumulate", batch.rows is not None and batch.accumulate > batch.rows,
         f"batch.accumulate {batch.accumulate} is more than batch.rows {batch.rows}", None),
        ("sources", not images and (deaf or not texts),
         "nothing would be learned: no source draws images or mse_weight is 0, and of text "
         + ("no trained weight has a gradient" if deaf else "there is none to learn or ce_weight is 0"),
         "Add a source with images to draw, or train weights that text passes: trained=all, lora.targets=both."),
    ], where)  # fmt: skip
    for name, source in sources.items():
        key, alone = f"sources.{name}", "belongs to form=items alone"
        if source.show_thought:
            check_thinks(config.model, f"{key}.show_thought", f"{key}.show_thought", where)
        sizes = {side: getattr(source, side) or (0, 0) for side in ("image_size", "vit_size")}
        check_rules([
            (f"{key}.path", not source.path, f"{key}.path names no file", None),
            (f"{key}.learn", not source.learn, f"{key}.learn is empty: nothing would be learned", None),
            (f"{key}.learn", not source.of_items and source.learn != ("image",), f"{key}.learn {alone}", None),
            (f"{key}.augment", source.augment is not None and not source.of_items, f"{key}.augment {alone}", None),
            (f"{key}.show_thought", source.show_thought and (not source.of_items or source.learn != ("image",)),
             f"{key}.show_thought needs form=items and learn=[image]", None),
            *((f"{key}.{side}", low > high, f"{key}.{side} [{low}, {high}] is not [shortest, longest]", None)
              for side, (low, high) in sizes.items()),
        ], where)  # fmt: skip
