"""Table 4 over its models: knowledge is taught to one model a character, or a pair, and counted over all of them.

Each model is evaluated by itself, about those that it was taught (`eval options.unisandbox.characters=...`). Pooled
are the knowledge questions of several evaluations; the reasoning sets are a model's own and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.evaluation import Evaluation, load
from uni_train.eval.sets import counting
from uni_train.eval.sets.names import KNOWLEDGE_SETS, SETTINGS

NAME = "unisandbox"


@dataclass(frozen=True, slots=True)
class Pooled:
    """Several evaluations as one. scores, tables: as `UniSandbox` gives them. notes: what could not be pooled."""

    folders: tuple[Path, ...]
    models: int
    scores: dict[str, Any]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def pool(folders: Sequence[Path]) -> Pooled:
    """Count the knowledge questions of several finished evaluations together.

    Raises UserError: a folder holds no finished evaluation of knowledge, two were asked in different ways (labels,
    compat, judge, settings, k; which is said), or one question is in two of them.
    """
    evaluations = [load(Path(folder)) for folder in folders]
    pooled: list[Scored] = []
    asked_by: dict[tuple[str, str, int], Evaluation] = {}
    notes: list[str] = []
    ways = [_way(evaluation) for evaluation in evaluations]
    for evaluation, way in zip(evaluations, ways, strict=True):
        differing = [key for key in way if way[key] != ways[0][key]]
        if differing:
            key = differing[0]
            raise UserError(
                f"{evaluations[0].folder} and {evaluation.folder} were not asked alike: {key} was {ways[0][key]} and "
                f"{way[key]}",
                "Pool evaluations that were made by one command but for --checkpoint and the characters.",
            )
        result = evaluation.results[NAME]
        skipped = {(setting, name) for setting, name in result.without_score if name in KNOWLEDGE_SETS}
        notes += [
            f"{evaluation.folder.name}: {setting}, {name} has no score, and is left out" for setting, name in skipped
        ]
        for scored in evaluation.scored(NAME):
            ask = scored.sample.ask
            asked_for = (ask.case.id, ask.setting, ask.k)
            if ask.case.set not in KNOWLEDGE_SETS or (ask.setting, ask.case.set) in skipped:
                continue
            if asked_for in asked_by:
                raise UserError(
                    f"{ask.case.id} ({ask.setting}) is in {asked_by[asked_for].folder} and in {evaluation.folder}",
                    "A question counts once: evaluate each model about those that it was taught "
                    "(options.unisandbox.characters=NAME).",
                )
            asked_by[asked_for] = evaluation
            pooled.append(scored)
    if not pooled:
        raise UserError(
            f"{', '.join(map(str, folders))}: no knowledge question was judged", "Evaluate with judge.model=MODEL."
        )
    settings = [s for s in SETTINGS if any(scored.sample.ask.setting == s for scored in pooled)]
    sets = [name for name in KNOWLEDGE_SETS if any(scored.sample.ask.case.set == name for scored in pooled)]
    published = all(evaluation.results[NAME].scores.get("published", False) for evaluation in evaluations)
    questions = "; ".join(dict.fromkeys(evaluation.results[NAME].questions for evaluation in evaluations))
    models = len({evaluation.asked["model"]["content"] for evaluation in evaluations})
    return Pooled(
        tuple(evaluation.folder for evaluation in evaluations),
        models,
        counting.scores(pooled, settings, sets, ("official",), {}, published),
        tuple(
            replace(table, questions=questions)
            for table in counting.tables(pooled, settings, sets, ("official",), {}, published)
        ),
        tuple(notes),
    )


def _way(evaluation: Evaluation) -> dict[str, Any]:
    """How an evaluation was asked, but for the model and whom it was asked about."""
    if NAME not in evaluation.results or not set(evaluation.results[NAME].sets) & set(KNOWLEDGE_SETS):
        raise UserError(
            f"{evaluation.folder} asked for no knowledge", "Evaluate UniSandbox with the sets forward or inverse."
        )
    asked = evaluation.asked
    options = asked.get("options") or {}
    return {
        "settings": ", ".join(evaluation.results[NAME].settings),
        "--k": asked.get("k"),
        "compat": options.get("compat"),
        "the judge": (asked.get("judge") or {}).get("model", "nobody"),
    }
