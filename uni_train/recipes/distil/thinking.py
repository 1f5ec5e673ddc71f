"""Thoughts of a round's prompts, by the teacher or from the items' references, and their filter.

A thought depends on (run seed, prompt, candidate) alone. Whatever filters, precision and recall are measured against
the exact conclusion. A sample here is a thought without an image.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Check, Status, Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Scored
from uni_train.eval.scored import read_folder
from uni_train.eval.sets.thoughts import Conclusion, concluded, conclusion
from uni_train.eval.task_benchmark import TaskBenchmark, direct_prompt, item_of
from uni_train.models.base import Request, TextGenerator, UnifiedModel, expect_skill
from uni_train.models.batches import fitting
from uni_train.recipes.distil.config import DistilConfig
from uni_train.recipes.stars import filtering
from uni_train.recipes.stars.config import RoundConfig
from uni_train.recipes.stars.sampling import stage_items, until_kept
from uni_train.recipes.stars.teachers import load
from uni_train.stages.shards import make_shards
from uni_train.stages.work import StageRun, Work, in_batches

_STATUS: dict[Conclusion, tuple[Status, str]] = {
    "right": ("pass", ""),
    "wrong": ("fail", "the conclusion is wrong"),
    "unclear": ("unreadable", "concludes nothing"),
}


def run(work: Work[DistilConfig], stage: StageRun, round_: RoundConfig) -> None:
    """Sample and filter `candidates` thoughts of each of the round's prompts.

    Raises:
        UserError: the filter keeps none.
    """
    config = work.config
    setting = "normal" if config.thoughts == "none" else "cot"
    wanted = TaskBenchmark.from_items(stage_items(work, stage, round_), setting).asks(config.seed, config.candidates)
    size = max(1, config.model.think_batch // config.candidates) * config.candidates
    batches = [batch for _, batch in in_batches(wanted, size)]
    teacher = expect_skill(sampler(work), TextGenerator) if config.thoughts == "model" else None

    def have(number: int) -> None:
        make = lambda index: decided(config, teacher, thoughts(teacher, batches[index], config.temperature))  # noqa: E731
        make_shards(work, stage.path, [len(batch) for batch in batches[:number]], make, "think")

    until_kept(work, stage, round_, have, len(batches), size)
    if config.thoughts == "none":  # nothing is filtered
        rows = work.ranks.from_main(partial(filtering.kept_rows, stage.shards, config, round_))
        counts = dict.fromkeys(("sampled", "kept", "used"), len(rows))
    else:
        counts = filtering.counted(work, stage, round_)
    stage.result = {"task": round_.task, "level": round_.level, **counts}
    if config.candidates > 1:
        stage.result["spread"] = work.ranks.from_main(lambda: spread(list(read_folder(stage.shards, images=False))))
        work.progress.say(f"  thoughts of {stage.result['spread']:.1%} of the prompts conclude differently")
    stage.outputs = sorted(stage.shards.glob("*.parquet"))
    if not stage.result["used"]:
        raise UserError(*work.ranks.from_main(partial(_nothing, stage, round_, config)))


def sampler(work: Work[DistilConfig]) -> UnifiedModel:
    """The model that thinks and draws before a training: of several other ones none does."""
    others = load(work).values()
    return next(iter(others)) if others else work.model(None if work.config.teacher == "start" else work.weights)


def thoughts(model: TextGenerator | None, asks: Sequence[Ask], temperature: float | None) -> list[Scored]:
    """A thought for each, and whether its conclusion is right. model: who thinks; None: the items' references, and none
    where the setting is normal."""
    if model is None:
        texts = [item_of(ask.case).thought if ask.setting == "cot" else None for ask in asks]
    else:
        asked = [request(ask.case, ask.seed) for ask in asks]
        texts = fitting(lambda some: model.think(some, temperature), asked)
    scored = []
    for ask, text in zip(asks, texts, strict=True):
        sample = Sample(ask, prompt=ask.case.prompt, thought=text)
        scored.append(Scored(sample, Verdict((Check("conclusion", *_STATUS[conclusion(text, ask.case)]),))))
    return scored


def request(case: Case, seed: int, thought: str | None = None) -> Request:
    """The request for a case of our tasks; its input image is rendered again."""
    item = item_of(case)
    image = task_of(item).input_image(item)
    return Request(case.id, case.prompt, () if image is None else (image,), thought, seed)


def decided(config: DistilConfig, model: TextGenerator | None, samples: Sequence[Scored]) -> list[Scored]:
    """The thoughts with the filter's verdict; all thoughts of a prompt are among them."""
    if config.filter == "none":
        return [replace(answer, filter_verdict=Verdict((Check("no_filter", "pass"),))) for answer in samples]
    if config.filter == "verifier":
        return [replace(answer, filter_verdict=answer.verdict) for answer in samples]
    if config.filter == "agreement":
        expected = _majorities(samples)
    else:
        assert model is not None, "config.py has checked that the teacher thinks"
        expected = _said(model, samples, config)
    checks = [_compared(config.filter, _concluded(answer), expected[answer.sample.ask.case.id]) for answer in samples]
    return [replace(answer, filter_verdict=Verdict((check,))) for answer, check in zip(samples, checks, strict=True)]


