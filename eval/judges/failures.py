"""Errors of a judge: those that a person must fix, and questions without a reply."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored
from uni_train.eval.judges.config import JudgeConfig
from uni_train.http_limits import PASSING, REDIRECTS

_LONGEST = 300
_TIMEOUTS = ("AttemptTimeoutError", "APITimeoutError", "TimeoutError")


def mostly_failed(scored: Sequence[Scored]) -> str:
    """Why more than half of the samples that a judge was asked about have no verdict: "judge failed 4 of 4 (HTTP 500)".

    "" where at least half have one: then those without stay in the denominator, and their rate is shown.
    """
    judged = [one for one in scored if one.by not in ("", "program")]
    failed = [one for one in judged if one.failure in ("judge_failed", "unparseable")]
    if 2 * len(failed) <= len(judged):
        return ""
    ((why, _),) = Counter(_why(one) for one in failed).most_common(1)
    return f"judge failed {len(failed)} of {len(judged)} ({why})"


def no_reply(why: str) -> str:
    """What is kept in the place of a reply that did not come."""
    return f"[no reply: {why}]"


def _why(scored: Scored) -> str:
    if scored.failure == "unparseable":
        return "no reply answers"
    found = re.fullmatch(r"\[no reply: ((\d{3}): .*|.*)\]", scored.replies[-1] if scored.replies else "", re.DOTALL)
    if found is None:
        return "no reply"
    return f"HTTP {found[2]}" if found[2] else found[1]


def of_the_judge(error: BaseException, config: JudgeConfig, clean: Callable[[str], str]) -> UserError | None:
    """A UserError for what no retry and no other question helps: a wrong key, a model or address that is not there."""
    status = _status(error)
    where = f" at {config.base_url}" if config.base_url else ""
    if status in (401, 403):
        named = config.key_env or ("JUDGE_API_KEY" if config.base_url else "its provider's environment variable")
        return UserError(
            f"the judge {config.model}{where} refuses the key ({status})",
            f"Put a valid key into {named} and run the same command again; what was judged is kept.",
        )
    if status == 404:
        return UserError(
            f"there is no judge {config.model}{where} (404: {_words(error, clean)})",
            "Check the model's name and the address (most servers want it to end in /v1).",
        )
    if status in REDIRECTS:
        return UserError(
            f"the judge {config.model}{where} is elsewhere ({status}: {_words(error, clean)})",
            "Give the address that it redirects to, if you trust it with the key.",
        )
    return None


def of_one_question(error: BaseException, config: JudgeConfig, clean: Callable[[str], str]) -> tuple[str, bool]:
    """Why a question has no reply, and whether the judge seems gone rather than unwilling to answer this one."""
    status = _status(error)
    if status is None:
        if type(_root(error)).__name__ in _TIMEOUTS:
            return f"nothing came from {config.base_url or config.model} within {config.timeout:g} s", True
        return _words(error, clean), True
    return f"{status}: {_words(error, clean)}", status in PASSING or status >= 500


def of_form(error: BaseException) -> bool:
    """Whether the server takes the request to be malformed."""
    return _status(error) in (400, 422)


def hide_secrets(error: BaseException, clean: Callable[[str], str]) -> None:
    """Take secrets out of an exception's words, in place: whoever logs it later does not know them."""
    error.args = tuple(cleaned(one, clean) for one in error.args)
    for name in ("message", "body"):
        if isinstance(getattr(error, name, None), str | dict | list):
            setattr(error, name, cleaned(getattr(error, name), clean))


def cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON-able value with every text in it cleaned; anything else as it is."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {name: cleaned(one, clean) for name, one in value.items()}
    return [cleaned(one, clean) for one in value] if isinstance(value, list) else value


def _root(error: BaseException) -> BaseException:
    """The provider's own exception below those of the retrying library and of inspect-ai."""
    from tenacity import RetryError

    if isinstance(error, RetryError) and error.last_attempt.failed:
        inner = error.last_attempt.exception()
        return error if inner is None else _root(inner)
    if type(error).__name__ == "ModelGenerateError" and error.__cause__ is not None:
        return _root(error.__cause__)
    return error


def _status(error: BaseException) -> int | None:
    root = _root(error)
    found = getattr(root, "status_code", None) or getattr(root, "code", None)
    return found if isinstance(found, int) else None


def _words(error: BaseException, clean: Callable[[str], str]) -> str:
    root = _root(error)
    said = clean(" ".join(str(root).split()) or type(root).__name__)
    return said if len(said) <= _LONGEST else said[: _LONGEST - 3] + "..."
