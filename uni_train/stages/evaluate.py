"""Normal and CoT accuracy on UniSandbox's six sets (paper 004, Tables 1 to 3), every picture stored once; and, where
asked for, how often the model *says* the right answer at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from data_gen.seeds import derive_seed
from data_gen.task import Item, Task
from eval.benchmarks import unisandbox
from eval.sample import ScoredSample
from eval.store import read_shards, shard_path, write_shard
from uni_train.config.schema import Config, StarsConfig
from uni_train.models.base import UnifiedModel
from uni_train.stages.sample import draw, say
from uni_train.stages.work import StageRun, Work, in_batches


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
    """Ask everything in every mode; score by the exact verifier."""
    config = work.config
    model = work.model(work.weights)
    wanted = [(mode, name, items) for mode in config.evaluation.modes for name, items in sets(work).items()]
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
    scores = unisandbox.score(read_shards(stage.shards, images=False), sets(work))
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    stage.result = {
        "label": label,
        "scores": {mode: {name: one.to_dict() for name, one in by_set.items()} for mode, by_set in scores.items()},
    }
    rows = [[mode, *(f"{one.value:.2f}" for one in by_set.values())] for mode, by_set in scores.items()]
    work.progress.table(f"Accuracy, {label}", ["mode", *next(iter(scores.values()))], rows)


def normal_accuracy(model: UnifiedModel, work: Work[StarsConfig], name: str, n: int, seed: int) -> float:
    """Normal accuracy on `n` validation draws of one set: what a threshold curriculum watches. Ranks share the draws,
    and all must ask."""
    task, ranks = _task(work, name), work.ranks
    items = task.generate(n, int(name[-1]), "validation", seed)
    own: list[ScoredSample] = []
    for index, batch in in_batches(items, work.config.model.draw_batch):
        if index % ranks.ranks == ranks.rank:
            own += draw(model, task, [(i, 0) for i in batch], "normal", seed, work.config.model.think_batch)
    samples = [replace(sample, image=b"") for sample in own]  # scored by their verdicts
    value = unisandbox.score([one for some in ranks.gather(samples) for one in some])["normal"][name].value
    return 0.0 if value is None else value
