"""Stage (I) of STARS, data generation (Niu et al. 2025, arXiv 2511.20561, eq. 1): the teacher thinks, then draws.

Every finished batch is a shard, so a killed run loses at most one batch. Several ranks share the batches. Thought and
image of a prompt depend on (run seed, prompt, candidate) alone.

A round with a number of samples to keep filters in this stage, batch by batch. It samples until the filter has kept so
many (section 3.4: 5,000 maths samples, 5,000 mapping pairs), or until its prompts are used up. What is sampled and what
is kept does not depend on the number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from uni_train.config.kinds import reads_images, run_task
from uni_train.core.errors import DataError, UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Scored
from uni_train.eval.task_benchmark import TaskBenchmark
from uni_train.recipes.stars import filtering
from uni_train.recipes.stars.config import RoundConfig, RoundsConfig, StarsConfig
from uni_train.stages.batched import Batched
from uni_train.stages.shards import Judged, make_shards
from uni_train.stages.work import StageRun, Work, in_batches


def run(work: Work[StarsConfig], stage: StageRun, round_: RoundConfig) -> None:
    """Sample `candidates` images of each of the round's prompts, and store them with the verifier's verdicts."""
    config = work.config
    benchmark = TaskBenchmark.from_items(stage_items(work, stage, round_), config.mode)
    wanted = benchmark.asks(config.seed, config.candidates)
    batches = [batch for _, batch in in_batches(wanted, config.model.draw_batch)]
    teacher = partial(filtering.teacher, work)
    if config.teacher == "reference":
        from uni_train.recipes.stars.reference import solved

        made = partial(solved, benchmark)
    else:
        model = teacher()
        if config.other_teachers:
            from uni_train.recipes.stars import teachers

            model, stage.result = teachers.load(work)["teacher"], teachers.facts(work)
        drawer = Batched(model, config.model.think_batch, config.temperature)
        made = partial(benchmark.verified, drawer)
        if config.redraw > 1:
            from uni_train.eval.redraw import Redrawing

            made = partial(Redrawing(drawer, config.redraw, model.family).verified, benchmark)
        if config.early_rejection:
            from uni_train.recipes.stars import early_rejection

            made = partial(early_rejection.EarlyRejection(config, model, drawer, stage).verified, benchmark)

    def make(index: int) -> list[Scored]:
        samples = made(batches[index])
        return samples if round_.kept is None else filtering.decided(config, teacher, samples)

    judgements: list[Judged] = []
    if reads_images(config):
        from uni_train.stages import judging

        judgements.append(partial(judging.judged, work, stage.path, benchmark))
    if round_.kept is not None and (filters := filtering.judges(work, stage.path)):
        judgements.append(filters)

    def judged(samples: Sequence[Scored]) -> list[Scored]:
        for judge in judgements:
            samples = judge(samples)
        return list(samples)

    def have(number: int) -> None:
        """Shards of so many batches."""
        sizes = [len(batch) for batch in batches[:number]]
        title = "think and draw" if config.mode == "cot" else "draw"
        make_shards(work, stage.path, sizes, make, title, judged if judgements else None)

    until_kept(work, stage, round_, have, len(batches), config.model.draw_batch)
    counts = {"sampled": len(wanted)} if round_.kept is None else filtering.counted(work, stage, round_)
    if config.early_rejection:
        counts |= early_rejection.counted(work, stage)
    stage.result |= {"task": round_.task, "level": round_.level, **counts}
    stage.outputs = sorted(stage.shards.glob("*.parquet"))


def stage_items(work: Work[Any], stage: StageRun, round_: RoundConfig) -> list[Item]:
    """`round_items` of the stage that asks them, whose folder also says what of a file they are."""
    if round_.prompts_file is None:
        return round_items(work.config, round_)
    from uni_train.recipes.stars.prompts_file import noted

    return noted(work, stage.path, round_)


def round_items(config: RoundsConfig, round_: RoundConfig) -> list[Item]:
    """The items of a round's prompts, of its file or the train split. Raises UserError where there are too few."""
    if round_.prompts_file is not None:
        from uni_train.recipes.stars.prompts_file import items

        return items(config, round_)
    task, name = run_task(config, round_.task), round_.set_name
    seed = derive_seed(config.seed, name, "train", *([round_.draw] if round_.draw else []))
    try:
        return task.generate(round_.prompts // task.items_per_draw, round_.level, "train", seed)
    except DataError as error:
        hint = "Lower the prompts of the round, or of its budget."
        raise UserError(f"{round_.prompts} prompts of {name} are too many: {error}", hint) from None


def until_kept(
    work: Work[Any], stage: StageRun, round_: RoundConfig, have: Callable[[int], None], batches: int, size: int
) -> None:
    """Make batches of `size` samples until the round has kept enough, or all batches are made.

    Without `kept`, all batches are made. The number of further batches follows from the share kept so far, and never
    more than doubles the batches. So a resumed run, also on another number of ranks, makes the same batches.
    """
    if round_.kept is None:
        have(batches)
        return
    number = min(math.ceil(round_.kept / size), batches)
    while True:
        have(number)
        rows = work.ranks.from_main(partial(filtering.kept_rows, stage.shards, work.config, round_, number))
        sampled, kept = number * size, len(rows)
        if kept >= round_.kept or number == batches:
            return
        missing = math.ceil((round_.kept - kept) * sampled / kept / size) if kept else number
        number = min(number + min(missing, number), batches)
