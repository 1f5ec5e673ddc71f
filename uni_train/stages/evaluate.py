"""Normal and CoT accuracy on UniSandbox's six sets (paper 004, Tables 1 to 3), every picture stored once."""

from __future__ import annotations

from data_gen.seeds import derive_seed
from data_gen.task import Item
from eval.benchmarks import unisandbox
from eval.sample import ScoredSample
from eval.store import completed, read_shards, shard_path, write_shard
from uni_train.config.schema import Config, StarsConfig
from uni_train.models.base import UnifiedModel
from uni_train.stages.sample import draw
from uni_train.stages.work import StageRun, Work, in_batches


def sets(work: Work[Config]) -> dict[str, list[Item]]:
    """The sets of this run; the same items whatever the run's seed, so that runs compare."""
    asked = work.config.evaluation
    found: dict[str, list[Item]] = {}
    for name in asked.sets:
        task = work.task("maths" if name.startswith("math") else "mapping")
        found[name] = task.generate(asked.n, int(name[-1]), asked.split, derive_seed("evaluation", asked.seed))
    return found


def run(work: Work[Config], stage: StageRun, label: str) -> None:
    """Ask everything in every mode; score by the exact verifier."""
    config = work.config
    model = work.model(work.weights)
    wanted = [(mode, name, items) for mode in config.evaluation.modes for name, items in sets(work).items()]
    done = completed(stage.shards)
    index = 0
    with work.progress.bar("ask and verify", sum(len(items) for *_, items in wanted)) as bar:
        for mode, name, items in wanted:
            task = work.task("maths" if name.startswith("math") else "mapping")
            for _, batch in in_batches(items, config.model.draw_batch):
                if index not in done:
                    asked = [(item, 0) for item in batch]
                    samples = draw(model, task, asked, mode, config.evaluation.seed, config.model.think_batch)
                    write_shard(shard_path(stage.shards, index), samples)
                bar.advance(len(batch))
                index += 1
    scores = unisandbox.score(read_shards(stage.shards, images=False), sets(work))
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    stage.result = {
        "label": label,
        "scores": {mode: {name: one.to_dict() for name, one in by_set.items()} for mode, by_set in scores.items()},
    }
    rows = [[mode, *(f"{one.value:.2f}" for one in by_set.values())] for mode, by_set in scores.items()]
    work.progress.table(f"Accuracy, {label}", ["mode", *next(iter(scores.values()))], rows)


def normal_accuracy(model: UnifiedModel, work: Work[StarsConfig], name: str, n: int, seed: int) -> float:
    """Normal accuracy on `n` validation draws of one set: what a threshold curriculum watches."""
    task = work.task("maths" if name.startswith("math") else "mapping")
    items = task.generate(n, int(name[-1]), "validation", seed)
    samples: list[ScoredSample] = []
    for _, batch in in_batches(items, work.config.model.draw_batch):
        samples += draw(model, task, [(i, 0) for i in batch], "normal", seed, work.config.model.think_batch)
    value = unisandbox.score(samples)["normal"][name].value
    return 0.0 if value is None else value
