"""The five dimensions of a visual cue (A.2.2): the judge's JSON, its caps kept by a program, and the verdict.

The paper's text calls the second dimension consistency, its rubric and Table 8 faithfulness: they are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uni_train.data_gen.task import Check, Verdict

DIMENSIONS = ("relevance", "faithfulness", "causal_utility", "specificity", "compactness")
MOST = 5
_CLEAR = 4  # the score from which a dimension passes: ours, the paper has grades alone
# What the rubric lets a judge name as the failure of a cue.
FAILURE_MODES = (
    "missing_critical_evidence", "ambiguous_evidence", "contradiction_to_answer", "misleading_hallucination",
    "generic_scene",
)  # fmt: skip
_STATUSES = ("verified", "weak", "missing", "contradicted")
SCHEMA = {
    "type": "object",
    "required": ["decision_critical_factors", "scores"],
    "properties": {
        "decision_critical_factors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["factor", "criticality", "status"],
                "properties": {
                    "factor": {"type": "string"},
                    "criticality": {"enum": ["critical", "supporting"]},
                    "status": {"enum": list(_STATUSES)},
                    "why": {"type": "string"},
                },
            },
        },
        "scores": {
            "type": "object",
            "required": list(DIMENSIONS),
            "properties": {name: {"type": "integer", "minimum": 0, "maximum": MOST} for name in DIMENSIONS},
        },
        "failure_modes": {"type": "array", "items": {"type": "string"}},
        "notes": {"type": "string"},
    },
}


def caps(reply: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Dimension -> the most that the rubric's two rules allow, and why; for those that a rule binds.

    reply: valid by SCHEMA. Without a single critical factor none is verifiable.
    """
    critical = [
        factor["status"] for factor in reply["decision_critical_factors"] if factor["criticality"] == "critical"
    ]
    caps = {}
    if {"missing", "contradicted"} & set(critical):
        caps["relevance"] = (3, "a critical factor is missing or contradicted")
    if "verified" not in critical:
        caps["causal_utility"] = (2, "no critical factor is verified")
    return caps


def verdict_of(reply: Mapping[str, Any]) -> Verdict:
    """One graded check a dimension, its score over 5 after the caps; the first that fails names the failure modes."""
    bounds = caps(reply)
    checks: list[Check] = []
    modes = [mode for mode in FAILURE_MODES if mode in reply.get("failure_modes", ())]
    for name in DIMENSIONS:
        given = int(reply["scores"][name])
        most, why = bounds.get(name, (MOST, ""))
        score = min(given, most)
        reason = f"{name} {score} of {MOST}" + (f": the judge said {given}, but {why}" if given > most else "")
        passed = score >= _CLEAR
        if not passed and modes:
            reason, modes = f"{reason}; {', '.join(modes)}", []
        checks.append(Check(name, "pass" if passed else "fail", "" if passed else reason, score / MOST))
    return Verdict(tuple(checks))


def failure_mode(verdict: Verdict) -> str | None:
    """The first that the judge named, in the rubric's order."""
    return next((mode.replace("_", " ") for mode in FAILURE_MODES if mode in verdict.reason), None)
