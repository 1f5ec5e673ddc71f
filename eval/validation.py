"""Validations and galleries of a training run: scored samples, read back and counted.

    held_out/step=00000100/00000.parquet   the samples of one validation (`eval.scored`)
    gallery/epoch-00003/00000.parquet      the first groups of an epoch

Facts of a sample are `step`, the updates before it, and where rewards score it: `rewards`, pairs of name and value
(None where one does not apply), and `reward`, their weighted sum. The k-th rollout of a group is `Ask.k`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from uni_train.eval.results import Results, unit_of
from uni_train.eval.sample import Scored
from uni_train.eval.scored import read_scored, shard_path
from uni_train.eval.statistics import Estimate, mean_over_seeds


def finished(folder: Path) -> list[Path]:
    """The validations or galleries below `folder` that were written to their end, in order."""
    return sorted(file.parent for file in folder.glob(f"*/{shard_path(Path(), 0).name}"))


def read_validation(folder: Path, images: bool = True) -> list[Scored]:
    """The samples of one. Raises UserError naming a file that cannot be read."""
    return read_scored(shard_path(folder, 0), images)


def groups_of(scored: Iterable[Scored]) -> list[list[Scored]]:
    """The rollouts of each prompt; each group begins with its first one, as a prompt may come twice in an epoch."""
    groups: list[list[Scored]] = []
    for answer in scored:
        if answer.sample.ask.k == 0:
            groups.append([])
        groups[-1].append(answer)
    return groups


def results_of(scored: Iterable[Scored]) -> Results:
    """By set, which is the level. Prompts go by their place: it is the same in all validations of a run."""
    return Results(replace(unit_of(answer), name=str(place)) for place, answer in enumerate(scored))


def rewards_of(scored: Iterable[Scored]) -> dict[str, list[float]]:
    """Name of a reward -> its values, without images to which it does not apply; empty where nothing was rewarded."""
    values_by_reward: dict[str, list[float]] = {}
    for answer in scored:
        for name, value in answer.sample.facts.get("rewards", ()):
            values_by_reward.setdefault(name, []).extend([] if value is None else [value])
    return values_by_reward


def estimates(scored: Sequence[Scored]) -> dict[str, Estimate]:
    """Level -> the share that passed, of images with a verdict.

    Where rewards score: name of a reward -> its mean with a 95 % t interval.
    """
    if rewards := rewards_of(scored):
        return {name: mean_over_seeds(values, (-math.inf, math.inf)) for name, values in rewards.items()}
    judged = results_of(answer for answer in scored if answer.verdict is not None)
    return {level: some.mean() for level, some in judged.by("set").items()}
