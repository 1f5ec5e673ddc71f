"""How the refined prompt of a thought is found, for UReason and `insight`.

"paper": the prompt asks for it between tags; a label as the published prompts ask for ("refined prompt:", "Final Scene
Prompt:") is taken too, and without either the sample is `not_extracted`. "official", as the released code: what follows
the last word "prompt", whatever it stands in, else the whole thought. In nano's words the label is "So draw".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from uni_train.data_gen.phrasing import CONCLUSION
from uni_train.eval.prompts import ureason as prompts

EXTRACTIONS = ("tag", "label", "last match", "whole thought", "none")


@dataclass(frozen=True, slots=True)
class Refined:
    """A refined prompt and how it was found: one of EXTRACTIONS; "none": there is none."""

    text: str
    how: str


LABEL = re.compile(
    r"(^[^\w\n]*(?:\d+[.)][^\w\n]*)?)?\b(?:refined|final)(?:\s+(?:scene|image|visual))?\s+prompt\b"
    r"(?:[\"'*_\s]*(?:is\b[\"'*_\s]*)?:|(?(1)[*_ \t]*\n|(?!)))",  # a heading needs no colon
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"<refined_prompt>(.*?)</refined_prompt>", re.IGNORECASE | re.DOTALL)
_NEXT_HEADING = re.compile(r"\n[ \t]*(?:#{1,6}[ \t]|-{3,}[ \t]*(?:\n|\Z))")
_FENCED = re.compile(r"(`{3,}|~{3,})\w*\n(.*?)\n?\1", re.DOTALL)
# What the prompts show in the place of a description, in case a model says just that.
_PLACEHOLDERS = ("...", "your description", "your visual description here", "a direct description of the final state")


def extract(thought: str, compat: str, world: str = "everyday") -> Refined:
    """The refined prompt of a thought; see the head of this file for `compat`."""
    if compat == "official":
        refined = prompts.published_refined_prompt(thought)
        text = prompts.without_markers(thought) if refined is None else refined
        return Refined(text, "none" if not text else "whole thought" if refined is None else "last match")
    if world == "nano":
        _, label, rest = thought.rpartition(CONCLUSION)
        return Refined(f"Draw {rest.strip()}", "label") if label and rest.strip(" .") else Refined("", "none")
    tagged = _TAG.findall(thought)
    if tagged and _said(tagged[-1]):
        return Refined(_said(tagged[-1]), "tag")
    labels = list(LABEL.finditer(thought))
    text = _said(_NEXT_HEADING.split(thought[labels[-1].end() :].lstrip(), 1)[0]) if labels else ""
    return Refined(text, "label") if text else Refined("", "none")


def _said(text: str) -> str:
    """Without a code fence, asterisks, braces and quotes around the whole; "" for a placeholder."""
    text = prompts.without_markers(text).strip("* \n")
    fenced = _FENCED.match(text)
    text = fenced[2].strip() if fenced else text
    for first, last in ("{}", '""', "''", "“”"):
        if text.startswith(first) and text.endswith(last) and first not in text[1:-1] and len(text) > 1:
            text = text[1:-1].strip("* \n")
    return "" if text.casefold() in _PLACEHOLDERS else text
