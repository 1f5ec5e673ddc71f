"""From plain YAML values to the dataclasses of schema.py, with errors that name the key, its place and a remedy.

pydantic checks types, unknown keys and ranges, as the dataclasses say them. The rules that all recipes share are here,
those of a kind in its own `check`.
The rest of the code trusts what it gets.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from uni_train.config.kinds import KINDS, check_fits, check_ranks, kind_named, kind_of, reads_images
from uni_train.config.messages import Rule, Where, check_draws, check_known, check_rules, members, refused, wrong
from uni_train.config.schema import JudgeConfig, RunConfig
from uni_train.core.errors import DataError, UsageError
from uni_train.data_gen.registry import TASKS, get_task, sources

if TYPE_CHECKING:
    from pydantic import TypeAdapter

S = TypeVar("S")


def build(values: Mapping[str, Any], where: Where = lambda key: "") -> RunConfig:
    """The checked configuration. `values` is plain data (as YAML gives it), complete and without interpolations.

    Raises UsageError naming the first offending key.
    """
    name = values.get("kind")
    if not isinstance(name, str) or name not in KINDS.names():
        raise wrong(f"kind must be one of {', '.join(KINDS.names())}, not {name!r}", "kind", where)
    kind = kind_named(name)
    config: RunConfig = build_section(kind.config, values, where)
    _check_common(config, where)
    kind.check(config, where)
    _check_evaluation(config, where)
    check_ranks(config, config.strategy.devices * config.strategy.nodes)
    return config


def build_section(cls: type[S], values: Any, where: Where = lambda key: "") -> S:
    """A part of a configuration, with types and ranges checked, but no rules between keys. Raises UsageError."""
    from pydantic import ValidationError

    try:
        section: S = adapter(cls).validate_json(_json(values), strict=True)  # type: ignore[arg-type]
    except ValidationError as error:
        raise refused(cls, values, error.errors(include_url=False), where) from None
    return section


@cache
def adapter(cls: Any) -> TypeAdapter[Any]:
    """What checks and builds a section, made once."""
    from pydantic import ConfigDict, TypeAdapter, with_config

    return TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(cls))


def _json(values: Any) -> str:
    """As JSON, whose strict reading takes lists for tuples and whole numbers for numbers, and converts nothing else."""
    try:
        return json.dumps(values, default=_as_text)
    except (ValueError, TypeError, RecursionError) as error:  # thousands of digits; lists within lists without end
        raise UsageError(f"the configuration cannot be read: {error}") from None


def _as_text(value: Any) -> str:
    """YAML reads 2025-01-01 as a date; whoever writes it means the text. Python has paths."""
    if isinstance(value, datetime.date | PurePath):
        return str(value)
    raise TypeError(f"{value!r:.60} is no text, number, list or section")


def to_plain(config: Any) -> Any:
    """The configuration as dicts, lists and scalars: `build(to_plain(c)) == c`."""
    if dataclasses.is_dataclass(config):
        return {field.name: to_plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    if isinstance(config, Mapping):
        return {key: to_plain(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [to_plain(value) for value in config]
    return config


def takes_text(cls: type, key: str) -> bool:
    """Whether a value of the dotted `key` of `cls` may be any text."""
    return str in kinds_of(cls, key)


def kinds_of(cls: type, key: str) -> list[Any]:
    """The types that the dotted `key` of `cls` allows; empty: there is no such key."""
    kinds: list[Any] = [cls]
    for part in key.split("."):
        hints: list[Any] = []
        for kind in kinds:
            if dataclasses.is_dataclass(kind):
                hint = typing.get_type_hints(kind).get(part)
                hints += [] if hint is None else [hint]
            elif typing.get_origin(kind) is dict:
                hints.append(typing.get_args(kind)[1])
            elif typing.get_origin(kind) is tuple and part.isdigit():
                hints.append(typing.get_args(kind)[0])
        kinds = [member for kind in hints for member in members(kind)]
    return kinds


# --- rules between keys ---------------------------------------------------------------------------------------------


def _check_puzzles(names: Sequence[str], where: Where) -> None:
    puzzles = [name for name in TASKS.names() if hasattr(TASKS.get(name), "prompts")] if names else []
    for i, name in enumerate(names):
        key = f"model.puzzles.{i}"
        check_known(name, puzzles, "puzzle", key, where)
        try:
            get_task(name, "nano").prompts()  # type: ignore[attr-defined]
        except DataError as error:
            raise wrong(f"{key}: {error}, and such a model has a token a prompt", key, where, "Leave it out.") from None


def _check_common(config: RunConfig, where: Where) -> None:
    if config.name is not None:
        _check_name(config.name, where)
    if not config.out or not config.out.isprintable():
        raise wrong(f"out must be the path of a folder, not {config.out!r:.60}", "out", where)
    for section, more in (("evaluation", ()), ("retention", ("all",))):
        for i, name in enumerate(getattr(config, section).sets):
            check_known(name, (*sources(), *more), "set", f"{section}.sets.{i}", where)
    _check_puzzles(config.model.puzzles, where)
    (low, high), architecture = config.model.sampling.cfg_interval, config.model.architecture
    token = architecture.latent_downsample * architecture.latent_patch
    check_rules([
        ("model", not config.model.trains, f"model={config.model.name} is asked, and not trained here",
         "Choose another model; `uni_train eval` and `uni_train generate` take this one."),
        ("model", config.model.trains == "texts" and not kind_of(config).trains_texts,
         f"model={config.model.name} learns texts alone, and kind={config.kind} trains on images", None),
        ("model.sampling", low > high, f"model.sampling.cfg_interval starts at {low} after its end {high}", None),
        ("model.architecture.hidden_size", architecture.hidden_size % (2 * architecture.heads),
         f"model.architecture.hidden_size {architecture.hidden_size} is no even multiple of heads "
         f"{architecture.heads} (rope turns pairs of channels)", None),
        ("model.architecture.kv_heads", architecture.heads % architecture.kv_heads,
         f"model.architecture.heads {architecture.heads} is no multiple of kv_heads {architecture.kv_heads}", None),
        ("model.architecture.image_size", architecture.image_size % token,
         f"model.architecture.image_size {architecture.image_size} is no multiple of a token's {token} pixels", None),
        ("activation_checkpointing_every", config.activation_checkpointing_every > 1 and not config.checkpointed_every,
         "activation_checkpointing_every has no meaning without activation_checkpointing",
         "activation_checkpointing=true."),
        *((f"evaluation.{key}", not getattr(config.evaluation, key),
           f"evaluation.{key} is empty: nothing would be measured", None) for key in ("sets", "modes")),
    ], where)  # fmt: skip
    targets = config.lora.targets
    if targets.startswith("re:"):
        try:
            re.compile(targets.removeprefix("re:"))
        except re.error as error:
            raise wrong(f"lora.targets is no regular expression: {error}", "lora.targets", where) from None
    elif targets not in ("understanding", "generation", "both"):
        message = f"lora.targets must be understanding, generation, both or re:PATTERN, not {targets!r}"
        raise wrong(message, "lora.targets", where)
    check_rules(_strategy_rules(config), where)


def _strategy_rules(config: RunConfig) -> list[Rule]:
    """Of the strategy, of quantised weights and moments, and of averages."""
    strategy, weights, state = config.strategy, config.model.weights, config.optimizer.state
    alone, (trained, _) = strategy.kind in ("single", "ddp"), kind_of(config).trained(config)
    reduced = (("model.weights", weights), ("optimizer.state", state if state != "full" else None))
    unfit = f"has no meaning for {strategy.kind}"
    return [
        ("strategy.offload_optimizer", strategy.offload_optimizer and not strategy.kind.startswith("deepspeed_"),
         f"strategy.offload_optimizer {unfit}",
         "deepspeed_zero1, deepspeed_zero2 and deepspeed_zero3 have it; fsdp2 has offload_weights."),
        ("strategy.offload_weights", strategy.offload_weights and strategy.kind not in ("deepspeed_zero3", "fsdp2"),
         f"strategy.offload_weights {unfit}", "deepspeed_zero3 and fsdp2 have it."),
        ("strategy.replicas", strategy.replicas > 1 and strategy.kind != "fsdp2", f"strategy.replicas {unfit}",
         "strategy=fsdp2 has it."),
        ("strategy.offload_averages", strategy.offload_averages and config.ema is None,
         "strategy.offload_averages has no meaning without ema", None),
        *((key, value is not None and not alone, f"{key}={value} {unfit}, which takes weights apart",
           "strategy=single, or strategy=ddp with the same on each device.") for key, value in reduced),
        ("model.weights", weights is not None and trained != "lora",
         f"model.weights={weights} freezes the decoder, and this recipe trains {trained}",
         "trained=lora trains adapters on top."),
        ("ema", config.ema is not None and config.ema >= 1, "ema must be below 1: at 1 the average never moves", None),
    ]  # fmt: skip


def _check_evaluation(config: RunConfig, where: Where) -> None:
    evaluates = kind_of(config).evaluates(config)
    asked = {f"evaluation.sets.{i}": name for i, name in enumerate(config.evaluation.sets) if evaluates}
    asked |= {f"retention.sets.{i}": name for i, name in enumerate(config.retention.sets) if name != "all"}
    check_draws(config.model, [sources()[name].task for name in asked.values()], where)
    for key, name in asked.items():
        check_fits(config, sources()[name].task, [sources()[name].level], key, where)
    if config.judge is not None:
        _check_judge(config.judge, where)
    elif reads_images(config) and (evaluates or config.retention.sets):
        hint = "judge={model:'http://HOST:PORT/v1#MODEL'}, or judge={checkpoint:FOLDER}."
        raise wrong("no program can read images of the everyday world, and no judge is given", "judge", where, hint)


def _check_judge(judge: JudgeConfig, where: Where) -> None:
    check_rules([
        ("judge", (judge.model is None) == (judge.checkpoint is None), "judge needs one of model and checkpoint",
         "\"judge.model='http://HOST:PORT/v1#MODEL'\", or judge.checkpoint=FOLDER; the other one is null."),
        ("judge.question", judge.question is not None, "judge.question has no meaning here: the paper's own are asked",
         None),
    ], where)  # fmt: skip


_LONGEST_NAME = 200  # bytes: what file systems take, with room for the ends that are put behind it


def _check_name(name: str, where: Where) -> None:
    if not name.isprintable() or not name or name.startswith(".") or "/" in name or "\\" in name:
        raise wrong(f"name must be usable as a folder name, not {name!r:.60}", "name", where)
    if len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
        raise wrong(f"name has {len(name)} letters; a folder's name has at most {_LONGEST_NAME} bytes", "name", where)
