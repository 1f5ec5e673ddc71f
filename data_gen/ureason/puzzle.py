"""One puzzle as a generator makes it, before it gets an id and a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from data_gen.ureason.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A story or a snippet, and what it comes to.

    title: of the prompt. body: "Scenario: ..." or "Code:\\n...". scene: what to draw it on ("a wooden shelf"), without
    a full stop. outcome: what must be seen. steps: an exact reasoning, a sentence a step. canonical: what must not
    leak between splits. facts: JSON-able, from which the outcome can be computed again.
    """

    title: str
    body: str
    scene: str
    outcome: Outcome
    steps: tuple[str, ...]
    canonical: str
    facts: Mapping[str, Any] = field(default_factory=dict)
