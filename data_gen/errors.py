"""What can go wrong with data: one exception type, whose message names the file, line or key and says what to do."""

from __future__ import annotations

import difflib
import linecache
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).parents[1])
_LONGEST = 500  # letters of what an error says
PLUGINS: set[str] = set()  # top-level packages of plug-ins; an installed one lies among the libraries


class DataError(ValueError):
    """A mistake in the data or in a generator's arguments: unknown task, level out of range, bad JSONL line."""


class UnreadableError(DataError):
    """A text whose meaning could not be worked out; the message says where it stopped."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence for an error about an unknown `name`: the closest known one, or all of them."""
    options = [str(k) for k in known]
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else "known: " + ", ".join(options)


def described(error: BaseException) -> str:
    """An error of somebody else's code: type, text and place. The text may be long, as reprs of arrays are."""
    return f"{type(error).__name__}: {error!s:.{_LONGEST}}{place_of(error)}"


def place_of(error: BaseException) -> str:
    """Where in a person's own code an error was raised, " (FILE, line N: CODE)"; "" if it was nowhere there."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f" ({error.filename}, line {error.lineno}: {(error.text or '').strip():.{_LONGEST}})"
    return place_in(traceback.walk_tb(error.__traceback__))


def place_in(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The same for the last of `frames` that is a person's own code."""
    places = [(frame.f_code.co_filename, line) for frame, line in frames if _is_own(frame)]
    return line_at(*places[-1]) if places else ""


def line_at(file: str, line: int) -> str:
    """ " (FILE, line N: CODE)"."""
    linecache.checkcache(file)
    return f" ({file}, line {line}: {linecache.getline(file, line).strip():.{_LONGEST}})"


def _is_own(frame: FrameType) -> bool:
    file, package = frame.f_code.co_filename, frame.f_globals.get("__name__", "").partition(".")[0]
    return not file.startswith(("<", _OURS)) and (package in PLUGINS or not file.startswith(_LIBRARIES))
