"""Which rows a held-out loss scores: those that are held out, and as many that are trained on."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from itertools import chain

from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.recipes.sft.config import SftConfig
from uni_train.training.data.rows import Chosen, Rows

Place = tuple[str, Rows, int]
"""A row's id, "cats/12", or "/12" of held_out_loss.path, and where it is, from 0."""


def set_aside(
    config: SftConfig, sources: Mapping[str, Rows], other: Rows | None = None
) -> tuple[list[Place], list[Place]]:
    """Held-out rows, and as many that are trained on: those with the smallest hashes. The former leave `sources`.

    Args:
        other: rows of `held_out_loss.path`; None: a share of `sources` is held out.

    Raises:
        UserError: too few rows are held out, or none of a source is left to train on.
    """

    def first(places: Iterable[Place], n: int) -> list[Place]:
        seed = config.evaluation.seed
        return heapq.nsmallest(n, places, key=lambda place: derive_seed("held-out row", seed, place[0]))

    keys = config.held_out_loss
    share, whole = keys.share or 0.0, {name: copy(rows) for name, rows in sources.items()}
    parts = (first(_places(name, rows), round(share * len(rows))) for name, rows in whole.items())
    chosen = first(chain.from_iterable(parts) if other is None else _places("", other), keys.n)
    taken = {row for row, _, _ in chosen}
    for name, rows in sources.items():
        left = [index for row, _, index in _places(name, rows) if row not in taken]
        if not left:
            hint = "Lower it, or give held-out rows of their own: held_out_loss.path=FILE."
            raise UserError(f"held_out_loss.share={share} leaves no row of sources.{name} to train on", hint)
        rows.rows = Chosen(rows.rows, left)
    if len(chosen) < 2:
        raise too_few(len(chosen))
    rest = (place for name, rows in whole.items() for place in _places(name, rows) if place[0] not in taken)
    return chosen, first(rest, len(chosen))


def too_few(rows: int) -> UserError:
    """The error of so many held-out rows."""
    hint = "Raise held_out_loss.share, or give more rows in held_out_loss.path."
    return UserError(f"held_out_loss: {rows} rows can be held out, and an interval needs 2", hint)


def _places(name: str, rows: Rows) -> Iterator[Place]:
    return ((f"{name}/{index}", rows, index) for index in range(len(rows)))
