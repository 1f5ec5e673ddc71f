"""early_rejection: a sample that the filter would refuse anyway is rejected before its image is finished.

    thought: its thought concludes wrong, as a program reads it, and nothing is drawn. This uses the known answers.
    image: half-way through the steps, the teacher refuses the image that its velocity predicts, x_t - t v, as
        filter=self would refuse it in the end (measured by bench/early_rejection.py).

What is rejected is in `rejected/` of the stage's folder, in the form of its samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from uni_train.config.messages import Where, check_rules
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample, Scored, with_image
from uni_train.eval.scored import read_folder, write_scored
from uni_train.eval.sets.thoughts import conclusion, is_readable
from uni_train.eval.task_benchmark import TaskBenchmark, request_of
from uni_train.flow.euler import euler_step
from uni_train.flow.schedule import Schedule
from uni_train.models.base import FlowPolicy, Request, UnifiedModel, expect_skill
from uni_train.recipes.stars.config import StarsConfig
from uni_train.recipes.stars.filters import Asking, self_check
from uni_train.stages.batched import Batched
from uni_train.stages.work import StageRun, Work

FOLDER = "rejected"


def check(config: StarsConfig, where: Where) -> None:
    """Raises UsageError where nothing can be read early."""
    by_thought = config.early_rejection == "thought"
    alone = config.redraw == 1 and config.teacher != "reference"
    check_rules([
        ("early_rejection", by_thought and not (alone and config.mode == "cot"),
         "early_rejection=thought needs mode=cot, redraw=1 and a teacher that thinks: it reads one thought a sample",
         "early_rejection=null."),
        ("early_rejection", not by_thought and not (alone and config.filter == "self" and not config.other_teachers),
         "early_rejection=image needs filter=self, redraw=1 and the run's own model as the teacher: it asks what the "
         "filter asks", "early_rejection=null."),
        ("early_rejection", not by_thought and config.model.sampling.steps < 2,
         "early_rejection=image looks half-way, and model.sampling.steps=1 has no half", "early_rejection=null."),
        *((f"rounds.{i}.task", by_thought and not is_readable(round_.task),
           f"early_rejection=thought: no program reads thoughts about {round_.task}", "early_rejection=null.")
          for i, round_ in enumerate(config.rounds)),
    ], where)  # fmt: skip


class EarlyRejection:
    """Samples of which some are never finished.

    Args:
        drawer: the model, as the run asks it.

    Raises:
        SkillMissing: by images, of a model that draws in no steps.
    """

    def __init__(self, config: StarsConfig, model: UnifiedModel, drawer: Batched, stage: StageRun) -> None:
        self.by, self.drawer, self.folder = config.early_rejection, drawer, stage.path / FOLDER
        self.model: Any = expect_skill(model, FlowPolicy) if self.by == "image" else model
        self.asking = Asking(config, lambda: model)

    def verified(self, benchmark: TaskBenchmark, asks: Sequence[Ask]) -> list[Scored]:
        """As `TaskBenchmark.verified`, without the samples that are rejected."""
        requests = [request_of(ask) for ask in asks]
        if asks[0].setting == "cot":
            thoughts = self.drawer.think(requests)
            requests = [replace(request, thought=text) for request, text in zip(requests, thoughts, strict=True)]
        pairs = zip(asks, requests, strict=True)
        samples = [Sample(ask, prompt=request.prompt, thought=request.thought) for ask, request in pairs]
        images = self._by_thought(requests, samples) if self.by == "thought" else self._by_image(requests, samples)
        verdict = Verdict((Check("early_rejection", "fail", f"by its {self.by}"),))
        rejected = [Scored(sample, verdict) for row, sample in enumerate(samples) if row not in images]
        if rejected:
            write_scored(self.folder / f"{rejected[0].sample.ask.seed:016x}.parquet", rejected)
        drawn = [with_image(samples[row], image) for row, image in images.items()]
        return [Scored(sample, benchmark.check(sample)) for sample in drawn]

    def _by_thought(self, requests: Sequence[Request], samples: Sequence[Sample]) -> dict[int, np.ndarray]:
        """Row -> its finished image."""
        left = [row for row, sample in enumerate(samples) if conclusion(sample.thought, sample.ask.case) != "wrong"]
        return dict(zip(left, self.drawer.draw([requests[row] for row in left]) if left else [], strict=True))

    @torch.no_grad()
    def _by_image(self, requests: Sequence[Request], samples: Sequence[Sample]) -> dict[int, np.ndarray]:
        """As `_by_thought`."""
        model, rows = self.model, [*range(len(requests))]
        condition, x = model.encode(requests), model.noise(requests)
        schedule = Schedule.together([model.schedule(condition, row=row) for row in rows]).to(model.device)
        for step, level in enumerate(schedule.before()):
            velocity = model.velocity(x, level, condition)
            x = euler_step(x, velocity, *schedule.step(step))
            if step + 1 == schedule.steps // 2:
                t = schedule.step(step)[1]
                predicted = model.decode(x - t.reshape(-1, 1, 1) * velocity, condition)
                looked = [Scored(with_image(*pair)) for pair in zip(samples, predicted, strict=True)]
                rows = [row for row, verdict in enumerate(self_check(looked, self.asking)) if verdict.passed]
                if not rows:
                    return {}
                x, condition, schedule = x[rows], condition.select(rows), schedule.select(rows)
        return dict(zip(rows, model.decode(x, condition), strict=True))


def counted(work: Work[StarsConfig], stage: StageRun) -> dict[str, int]:
    """How many samples of a finished stage were rejected, for its manifest; also printed."""
    rejected = work.ranks.from_main(lambda: sum(1 for _ in read_folder(stage.path / FOLDER)))
    by = work.config.early_rejection
    work.progress.say(f"  {rejected} samples were rejected early by their {by}, and have no image")
    return {"undrawn": rejected}
