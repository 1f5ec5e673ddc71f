"""How often a fine-tuning sees each row and at which learning rate, in words, beside what is usual for so many rows."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from uni_train.recipes.sft.config import SftConfig
from uni_train.training.data.rows import Rows

SAMPLED = 32  # rows of a source whose tokens are counted
OFF = 4  # times more or fewer passes than usual are worth a word
SMALL = 512  # smaller models learn at larger rates, of which there is no usual one
USUAL_RATES = {"lora": (5e-5, 5e-4), "all": (5e-6, 5e-5), "moe_gen": (5e-6, 5e-5)}


def usual_passes(rows: int) -> float:
    """Passes over so many rows that people make: about 100 of 40, 10 of 4,000, 1 of 400,000. A rule of thumb."""
    return min(max(100 * math.sqrt(40 / rows), 1.0), 200.0)


def described(config: SftConfig, rows_of: Mapping[str, Rows], ranks: int = 1) -> list[str]:
    """A line a source, and one about the learning rate. Raises UserError: a row that is looked at is bad."""
    total = sum(source.weight for source in config.used_sources.values())
    share = {name: source.weight / total for name, source in config.used_sources.items()}
    tokens = {name: _tokens(rows) for name, rows in rows_of.items()}
    batch = config.batch
    mean = sum(share[name] * tokens[name] for name in rows_of)
    drawn = batch.rows or ranks * batch.accumulate * (batch.tokens or 1) / max(mean, 1.0)
    lines = []
    for name, rows in rows_of.items():
        passes, usual = config.updates * drawn * share[name] / len(rows), usual_passes(len(rows))
        line = (
            f"{name}: a row has about {tokens[name]:.0f} tokens; {config.updates:,} updates draw each of {len(rows):,}"
        )
        line += f" about {passes:,.3g} times"
        if not usual / OFF <= passes <= usual * OFF:
            line += f", and about {usual:.0f} times is usual: updates={max(round(config.updates * usual / passes), 1)}"
        lines.append(line)
    (low, high), rate = USUAL_RATES[config.trained], config.optimizer.lr
    if config.model.architecture.hidden_size >= SMALL:
        weights = {"lora": f"adapters of rank {config.lora.rank}"}.get(config.trained, "whole weights")
        off = "" if low <= rate <= high else ", which this is not"
        lines.append(f"learning rate {rate:g}: {weights} usually take {low:g} to {high:g}{off}")
    return lines


def _tokens(rows: Rows) -> float:
    """The mean of some rows."""
    places = range(0, len(rows), -(-len(rows) // SAMPLED))
    return sum(rows.tokens(rows.draw(place, random.Random(place))) for place in places) / len(places)
