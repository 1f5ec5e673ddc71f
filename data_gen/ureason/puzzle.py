"""One puzzle as a generator makes it, before it gets an id and a split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uni_train.data_gen.ureason.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A story or a snippet, and what it comes to.

    title: of the prompt. body: "Scenario: ..." or "Code:\\n...". scene: what to draw it on ("a wooden shelf"), without
    a full stop. outcome: what must be seen. steps: an exact reasoning, a sentence a step. facts: JSON-able, from which
    the outcome can be computed again. canonical: what must not leak between splits, "" for the facts.
    """

    title: str
    body: str
    scene: str
    outcome: Outcome
    steps: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    canonical: str = ""

    @property
    def split_key(self) -> str:
        """The text whose hash decides the split."""
        return self.canonical or json.dumps(self.facts, sort_keys=True)
