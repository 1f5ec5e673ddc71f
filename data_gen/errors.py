"""What can go wrong with data: one exception type, whose message names the file, line or key and says what to do."""

from __future__ import annotations


class DataError(ValueError):
    """A mistake in the data or in what was asked of a generator (unknown task, level out of range, bad JSONL line)."""
