"""What judges and planners of ViGoR are asked, and how their replies are read.

A judge fills in the templates of Han et al. 2026 (Tables 5 to 22). They are verbatim in `templates/`, as
FAMILY.process.txt or FAMILY.result.txt. Page layout is the paper's. Two artefacts of `str.format` are undone when a
template is filled in: the doubled braces around the JSON form, and {instruction}, {gt_prompt}.

A planner cuts a task into steps for models that draw one image a call (section 4.1). The paper names its planners
(GPT-5, Gemini-2.5-Pro) and gives no prompt: this one is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmarks.vigor.cases import DOMAINS
from uni_train.eval.prompts import filled
from uni_train.eval.reading import JsonReader, number, plain

BACKGROUND, RULE, QUALITY, REASONING = (
    "background_consistency", "rule_obey", "visual_quality", "reasoning_success",
)  # fmt: skip
DIMENSIONS = (BACKGROUND, RULE, QUALITY, REASONING)
"""BC, RO, VQ and RS of equation 5. Of a process the last is Reasoning Accuracy (RA) in equation 2, which the templates
ask for as Beneficial Action; those of results ask for Reasoning Success as ReasoningAccuracy."""
PROCESS, RESULT = "process", "result"
GOOD = 0.68  # of a process mark: section 3.3 calls 68 to 100 good
TABLES = {
    "knowledge": (6, 5), "physical": (7, 8), "sudoku": (9, 10), "jigsaw_puzzle": (11, 12),
    "function_plotting": (13, 14), "algebraic_calculation": (15, 16), "block_building": (17, 18),
    "klotski_puzzle": (19, 20), "maze_navigation": (22, 21),
}  # fmt: skip
"""Family -> the tables of its templates for process and for result."""
NO_REFERENCE = "Not provided."
"""Stands where a template names a standard answer and there is none, or it is hidden. Ours: the paper has no words."""
PLAN = """You plan the edits of an image. Another model will carry them out, one after the other, each on the \
image that the last one left. It sees neither the task nor your other steps.

Task: {instruction}

Solve the task, then write at most {steps} steps. Each is one instruction for an edit that can be seen in the image \
and brings it closer to the solution; after the last, the image must show the whole solution. Change nothing else.
Write one step a line, numbered "1.", "2.", ..., and nothing else."""

_KEYS = {
    "backgroundconsistency": BACKGROUND, "ruleobey": RULE, "visualquality": QUALITY,
    "reasoningaccuracy": REASONING, "reasoningsuccess": REASONING, "beneficialaction": REASONING,
}  # fmt: skip
_REASONS = {"background": BACKGROUND, "rule": RULE, "accuracy": REASONING, "beneficial": REASONING}
_STEP = re.compile(r"[\s*_#>-]*(?:step\s*\d+|\(?\d+(?=[.):*]))[.):*_]*\s+(\S.*?)\**", re.IGNORECASE)


def family_of(task: str) -> str:
    """Whose templates a task has: each symbolic one has its own, physical and knowledge tasks share theirs."""
    return next(task if domain == "symbolic" else domain for domain, tasks in DOMAINS.items() if task in tasks)


@cache
def template(family: str, kind: str) -> str:
    """As printed. family: one of TABLES; kind: PROCESS or RESULT."""
    return (Path(__file__).parent / "templates" / f"{family}.{kind}.txt").read_text(encoding="utf-8")


def judge_prompt(family: str, kind: str, instruction: str, answer: str) -> str:
    """The template as a judge is asked. Only those of knowledge and physical tasks name instruction and answer."""
    text = template(family, kind)
    if "{ {" in text:
        head, _, rest = text.partition("{ {")
        body, _, tail = rest.rpartition("} }")
        text = f"{head}{{{body}}}{tail}"
    return filled(text, instruction=instruction, gt_prompt=answer or NO_REFERENCE)


def dimension_of(key: str) -> str | None:
    """One of DIMENSIONS, however its key is written: BeneficialAction, Beneficial_Action, Beneficial.Action."""
    return _KEYS.get(_plain(key))


def read_marks(text: str, kind: str) -> Verdict:
    """A judge's reply. Raises ValueError, in words that it can act on."""
    reply = JsonReader({"type": "object"})(text)
    highest = 100 if kind == PROCESS else 1
    values: dict[str, float] = {}
    for key, value in reply.items():
        name = dimension_of(key)
        if name is None:
            continue
        if name in values:
            raise ValueError(f"it gives {name} twice")
        mark = number(value, 0, highest)
        if mark is None or 0 < mark < 1:  # of a hundred, a share would be in doubt
            wanted = "an integer from 0 to 100" if kind == PROCESS else "0 or 1"
            raise ValueError(f"{key} must be {wanted}, not {json.dumps(value)}")
        values[name] = mark / highest
    lacking = [name for name in DIMENSIONS if name not in values]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    return verdict_of(values, kind, _reasons(reply))


def verdict_of(values: Mapping[str, float], kind: str, reasons: Mapping[str, str] = {}) -> Verdict:
    """Dimensions in [0, 1] as checks: of a result pass or fail, of a process graded and passed where it is good."""
    least = GOOD if kind == PROCESS else 1
    return Verdict(tuple(
        Check(name, "pass" if values[name] >= least else "fail", reasons.get(name, ""),
              values[name] if kind == PROCESS else None)
        for name in DIMENSIONS if name in values
    ))  # fmt: skip


def _reasons(reply: Mapping[str, Any]) -> dict[str, str]:
    """Explanations are for people: whatever is missing or odd in them is left out."""
    given = next((value for key, value in reply.items() if _plain(key) == "explanation"), None)
    pairs = given.items() if isinstance(given, Mapping) else ()
    named = ((_REASONS.get(_plain(key)) or dimension_of(key), value) for key, value in pairs)
    return {name: value for name, value in named if name and isinstance(value, str)}


def _plain(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.lower())


def steps_of(plan: str, most: int) -> list[str]:
    """The first `most` numbered lines of a plan; none where it has none."""
    matches = (_STEP.fullmatch(line.rstrip()) for line in plain(plan).splitlines())
    return [match[1] for match in matches if match][:most]
