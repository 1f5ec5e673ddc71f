"""Data sets of the Hugging Face hub, as folders and files to train on."""

from __future__ import annotations

import re
from pathlib import Path

from uni_train.core.errors import UserError
from uni_train.core.hub import READ
from uni_train.core.hub_transfer import snapshot

_ID = re.compile(
    r"hf:/{1,2}(?:datasets/)?(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>refs/\w+/\w+|[^@\s/]+))?(/(?P<place>.+))?"
)
_READ = (
    *READ,
    *["*.tar", "*.jsonl.gz", "*.json.gz", "*.csv.gz", "*.caption", "*.jfif", "*.avif", "*.tif", "*.tiff", "*.heic"],
)


def local_data(given: str) -> Path:
    """The folder of "hf://datasets/ORG/NAME", "...@REVISION", or a place in it, "hf://datasets/ORG/NAME/data/a.csv".

    It is downloaded into the Hub's cache where it is not there; of a place that alone.

    Raises:
        UserError: as `uni_train.core.hub.local`; the data set has no such place.
    """
    if (hub := _ID.fullmatch(given)) is None:
        raise UserError(f"{given} is no data set of the Hub", "Write hf://datasets/ORG/NAME or .../NAME@REVISION.")
    place = hub["place"] or ""
    wanted = (place, *(f"{place}/{pattern}" for pattern in _READ)) if place else _READ
    folder = snapshot(given, hub["name"], hub["revision"], "dataset", wanted)
    if not (folder / place).exists():
        raise UserError(f"{given}: the data set has no {place} that is read", "Compare with its files on the Hub.")
    return folder / place
