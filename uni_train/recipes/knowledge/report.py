"""The page of a run: its tables, and every image with what the same model says in text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.report import run as training
from uni_train.eval.report.evaluation import Part, sections_of
from uni_train.eval.report.page import Page
from uni_train.eval.report.run import about_run, facts_of
from uni_train.eval.scored import read_folder
from uni_train.eval.sets.names import KNOWLEDGE_SETS, SETTINGS
from uni_train.run_folder import stage_folders

_STAGES = {"inject": "after the lessons", "ask": "before the lessons"}
"""What the samples of stages are called."""


def page(run_dir: Path, summary: Mapping[str, Any], config: Mapping[str, Any]) -> Page:
    """What report.html shows.

    Raises:
        UserError: summary.json lacks what a run writes; a file of samples cannot be read.
    """
    if "models" not in summary:  # it is not finished
        return training.page(run_dir, summary, config)
    try:
        tables, models = [Table.from_dict(raw) for raw in summary["tables"]], summary["models"]
        moments = {"inject": summary["scores"]["after"], "ask": summary["scores"]["before"]}
        trained = [" and ".join(one["names"]) for one in models if not one["injected"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{run_dir} has no report: {error!r}", "Run its command again.") from error
    parts = [
        Part(name, {"": partial(_samples, run_dir, stage)}, tables if stage == "inject" else (), SETTINGS,
             KNOWLEDGE_SETS, tables[0].questions, moments[stage])
        for stage, name in _STAGES.items()
    ]  # fmt: skip
    parts = [part for part in parts if part.scored[""]]
    images = sum(len(part.scored[""]) for part in parts)
    return Page(
        title=f"Knowledge transfer · {summary['model']}",
        facts=[*facts_of(run_dir, summary, config), ("Models trained", str(len(models))), ("Images", f"{images:,}"),
               ("Injected", f"{len(models) - len(trained)} of {len(models)}")],
        notes=[f"Not injected, and not counted: {', '.join(trained)}."] if trained else [],
        sections=[*sections_of(parts), about_run(run_dir, f"Revision {summary['revision']}.")],
    )  # fmt: skip


def _samples(run_dir: Path, kind: str, images: bool) -> Iterator[Scored]:
    for stage in stage_folders(run_dir):
        if f"-{kind}-" in stage.name:
            yield from read_folder(stage / "scored", images)
