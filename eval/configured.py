"""From the keys of `eval` (`EvalConfig`) to an `EvaluationPlan`, checked as far as it can be without asking anybody."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.config.build import build_section
from uni_train.config.schema import EvalConfig, JudgeConfig, SamplingConfig
from uni_train.core.errors import UsageError, did_you_mean
from uni_train.core.hub import local
from uni_train.eval.benchmark import BENCHMARKS, Benchmark, Source
from uni_train.eval.calls import StoredModel
from uni_train.eval.evaluation import EvaluationPlan
from uni_train.eval.respondent import open_model
from uni_train.eval.store import LastSeen, Store
from uni_train.models.checkpoint import source_of


def plan_of(checkpoint: str, config: EvalConfig) -> EvaluationPlan:
    """What is asked. Raises UsageError: no such benchmark, set, setting or option; UserError: no such files."""
    benchmarks = benchmarks_of(checkpoint, config)
    each = (name for bench in benchmarks for name in (*bench.settings, *bench.optional_settings))
    offered = tuple(dict.fromkeys(each))
    for setting in config.settings:
        if setting not in offered:
            raise UsageError(f"no benchmark here has a setting {setting}", did_you_mean(setting, offered, "settings"))
    options: dict[str, Any] = {"verifier": config.verifier, "compat": config.compat}
    options |= {f"{bench.name}.{key}": value for bench in benchmarks for key, value in bench.recorded_options().items()}
    build_section(SamplingConfig, config.sampling)
    return EvaluationPlan(
        checkpoint=checkpoint,
        benchmarks=benchmarks,
        config=replace(config, judge=judge_of(config)),
        options=options,
        command=tuple(sys.argv),
    )


def judge_of(config: EvalConfig) -> JudgeConfig | None:
    """The judge, with what its server says of its weights."""
    judge = config.judge
    if judge is not None and judge.checkpoint is not None:
        hint = "Serve it with `uni_train serve`, and give judge.model=URL#MODEL."
        raise UsageError("judge.checkpoint is for training runs", hint)
    if judge is None or judge.model is None:
        if config.verifier == "judge":
            raise UsageError("verifier=judge needs a judge", "Name one: judge.model=openai/gpt-4o.")
        return None
    from uni_train.eval.judges import with_served_revision

    return with_served_revision(judge, LastSeen(Path(config.store_folder)))


def judges_of(config: EvalConfig) -> list[JudgeConfig]:
    """The judge; of a cascade also its parts, each alone. Raises UsageError: there is none."""
    judge = judge_of(config)
    if judge is None:
        raise UsageError("the judge is missing", "Name the one that is to be calibrated: judge.model=openai/gpt-4o.")
    return [*judge.small, replace(judge, small=()), judge] if judge.small else [judge]


def benchmarks_of(checkpoint: str, config: EvalConfig) -> list[Benchmark]:
    """The benchmarks that are asked for, over their published files or generated questions."""
    known = BENCHMARKS.names()
    names = known if config.benchmarks == ("all",) else tuple(dict.fromkeys(config.benchmarks))
    if not names:
        raise UsageError("benchmarks is empty", f"Known benchmarks: {', '.join(known)}.")
    for name in names:
        if name not in known:
            raise UsageError(f"there is no benchmark {name}", did_you_mean(name, known, "benchmarks"))
    for key, given in (("data", config.data), ("options", config.options)):
        for name in given:
            if name not in names:
                raise UsageError(f"{key}.{name}: {name} is not asked", did_you_mean(name, names, "benchmarks"))
    kinds = {name: BENCHMARKS.get(name) for name in names}
    offered = [name for kind in kinds.values() for name in kind.known_sets]
    for name in config.sets:
        if name not in offered:
            raise UsageError(f"no benchmark here has a set {name}", did_you_mean(name, offered, "sets"))
    world = config.world or world_of(checkpoint)
    return [_open(name, kind, world, config) for name, kind in kinds.items()]


def _open(name: str, kind: type[Benchmark], world: str, config: EvalConfig) -> Benchmark:
    sets = tuple(known for known in config.sets if known in kind.known_sets)
    if config.sets and not sets:
        raise UsageError(f"sets names none of {name}", f"Its sets: {', '.join(kind.known_sets)}.")
    source = Source(
        data=local(config.data[name], "dataset") if name in config.data else None,
        world=world,
        n=config.n,
        split=config.split,
        sets=sets or None,
        settings=config.settings,
        compat=config.compat,
        verifier=config.verifier,
        open_model=partial(_other_model, config),
    )
    return kind.open(source, **_options(kind, config.options.get(name, {})))


def _options(kind: type[Benchmark], given: Mapping[str, Any]) -> dict[str, Any]:
    """The benchmark's own options; what is not given has its default."""
    known = {option.key: option for option in kind.options}
    for key in given:
        if key not in known:
            hint = did_you_mean(key, list(known), "options") if known else f"{kind.name} has none."
            raise UsageError(f"options.{kind.name}.{key}: {kind.name} has no option {key}", hint)
    texts = {key: ",".join(map(str, x)) if isinstance(x, list | tuple) else str(x) for key, x in given.items()}
    return {key: option.read(texts[key]) if key in texts else option.default for key, option in known.items()}


def world_of(checkpoint: str) -> str:
    """Which world's questions the model is asked, as its family says."""
    source = source_of(checkpoint)
    # --plan may ask about weights that are not here yet
    if source.kind == "endpoint" or source.is_absent or source.holds_answers:
        return "everyday"
    from uni_train.models.family import family_of
    from uni_train.models.load import model_config

    return family_of(model_config(checkpoint).family).world


def _other_model(config: EvalConfig, name: str) -> StoredModel:
    store = Store(Path(config.store_folder))
    return open_model(name, store, remote=config.remote, retry_failed=config.retry_failed)
