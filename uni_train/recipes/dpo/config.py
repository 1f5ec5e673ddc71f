"""The keys of direct preference optimisation, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from uni_train.config.messages import Where, check_rules
from uni_train.config.schema import SHARDED, Count, Few, Positive, Weight
from uni_train.recipes.stars.config import THOUGHTS, RoundConfig, StarsConfig
from uni_train.recipes.stars.config import check as check_stars

PAIRS = "pairs"


@dataclass(frozen=True, kw_only=True)
class DpoConfig(StarsConfig):
    """Flow-DPO: of each prompt an image that the filter accepts, against one that it refuses; or pairs of a file."""

    kind: Literal["dpo"] = "dpo"  # type: ignore[assignment]
    rounds: tuple[RoundConfig, ...] = ()  # one of rounds and pairs
    pairs: str | None = None  # a .jsonl or .parquet file of prompts with a chosen and a rejected image
    updates: Count | None = None  # with pairs: one of updates and epochs
    epochs: Positive | None = None  # over the pairs
    evaluate: bool = True  # accuracy before and after; false: with pairs alone
    candidates: Few = 2  # samples of a prompt, before the filter
    beta: Positive  # how fast the loss falls with the difference of errors; large = stay near the starting weights
    sft_weight: Weight = 0.0  # of the supervised loss on the chosen image, so that it does not get worse, too


def check(config: DpoConfig, where: Where) -> None:
    """Rules between the keys. Raises UsageError."""
    lengths = [key for key in ("updates", "epochs") if getattr(config, key) is not None]
    sharded, file = config.strategy.kind not in ("single", "ddp"), config.pairs is not None
    check_rules([
        ("pairs", file == bool(config.rounds), "kind=dpo takes one of rounds and pairs",
         "pairs=null, or rounds=[]." if file else "pairs=FILE, or rounds=[{task: maze, level: 4, ...}]."),
        ("updates", file and len(lengths) != 1, "pairs needs one of updates and epochs", "updates=200, or epochs=3."),
        (lengths[0] if lengths else "", not file and lengths, "updates and epochs belong to pairs: rounds have theirs",
         "rounds.0.updates=200."),
        ("evaluate", not file and not config.evaluate, "evaluate=false belongs to pairs: rounds are evaluated", None),
        ("candidates", not file and config.candidates < 2,
         "candidates=1: a right and a wrong image of a prompt are two", "candidates=2."),
        ("filter", not file and config.filter == "none", "filter=none refuses no image, so no prompt has a wrong one",
         "filter=verifier, filter=judge or filter=self."),
        ("teacher", not file and config.teacher == "reference", "teacher=reference draws no wrong images",
         "teacher=base, or teacher=current."),
        ("rounds", THOUGHTS in config.replays, f"rounds[].replay.{THOUGHTS}: kind=dpo learns images alone",
         "rounds[].replay.pretrain."),
        ("batch.accumulate", config.batch.accumulate > config.batch.prompts,
         f"batch.accumulate {config.batch.accumulate} is more than batch.prompts {config.batch.prompts}", None),
        ("strategy", config.strategy.kind in SHARDED and config.trained != "lora",
         f"strategy={config.strategy.kind} shards the weights, and the reference needs whole ones",
         "trained=lora, or strategy=ddp."),
        ("strategy", sharded and config.replays,
         f"strategy={config.strategy.kind} cannot replay rows beside pairs: its devices compute in step",
         "strategy=ddp, or rounds without replay."),
    ], where)  # fmt: skip
    if not file:
        check_stars(config, where)
