"""A training that fails: an error that all ranks raise after the same update, and the signs of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from uni_train.core.errors import UserError
from uni_train.training.checkpoint_io import list_checkpoints

RISE = 100.0
"""How many times its first value ce (nats a token) or mse may have; a first value below 1 counts as 1."""
NAMED = 8  # rows of an update in a message


class Stopped(UserError):
    """A training was stopped. All ranks raise it after the same update, before a checkpoint holds what it did."""

    def going_on(self, checkpoints: Path) -> UserError:
        """The same error, whose hint says from which of the folder's `checkpoints` the same command continues."""
        there = list_checkpoints(checkpoints)
        place = f"continues from {there[-1]}" if there else "starts from the beginning: there is no earlier checkpoint"
        return UserError(self.message, f"{self.hint} The same command {place}.")


def not_applied(norm: float, update: int, rows: Sequence[str]) -> Stopped:
    """The error of an update (from 1) over `rows` of this rank, whose gradient is not finite."""
    more = f"; and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    named = f"Look at its rows ({'; '.join(rows[:NAMED])}{more}), or lower" if rows else "Lower"
    return Stopped(
        f"training diverged: the gradient of update {update} has the norm {norm}, and was not applied",
        f"{named} optimizer.lr.",
    )


def diverged(line: Mapping[str, float], first: Mapping[str, float]) -> str | None:
    """What is wrong with the metrics of an update, beside those of the `first` updates that had ce and mse."""
    if not math.isfinite(line["loss"]):
        return f"the loss of update {line['step']} is {line['loss']}"
    for name, before in first.items():
        if line[name] > RISE * max(1.0, before):
            return f"the {name} of update {line['step']} is {line[name]:.3g}, and was {before:.3g} at first"
    return None
