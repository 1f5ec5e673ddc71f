"""early_rejection=thought: a thought whose conclusion a program reads as wrong is rejected before anything is drawn.

Where a filter would refuse such an image anyway, this saves drawing it, which is most of a sample's cost. The rejected
thoughts are in `rejected/` of the stage's folder, in the form of its samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uni_train.config.messages import Where, check_rules
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample, Scored, with_thought_and_image
from uni_train.eval.scored import read_folder, write_scored
from uni_train.eval.sets.thoughts import conclusion, is_readable
from uni_train.eval.task_benchmark import TaskBenchmark, request_of
from uni_train.recipes.stars.config import StarsConfig
from uni_train.stages.batched import Batched
from uni_train.stages.work import StageRun, Work

FOLDER = "rejected"
WRONG = Verdict((Check("conclusion", "fail", "the thought concludes wrong, so nothing was drawn"),))


def check(config: StarsConfig, where: Where) -> None:
    """Raises UsageError where no program reads the thoughts."""
    model_thinks = config.mode == "cot" and config.redraw == 1 and config.teacher != "reference"
    check_rules([
        ("early_rejection", not model_thinks,
         "early_rejection=thought needs mode=cot, redraw=1 and a teacher that thinks: it reads one thought a sample",
         "early_rejection=null."),
        *((f"rounds.{i}.task", not is_readable(round_.task),
           f"early_rejection=thought: no program reads thoughts about {round_.task}", "early_rejection=null.")
          for i, round_ in enumerate(config.rounds)),
    ], where)  # fmt: skip


def verified(benchmark: TaskBenchmark, model: Batched, stage: StageRun, asks: Sequence[Ask]) -> list[Scored]:
    """As `TaskBenchmark.verified` with thoughts, without the samples that are rejected."""
    requests = [request_of(ask) for ask in asks]
    samples = [
        Sample(ask, prompt=ask.case.prompt, thought=thought)
        for ask, thought in zip(asks, model.think(requests), strict=True)
    ]
    wrong = [conclusion(sample.thought, sample.ask.case) == "wrong" for sample in samples]
    rejected = [Scored(sample, WRONG) for sample, is_wrong in zip(samples, wrong, strict=True) if is_wrong]
    if rejected:
        write_scored(stage.path / FOLDER / f"{rejected[0].sample.ask.seed:016x}.parquet", rejected)
    left = [row for row, is_wrong in enumerate(wrong) if not is_wrong]
    images = model.draw([replace(requests[row], thought=samples[row].thought) for row in left]) if left else []
    drawn = [
        with_thought_and_image(samples[row], (samples[row].thought or "", image))
        for row, image in zip(left, images, strict=True)
    ]
    return [Scored(sample, benchmark.check(sample)) for sample in drawn]


def counted(work: Work[StarsConfig], stage: StageRun) -> dict[str, int]:
    """How many thoughts of a finished stage were rejected, for its manifest; also printed."""
    rejected = work.ranks.from_main(lambda: sum(1 for _ in read_folder(stage.path / FOLDER)))
    work.progress.say(f"  {rejected} thoughts concluded wrong, and nothing was drawn by them")
    return {"undrawn": rejected}
