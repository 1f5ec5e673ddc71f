"""The keys of preferences, and their rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from uni_train.config.messages import Where, check_rules
from uni_train.config.schema import SHARDED, Count, Few, Positive, Weight
from uni_train.recipes.stars.config import THOUGHTS, RoundConfig, StarsConfig
from uni_train.recipes.stars.config import check as check_stars


@dataclass(frozen=True, kw_only=True)
class DpoConfig(StarsConfig):
    """Flow-DPO: of each prompt an image that the filter accepts, against one that it refuses; or pairs of a file."""

    kind: Literal["dpo"] = "dpo"  # type: ignore[assignment]
    rounds: tuple[RoundConfig, ...] = ()  # one of rounds and pairs
    pairs: str | None = None  # a file of prompts, each with a chosen and a rejected image
    updates: Count | None = None  # with pairs
    evaluate: bool = True  # accuracy before and after; false: with pairs alone
    candidates: Few = 2  # samples of a prompt, before the filter
    beta: Positive  # how fast the loss falls with the difference of errors; large = stay near the starting weights
    sft_weight: Weight = 0.0  # of the supervised loss on the chosen image, so that it does not get worse, too


def check(config: DpoConfig, where: Where) -> None:
    """Rules between the keys. Raises UsageError."""
    file, strategy, batch = config.pairs is not None, config.strategy.kind, config.batch
    check_rules([
        ("pairs", file == bool(config.rounds), "kind=dpo takes one of rounds and pairs", "pairs=null, or rounds=[]."),
        ("updates", file != (config.updates is not None),
         "updates belongs to pairs, which need it; rounds have their own", "pairs=FILE updates=200."),
        ("evaluate", not file and not config.evaluate, "evaluate=false belongs to pairs: rounds are evaluated", None),
        ("candidates", not file and config.candidates < 2,
         "candidates=1: a right and a wrong image of a prompt are two", "candidates=2."),
        ("filter", not file and config.filter == "none", "filter=none refuses no image, so no prompt has a wrong one",
         "filter=verifier, filter=judge or filter=self."),
        ("teacher", not file and config.teacher == "reference", "teacher=reference draws no wrong images",
         "teacher=base, or teacher=current."),
        ("rounds", THOUGHTS in config.replays, f"rounds[].replay.{THOUGHTS}: kind=dpo learns images alone", None),
        ("batch.accumulate", batch.accumulate > batch.prompts,
         f"batch.accumulate {batch.accumulate} is more than batch.prompts {batch.prompts}", None),
        ("strategy", strategy in SHARDED and config.trained != "lora",
         f"strategy={strategy} shards the weights, and the reference needs whole ones", "trained=lora."),
        ("strategy", strategy not in ("single", "ddp") and config.replays,
         f"strategy={strategy} cannot replay rows beside pairs: its devices compute in step", "strategy=ddp."),
    ], where)  # fmt: skip
    if not file:
        check_stars(config, where)
