"""Stage (I) of STARS, data generation: the teacher thinks about every training prompt, then draws (paper 004, eq. 1).

Every finished batch is a shard, so a killed run loses at most one batch, and several ranks share the batches. Thought
and picture of a prompt depend on (run seed, prompt, candidate) alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_gen.seeds import derive_seed
from data_gen.task import Check, Item, Task, Verdict
from eval.benchmarks.unisandbox import SAID, said
from eval.prompts.unisandbox import direct_prompt
from eval.sample import ScoredSample, encode_png
from eval.store import shard_path, write_shard
from uni_train.config.schema import RoundConfig, StarsConfig
from uni_train.models.base import Request, UnifiedModel
from uni_train.stages.work import StageRun, Work, in_batches


def run(work: Work[StarsConfig], stage: StageRun, one: RoundConfig) -> None:
    """Sample `one.prompts` prompts with CoT, `candidates` pictures each; verdicts of the verifier beside them."""
    config = work.config
    task = work.task(one.task)
    per_draw = 2 if one.task == "mapping" else 1
    items = task.generate(one.prompts // per_draw, one.level, "train", derive_seed(config.seed, one.set_name, "train"))
    wanted = [(item, k) for item in items for k in range(config.candidates)]
    batches = [batch for _, batch in in_batches(wanted, config.model.draw_batch)]
    mine, done = work.missing(stage.shards, len(batches))
    teacher = work.model(None if config.teacher == "base" else work.weights)
    finished = sum(len(batches[index]) for index in done)
    with work.bar("think and draw", sum(len(batches[index]) for index in mine), finished) as bar:
        for index in mine:
            some, seed, at_once = batches[index], config.seed, config.model.think_batch
            write_shard(
                shard_path(stage.shards, index), draw(teacher, task, some, "cot", seed, at_once, config.temperature)
            )
            bar.advance(len(some))
    work.ranks.wait()
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    stage.result = {"task": one.task, "level": one.level, "sampled": len(wanted)}


def draw(
    model: UnifiedModel,
    task: Task,
    wanted: Sequence[tuple[Item, int]],
    setting: str,
    seed: int,
    think_batch: int,
    temperature: float | None = None,
) -> list[ScoredSample]:
    """Ask the model for one picture per (item, k), in the setting "normal" or "cot", and verify each."""
    requests = [Request(item.id, item.prompt, seed=derive_seed(seed, item.id, setting, k)) for item, k in wanted]
    thoughts: list[str | None] = [None] * len(requests)
    if setting == "cot":
        thoughts = [text for _, batch in in_batches(requests, think_batch) for text in model.think(batch, temperature)]
        requests = [
            Request(request.id, request.prompt, thought=thought, seed=request.seed)
            for request, thought in zip(requests, thoughts, strict=True)
        ]
    images = model.draw(requests)
    return [_scored(task, item, k, setting, request.seed, thought, image)
            for (item, k), request, thought, image in zip(wanted, requests, thoughts, images, strict=True)]  # fmt: skip


def say(model: UnifiedModel, wanted: Sequence[tuple[Item, int]], seed: int, answer_batch: int) -> list[ScoredSample]:
    """Ask for the answer of each (item, k) in words, at once, and read the reply, which `thought` holds; no picture."""
    requests = [
        Request(item.id, direct_prompt(item.prompt, item.facts["world"]), seed=derive_seed(seed, item.id, SAID, k))
        for item, k in wanted
    ]
    replies = [text for _, batch in in_batches(requests, answer_batch) for text in model.answer(batch)]
    samples = []
    for (item, k), request, reply in zip(wanted, requests, replies, strict=True):
        verdict = Verdict((Check(SAID, said(reply, item), reply),))
        samples.append(ScoredSample(item, SAID, request.seed, k, thought=reply, verdict=verdict))
    return samples


def _scored(
    task: Task, item: Item, k: int, setting: str, seed: int, thought: str | None, image: np.ndarray
) -> ScoredSample:
    verdict = task.verify(item, image)
    return ScoredSample(item, setting, seed, k, thought, encode_png(image), verdict)
