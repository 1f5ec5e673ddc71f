"""From what is typed to an `EvaluationPlan` (`uni_train.eval.evaluation`)."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.cli.evaluation.options import Asked
from uni_train.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from uni_train.cli.progress import ConsoleProgress
    from uni_train.config.schema import JudgeConfig, RemoteConfig
    from uni_train.eval.benchmark import Benchmark
    from uni_train.eval.calls import StoredModel
    from uni_train.eval.evaluation import EvaluationPlan
    from uni_train.eval.watch import Checkpoint

SNAPSHOTS = ".snapshots"
_STEP = re.compile(r"step=\d{8,}")


@contextmanager
def loadable(checkpoint: str, asked: Asked, progress: ConsoleProgress) -> Iterator[tuple[str, Checkpoint | None]]:
    """What the engine can load, and the place in a run that it is; a step of a training is written as a model first.

    The written model is removed behind the block, but kept by an error or a kill, for the next start.
    """
    from uni_train.eval.respondent import is_remote
    from uni_train.eval.watch import place_of

    if is_remote(checkpoint) or not Path(checkpoint).exists():
        yield checkpoint, None
        return
    place = place_of(Path(checkpoint))
    if not _STEP.fullmatch(Path(checkpoint).name):
        yield checkpoint, place
        return
    import shutil

    from uni_train.files import remove_partials
    from uni_train.stages.snapshot import write_snapshot

    copies = folder_of(asked) / SNAPSHOTS / _safe(place.key if place else checkpoint)
    progress.say(f"writing the model of {checkpoint}")
    copies.mkdir(parents=True, exist_ok=True)
    remove_partials(copies)
    yield str(write_snapshot(Path(checkpoint), copies)), place
    shutil.rmtree(copies, ignore_errors=True)


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.=" else "-" for c in name)


def folder_of(asked: Asked) -> Path:
    return asked.out if asked.out is not None else Path("evals")


def store_of(asked: Asked) -> Path:
    return asked.store if asked.store is not None else folder_of(asked) / "store"


def plan_of(checkpoint: str, asked: Asked) -> EvaluationPlan:
    """Everything that is typed, checked as far as it can be without asking anybody."""
    from uni_train.eval.evaluation import EvaluationPlan

    benchmarks = benchmarks_of(checkpoint, asked)
    offered = tuple(dict.fromkeys(name for one in benchmarks for name in one.settings))
    for setting in asked.settings:
        if setting not in offered:
            raise UsageError(f"no benchmark here has a setting {setting}", did_you_mean(setting, offered, "settings"))
    options: dict[str, Any] = {"verifier": asked.verifier, "compat": asked.compat}
    options |= {f"{one.name}.{key}": value for one in benchmarks for key, value in one.told().items()}
    return EvaluationPlan(
        checkpoint=checkpoint,
        benchmarks=benchmarks,
        settings=asked.settings or None,
        subset=asked.subset,
        seed=asked.seed,
        k=asked.k,
        judge=judge_of(asked),
        options=options,
        sampling=sampling_of(asked.sampling),
        remote=_remote(asked),
        batch=asked.batch,
        retry_failed=asked.retry_failed,
        out=folder_of(asked),
        store=asked.store,
        command=tuple(sys.argv),
    )


def names_of(asked: Asked) -> tuple[str, ...]:
    """The benchmarks that are asked for; "all": every one that is known."""
    from uni_train.eval.benchmark import BENCHMARKS

    if not asked.benchmark:
        raise UsageError("--benchmark is empty", f"Known benchmarks: {', '.join(BENCHMARKS.names())}.")
    if asked.benchmark == ("all",):
        return BENCHMARKS.names()
    for name in asked.benchmark:
        if name not in BENCHMARKS.names():
            raise UsageError(f"there is no benchmark {name}", did_you_mean(name, BENCHMARKS.names(), "benchmarks"))
    return asked.benchmark


def benchmarks_of(checkpoint: str, asked: Asked) -> list[Benchmark]:
    """The benchmarks that are asked for, over their published files or questions of our own."""
    from uni_train.eval.benchmark import BENCHMARKS, Source

    names = names_of(asked)
    kinds = {name: BENCHMARKS.get(name) for name in names}
    offered = [name for kind in kinds.values() for name in kind.known_sets]
    for name in asked.sets:
        if name not in offered:
            raise UsageError(f"no benchmark here has a set {name}", did_you_mean(name, offered, "sets"))
    data, options = _folders(asked, names), _options(asked, kinds)
    world = asked.world or world_of(checkpoint)
    made: list[Benchmark] = []
    for name, kind in kinds.items():
        sets = tuple(one for one in asked.sets if one in kind.known_sets)
        if asked.sets and not sets:
            raise UsageError(f"--sets names none of {name}", f"Its sets: {', '.join(kind.known_sets)}.")
        source = Source(
            data=data.get(name),
            world=world,
            n=asked.n,
            split=asked.split,
            sets=sets or None,
            compat=asked.compat,
            verifier=asked.verifier,
            open_model=partial(_other_model, asked),
        )
        made.append(kind.open(source, **options[name]))
    return made


def _options(asked: Asked, kinds: Mapping[str, type[Benchmark]]) -> dict[str, dict[str, Any]]:
    """--option NAME.key=value; what is not typed has its default."""
    found = {name: {one.key: one.default for one in kind.options} for name, kind in kinds.items()}
    for typed in asked.option:
        place, _, value = typed.partition("=")
        name, _, key = place.partition(".")
        if name not in kinds:
            raise UsageError(f"--option {typed}: {name} is not asked", did_you_mean(name, list(kinds), "benchmarks"))
        known = {one.key: one for one in kinds[name].options}
        if key not in known:
            hint = did_you_mean(key, list(known), "options") if known else f"{name} has none."
            raise UsageError(f"--option {typed}: {name} has no option {key}", hint)
        found[name][key] = known[key].read(value)
    return found


def _folders(asked: Asked, names: Sequence[str]) -> dict[str, Path]:
    """--data NAME=DIR; the name may be left out where there is one benchmark."""
    found: dict[str, Path] = {}
    for one in asked.data:
        name, equals, folder = one.partition("=")
        if not equals and len(names) == 1:
            name, folder = names[0], one
        elif not equals:
            raise UsageError(f"--data {one}: of which benchmark?", f"Write --data {names[0]}={one}.")
        if name not in names:
            raise UsageError(f"--data {one}: {name} is not asked", did_you_mean(name, names, "benchmarks"))
        found[name] = Path(folder)
    return found


def world_of(checkpoint: str) -> str:
    """Which world's questions the model is asked, as its family says."""
    from uni_train.eval.respondent import is_remote

    path = Path(checkpoint)
    if is_remote(checkpoint) or (len(path.parts) > 1 and not path.exists()):  # --plan: weights that are not here yet
        return "everyday"
    from uni_train.models.family import family_of
    from uni_train.models.load import model_config

    return family_of(model_config(checkpoint).family).world


