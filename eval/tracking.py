"""The numbers of a run or of an evaluation, sent to Weights & Biases: those of its report, nothing else.

The W&B run itself (its id, stable across resumes; offline without a key) is opened by `uni_train.training.wandb_run`.
That of a training also logs the loss; `log_run` only adds what is known at the end, and replaces what was there. An
evaluation has a W&B run of its own, in the group of the training that its checkpoint is from. It logs at the
checkpoint's step. Grouped, the runs of a training's checkpoints draw one curve, in whatever order they were evaluated.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import UserError
from uni_train.eval import summary as run_summary
from uni_train.eval.benchmark import Table
from uni_train.eval.report import gallery
from uni_train.eval.report.run import evaluations
from uni_train.eval.report.tables import wandb_table
from uni_train.eval.scored import read_folder
from uni_train.eval.sets import training_run

if TYPE_CHECKING:
    from wandb.sdk.wandb_run import Run

    from uni_train.eval.benchmark import Scored
    from uni_train.eval.evaluation import Evaluation


def log_run(run: Run, run_dir: Path, n_images: int = 24) -> None:
    """Log a finished run folder to an open W&B run (`WandbLogger.experiment`).

    scores/after/normal/mapping1    every score; below it low, high and n
    tables/*                        Tables 2 and 3 and the rounds; of the recipe knowledge all its tables
    gallery/before, gallery/after   `n_images` images with prompt and verdict, the same prompts in both

    Raises UserError when wandb is not installed, or a file of the run folder cannot be read.
    """
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb: wandb is not installed", "pip install -e '.[wandb]'") from error

    summary = run_summary.read(run_dir)
    logged: dict[str, Any] = {key: summary[key] for key in ("wall_seconds", "peak_rss_bytes")}
    for top in ("scores", "after_round", "average"):
        logged |= _estimates(top, summary.get(top) or {})
    if questions := str(summary.get("questions", "")):
        logged["questions"] = questions
    shown = [*training_run.tables(summary), *map(Table.from_dict, summary.get("tables", ()))]
    for place, table in enumerate(shown, 1):
        logged[f"tables/{place}_{_slug(table.title)}"] = wandb.Table(**wandb_table(table))
    moments = {when: list(read_folder(folder)) for when, folder in evaluations(run_dir).items()}
    for when, samples in gallery.excerpt(moments, n_images).items():
        logged[f"gallery/{when}"] = [
            wandb.Image(_picture(sample.sample.image), caption=_caption(sample)) for sample in samples
        ]
    run.log(logged)


def log_evaluation(run: Run, evaluation: Evaluation, step: int | None, n_images: int = 24) -> None:
    """Log a finished evaluation to an open W&B run, at `step` (updates of the training before its checkpoint).

    unisandbox/cot/mapping1             every estimate; below it low, high and n
    unisandbox/outcomes/cot/unreadable  the share of each outcome
    unisandbox/tables/*                 its tables
    unisandbox/gallery                  `n_images` samples with prompt, thought and verdict

    Raises UserError when wandb is not installed, or a file of the evaluation cannot be read.
    """
    try:
        import wandb
    except ImportError as error:
        raise UserError("logger=wandb: wandb is not installed", "pip install -e '.[wandb]'") from error

    logged: dict[str, Any] = {} if step is None else {"checkpoint/step": step}
    for name, result in evaluation.results.items():
        logged.update(_estimates(name, result.scores))
        for setting, by_set in result.outcomes.items():
            counts: Counter[str] = Counter()
            for counter in by_set.values():
                counts.update(counter)
            logged.update({f"{name}/outcomes/{setting}/{k}": v / counts.total() for k, v in counts.items()})
        for place, paper in enumerate(result.tables, 1):
            logged[f"{name}/tables/{place}_{_slug(paper.title)}"] = wandb.Table(**wandb_table(paper))
        shown = gallery.excerpt({"": list(evaluation.scored(name))}, n_images)[""]
        logged[f"{name}/gallery"] = [
            wandb.Image(_picture(answer.sample.image), caption=_caption(answer)) for answer in shown
        ]
    questions = {name: result.questions for name, result in evaluation.results.items()}
    run.config.update({"evaluation": dict(evaluation.asked), "questions": questions}, allow_val_change=True)
    run.log(logged, step=None if step is None else max(step, run.step), commit=True)


def _estimates(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(key, number) for every estimate in nested scores."""
    if "value" in tree and "n" in tree:
        if tree["value"] is not None:
            yield prefix, tree["value"]
        yield from ((f"{prefix}/{part}", tree[part]) for part in ("low", "high", "n") if tree[part] is not None)
        return
    for key, child in tree.items():
        if isinstance(child, Mapping):
            yield from _estimates(f"{prefix}/{key}", child)


def _slug(title: str) -> str:
    """A table's title up to its parenthesis, as a part of a key."""
    return "_".join(re.findall(r"[a-z0-9]+", title.partition("(")[0].lower()))


def _caption(answer: Scored) -> str:
    ask = answer.sample.ask
    reason = answer.verdict.reason if answer.verdict is not None else ""
    parts = (
        f"{ask.case.set}, {ask.setting}: {answer.sample.prompt or ask.case.prompt}",
        answer.sample.thought,
        f"{answer.outcome}{f' ({reason})' if reason else ''}{f': {answer.cause}' if answer.cause else ''}",
    )
    return "\n".join(part for part in parts if part)


def _picture(png: bytes | None) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(png or b"")).convert("RGB")
