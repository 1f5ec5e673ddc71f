"""Text on terminals: control characters in data and replies are removed."""

from __future__ import annotations

import contextlib
import io
import re
import sys

import click

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and newline, and those that turn the direction of writing."""


def plain(text: str) -> str:
    """The text without control characters: an escape sequence of a terminal becomes the letters behind its ESC."""
    return _CONTROLS.sub("", text)


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print the text of a command without control characters: it may hold names from files of others."""
    click.echo(plain(str(text)), err=err, nl=nl)


def print_anything() -> None:
    """Print characters that the terminal's encoding lacks as "?" instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(errors="replace")
