"""A cascade: small judges first, and the large one only where they disagree or are unsure.

Programs come before all judges (`eval.evaluation`). A sample is settled by the small judges where each draw of each of
them says the same, pass or fail, and, where the way asks for a confidence, none states less than `JudgeConfig.sure`.
Draws are asked one after the other, each only about what is still unanimous. All else is the large judge's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.config.schema import JudgeConfig
from uni_train.eval.benchmark import Benchmark, Sample, Scored
from uni_train.eval.judges import judging
from uni_train.eval.judges.wording import least_confidence
from uni_train.eval.progress import Progress, Silent
from uni_train.eval.statistics import paired, share


def run(
    samples: Sequence[Sample],
    benchmark: Benchmark,
    judge: JudgeConfig,
    folder: Path,
    progress: Progress | None = None,
    *,
    store: Path | None = None,
) -> list[Scored]:
    """Judge the samples by the judge alone, or by its `small` judges and by itself where they settle nothing.

    `Scored.by` names who gave the verdict, several small ones joined by "+". Arguments and errors as of
    `uni_train.eval.judges.judging.run`; small judges keep their logs below `folder`/small.
    """
    if not judge.small:
        return judging.run(samples, benchmark, judge, folder, progress, store=store)
    store = Path(folder) / "judge" if store is None else store
    opinions: dict[int, list[Scored]] = {i: [] for i, sample in enumerate(samples) if sample.status == "ok"}
    for number, member in enumerate(_panel(judge)):
        places = list(opinions)
        small_folder = Path(folder) / "small" / str(number)
        judged = judging.run([samples[i] for i in places], benchmark, member, small_folder, progress, store=store)
        for place, one in zip(places, judged, strict=True):
            opinions[place].append(one)
            if not _settles(opinions[place], member, judge.sure):
                del opinions[place]
    left = [i for i in range(len(samples)) if i not in opinions]
    large = replace(judge, small=())
    by_large = judging.run([samples[i] for i in left], benchmark, large, folder, progress, store=store) if left else []
    asked = sum(samples[i].status == "ok" for i in left)
    (progress or Silent()).say(f"  the large judge was asked about {asked} of {len(samples)} samples")
    scored = dict(zip(left, by_large, strict=True)) | {i: _joined(some) for i, some in opinions.items()}
    return [scored[i] for i in range(len(samples))]


def compared(
    cascade: Sequence[Scored], large: Sequence[Scored], truths: Sequence[float], items: Sequence[Hashable], name: str
) -> dict[str, Any]:
    """What a cascade saves and what it costs, on the same samples; JSON-able.

    asked: the share of samples that the large judge, called `name`, was asked about; saving: how many times fewer.
    bias: the cascade's mean value less the large judge's. error, large_error: those of each less the truth's.
    """
    asked = share([one.by == name for one in cascade], list(range(len(cascade))), items)
    values, alone = ([one.value for one in some] for some in (cascade, large))
    biases = {"bias": (alone, values), "error": (truths, values), "large_error": (truths, alone)}
    found = {key: paired(one, other, items).difference.to_dict() for key, (one, other) in biases.items()}
    return {"asked": asked.to_dict(), "saving": 1 / asked.value if asked.value else None, **found}


def _panel(judge: JudgeConfig) -> list[JudgeConfig]:
    """The small judges, each of their draws by itself, at the temperature of all of them."""
    return [
        replace(
            small,
            way="published" if small.way == "majority" else small.way,
            draws=1,
            first_draw=draw,
            temperature=small.heat,
        )
        for small in judge.small
        for draw in range(small.first_draw, small.first_draw + small.votes)
    ]


def _settles(said: Sequence[Scored], member: JudgeConfig, sure: float) -> bool:
    last = said[-1]
    if last.outcome not in ("pass", "fail") or last.outcome != said[0].outcome:
        return False
    return member.way != "confidence" or least_confidence(last.replies) >= sure


def _joined(said: Sequence[Scored]) -> Scored:
    names = "+".join(dict.fromkeys(one.by for one in said))
    return replace(said[0], by=names, replies=tuple(reply for one in said for reply in one.replies))