def spread(samples: Sequence[Scored]) -> float:
    """The share of prompts whose thoughts do not all conclude the same."""
    return float(np.mean([len(set(all_)) > 1 for all_ in _by_prompt(samples).values()]))


def _compared(name: str, mine: str | None, expected: str | None) -> Check:
    if mine is None:
        return Check(name, "unreadable", "concludes nothing")
    if expected is None:
        return Check(
            name, "fail", "there is no majority" if name == "agreement" else "the model says no answer at once"
        )
    reason = "most conclude otherwise" if name == "agreement" else "the model says another answer at once"
    return Check(name, "pass") if mine == expected else Check(name, "fail", reason)


def _concluded(answer: Scored) -> str | None:
    return concluded(answer.sample.thought, answer.sample.ask.case)


def _by_prompt(samples: Sequence[Scored]) -> dict[str, list[str | None]]:
    """Prompt -> what each of its thoughts concludes."""
    conclusions: dict[str, list[str | None]] = defaultdict(list)
    for sample in samples:
        conclusions[sample.sample.ask.case.id].append(_concluded(sample))
    return conclusions


def _majorities(samples: Sequence[Scored]) -> dict[str, str | None]:
    """Prompt -> what more than half of its thoughts conclude, if there is such."""
    by_prompt = _by_prompt(samples)
    most = {name: Counter(all_).most_common(1)[0] for name, all_ in by_prompt.items()}
    return {name: what if 2 * times > len(by_prompt[name]) else None for name, (what, times) in most.items()}


def _said(model: TextGenerator, samples: Sequence[Scored], config: DistilConfig) -> dict[str, str | None]:
    """Prompt -> what the model's understanding says at once, without the thought."""
    cases = {answer.sample.ask.case.id: answer.sample.ask.case for answer in samples}
    requests = []
    for name, case in cases.items():
        asked = request(case, derive_seed(config.seed, name, "said"))
        requests.append(replace(asked, prompt=direct_prompt(case.prompt, case.facts["world"])))
    replies = fitting(model.answer, requests)
    return {name: concluded(reply, case) for (name, case), reply in zip(cases.items(), replies, strict=True)}


def _nothing(stage: StageRun, round_: RoundConfig, config: DistilConfig) -> tuple[str, str]:
    """The error message and hint for a filter that keeps no thought."""
    reasons: Counter[str] = Counter()
    for sample in read_folder(stage.shards, images=False):
        verdict = sample.filter_verdict
        if verdict is not None and not verdict.passed:
            reasons[verdict.reason] += 1
    why = ", ".join(f"{reason}: {n}" for reason, n in reasons.most_common()) or "no whole pair is accepted"
    return (
        f"filter={config.filter} keeps none of the {stage.result['sampled']} thoughts about {round_.set_name} ({why})",
        f"They are in {stage.shards}. Start from a model that can think, or use filter=none or another filter.",
    )
