"""What the filter refuses of known images, before a run samples by it.

Anchors are images that the first evaluation has drawn and scored, so nothing else is drawn: *right* and *wrong* ones,
and *shuffled* ones, right images beside another question of the set with another answer. A filter that accepts most
wrong or shuffled images does not see what they show.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from uni_train.core.seeds import derive_seed
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Scored
from uni_train.eval.evaluation import SCORED
from uni_train.eval.scored import read_folder
from uni_train.eval.summary import described
from uni_train.recipes.stars import filtering
from uni_train.recipes.stars.config import StarsConfig
from uni_train.stages.shards import make_shards
from uni_train.stages.work import SHARDS, StageRun, Work, in_batches

ANCHORS = 30  # of a kind, at most
WRONG = Verdict((Check("shuffled", "fail", "the image answers another question"),))


def measure(work: Work[StarsConfig], stage: StageRun, evaluated: StageRun) -> dict[str, dict[str, int]]:
    """Have the filter judge anchors of the sets that are trained on; kind -> refused, n. All ranks call it.

    Raises:
        UserError: the run's judge did not answer.
    """
    config, folder = work.config, stage.path / "anchors"
    anchors = list(chosen(list(read_folder(evaluated.path / SCORED)), {each.set_name for each in config.rounds}))
    batches = [[sample for _, sample in batch] for _, batch in in_batches(anchors, config.model.draw_batch)]

    def make(index: int) -> list[Scored]:
        return filtering.decided(config, partial(filtering.teacher, work), batches[index])

    make_shards(work, folder, [*map(len, batches)], make, "judge", filtering.judges(work, folder), quiet=True)
    answers = work.ranks.from_main(lambda: list(read_folder(folder / SHARDS, images=False)))
    counts: dict[str, dict[str, int]] = {}
    for (kind, _), answer in zip(anchors, answers, strict=True):
        count = counts.setdefault(kind, {"refused": 0, "n": 0})
        count["refused"] += not (answer.filter_verdict and answer.filter_verdict.passed)
        count["n"] += 1
    work.progress.say(f"  known images: {described(config.filter, counts)}")
    if any(kind != "right" and 2 * count["refused"] < count["n"] for kind, count in counts.items()):
        work.progress.say(
            f"  warning: filter={config.filter} accepts most wrong images, so it will reject little: "
            "take another filter or model (docs/stars.md#what-the-filter-refuses)"
        )
    return counts


def chosen(scored: Sequence[Scored], sets: set[str]) -> Iterator[tuple[str, Scored]]:
    """Kind and sample of at most `ANCHORS` of each kind, the same at every start."""
    known = [answer for answer in scored if answer.sample.image is not None and answer.verdict is not None]
    known = [answer for answer in known if answer.sample.ask.case.set in sets]
    random.Random(derive_seed("anchors", len(known))).shuffle(known)
    right = [answer for answer in known if answer.passed][:ANCHORS]
    yield from (("right", answer) for answer in right)
    yield from (("wrong", answer) for answer in [answer for answer in known if not answer.passed][:ANCHORS])
    for answer in right:
        case = answer.sample.ask.case
        for ask in (other.sample.ask for other in known):
            if ask.case.set == case.set and ask.case.facts["answer"] != case.facts["answer"]:
                sample = replace(answer.sample, ask=ask, prompt=ask.case.prompt)
                yield "shuffled", replace(answer, sample=sample, verdict=WRONG)
                break
