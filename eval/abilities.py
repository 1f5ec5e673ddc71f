"""Which settings of a benchmark suit a model that has only some skills: found by asking one case of each set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uni_train.config.schema import EvalConfig
from uni_train.core.errors import DataError, SkillMissing, UserError
from uni_train.eval.benchmark import BENCHMARKS, Benchmark
from uni_train.eval.configured import benchmarks_of
from uni_train.eval.generation import asks_of, generate
from uni_train.models.endpoint_doctor import DRAW, EDIT, READ_IMAGES, WRITE

if TYPE_CHECKING:
    from uni_train.models.base import OnStep, Request

_REPLY = "<refined_prompt>A red apple.</refined_prompt> <answer>A</answer>"  # that benchmarks draw from


def lacking_skills(benchmark: Benchmark, skills: Collection[str]) -> dict[str, str]:
    """Setting -> the skill that all of its cases lack, "" where some can be asked."""
    model, cases = _Skilled(skills), {case.set: case for case in benchmark.cases()}.values()
    lacking = {}
    for setting in benchmark.settings:
        parts = [[ask] for ask in asks_of(list(cases), [setting])]
        samples = [sample for part in generate(benchmark, model, parts) for sample in part]
        able = any(sample.status != "no_skill" for sample in samples)
        lacking[setting] = "" if able else samples[0].note.removeprefix(f"{model.name} cannot ")
    return lacking


def suited_benchmarks(address: str, config: EvalConfig, skills: Collection[str]) -> tuple[list[str], list[str]]:
    """Of each registered benchmark a line with the settings that an endpoint's skills suffice for; those with any.

    A benchmark that has no questions of its own gets a line that says what it needs.
    """
    lines, suited = [], []
    for name in BENCHMARKS.names():
        try:
            (benchmark,) = benchmarks_of(address, replace(config, benchmarks=(name,)))
        except (UserError, DataError) as error:
            lines.append(f"  {'note':<6}{name:<19}{str(error).replace(chr(10), ': ')}")
            continue
        lacking = lacking_skills(benchmark, skills)
        settings = {
            skill: [setting for setting, lacks in lacking.items() if lacks == skill] for skill in lacking.values()
        }
        able = settings.pop("", [])
        without = [f"cannot {skill}: {', '.join(some)}" for skill, some in settings.items()]
        parts = "; ".join([", ".join(able) or "nothing", *without])
        lines.append(f"  {'ok' if able else 'note':<6}{benchmark.name:<19}{parts}")
        suited += [benchmark.name] if able else []
    return lines, suited


class _Skilled:
    """A respondent whose replies have the right form and mean nothing."""

    name = "the model"

    def __init__(self, skills: Collection[str]) -> None:
        self.skills = skills

    def answer(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[str | Exception]:
        return [self._reply(_REPLY, WRITE, READ_IMAGES if request.images else WRITE) for request in requests]

    think = answer

    def draw(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[np.ndarray | Exception]:
        image = np.zeros((64, 64, 3), np.uint8)
        return [self._reply(image, EDIT if request.images else DRAW) for request in requests]

    def compose(self, requests: Sequence[Request], *, on_step: OnStep | None = None) -> list[Any]:
        return [self._reply(None, "answer with text and images in one pass") for _ in requests]

    def _reply(self, reply: Any, *needed: str) -> Any:
        for skill in needed:
            if skill not in self.skills:
                raise SkillMissing(self.name, skill)
        return reply
