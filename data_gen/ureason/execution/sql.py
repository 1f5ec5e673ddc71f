"""SQL in SQLite's memory: the statements of a snippet, then the rows of its last SELECT."""

from __future__ import annotations

import sqlite3
from typing import Any

from uni_train.data_gen.ureason.execution import ExecutionError

_STEPS = 200_000  # of SQLite's virtual machine
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
    statements = [part.strip() for part in _split(code)]
    if not statements or not statements[-1].upper().startswith("SELECT"):
        raise ExecutionError("a snippet of SQL must end with a SELECT")
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
    burnt = 0

    def burn() -> int:
        nonlocal burnt
        burnt += 1000
        return int(burnt > _STEPS)

    connection.set_progress_handler(burn, 1000)
    try:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows
    except sqlite3.Error as error:
        raise ExecutionError(f"SQL fails: {error}") from error
    finally:
        connection.close()


def _split(code: str) -> list[str]:
    """Statements, without their semicolons; a semicolon within a text ends none."""
    found, current = [], ""
    for line in code.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current.strip().rstrip(";"))
            current = ""
    if current.strip():
        found.append(current)
    return found
