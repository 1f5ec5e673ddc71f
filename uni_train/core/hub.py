"""Names of the Hugging Face hub, and its folders. `HF_ENDPOINT` names another hub, `HF_TOKEN` the token."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uni_train.core.hub_transfer import Kind

READ = [
    *("*.safetensors", "*.json", "*.jsonl", "*.txt", "*.md", "*.model", "*.jinja", "*.tiktoken", "*.csv", "*.yaml"),
    *("*.parquet", "*.png", "*.jpg", "*.jpeg", "*.webp", "*.bmp", "*.gif"),
]
"""Files that are fetched: weights, sizes, tokenizers, data and images; never pickles or code."""
_ID = re.compile(
    r"(?P<hub>hf:/{1,2}(?:models/|datasets/)?)?(?P<name>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[^@\s]+))?"
)
_OURS = ("runs", "checkpoints", "evals", "exports", "data")  # folders of the documentation: never an organisation


def local(path_or_id: str | Path, kind: Kind = "model", files: tuple[str, ...] = tuple(READ)) -> Path:
    """The folder of a Hub id, whose `files` are downloaded into the Hub's cache if missing; a path as it is.

    Args:
        path_or_id: "hf://org/name", "hf://org/name@revision", or the same without "hf://" where there is neither such a
            path nor a folder `org`. An interrupted download goes on; with HF_HUB_OFFLINE=1 only the cache is read.

    Raises:
        UserError: gated, missing or without network, no such revision, a download that broke off, pickles alone.
    """
    if (hub := hub_id(path_or_id)) is None:
        return Path(path_or_id)
    from uni_train.core.hub_transfer import snapshot

    return snapshot(str(path_or_id), hub["name"], hub["revision"], kind, files)


def split_adapters(checkpoint: str) -> tuple[str, list[str]]:
    """The model and the adapters of "MODEL+ADAPTER+ADAPTER"; a path that is there with a + in its name is one."""
    base, *adapters = [checkpoint] if Path(checkpoint).exists() else checkpoint.split("+")
    return base, adapters


def hub_id(path_or_id: str | Path) -> re.Match[str] | None:
    """The parts of a Hub id; None for a path."""
    match = _ID.fullmatch(str(path_or_id))
    return None if match is None or (not match["hub"] and _is_path(path_or_id, match["name"])) else match


def id_of(folder: Path) -> str | None:
    """ "org/name@commit" of a folder in the Hub's cache; None for others."""
    parts = folder.parts
    if len(parts) < 3 or parts[-2] != "snapshots" or "--" not in parts[-3]:
        return None
    return f"{'/'.join(parts[-3].split('--', 2)[1:])}@{parts[-1]}"


def _is_path(given: str | Path, name: str) -> bool:
    owner = name.partition("/")[0]
    return owner in _OURS or Path(given).exists() or Path(owner).is_dir()
