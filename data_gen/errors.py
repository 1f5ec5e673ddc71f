"""What can go wrong with data: one exception type, whose message names the file, line or key and says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DataError(ValueError):
    """A mistake in the data or in what was asked of a generator (unknown task, level out of range, bad JSONL line)."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence for an error about an unknown `name`: the closest known one, or all of them."""
    options = [str(k) for k in known]
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else "known: " + ", ".join(options)
