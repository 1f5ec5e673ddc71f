"""What a person can put right: raised anywhere, shown by the command line as one short block, never a traceback."""

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


class UserError(Exception):
    """Something outside the program is wrong (a file, a folder, a disk, a checkpoint). The command exits with 1.

    `message` names the file, key, line or sample at fault; `hint` says what to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"

    def __reduce__(self) -> tuple[type[UserError], tuple[str, str | None]]:
        # The default would hand __str__'s text to __init__ and lose the hint on the way out of a worker process.
        return type(self), (self.message, self.hint)


class UsageError(UserError):
    """What was typed cannot be meant (an unknown name, key or value). The command exits with 2."""

    exit_code = 2


class SkillMissing(UserError):
    """The model cannot do what it was asked, e.g. think before it draws."""

    def __init__(self, model: str, skill: str, hint: str = "") -> None:
        super().__init__(f"{model} cannot {skill}", hint or "choose another model, or a recipe that does not need it")
        self.skill, self.note = skill, f"{self.message}. {hint}" if hint else self.message


class DataError(ValueError):
    """A mistake in the data or in a generator's arguments: unknown task, level out of range, bad JSONL line."""


class UnreadableError(DataError):
    """A text whose meaning could not be worked out; the message says where it stopped."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was most likely meant to be, or None when nothing is close."""
    names = list(known)
    by_folded = {candidate.casefold().replace("-", "_"): candidate for candidate in names}
    matches = difflib.get_close_matches(name.casefold().replace("-", "_"), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str], noun: str) -> str:
    """A hint for an unknown name: the nearest one first, then all that exist."""
    names = list(known)
    close = nearest(name, names)
    listed = f"Known {noun}: {', '.join(names) or 'none'}."
    return listed if close is None else f"Did you mean {close}? {listed}"


def nearest_or_all(name: str, known: Iterable[str]) -> str:
    """A sentence for an error about an unknown `name`: the closest known one, or all of them."""
    options = [str(k) for k in known]
    close = nearest(name, options)
    return f'did you mean "{close}"?' if close else "known: " + ", ".join(options)


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of its page."""
    return (str(error).splitlines() or [type(error).__name__])[0]


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
