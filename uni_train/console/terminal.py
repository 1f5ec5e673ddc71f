"""Text on terminals: control characters in data and replies are removed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from typing import Any

import click

_LONGEST = 2000  # letters of a message, of a hint, and of a cell
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and newline, and those that turn the direction of writing."""


def plain(text: str) -> str:
    """The text without control characters: an escape sequence of a terminal becomes the letters behind its ESC."""
    return _CONTROLS.sub("", text)


def shown(text: str) -> str:
    """What a person typed, a file, a server or code of others held: it may be long and steer the terminal."""
    text = plain(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print the text of a command without control characters: it may hold names from files of others."""
    click.echo(plain(str(text)), err=err, nl=nl)


LOST: list[OSError] = []
"""Why output of this process was lost, once; empty: none was."""


class _Output(io.FileIO):
    """Standard output or error. A full disk ends no command: that output is lost is said once, and in the exit code."""

    below: Any = None  # what wrote there, which would close it with its last reference

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError):  # of `| head`, which has enough: click ends the command
                LOST.append(error)
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
                raise
            if not LOST:
                LOST.append(error)
                with contextlib.suppress(OSError):
                    os.write(2, f"error: output is lost, and the command goes on: {error.strerror}\n".encode())
            return len(data)


def print_anything() -> None:
    """Print characters that the terminal's encoding lacks as "?", and go on where a disk is full."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)  # after `>&-`
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
            with contextlib.suppress(ValueError, OSError):  # of what is no file
                stream.flush()
                raw = _Output(stream.fileno(), "w", closefd=False)
                raw.below, lines, through = stream, stream.line_buffering, stream.write_through
                buffer: Any = raw if through else io.BufferedWriter(raw)  # of `python -u` nothing waits
                setattr(sys, name, io.TextIOWrapper(buffer, stream.encoding, "replace", None, lines, through))
