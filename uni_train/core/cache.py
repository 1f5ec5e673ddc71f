"""Where this machine keeps what is computed once."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """`UNI_TRAIN_CACHE`, by default ~/.cache/uni_train or that below XDG_CACHE_HOME; None: nothing is kept."""
    given = os.environ.get("UNI_TRAIN_CACHE")
    if given is None:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        given = "" if caches.startswith("~") else f"{caches}/uni_train"  # a user without a home
    return Path(given) if given else None
