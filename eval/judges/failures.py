"""Questions to a judge that have no reply."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from uni_train.eval.benchmark import NO_ANSWER, Scored

_SAID = dict(zip(NO_ANSWER, ("blank replies", "it refuses", "its server filters", "no reply answers"), strict=True))


def mostly_failed(scored: Sequence[Scored]) -> str:
    """Why more than half of the samples that a judge was asked about have no verdict: "judge failed 4 of 4 (HTTP 500)".

    "" where at least half have one: then those without stay in the denominator, and their rate is shown.
    """
    judged = [one for one in scored if one.by not in ("", "program")]
    failed = [one for one in judged if one.failure in ("judge_failed", *NO_ANSWER)]
    if 2 * len(failed) <= len(judged):
        return ""
    ((why, _),) = Counter(_why(one) for one in failed).most_common(1)
    return f"judge failed {len(failed)} of {len(judged)} ({why})"


def no_reply(why: str) -> str:
    """What is kept in the place of a reply that did not come."""
    return f"[no reply: {why}]"


def _why(scored: Scored) -> str:
    if scored.failure in NO_ANSWER:
        return _SAID[scored.failure]
    found = re.fullmatch(r"\[no reply: ((\d{3}): .*|.*)\]", scored.replies[-1] if scored.replies else "", re.DOTALL)
    if found is None:
        return "no reply"
    return f"HTTP {found[2]}" if found[2] else found[1]
