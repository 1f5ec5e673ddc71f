"""filter=judge: the run's judge is asked what the filter asks, where the verifier or the model itself would decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Scored
from uni_train.eval.filter_question import FilterQuestion
from uni_train.stages import judging
from uni_train.stages.work import Work


def judged(work: Work[Any], folder: Path, scored: Sequence[Scored]) -> list[Scored]:
    """The samples with what the run's judge says to the filter's question as their `filter_verdict`.

    Raises:
        UserError: the judge did not answer for some of them.
    """
    if not scored:  # all thoughts of these batches were rejected
        return []
    cases = {answer.sample.ask.case.id: answer.sample.ask.case for answer in scored}
    replies = judging.judge_samples(
        work, folder, [answer.sample for answer in scored], FilterQuestion(tuple(cases.values()))
    )
    verdicts = [
        reply.verdict or Verdict((Check("filter", "unreadable", "".join(reply.replies[-1:])),)) for reply in replies
    ]
    return [replace(answer, filter_verdict=verdict) for answer, verdict in zip(scored, verdicts, strict=True)]
