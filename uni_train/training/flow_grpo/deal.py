"""Which random steps an update trains on, and on which rank.

A row is a random step of an image: (number of the image, place in the window). The place after the last step stands
for the image's thought, if it has one. Rows follow from the rewards of all ranks and from seeds, so every rank can
compute the rows of all ranks.

    random_steps    the rows of an update: an equal part of the images whose group has differing rewards
    deal            the rows of each rank: equally many, its own images first
    with_others     exchange of images between ranks, once an epoch
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from uni_train.config.schema import GrpoConfig
from uni_train.data_gen.seeds import rng
from uni_train.distributed.ranks import Ranks
from uni_train.flow.advantages import informative
from uni_train.training.flow_grpo.rollout import OF_IMAGES, Rollouts, padded

Row = tuple[int, int]


def random_steps(rollouts: Rollouts, config: GrpoConfig, stage: str, update: int) -> list[Row]:
    """The rows of an update on all ranks: an equal part of the images, shuffled by seed, epoch and pass, each with all
    its random steps.

    Images of groups with equal rewards are left out, unless the batch is their baseline; where there are no others, a
    `kl` penalty still acts on them.
    """
    images, rollout, objective = list(range(len(rollouts.totals))), config.rollout, config.objective
    groups = torch.arange(rollout.prompts_per_epoch).repeat_interleave(rollout.group_size)
    if objective.baseline == "batch":
        groups = torch.zeros_like(groups)
    use = informative(rollouts.rewards if objective.scale_rewards == "each" else rollouts.totals, groups)
    use = use.any(1) if use.ndim > 1 else use
    images = [i for i in images if bool(use[i])] or (images if objective.kl else [])
    turn, part = divmod(update, config.updates_per_pass)
    rng("pictures", config.seed, stage, rollouts.epoch, *([turn] if turn else [])).shuffle(images)
    places = range(config.rows_an_image)
    return [(image, place) for image in images[part :: config.updates_per_pass] for place in places]


def deal(rows: Sequence[Row], images: int, world_size: int) -> list[list[Row]]:
    """The rows of every rank, of which rank r drew the images r * images to (r + 1) * images - 1.

    No rank has two more than another. A rank keeps its own rows as far as that allows, and takes what others have too
    many of.
    """
    dealt: list[list[Row]] = [[] for _ in range(world_size)]
    for row in rows:
        dealt[row[0] // images].append(row)
    least, more = divmod(len(rows), world_size)
    fullest = sorted(range(world_size), key=lambda rank: -len(dealt[rank]))
    quota = {rank: least + (place < more) for place, rank in enumerate(fullest)}
    spare = [row for rank, mine in enumerate(dealt) for row in mine[quota[rank] :]]
    for rank, mine in enumerate(dealt):
        del mine[quota[rank] :]
        missing = quota[rank] - len(mine)
        mine += spare[:missing]
        del spare[:missing]
    return dealt


def micro_batches(dealt: Sequence[Sequence[Row]], rows: int) -> int:
    """How many of at most `rows` rows the fullest rank needs; at least one."""
    return max(1, -(-max(map(len, dealt)) // rows))


def given_away(deals: Sequence[Sequence[Sequence[Row]]], images: int) -> dict[tuple[int, int], list[int]]:
    """(rank that drew, rank that trains) -> images, over all updates of an epoch."""
    images_of: dict[tuple[int, int], set[int]] = defaultdict(set)
    for dealt in deals:
        for rank, mine in enumerate(dealt):
            for image, _ in mine:
                if image // images != rank:
                    images_of[image // images, rank].add(image)
    return {pair: sorted(some_images) for pair, some_images in images_of.items()}


def with_others(rollouts: Rollouts, given: dict[tuple[int, int], list[int]], ranks: Ranks) -> Rollouts:
    """This rank's images, and behind them those of others that it trains on (`given_away`)."""
    first = rollouts.images[0]
    parts: dict[int, dict[str, Tensor]] = {}
    for (source, target), images in given.items():
        if source == ranks.rank:
            rows = [image - first for image in images]
            parts[target] = {name: getattr(rollouts, name)[rows].cpu() for name in OF_IMAGES}
    received = ranks.exchange(parts, given)
    if not received:
        return rollouts
    device, longest = rollouts.final.device, max(part["final"].shape[-2] for part in received.values())
    longest = max(longest, rollouts.final.shape[-2])
    joined: dict[str, Any] = {
        name: torch.cat([
            padded(getattr(rollouts, name), longest),
            *(padded(part[name].to(device), longest) for _, part in sorted(received.items())),
        ])
        for name in OF_IMAGES
    }  # fmt: skip
    taken = [image for source in sorted(received) for image in given[source, ranks.rank]]
    return replace(rollouts, images=(*rollouts.images, *taken), **joined)
