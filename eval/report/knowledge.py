"""The report of a run of the recipe knowledge: its tables, and every image with what the same model says in text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import read_json, read_yaml
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.benchmarks.unisandbox.cases import KNOWLEDGE_SETS
from uni_train.eval.benchmarks.unisandbox.sets import SETTINGS
from uni_train.eval.evaluation import Result
from uni_train.eval.report.evaluation import Header, Part, write_evaluation_report
from uni_train.eval.scored import read_folder
from uni_train.run_folder import stage_folders

_PARTS = {"inject": "after the lessons", "ask": "before the lessons"}


def is_one(run_dir: Path) -> bool:
    """Whether a folder holds such a run, finished."""
    try:
        summary = read_json(Path(run_dir) / "summary.json")
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and "models" in summary


def write_report(run_dir: Path) -> Path:
    """Write run_dir/report.html and return its path.

    Reads summary.json (as `uni_train.stages.knowledge` makes it), config.yaml, run.json, and the samples of the stages,
    stages/<NN>-inject-*/scored/*.parquet and stages/<NN>-ask-*/scored/*.parquet.

    Raises:
        UserError: one of them is missing or damaged, or the page cannot be written.
    """
    import yaml

    run_dir = Path(run_dir)
    try:
        summary = read_json(run_dir / "summary.json")
        asked = read_yaml(run_dir / "config.yaml")
        command = read_json(run_dir / "run.json")["starts"][-1]["command"]
        tables = [Table.from_dict(raw) for raw in summary["tables"]]
        models = summary["models"]
        scores = {"inject": summary["scores"]["after"], "ask": summary["scores"]["before"]}
    except (OSError, ValueError, KeyError, IndexError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{run_dir} has no report: {error!r}", "Run its command again.") from error
    parts = [_part(run_dir, kind, str(summary["revision"]), tables if kind == "inject" else [], scores[kind])
             for kind in _PARTS]  # fmt: skip
    passed = [one for one in models if one["injected"]]
    failed = [" and ".join(one["names"]) for one in models if not one["injected"]]
    facts = [
        ("Model", str(summary["model"])),
        ("Models trained", str(len(models))),
        ("Injected", f"{len(passed)} of {len(models)}"),
        ("Images", f"{sum(part.result.n for part in parts):,}"),
        ("Seed", str(summary["seed"])),
        ("Minutes", f"{summary['wall_seconds'] / 60:.1f}"),
    ]
    notes = [f"Not injected, and not counted: {', '.join(failed)}."] if failed else []
    header = Header(f"Knowledge transfer · {summary['model']}", facts, notes, shlex.join(command), asked)
    return write_evaluation_report(run_dir / "report.html", header, [part for part in parts if part.result.n])


def _part(run_dir: Path, kind: str, revision: str, tables: list[Table], scores: dict[str, Any]) -> Part:
    read = partial(_samples, run_dir, kind)
    asked = [one.sample.ask for one in read(False)]
    settings = tuple(s for s in SETTINGS if any(ask.setting == s for ask in asked))
    sets = tuple(name for name in KNOWLEDGE_SETS if any(ask.case.set == name for ask in asked))
    questions = tables[0].questions if tables else ""
    result = Result(_PARTS[kind], revision, settings, sets, len(asked), {}, {}, scores, tuple(tables), (), (),
                    questions=questions)  # fmt: skip
    return Part(result, read)


def _samples(run_dir: Path, kind: str, images: bool) -> Iterator[Scored]:
    for stage in stage_folders(run_dir):
        if f"-{kind}-" in stage.name:
            yield from read_folder(stage / "scored", images)
