"""Stage (II) of STARS, rejection: keep what the filter accepts (Niu et al. 2025, arXiv 2511.20561, eq. 2).

The paper's filter is the model's own understanding, prompted by Table 13 (for mapping by a twin of it). The reply must
say "Final Answer: YES"; a reply that cannot be read is a rejection, with its own status. Whatever filters, its
precision and recall are reported against the exact verifier, in the everyday world against the judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from uni_train.core.errors import UserError
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Scored
from uni_train.eval.scored import read_folder, read_scored, shard_path
from uni_train.eval.summary import Reliability, filter_reliability
from uni_train.models.base import UnifiedModel
from uni_train.recipes.stars.config import RoundConfig, RoundsConfig, StarsConfig
from uni_train.recipes.stars.filters import FILTERS, Asking, label
from uni_train.stages.shards import Judged, make_shards
from uni_train.stages.work import StageRun, Work


def run(work: Work[StarsConfig], stage: StageRun, sampled: StageRun, round_: RoundConfig) -> None:
    """Judge every sample of the stage before."""
    config = work.config
    total, size = int(sampled.facts()["sampled"]), config.model.draw_batch
    sizes = [min(size, total - start) for start in range(0, total, size)]

    def make(index: int) -> list[Scored]:
        return decided(config, partial(teacher, work), read_scored(shard_path(sampled.shards, index)))

    make_shards(work, stage.path, sizes, make, "judge", judges(work, stage.path))
    stage.result = counted(work, stage, round_)
    stage.outputs = sorted(stage.shards.glob("*.parquet"))


def judges(work: Work[Any], folder: Path) -> Judged | None:
    """Who decides once samples are stored: with filter=judge the run's judge."""
    if work.config.filter != "judge":
        return None
    from uni_train.recipes.stars.judge import judged

    return partial(judged, work, folder)


def teacher(work: Work[StarsConfig]) -> UnifiedModel:
    """The run's model that samples, or that filters what others have made."""
    return work.model(None if work.config.teacher == "base" else work.weights)


def decided(config: StarsConfig, teacher: Callable[[], UnifiedModel], samples: Sequence[Scored]) -> list[Scored]:
    """The samples with the filter's verdict.

    Raises:
        UserError: the filter did not return a verdict, or None, for each sample.
    """
    verdicts = FILTERS.get(config.filter)(samples, Asking(config, teacher))
    hint = "A filter returns a Verdict, or None, for each sample, in their order."
    if not isinstance(verdicts, Sequence) or not all(isinstance(verdict, Verdict | None) for verdict in verdicts):
        kinds = {type(part).__name__ for part in (verdicts if isinstance(verdicts, list) else [verdicts])}
        raise UserError(f"filter={config.filter} returned {', '.join(sorted(kinds))}, not a list of verdicts", hint)
    if len(verdicts) != len(samples):
        raise UserError(f"filter={config.filter} gave {len(verdicts)} verdicts for {len(samples)} samples", hint)
    return [replace(answer, filter_verdict=verdict) for answer, verdict in zip(samples, verdicts, strict=True)]


def counted(work: Work[Any], stage: StageRun, round_: RoundConfig) -> dict[str, int]:
    """Counts of the finished filter for the manifest; also printed.

    kept: accepted by the filter. used: kept samples that are trained on (`kept_rows`). correct: by program or judge.
    """
    counts, used = work.ranks.from_main(
        lambda: (reliability(outcomes(stage)), len(kept_rows(stage.shards, work.config, round_)))
    )
    text = f"  kept {counts.kept} of {counts.n}"
    if counts.kept and counts.correct:
        text += f": precision {counts.precision.value:.3f}, without the filter {counts.unfiltered.value:.3f}"
    text += f"; {counts.refused}"
    if used != counts.kept:
        text += f"; {used} of them are trained on"
    if round_.kept is not None and used < round_.kept:
        text += f", fewer than rounds[].kept={round_.kept}: all prompts are sampled"
    work.progress.say(text)
    if warning := counts.warning(label(work.config)):
        work.progress.say(f"  warning: {warning}")
    return {"sampled": counts.n, "kept": counts.kept, "correct": counts.correct, "used": used}


def accepted(samples: Iterable[Scored]) -> list[Scored]:
    """The samples that the filter keeps. None with an empty thought: there is nothing to replay, or to forget."""
    made = [answer for answer in samples if answer.sample.status == "ok"]
    readable = [answer for answer in made if answer.sample.thought is None or answer.sample.thought.strip()]
    return [answer for answer in readable if _kept(answer)]


def kept_rows(shards: Path, config: RoundsConfig, round_: RoundConfig, batches: int | None = None) -> list[int]:
    """The rows that a round trains on, numbered over all shards.

    The filter keeps these rows, at most `kept`. With `whole_pairs` it must keep both samples of their pair.

    Args:
        batches: the number of shards to read; None reads all.
    """
    rows: list[int] = []
    partners: dict[tuple[str, int], int] = {}
    for row, one_of in enumerate(_read(shards, batches)):
        if not accepted([one_of]):
            continue
        pair, k = one_of.sample.ask.case.cluster, one_of.sample.ask.k
        if not config.whole_pairs or pair is None:
            rows.append(row)
            continue
        first = partners.pop((pair, k), None)
        if first is None:
            partners[pair, k] = row
        else:
            rows += [first, row]
    return rows[: round_.kept]


class Outcome(NamedTuple):
    """A filtered sample: whether the filter kept it, whether it is right, and what dependent samples share."""

    kept: bool
    right: bool
    cluster: str


def outcomes(stage: StageRun) -> list[Outcome]:
    """Of each filtered sample of a stage."""
    answers = read_folder(stage.shards, images=False)
    return [Outcome(_kept(answer), answer.passed, answer.sample.ask.case.cluster_id) for answer in answers]


def reliability(outcomes: Sequence[Outcome]) -> Reliability:
    """How far a filter agrees with the verifier."""
    kept, right = [outcome.kept for outcome in outcomes], [outcome.right for outcome in outcomes]
    return filter_reliability(kept, right, [outcome.cluster for outcome in outcomes])


def _kept(answer: Scored) -> bool:
    return answer.filter_verdict is not None and answer.filter_verdict.passed


def _read(shards: Path, batches: int | None) -> Iterator[Scored]:
    """Samples without their images, one shard in memory at a time."""
    if batches is None:
        yield from read_folder(shards, images=False)
        return
    for index in range(batches):
        yield from read_scored(shard_path(shards, index), images=False)
