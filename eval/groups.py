"""Images kept while a model is trained: groups of answers to one prompt, with verdicts and rewards.

    folder/groups.json     prompts, verdicts, rewards, whatever else is known; written last
    folder/0-input1.png    what prompt 0 shows
    folder/0-2.png         its third image

A folder without groups.json was not finished and counts as not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import read_json, reason
from uni_train.data_gen.task import Verdict
from uni_train.errors import UserError
from uni_train.eval.statistics import Estimate, mean_over_seeds, share
from uni_train.files import atomic_write_bytes, atomic_write_json, below

INDEX = "groups.json"


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One image of a group.

    Attributes:
        image: PNG.
        verdict: of the exact verifier; None where the prompt has none.
        total: the reward that it was trained by; None outside reinforcement.
        rewards: by name; None where one does not apply or failed.
    """

    image: bytes
    verdict: Verdict | None = None
    total: float | None = None
    rewards: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The answers to one prompt. inputs: PNG of the images shown with it; answer: what is right, where it is known."""

    id: str
    prompt: str
    members: Sequence[Member]
    inputs: Sequence[bytes] = ()
    level: int | None = None
    answer: str | None = None


def write_groups(folder: Path, groups: Sequence[Group], **facts: Any) -> Path:
    """Write `groups`, with further JSON-able facts about them, and return the folder.

    Raises:
        OSError: the disk is full or the folder not writable; its `filename` says where.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for g, group in enumerate(groups):
        inputs = [f"{g}-input{i}.png" for i in range(1, len(group.inputs) + 1)]
        for name, image in zip(inputs, group.inputs, strict=True):
            atomic_write_bytes(folder / name, image)
        members = []
        for m, member in enumerate(group.members):
            name = f"{g}-{m}.png"
            atomic_write_bytes(folder / name, member.image)
            verdict = None if member.verdict is None else member.verdict.to_dict()
            members.append({"image": name, "verdict": verdict, "total": member.total, "rewards": dict(member.rewards)})
        rows.append(
            {
                "id": group.id,
                "prompt": group.prompt,
                "level": group.level,
                "answer": group.answer,
                "inputs": inputs,
                "members": members,
            }
        )
    atomic_write_json(folder / INDEX, {**facts, "groups": rows})
    return folder


def read_facts(folder: Path) -> dict[str, Any]:
    """What groups.json says, without images. Raises UserError naming a file that cannot be read."""
    path = folder / INDEX
    try:
        found = read_json(path)
        found["groups"] = list(found["groups"])
        return dict(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: cannot be read ({reason(error)})", "Delete its folder: it is for looking at alone."
        ) from error


def read_groups(folder: Path) -> list[Group]:
    """The groups with their images. Raises UserError naming a file that cannot be read."""
    try:
        return [
            Group(
                row["id"],
                row["prompt"],
                [
                    Member(
                        below(folder, one["image"]).read_bytes(),
                        None if one["verdict"] is None else Verdict.from_dict(one["verdict"]),
                        one["total"],
                        one["rewards"],
                    )
                    for one in row["members"]
                ],
                [below(folder, name).read_bytes() for name in row["inputs"]],
                row["level"],
                row["answer"],
            )
            for row in read_facts(folder)["groups"]
        ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder}: cannot be read ({error})", "Delete it: it is only looked at.") from error


def passed(levels: Sequence[Mapping[str, Any]]) -> Estimate:
    """The share of the prompts of some levels that passed, of what a validation writes about each level."""
    right = [mark == "1" for level in levels for mark in level["passed"]]
    return share(right, range(len(right)), clusters_of(levels))


def estimates(facts: Mapping[str, Any]) -> dict[str, Estimate]:
    """What a validation found: "level 4" -> the share of its prompts that passed; of a file's prompts the name of each
    reward -> its mean with a 95 % t interval."""
    found = {f"level {level}": passed([counts]) for level, counts in facts.get("levels", {}).items()}
    for name, values in facts.get("rewards", {}).items():
        found[name] = mean_over_seeds([one for one in values if one is not None], (-math.inf, math.inf))
    return found


def clusters_of(levels: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Of each prompt what dependent prompts share: the two of a pair (`pairs`: the number of each prompt's pair)."""
    return [(i, one) for i, level in enumerate(levels) for one in level.get("pairs") or range(level["n"])]


def finished(folder: Path) -> list[Path]:
    """The finished folders of groups below `folder`, in order of their names."""
    return sorted(path.parent for path in folder.glob(f"*/{INDEX}"))
