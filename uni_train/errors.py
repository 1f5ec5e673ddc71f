"""What a person can put right: raised anywhere, shown by the command line as one short block, never a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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

    def __init__(self, model: str, skill: str) -> None:
        super().__init__(f"{model} cannot {skill}", hint="choose another model, or a recipe that does not need it")
        self.skill = skill


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


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of its page."""
    return (str(error).splitlines() or [type(error).__name__])[0]
