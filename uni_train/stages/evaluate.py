"""Normal and CoT accuracy on UniSandbox's six sets (paper 004, Tables 1 to 3), every image stored once.

`evaluation.sets` may name further sets (`data_gen.registry.sources`): they are asked alike, and have their own tables.
`evaluation.modes` may have "said": how often the model says the right answer in words at once.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from data_gen.errors import DataError
from data_gen.registry import sources
from data_gen.seeds import derive_seed
from data_gen.task import Item, Task
from eval.benchmarks import unisandbox
from eval.sample import ScoredSample
from eval.store import read_shards
from uni_train.config.schema import Config, StarsConfig
from uni_train.errors import UserError
from uni_train.models.base import UnifiedModel
from uni_train.stages import judging
from uni_train.stages.sample import draw, say
from uni_train.stages.shards import Judged, make_shards
from uni_train.stages.work import SHARDS, StageRun, Work, in_batches


def sets(work: Work[Config]) -> dict[str, list[Item]]:
    """The sets of this run; the same items whatever the run's seed, so that runs compare.

    Raises:
        UserError: a split has fewer than `evaluation.n` expressions or pairs.
    """
    asked = work.config.evaluation
    found: dict[str, list[Item]] = {}
    for name in asked.sets:
        split = sources()[name].split or asked.split
        items = _drawn(work, name, "evaluation.n", asked.n, split, derive_seed("evaluation", asked.seed))
        found[name] = unisandbox.named(items, name)
    return found


def watched(work: Work[StarsConfig], name: str) -> list[Item]:
    """What a threshold curriculum asks of one set. Raises UserError where its validation split has too few."""
    n, seed = work.config.schedule.check_prompts, derive_seed("check", work.config.seed)
    return _drawn(work, name, "schedule.check_prompts", n, "validation", seed)


def _drawn(work: Work[Any], name: str, key: str, n: int, split: str, seed: int) -> list[Item]:
    try:
        return _task(work, name).generate(n, sources()[name].level, split, seed)
    except DataError as error:
        raise UserError(f"{key} {n} is too many for {name}: {error}", f"Lower {key}.") from error


def _task(work: Work[Any], name: str) -> Task:
    source = sources()[name]
    task = work.task(source.task)
    return replace(cast(Any, task), **source.options) if source.options else task


def run(work: Work[Config], stage: StageRun, label: str) -> None:
    """Ask everything in every mode; score by the exact verifier, in the everyday world by the judge."""
    config = work.config
    model = work.model(work.weights)
    chosen = sets(work)
    wanted = [(mode, name, items) for mode in config.evaluation.modes for name, items in chosen.items()]
    batches = [
        (mode, name, batch) for mode, name, items in wanted for _, batch in in_batches(items, config.model.draw_batch)
    ]

    def make(index: int) -> list[ScoredSample]:
        mode, name, batch = batches[index]
        asked = [(item, 0) for item in batch]
        seed, at_once = config.evaluation.seed, config.model.think_batch
        if mode == "said":
            return say(model, asked, seed, at_once)
        return draw(model, _task(work, name), asked, mode, seed, at_once)

    make_shards(
        work, stage.path, [len(batch) for *_, batch in batches], make, "ask and verify", _judged(work, stage.path)
    )
    scores = unisandbox.score(read_shards(stage.shards, images=False), chosen)
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    stage.result = {
        "label": label,
        "scores": {mode: {name: one.to_dict() for name, one in by_set.items()} for mode, by_set in scores.items()},
    }
    work.progress.table(f"Accuracy, {label}", *unisandbox.accuracy_rows(scores, chosen))


def normal_accuracy(model: UnifiedModel, work: Work[StarsConfig], name: str, folder: Path) -> float:
    """Normal accuracy on what is `watched` of one set. Ranks share the draws, and all must ask.

    Args:
        folder: where images wait for a judge; it is removed afterwards.
    """
    task, ranks, size = _task(work, name), work.ranks, work.config.model.draw_batch
    seed = derive_seed("check", work.config.seed)
    batches = [batch for _, batch in in_batches(watched(work, name), size)]

    def make(index: int) -> list[ScoredSample]:
        return draw(model, task, [(i, 0) for i in batches[index]], "normal", seed, work.config.model.think_batch)

    judged = _judged(work, folder)
    if judged is None:
        own = [sample for index in range(ranks.rank, len(batches), ranks.world_size) for sample in make(index)]
        samples = [replace(sample, image=b"") for sample in own]  # scored by their verdicts
        found = [one for some in ranks.gather(samples) for one in some]
    else:
        make_shards(work, folder, [len(batch) for batch in batches], make, name, judged, quiet=True)
        found = ranks.from_main(lambda: list(read_shards(folder / SHARDS, images=False)))
        ranks.from_main(lambda: shutil.rmtree(folder, ignore_errors=True))
    value = unisandbox.score(found)["normal"][name].value
    return 0.0 if value is None else value


def _judged(work: Work[Any], folder: Path) -> Judged | None:
    return partial(judging.verified, work, folder) if judging.reads_images(work.config) else None
