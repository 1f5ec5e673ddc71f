"""What a snippet comes to, without a compiler, a browser or another process.

python walks Python's own syntax tree; programs in other languages are run as the Python that the same tree writes. sql
is SQLite in memory. html lays out the part of HTML and CSS that the generator writes: only a browser could instead, and
its cascade is what the questions are about. None of them can reach files, the network or the machine; whatever is
outside the part that they know is an error, never a guess.
"""

from __future__ import annotations

from uni_train.core.errors import DataError


class ExecutionError(DataError):
    """The snippet is outside the part of the language that is known here, or runs too long."""
