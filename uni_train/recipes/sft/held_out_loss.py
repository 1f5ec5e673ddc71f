"""The held-out loss: which rows are scored, and what is done with it while training (docs/training.md)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
from safetensors.torch import load_file, save_file

from uni_train.core.files import atomic_path, disk_errors
from uni_train.eval.report.sections.held_out_loss import LOG, best_line, compared, kept_line, loss_table, lowest
from uni_train.eval.report.tables import print_table
from uni_train.models.base import Example, Trainable
from uni_train.recipes.sft.config import SftConfig
from uni_train.recipes.sft.held_out_rows import Place, set_aside, too_few
from uni_train.stages.held_out_loss import row_losses
from uni_train.stages.work import CHECKPOINTS, StageRun, Work
from uni_train.training.averages import put
from uni_train.training.callbacks import Validation, evaluated
from uni_train.training.data.rows import CHECKED, Rows
from uni_train.training.metric_log import JsonlLogger, append_once, read_metrics


class HeldOutLoss(Validation):
    """Scores rows before the first update, every `every` updates and after the last: a line each in the stage's log.

    A line has the means as numbers, and under `rows` the loss of every row. Rows of a share are taken out of `sources`.

    Args:
        other: rows of `held_out_loss.path`; None: a share of `sources` is held out.

    Raises:
        UserError: a bad row; too few rows are held out, or none of a source is left to train on.
    """

    def __init__(
        self, work: Work[SftConfig], model: Trainable, sources: Mapping[str, Rows], other: Rows | None, stage: StageRun
    ) -> None:
        self.work, self.model, self.keys = work, model, work.config.held_out_loss
        self.folder, self.line, self.result = stage.path / CHECKPOINTS, dict[str, Any](), dict[str, Any]()
        super().__init__(self._measured, self.keys.every, stage.path / LOG)
        lines = work.ranks.from_main(lambda: read_metrics(self.file.path))
        if other is not None and not lines:
            work.ranks.from_main(other.check)
        chosen, rest = set_aside(work.config, sources, other)
        self.where = {row: rows.where(index) for row, rows, index in chosen}
        held, train = _examples(chosen), _examples(rest)
        if len(held) < 2:
            raise too_few(len(held))
        self.rows = {"held_out": held, "train": train}
        overlap = lines[0]["ids"]["overlap"] if lines else work.ranks.from_main(lambda: _overlap(held, sources))
        self.ids = {"held_out": [*held], "train": [*train], "overlap": overlap}
        trained = f"of {len(train)} of the {sum(map(len, sources.values()))} that are"
        work.progress.say(f"  held-out loss: of {len(held)} rows that are not trained on, and {trained}")
        if overlap:
            where = f"{len(overlap)} of these {len(held)}, first {self.where[overlap[0]]}"
            work.progress.say(f"  held-out rows whose images and texts another row trains on: {where}")

    def _validate(self, trainer: pl.Trainer, module: pl.LightningModule, step: int) -> None:
        with trainer.precision_plugin.val_step_context():
            self.scores = evaluated(trainer, module, self.evaluate, step)
        append_once(trainer, self.file, [{"step": step, **self.scores, **self.line}])
        for logger in trainer.loggers:
            if not isinstance(logger, JsonlLogger):
                logger.log_metrics({f"held_out_loss/{name}": value for name, value in self.scores.items()}, step=step)

    def _measured(self, step: int) -> dict[str, float]:
        """{"held_out/loss": 0.4, "held_out/ce": 0.2, "held_out/mse": 0.3, "held_out/mse/0.1": 0.1, ...,
        "train/loss": 0.2, ...}, without parts that no row has; the loss of each row is left in `line`."""
        config, levels, means, by_row = self.work.config, self.keys.levels, dict[str, float](), dict[str, Any]()
        for name, examples in self.rows.items():
            ce, mse = row_losses(self.model, examples, levels, config.evaluation.seed, self.work.ranks)
            by_row[name] = {"ce": ce.tolist(), "mse": mse.tolist()}
            parts = {"ce": ce, "mse": mse, **{f"mse/{level:g}": mse[:, i] for i, level in enumerate(levels)}}
            some = {part: float(np.nanmean(losses)) for part, losses in parts.items() if not np.isnan(losses).all()}
            total = config.ce_weight * some.get("ce", 0.0) + config.mse_weight * some.get("mse", 0.0)
            means |= {f"{name}/{part}": mean for part, mean in {"loss": total, **some}.items()}
        self.line = {"levels": [*levels], "ids": self.ids, "rows": by_row}
        if self.keys.keep == "best" and step:  # a training leaves what it has trained: the start is no best update
            self.work.ranks.from_main(lambda: self._save(step, means["held_out/loss"]))
        return means

    def _save(self, step: int, loss: float) -> None:
        """The trained weights, where no earlier update was as good; those before the last best ones go."""
        if any(line["held_out/loss"] <= loss for line in read_metrics(self.file.path) if line["step"]):
            return
        weights = {name: p.detach().contiguous() for name, p in self.model.named_parameters() if p.requires_grad}
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(self.folder / f"best-{step:08d}.safetensors") as temporary:
                save_file(weights, temporary)
            for file in sorted(self.folder.glob("best-*"))[:-2]:
                file.unlink()

    def finish(self) -> None:
        """Give the model the weights that are kept, and print what changed."""
        lines, say = read_metrics(self.file.path), self.work.progress.say
        kept, best = kept_line(lines, self.keys.keep), best_line(lines)
        if self.keys.keep == "best" and (file := self.folder / f"best-{kept['step']:08d}.safetensors").is_file():
            put(self.model, load_file(file))
        elif self.keys.keep == "best":
            say(f"  the weights of update {kept['step']} are gone: the model is that of the last update")
            kept = lines[-1]
        self.result = {**compared(lines[0], kept), "best_step": best["step"], "best_loss": best["held_out/loss"]}
        print_table(loss_table(self.result), self.work.progress)
        say(f"  {lowest(best)} The model is that of update {kept['step']}.")


def _examples(places: Iterable[Place]) -> dict[str, Example]:
    """By their ids, without bad rows that are skipped; of several captions always the same."""
    drawn = [(row, rows.draw(index, random.Random(0)), rows, index) for row, rows, index in places]
    return {row: example for row, example, rows, index in drawn if rows.where(index) not in rows.skipped}


def _overlap(held_out: Mapping[str, Example], sources: Mapping[str, Rows]) -> list[str]:
    """Held-out rows that are trained on under other ids, as far as the first CHECKED rows of a source tell."""
    drawn = (rows.draw(i, random.Random(0)) for rows in sources.values() for i in range(min(len(rows), CHECKED)))
    trained = set(map(_digest, drawn))
    return [row for row, example in held_out.items() if _digest(example) in trained]


def _digest(example: Example) -> bytes:
    """Of its images and texts."""
    texts = [example.prompt, example.thought, example.answer, *(turn.text for turn in example.turns)]
    digest = hashlib.blake2b(repr(texts).encode(), digest_size=16)
    for image in (*example.images, example.target, *(turn.image for turn in example.turns)):
        digest.update(b"-" if image is None else repr(image.shape).encode() + image.tobytes())
    return digest.digest()
