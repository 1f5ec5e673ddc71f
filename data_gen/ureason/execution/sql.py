"""SQL in SQLite's memory: the statements of a snippet, then the rows of its last SELECT."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from uni_train.data_gen.ureason.execution import ExecutionError

_STEPS = 200_000  # of SQLite's virtual machine, for a statement
_ALLOWED = {
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE,
    sqlite3.SQLITE_DELETE, sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_TRANSACTION,
}  # fmt: skip


def run(code: str) -> list[tuple[Any, ...]]:
    """The rows that the last statement, a SELECT, gives. ExecutionError for anything that is not allowed or fails.

    Tables can be made, filled, changed and asked; files, pragmas and other databases cannot be reached.
    """
    if "\x00" in code:
        raise ExecutionError("a zero byte in SQL")
    statements = list(_statements(code))
    if not statements or not statements[-1].lstrip().upper().startswith("SELECT"):
        raise ExecutionError("a snippet of SQL must end with a SELECT")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        connection.set_progress_handler(lambda: 1, _STEPS)
        try:
            for statement in statements[:-1]:
                connection.execute(statement)
            return connection.execute(statements[-1]).fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ExecutionError(f"SQL fails: {error}") from error


def _statements(code: str) -> Iterator[str]:
    """Each ends at the end of a line; a semicolon within a text ends none."""
    current = ""
    for line in code.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            yield current
            current = ""
    if current.strip():
        yield current
