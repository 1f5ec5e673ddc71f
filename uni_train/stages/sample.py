"""Stage (I) of STARS, data generation: the teacher thinks about every training prompt, then draws (paper 004, eq. 1).

Every finished batch is a shard, so a killed run loses at most one batch, and several ranks share the batches. Thought
and image of a prompt depend on (run seed, prompt, candidate) alone.

A round that has a number of samples to keep filters here, batch by batch: it samples until the filter has kept so many
(paper 004, section 3.4: 5,000 maths samples, 5,000 mapping pairs), or until its prompts are used up. What is sampled
and what is kept does not depend on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from data_gen.seeds import derive_seed
from data_gen.task import Check, Item, Task, Verdict
from eval.benchmarks.unisandbox import SAID, said
from eval.prompts.unisandbox import direct_prompt
from eval.sample import ScoredSample, encode_png
from uni_train.config.schema import RoundConfig, StarsConfig
from uni_train.models.base import Request, UnifiedModel
from uni_train.stages import filter, judging
from uni_train.stages.shards import Judged, make_shards
from uni_train.stages.work import StageRun, Work, in_batches


def run(work: Work[StarsConfig], stage: StageRun, one: RoundConfig) -> None:
    """Sample the round's prompts with CoT, `candidates` images each; what a verifier says of them is stored beside."""
    config = work.config
    task = work.task(one.task)
    seed = derive_seed(config.seed, one.set_name, "train")
    items = task.generate(one.prompts // task.items_per_draw, one.level, "train", seed)
    wanted = [(item, k) for item in items for k in range(config.candidates)]
    batches = [batch for _, batch in in_batches(wanted, config.model.draw_batch)]
    teacher = work.model(None if config.teacher == "base" else work.weights)

    def make(index: int) -> list[ScoredSample]:
        seed, at_once = config.seed, config.model.think_batch
        samples = draw(teacher, task, batches[index], "cot", seed, at_once, config.temperature)
        return samples if one.kept is None else filter.decided(config, lambda: teacher, samples)

    looks: list[Judged] = []
    if judging.reads_images(config):
        looks.append(partial(judging.verified, work, stage.path))
    if one.kept is not None and config.filter == "judge":
        looks.append(partial(judging.filtered, work, stage.path))

    def judged(samples: Sequence[ScoredSample]) -> list[ScoredSample]:
        for look in looks:
            samples = look(samples)
        return list(samples)

    def have(number: int) -> None:
        """Shards of so many batches."""
        sizes = [len(batch) for batch in batches[:number]]
        make_shards(work, stage.path, sizes, make, "think and draw", judged if looks else None)

    if one.kept is None:
        have(len(batches))
        stage.result = {"task": one.task, "level": one.level, "sampled": len(wanted)}
    else:
        _until_kept(work, stage, one, have, len(batches))
        stage.result = {"task": one.task, "level": one.level, **filter.counted(work, stage, one)}
    stage.outputs = sorted(stage.shards.glob("*.parquet"))


def _until_kept(
    work: Work[StarsConfig], stage: StageRun, one: RoundConfig, have: Callable[[int], None], batches: int
) -> None:
    """Make batches until the round's samples are kept, or all are made.

    How many come next follows from the share kept so far; at most as many as there are. So a start after a kill, or on
    another number of ranks, makes the same ones.
    """
    assert one.kept is not None
    size = work.config.model.draw_batch
    number = min(math.ceil(one.kept / size), batches)
    while True:
        have(number)
        rows = work.ranks.from_main(partial(filter.kept_rows, stage.shards, work.config, one, number))
        sampled, kept = number * size, len(rows)
        if kept >= one.kept or number == batches:
            return
        missing = math.ceil((one.kept - kept) * sampled / kept / size) if kept else number
        number = min(number + min(missing, number), batches)


def draw(
    model: UnifiedModel,
    task: Task,
    wanted: Sequence[tuple[Item, int]],
    setting: str,
    seed: int,
    think_batch: int,
    temperature: float | None = None,
) -> list[ScoredSample]:
    """Ask the model for one image per (item, k), in the setting "normal" or "cot", and verify each if a program can."""
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
    verdict = task.verify(item, image) if task.has_image(item) else None
    return ScoredSample(item, setting, seed, k, thought, encode_png(image), verdict)
