"""Normal and CoT accuracy on UniSandbox's six sets (paper 004, Tables 1 to 3), every picture stored once.

`evaluation.sets` may name further sets (`unisandbox.SOURCES`): they are asked alike, and shown in tables of their own.
`evaluation.modes` may have "said": how often the model says the right answer in words at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from data_gen.errors import DataError
from data_gen.mapping import Mapping
from data_gen.seeds import derive_seed
from data_gen.task import Item, Task
from eval.benchmarks import unisandbox
from eval.sample import ScoredSample
from eval.store import read_shards, shard_path, write_shard
from uni_train.config.schema import Config, StarsConfig
from uni_train.errors import UserError
from uni_train.models.base import UnifiedModel
from uni_train.stages.sample import draw, say
from uni_train.stages.work import StageRun, Work, in_batches


def sets(work: Work[Config]) -> dict[str, list[Item]]:
    """The sets of this run; the same items whatever the run's seed, so that runs compare.

    Raises:
        UserError: a split has fewer than `evaluation.n` expressions or pairs.
    """
    asked = work.config.evaluation
    found: dict[str, list[Item]] = {}
    for name in asked.sets:
        source, seed = unisandbox.SOURCES[name], derive_seed("evaluation", asked.seed)
        try:
            items = _task(work, name).generate(asked.n, source.level, source.split or asked.split, seed)
        except DataError as error:
            raise UserError(f"evaluation.n {asked.n} is too many for {name}: {error}", "Lower evaluation.n.") from error
        found[name] = unisandbox.named(items, name)
    return found


def _task(work: Work[Any], name: str) -> Task:
    source = unisandbox.SOURCES[name]
    task = work.task(source.task)
    return replace(cast("Mapping", task), **source.options) if source.options else task


def run(work: Work[Config], stage: StageRun, label: str) -> None:
    """Ask everything in every mode; score by the exact verifier."""
    config = work.config
    model = work.model(work.weights)
    chosen = sets(work)
    wanted = [(mode, name, items) for mode in config.evaluation.modes for name, items in chosen.items()]
    batches = [
        (mode, name, batch) for mode, name, items in wanted for _, batch in in_batches(items, config.model.draw_batch)
    ]
    mine, done = work.missing(stage.shards, len(batches))
    finished = sum(len(batches[index][2]) for index in done)
    with work.bar("ask and verify", sum(len(batches[index][2]) for index in mine), finished) as bar:
        for index in mine:
            mode, name, batch = batches[index]
            asked = [(item, 0) for item in batch]
            seed, at_once = config.evaluation.seed, config.model.think_batch
            if mode == "said":
                samples = say(model, asked, seed, at_once)
            else:
                samples = draw(model, _task(work, name), asked, mode, seed, at_once)
            write_shard(shard_path(stage.shards, index), samples)
            bar.advance(len(batch))
    work.ranks.wait()
    scores = unisandbox.score(read_shards(stage.shards, images=False), chosen)
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    stage.result = {
        "label": label,
        "scores": {mode: {name: one.to_dict() for name, one in by_set.items()} for mode, by_set in scores.items()},
    }
    work.progress.table(f"Accuracy, {label}", *unisandbox.accuracy_rows(scores, chosen))


def normal_accuracy(model: UnifiedModel, work: Work[StarsConfig], name: str, n: int, seed: int) -> float:
    """Normal accuracy on `n` validation draws of one set: what a threshold curriculum watches. Ranks share the draws,
    and all must ask."""
    task, ranks = _task(work, name), work.ranks
    items = task.generate(n, unisandbox.SOURCES[name].level, "validation", seed)
    own: list[ScoredSample] = []
    for index, batch in in_batches(items, work.config.model.draw_batch):
        if index % ranks.ranks == ranks.rank:
            own += draw(model, task, [(i, 0) for i in batch], "normal", seed, work.config.model.think_batch)
    samples = [replace(sample, image=b"") for sample in own]  # scored by their verdicts
    value = unisandbox.score([one for some in ranks.gather(samples) for one in some])["normal"][name].value
    return 0.0 if value is None else value
