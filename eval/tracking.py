"""The numbers of a run, sent to Weights & Biases: those of summary.json and the report, nothing else.

The run itself (its id, stable across resumes; offline without a key) is opened by `uni_train.training.wandb_logger`,
which also logs the loss while training; this only adds what is known at the end. Logging again replaces what was
there.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval import summary as run_summary
from eval.report import gallery
from eval.sample import ScoredSample
from uni_train.errors import UserError

if TYPE_CHECKING:
    from wandb.sdk.wandb_run import Run


def log_run(run: Run, run_dir: Path, n_images: int = 24) -> None:
    """Log a finished run folder to an open W&B run (`WandbLogger.experiment`).

    Every score with its interval and n goes into the run's summary (`scores/after/normal/mapping1`, `.../low`,
    `.../high`, `.../n`), Tables 2 and 3 and the rounds as tables, and `n_images` images with prompt and verdict as
    `gallery/before` and `gallery/after`, the same prompts in both. Raises UserError when wandb is not installed, or a
    file of the run folder cannot be read.
    """
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb: wandb is not installed", 'pip install "uni-train[wandb]"') from error

    summary = run_summary.read(run_dir)
    logged: dict[str, Any] = dict(flat_scores(summary))
    for task in run_summary.TABLES:
        columns, rows = table(summary, task)
        if rows:
            logged[f"tables/{task}"] = wandb.Table(columns=columns, data=rows)
    rounds = list(summary["rounds"])
    if rounds:
        columns = [str(name) for name in rounds[0] if not name.endswith("_estimate")]
        data = [[str(entry[name]) if name == "level" else entry[name] for name in columns] for entry in rounds]
        logged["tables/rounds"] = wandb.Table(columns=list(columns), data=data)
    for when, samples in gallery.excerpt(run_dir, n_images).items():
        logged[f"gallery/{when}"] = [wandb.Image(_open(sample), caption=_caption(sample)) for sample in samples]
    run.log(logged)


def flat_scores(summary: Mapping[str, Any]) -> Iterator[tuple[str, float | int]]:
    """(key, number) for every estimate below `scores`, `after_round` and `average`, and for time and memory."""
    for top in ("scores", "after_round", "average"):
        yield from _flat(top, summary.get(top) or {})
    for key in ("wall_seconds", "peak_rss_bytes"):
        yield key, summary[key]


def table(summary: Mapping[str, Any], task: str) -> tuple[list[str | int], list[list[Any]]]:
    """Columns and rows of the paper's table for one task (mapping: Table 3, maths: Table 2)."""
    names = run_summary.TABLES[task][1]
    columns: list[str | int] = [
        "model",
        *(f"{setting} {name}" for setting in ("Normal", "CoT") for name in names),
        "average",
        "change",
    ]
    rows = [
        [
            row.name,
            *(cell and cell.value for cell in row.normal + row.cot),
            row.average and row.average.value,
            row.delta,
        ]
        for row in run_summary.rows(summary, task)
    ]
    return columns, rows


def _flat(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, float | int]]:
    if "value" in tree and "n" in tree:
        if tree["value"] is not None:
            yield prefix, tree["value"]
        yield from ((f"{prefix}/{part}", tree[part]) for part in ("low", "high", "n") if tree[part] is not None)
        return
    for key, child in tree.items():
        yield from _flat(f"{prefix}/{key}", child)


def _open(sample: ScoredSample) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(sample.image or b"")).convert("RGB")


def _caption(sample: ScoredSample) -> str:
    parts: Sequence[str | None] = (
        f"{sample.setting}: {sample.item.prompt}",
        sample.thought,
        f"{sample.status}{f' ({sample.verdict.reason})' if sample.verdict and sample.verdict.reason else ''}",
    )
    return "\n".join(part for part in parts if part)