def _other_model(asked: Asked, name: str) -> StoredModel:
    """A model that a benchmark asks beside the evaluated one."""
    from uni_train.eval.calls import CallStore
    from uni_train.eval.respondent import open_model

    return open_model(name, CallStore(store_of(asked)), remote=_remote(asked), retry_failed=asked.retry_failed)


def judge_of(asked: Asked) -> JudgeConfig | None:
    """The judge that is asked for."""
    if asked.judge == "none":
        if asked.verifier == "judge":
            raise UsageError("--verifier judge needs a judge", "Name one with --judge MODEL.")
        return None
    from uni_train.config.build import build_section
    from uni_train.config.schema import JudgeConfig
    from uni_train.eval.judges.revision import with_served_revision
    from uni_train.eval.last_seen import LastSeen

    shared = {
        "dialect": asked.judge_dialect,
        "temperature": asked.judge_temperature,
        "draws": asked.judge_draws,
        "max_tokens": asked.judge_max_tokens,
        "connections": asked.judge_connections,
        "timeout": asked.judge_timeout,
    }
    own = {
        "model": f"{asked.judge_base_url}#{asked.judge}" if asked.judge_base_url else asked.judge,
        "key_env": asked.judge_key_env,
        "revision": asked.judge_revision,
        "way": asked.judge_way,
        "small": [{**shared, "model": small, "way": asked.small_way} for small in asked.small_judge],
        "sure": asked.small_sure,
        "price": asked.judge_price,
        "cost_limit": asked.judge_cost_limit,
    }
    return with_served_revision(build_section(JudgeConfig, shared | own), LastSeen(store_of(asked)))


def _remote(asked: Asked) -> RemoteConfig:
    from uni_train.config.schema import RemoteConfig

    return RemoteConfig(key_env=asked.key_env, revision=asked.revision, connections=asked.connections)


def sampling_of(pairs: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE of the model's sampling settings, each of the kind and in the range that it has."""
    from uni_train.config.build import build_section
    from uni_train.config.schema import SamplingConfig

    known = [field.name for field in fields(SamplingConfig)]
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in known or not equals:
            raise UsageError(f"--sampling {pair}: no such setting", did_you_mean(key, known, "settings"))
        try:
            found[key] = int(value) if re.fullmatch(r"-?\d+", value) else float(value)
        except ValueError:
            found[key] = value
        if isinstance(found[key], float) and not math.isfinite(found[key]):
            raise UsageError(f"--sampling {pair}: no finite number", f"Write {key}=NUMBER.")
    build_section(SamplingConfig, found)
    return found
