"""Randomness that depends on names, not on the order of calls: equal parts give equal numbers on every platform."""

from __future__ import annotations

import hashlib
import json
import random


def digest(*parts: int | str) -> str:
    """16 hex digits that identify `parts`; used for ids and for splits."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2**63) from a hash of `parts` (their JSON text, so 1 and "1" differ)."""
    return int(digest(*parts), 16) >> 1


def rng(*parts: int | str) -> random.Random:
    """A generator of its own for `parts`, independent of the global one."""
    return random.Random(derive_seed(*parts))
