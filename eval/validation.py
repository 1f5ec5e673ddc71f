"""Validations and galleries of a training run: scored samples, read back and counted.

    held_out/step=00000100/00000.parquet   the samples of one validation (`eval.scored`)
    gallery/epoch-00003/00000.parquet      the first groups of an epoch

Facts of a sample are `step`, the updates before it, and where rewards score it: `rewards`, pairs of name and value
(None where one does not apply), and `reward`, their weighted sum. The k-th rollout of a group is `Ask.k`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.core.files import below
from uni_train.core.reading_limits import read_json, reason
from uni_train.data_gen.task import Verdict
from uni_train.eval.results import Results, unit_of
from uni_train.eval.sample import Ask, Case, Sample, Scored
from uni_train.eval.scored import read_scored, shard_path
from uni_train.eval.statistics import Estimate, mean_over_seeds

_FORMER = "groups.json"


def finished(folder: Path) -> list[Path]:
    """The validations or galleries below `folder` that were written to their end, in order."""
    return sorted({file.parent for name in (shard_path(Path(), 0).name, _FORMER) for file in folder.glob(f"*/{name}")})


def read_validation(folder: Path, images: bool = True) -> list[Scored]:
    """The samples of one. Raises UserError naming a file that cannot be read."""
    shard = shard_path(folder, 0)
    return read_scored(shard, images) if shard.exists() else _read_former(folder)


def groups_of(scored: Iterable[Scored]) -> list[list[Scored]]:
    """The rollouts of each prompt; each group begins with its first one, as a prompt may come twice in an epoch."""
    groups: list[list[Scored]] = []
    for one in scored:
        if one.sample.ask.k == 0:
            groups.append([])
        groups[-1].append(one)
    return groups


def results_of(scored: Iterable[Scored]) -> Results:
    """By set, which is the level. Prompts go by their place: it is the same in all validations of a run."""
    return Results(replace(unit_of(one), name=str(place)) for place, one in enumerate(scored))


def rewards_of(scored: Iterable[Scored]) -> dict[str, list[float]]:
    """Name of a reward -> its values, without images to which it does not apply; empty where nothing was rewarded."""
    found: dict[str, list[float]] = {}
    for one in scored:
        for name, value in one.sample.facts.get("rewards", ()):
            found.setdefault(name, []).extend([] if value is None else [value])
    return found


def estimates(scored: Sequence[Scored]) -> dict[str, Estimate]:
    """Level -> the share that passed, of images with a verdict.

    Where rewards score: name of a reward -> its mean with a 95 % t interval.
    """
    if rewards := rewards_of(scored):
        return {name: mean_over_seeds(values, (-math.inf, math.inf)) for name, values in rewards.items()}
    judged = results_of(one for one in scored if one.verdict is not None)
    return {level: some.mean() for level, some in judged.by("set").items()}


# --- folders of the former version -----------------------------------------------------------------------------------


def _read_former(folder: Path) -> list[Scored]:
    """Of groups.json with PNG files beside it; it does not name prompts whose images were not kept."""
    path, scored = folder / _FORMER, list[Scored]()
    try:
        found = read_json(path)
        rewards, levels = found.get("rewards", {}), found.get("levels", {})
        of_file: dict[str, Any] = {found.get("file", ""): {"n": max(map(len, rewards.values()), default=0)}}
        for name, counts in (levels or of_file).items():
            place, checks = f"level {name}" if levels else name, counts.get("checks", {})
            rows = [row for row in found["groups"] if not levels or str(row["level"]) == name]
            for i in range(len(rows), counts["n"]):
                some = [{"name": check, "status": each[i]} for check, each in checks.items() if each[i]]
                member = {"verdict": {"checks": some} if levels else None}
                member["rewards"] = {reward: each[i] for reward, each in rewards.items()}
                rows.append({"id": f"{name} {i}", "members": [member]})
            for row, pair in zip(rows, counts.get("pairs") or range(len(rows)), strict=True):
                scored += _former_group(folder, found, row, place, f"{name} {pair}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{path}: cannot be read ({reason(error)})", "Delete its folder: it is only looked at."
        ) from error
    return scored


def _former_group(
    folder: Path, found: Mapping[str, Any], row: Mapping[str, Any], place: str, pair: str
) -> list[Scored]:
    facts = {"task": found.get("task"), "item": {"split": found.get("split")}}
    facts |= {"level": row.get("level"), "answer": row.get("answer")}
    images = tuple(below(folder, image).read_bytes() for image in row.get("inputs", ()))
    case = Case(row["id"], place, row.get("prompt", ""), images, pair, facts=facts)
    scored = []
    for k, member in enumerate(row["members"]):
        about = {"step": found["step"]}
        if member["rewards"]:
            about |= {"rewards": list(member["rewards"].items()), "reward": member.get("total")}
        parts = (below(folder, member["image"]).read_bytes(),) if "image" in member else ()
        verdict = member["verdict"] and Verdict.from_dict(member["verdict"])
        scored.append(Scored(Sample(Ask(case, "normal", k, 0), parts=parts, facts=about), verdict))
    return scored
