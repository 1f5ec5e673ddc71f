"""Normal and CoT accuracy on UniSandbox's six sets (paper 004, Tables 1 to 3), every image stored once."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from data_gen.seeds import derive_seed
from data_gen.task import Item, Task
from eval.benchmarks import unisandbox
from eval.sample import ScoredSample
from eval.store import read_shards
from uni_train.config.schema import Config, StarsConfig
from uni_train.models.base import UnifiedModel
from uni_train.stages import judging
from uni_train.stages.sample import draw
from uni_train.stages.shards import Judged, make_shards
from uni_train.stages.work import SHARDS, StageRun, Work, in_batches


def sets(work: Work[Config]) -> dict[str, list[Item]]:
    """The sets of this run; the same items whatever the run's seed, so that runs compare."""
    asked = work.config.evaluation
    found: dict[str, list[Item]] = {}
    for name in asked.sets:
        seed = derive_seed("evaluation", asked.seed)
        found[name] = _task(work, name).generate(asked.n, int(name[-1]), asked.split, seed)
    return found


def _task(work: Work[Any], name: str) -> Task:
    return work.task("maths" if name.startswith("math") else "mapping")


def run(work: Work[Config], stage: StageRun, label: str) -> None:
    """Ask everything in every mode; score by the exact verifier, in the everyday world by the judge."""
    config = work.config
    model = work.model(work.weights)
    wanted = [(mode, name, items) for mode in config.evaluation.modes for name, items in sets(work).items()]
    batches = [
        (mode, name, batch) for mode, name, items in wanted for _, batch in in_batches(items, config.model.draw_batch)
    ]

    def make(index: int) -> list[ScoredSample]:
        mode, name, batch = batches[index]
        asked = [(item, 0) for item in batch]
        return draw(model, _task(work, name), asked, mode, config.evaluation.seed, config.model.think_batch)

    make_shards(
        work, stage.path, [len(batch) for *_, batch in batches], make, "ask and verify", _judged(work, stage.path)
    )
    scores = unisandbox.score(read_shards(stage.shards, images=False), sets(work))
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    stage.result = {
        "label": label,
        "scores": {mode: {name: one.to_dict() for name, one in by_set.items()} for mode, by_set in scores.items()},
    }
    rows = [[mode, *(f"{one.value:.2f}" for one in by_set.values())] for mode, by_set in scores.items()]
    work.progress.table(f"Accuracy, {label}", ["mode", *next(iter(scores.values()))], rows)


def normal_accuracy(model: UnifiedModel, work: Work[StarsConfig], name: str, n: int, seed: int, folder: Path) -> float:
    """Normal accuracy on `n` validation draws of one set: what a threshold curriculum watches. Ranks share the draws,
    and all must ask.

    Args:
        folder: where images wait for a judge; it is removed afterwards.
    """
    task, ranks, size = _task(work, name), work.ranks, work.config.model.draw_batch
    items = task.generate(n, int(name[-1]), "validation", seed)
    batches = [batch for _, batch in in_batches(items, size)]

    def make(index: int) -> list[ScoredSample]:
        return draw(model, task, [(i, 0) for i in batches[index]], "normal", seed, work.config.model.think_batch)

    judged = _judged(work, folder)
    if judged is None:
        own = [sample for index in range(ranks.rank, len(batches), ranks.ranks) for sample in make(index)]
        samples = [replace(sample, image=b"") for sample in own]  # scored by their verdicts
        found = [one for some in ranks.gather(samples) for one in some]
    else:
        make_shards(work, folder, [len(batch) for batch in batches], make, name, judged, quiet=True)
        found = ranks.from_first(lambda: list(read_shards(folder / SHARDS, images=False)))
        ranks.from_first(lambda: shutil.rmtree(folder, ignore_errors=True))
    value = unisandbox.score(found)["normal"][name].value
    return 0.0 if value is None else value


def _judged(work: Work[Any], folder: Path) -> Judged | None:
    return partial(judging.verified, work, folder) if judging.reads_images(work.config) else None
