"""How the refined prompt of a thought is found.

"paper": the prompt asks for it between tags; a label as the published prompts ask for ("refined prompt:", "Final Scene
Prompt:") is taken too, and without either the sample is `not_extracted`. "official", as the released code: what follows
the last word "prompt", whatever it stands in, else the whole thought. In nano's words the label is "So draw".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from uni_train.eval.prompts import ureason as prompts

EXTRACTIONS = ("tag", "label", "last match", "whole thought", "none")


@dataclass(frozen=True, slots=True)
class Refined:
    """A refined prompt and how it was found: one of EXTRACTIONS; "none": there is none."""

    text: str
    how: str


LABEL = re.compile(r"\b(?:refined|final(?:\s+scene)?)\s+prompt\b[\"'*_\s]*(?:is)?[\"'*_\s]*:", re.IGNORECASE)
_NANO_LABEL = "So draw"
# What the prompts show in the place of a description, in case a model says just that.
_PLACEHOLDERS = ("...", "your description", "your visual description here", "a direct description of the final state")


def extract(thought: str, compat: str, world: str = "everyday") -> Refined:
    """The refined prompt of a thought; see the head of this file for `compat`."""
    if compat == "official":
        found = prompts.published_refined_prompt(thought)
        text = prompts.without_markers(thought) if found is None else found
        return Refined(text, "none" if not text else "whole thought" if found is None else "last match")
    if world == "nano":
        _, label, rest = thought.rpartition(_NANO_LABEL)
        return Refined(f"Draw {rest.strip()}", "label") if label and rest.strip(" .") else Refined("", "none")
    tagged = prompts.parse_refined_prompt(thought)
    if tagged is not None and _said(tagged):
        return Refined(_said(tagged), "tag")
    labels = list(LABEL.finditer(thought))
    text = _said(thought[labels[-1].end() :]) if labels else ""
    return Refined(text, "label") if text else Refined("", "none")


def _said(text: str) -> str:
    """Without asterisks, braces and quotes around the whole; "" for a placeholder."""
    text = prompts.without_markers(text).strip("* \n")
    for first, last in ("{}", '""', "''", "“”"):
        if text.startswith(first) and text.endswith(last) and first not in text[1:-1] and len(text) > 1:
            text = text[1:-1].strip("* \n")
    return "" if text.casefold() in _PLACEHOLDERS else text
