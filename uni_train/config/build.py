"""From plain YAML values to the dataclasses of schema.py, with errors that name the key, its place and a remedy.

All checking of configuration is here: types and unknown keys while building, ranges and rules between keys in
`validate`. The rest of the code trusts what it gets.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union

from data_gen.registry import TASKS, sources
from uni_train.config.schema import (
    KINDS,
    Config,
    FlowGrpoConfig,
    JudgeConfig,
    KnowledgeConfig,
    RunConfig,
    SftConfig,
    StarsConfig,
)
from uni_train.errors import UsageError, did_you_mean, nearest

Where = Callable[[str], str]
"""Tells where a dotted key was given: "override lr=2", "recipes/x.yaml"."""


def build(values: Mapping[str, Any], where: Where = lambda key: "") -> Config:
    """The checked configuration. `values` is plain data (as YAML gives it), complete and without interpolations.

    Raises UsageError naming the first offending key.
    """
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise _error(f"kind must be one of {', '.join(KINDS)}, not {kind!r}", "kind", where)
    config = _build_dataclass(KINDS[kind], values, "", where, KINDS[kind])
    validate(config, where)
    return config


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
    kinds: list[Any] = [cls]
    for part in key.split("."):
        found: list[Any] = []
        for kind in kinds:
            if dataclasses.is_dataclass(kind):
                hint = typing.get_type_hints(kind).get(part)
                found += [] if hint is None else [hint]
            elif typing.get_origin(kind) is dict:
                found.append(typing.get_args(kind)[1])
            elif typing.get_origin(kind) is tuple and part.isdigit():
                found.append(typing.get_args(kind)[0])
        kinds = [member for kind in found for member in _members(kind)]
    return str in kinds


def _members(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) in (Union, types.UnionType) else (kind,)


def _error(message: str, key: str, where: Where, hint: str | None = None) -> UsageError:
    place = where(key)
    return UsageError(f"{message} ({place})" if place else message, hint)


# --- unknown keys and wrong types -----------------------------------------------------------------------------------


def _build_dataclass(cls: type, values: Any, key: str, where: Where, root: type) -> Any:
    if not isinstance(values, Mapping):
        raise _error(f"{key} must be a section with keys ({_names(cls)}), not {_shown(values)}", key, where)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        if name not in fields:
            raise _unknown_key(_join(key, str(name)), cls, where, root)
    annotations = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for name, field in fields.items():
        path = _join(key, name)
        if name in values:
            arguments[name] = _build_value(annotations[name], values[name], path, where, root)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _error(f"missing key {path}: it has no default", key, where)
    return cls(**arguments)


def _build_value(kind: Any, value: Any, key: str, where: Where, root: type) -> Any:
    """`value` as the annotated type, or a UsageError. Nothing is converted but int to float and list to tuple."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        others = [argument for argument in arguments if argument is not type(None)]
        for argument in others[:-1]:
            try:
                return _build_value(argument, value, key, where, root)
            except UsageError:
                continue
        try:
            return _build_value(others[-1], value, key, where, root)
        except UsageError:
            if len(others) == 1:
                raise
            raise _wrong_type(kind, value, key, where) from None
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(typing.cast(type, kind), value, key, where, root)
    if origin is Literal:
        # "1" == 1 is False but True == 1 is not what is meant
        if not any(type(value) is type(option) and value == option for option in arguments):
            hint = None
            if isinstance(value, str) and all(isinstance(option, str) for option in arguments):
                close = nearest(value, arguments)
                hint = f"Did you mean {close}?" if close else None
            raise _error(
                f"{key} must be one of {', '.join(map(str, arguments))}, not {_shown(value)}", key, where, hint
            )
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong_type(kind, value, key, where)
        if arguments[-1] is Ellipsis:
            return tuple(_build_value(arguments[0], v, _join(key, str(i)), where, root) for i, v in enumerate(value))
        if len(value) != len(arguments):
            raise _error(f"{key} must be a list of {len(arguments)} values, not of {len(value)}", key, where)
        return tuple(
            _build_value(argument, v, _join(key, str(i)), where, root)
            for i, (argument, v) in enumerate(zip(arguments, value, strict=True))
        )
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong_type(kind, value, key, where)
        return {str(k): _build_value(arguments[1], v, _join(key, str(k)), where, root) for k, v in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (int, float, str, bool) and type(value) is kind:
        return value
    raise _wrong_type(kind, value, key, where)


def _unknown_key(key: str, cls: type, where: Where, root: type) -> UsageError:
    parent, _, name = key.rpartition(".")
    siblings = [field.name for field in dataclasses.fields(cls)]
    known = _all_keys(root)
    same_leaf = [other for other in known if other.rpartition(".")[2] == name]
    close = nearest(name, siblings)
    meant = _join(parent, close) if close else None
    if meant is None or (same_leaf and not parent):
        meant = same_leaf[0] if same_leaf else nearest(key, known)
    hint = f"Known keys{f' of {parent}' if parent else ''}: {', '.join(siblings)}."
    return _error(f"unknown key {key}", key, where, f"Did you mean {meant}? {hint}" if meant else hint)


def _all_keys(cls: type, key: str = "") -> list[str]:
    keys: list[str] = []
    for name, kind in typing.get_type_hints(cls).items():
        path = _join(key, name)
        keys.append(path)
        if dataclasses.is_dataclass(kind):
            keys.extend(_all_keys(typing.cast(type, kind), path))
    return keys


def _wrong_type(kind: Any, value: Any, key: str, where: Where) -> UsageError:
    return _error(f"{key} must be {_described(kind)}, not {_shown(value)}", key, where)


def _described(kind: Any) -> str:
    """A type in words that a person who writes YAML knows."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if argument is type(None) else _described(argument) for argument in arguments)
    if origin is Literal:
        names = ", ".join(map(str, arguments))
        return names if len(arguments) == 1 else f"one of {names}"
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            item = arguments[0]
            return "a list" + ("" if dataclasses.is_dataclass(item) else f", each {_described(item)}")
        return f"a list of {len(arguments)} values"
    if origin is dict:
        return "a section of key: value"
    if dataclasses.is_dataclass(kind):
        return "a section with keys"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[kind]


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def _names(cls: type) -> str:
    return ", ".join(field.name for field in dataclasses.fields(cls))


def _join(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


# --- ranges and rules -----------------------------------------------------------------------------------------------


def validate(config: Config, where: Where = lambda key: "") -> None:
    """Ranges of every field (as schema.py states them), then the rules between keys. Raises UsageError."""
    _check_ranges(config, "", where)
    _check_common(config, where)
    if isinstance(config, StarsConfig):
        _check_stars(config, where)
    elif isinstance(config, SftConfig):
        _check_sft(config, where)
    elif isinstance(config, FlowGrpoConfig):
        _check_grpo(config, where)
    elif isinstance(config, KnowledgeConfig):
        _check_knowledge(config, where)


def _check_ranges(config: Any, key: str, where: Where) -> None:
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), _join(key, field.name)
        _check_value(value, path, field.metadata, where)


def _check_value(value: Any, key: str, limits: Mapping[str, Any], where: Where) -> None:
    if dataclasses.is_dataclass(value):
        _check_ranges(value, key, where)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check_value(item, _join(key, name), limits, where)
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            _check_value(item, _join(key, str(i)), limits, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high, above = limits.get("low"), limits.get("high"), limits.get("above")
        if (
            not math.isfinite(value)
            or (low is not None and value < low)
            or (high is not None and value > high)
            or (above is not None and value <= above)
        ):
            raise _error(f"{key} must be {_limits(low, high, above)}, not {value}", key, where)


def _limits(low: float | None, high: float | None, above: float | None) -> str:
    if low is not None and high is not None:
        if isinstance(low, int) and isinstance(high, int):
            return f"one of {', '.join(str(n) for n in range(low, high + 1))}"
        return f"between {low:g} and {high:g}"
    if low is not None:
        return f"at least {low:g}"
    return f"greater than {above:g}" if above is not None else "a finite number"


def _check_common(config: RunConfig, where: Where) -> None:
    if config.name is not None:
        _check_name(config.name, where)
    if not config.out or not config.out.isprintable():
        raise _error(f"out must be the path of a folder, not {config.out!r:.60}", "out", where)
    for i, name in enumerate(config.evaluation.sets):
        _check_known(name, sources(), "set", f"evaluation.sets.{i}", where)
    low, high = config.model.sampling.cfg_interval
    if low > high:
        raise _error(f"model.sampling.cfg_interval starts at {low} after its end {high}", "model.sampling", where)
    architecture = config.model.architecture
    if architecture.hidden_size % (2 * architecture.heads):
        raise _error(
            f"model.architecture.hidden_size {architecture.hidden_size} is no even multiple of heads "
            f"{architecture.heads} (rope turns pairs of channels)",
            "model.architecture.hidden_size",
            where,
        )
    if architecture.heads % architecture.kv_heads:
        raise _error(
            f"model.architecture.heads {architecture.heads} is no multiple of kv_heads {architecture.kv_heads}",
            "model.architecture.kv_heads",
            where,
        )
    token = architecture.latent_downsample * architecture.latent_patch
    if architecture.image_size % token:
        raise _error(
            f"model.architecture.image_size {architecture.image_size} is no multiple of a token's {token} pixels",
            "model.architecture.image_size",
            where,
        )
    if config.model.editing is not None and not config.model.edits:
        raise _error(f"model.editing has no meaning for a {config.model.family}", "model.editing", where)
    for key in ("sets", "modes"):
        if not getattr(config.evaluation, key):
            raise _error(f"evaluation.{key} is empty: nothing would be measured", f"evaluation.{key}", where)
    targets = config.lora.targets
    if targets.startswith("re:"):
        try:
            re.compile(targets.removeprefix("re:"))
        except re.error as error:
            raise _error(f"lora.targets is no regular expression: {error}", "lora.targets", where) from None
    elif targets not in ("understanding", "generation", "both"):
        message = f"lora.targets must be understanding, generation, both or re:PATTERN, not {targets!r}"
        raise _error(message, "lora.targets", where)
    strategy = config.strategy
    if strategy.offload_optimizer and not strategy.kind.startswith("deepspeed_"):
        raise _error(
            f"strategy.offload_optimizer has no meaning for {strategy.kind}",
            "strategy.offload_optimizer",
            where,
            "deepspeed_zero1, deepspeed_zero2 and deepspeed_zero3 have it; fsdp2 has offload_weights.",
        )
    if strategy.offload_weights and strategy.kind not in ("deepspeed_zero3", "fsdp2"):
        raise _error(
            f"strategy.offload_weights has no meaning for {strategy.kind}",
            "strategy.offload_weights",
            where,
            "deepspeed_zero3 and fsdp2 have it.",
        )
    if config.ema is not None and config.ema >= 1:
        raise _error("ema must be below 1: at 1 the average never moves", "ema", where)
    if config.judge is not None:
        _check_judge(config.judge, where)
    elif config.data.world == "everyday" and (isinstance(config, KnowledgeConfig) or getattr(config, "evaluate", True)):
        raise _error(
            "no program can read images of the everyday world, and no judge is given",
            "judge",
            where,
            "judge={address:'http://HOST:PORT/v1#MODEL'}, or judge={checkpoint:FOLDER}.",
        )


def _check_judge(judge: JudgeConfig, where: Where) -> None:
    if (judge.address is None) == (judge.checkpoint is None):
        raise _error(
            "judge needs one of address and checkpoint",
            "judge",
            where,
            "\"judge.address='http://HOST:PORT/v1#MODEL'\", or judge.checkpoint=FOLDER; the other one is null.",
        )
    if judge.address is not None and not all(judge.address.rpartition("#")):
        raise _error("judge.address does not say which model", "judge.address", where, "http://HOST:PORT/v1#MODEL.")
    if judge.question is not None:
        raise _error("judge.question has no meaning here: the paper's own are asked", "judge.question", where)


_LONGEST_NAME = 200  # bytes: what file systems take, with room for the ends that are put behind it


def _check_known(name: str | None, known: Iterable[str], noun: str, key: str, where: Where) -> None:
    names = tuple(known)
    if name is not None and name not in names:
        raise _error(f"{key}: unknown {noun} {name}", key, where, did_you_mean(name, names, f"{noun}s"))


def _check_name(name: str, where: Where) -> None:
    if not name.isprintable() or not name or name.startswith(".") or "/" in name or "\\" in name:
        raise _error(f"name must be usable as a folder name, not {name!r:.60}", "name", where)
    if len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
        raise _error(f"name has {len(name)} letters; a folder's name has at most {_LONGEST_NAME} bytes", "name", where)


def _check_sft(config: SftConfig, where: Where) -> None:
    _check_known(config.held_out.task, TASKS.names(), "task", "held_out.task", where)
    if not config.used_sources:
        raise _error(
            "sources is empty: there is nothing to train on",
            "sources",
            where,
            "Name at least one: sources.mine={form:items,path:FILE}; docs/training.md shows the forms.",
        )
    if (config.batch.rows is None) == (config.batch.tokens is None):
        raise _error("batch needs one of rows and tokens", "batch", where, "batch.tokens=32768 or batch.rows=64.")
    if config.batch.rows is not None and config.batch.accumulate > config.batch.rows:
        raise _error(
            f"batch.accumulate {config.batch.accumulate} is more than batch.rows {config.batch.rows}",
            "batch.accumulate",
            where,
        )
    for name, source in config.used_sources.items():
        if not source.path:
            raise _error(f"sources.{name}.path names no file", f"sources.{name}.path", where)
        if not source.learn:
            raise _error(f"sources.{name}.learn is empty: nothing would be learned", f"sources.{name}.learn", where)
        if source.form != "items" and source.learn != ("image",):
            raise _error(f"sources.{name}.learn belongs to form=items alone", f"sources.{name}.learn", where)
        for key in ("image_size", "vit_size"):
            sides = getattr(source, key)
            if sides is not None and sides[0] > sides[1]:
                place = f"sources.{name}.{key}"
                raise _error(f"{place} {list(sides)} is not [shortest, longest]", place, where)


def _check_grpo(config: FlowGrpoConfig, where: Where) -> None:
    _check_known(config.prompts.task, TASKS.names(), "task", "prompts.task", where)
    if (config.prompts.task is None) == (config.prompts.path is None):
        raise _error(
            "prompts needs one of task and path", "prompts", where, "prompts.task=maze, or prompts.path=items.jsonl."
        )
    if not config.used_rewards:
        raise _error("rewards is empty: there is nothing to learn", "rewards", where, "rewards.v={function:verifier}.")
    for name, reward in config.used_rewards.items():
        if reward.weight == 0:
            raise _error(f"rewards.{name}.weight is 0", f"rewards.{name}.weight", where, f"rewards.{name}=null.")
        if (reward.function == "judge") != (reward.judge is not None):
            raise _error(
                f"rewards.{name}: function=judge and a judge's address belong together",
                f"rewards.{name}.judge",
                where,
                f"rewards.{name}={{function:judge,judge:{{address:'http://HOST:PORT/v1#MODEL'}}}}.",
            )
        if reward.judge is not None and (reward.judge.address is None or reward.judge.dialect != "paper"):
            raise _error(
                f"rewards.{name}.judge is asked in the recipe's words at an address",
                f"rewards.{name}.judge",
                where,
                "Serve a checkpoint with `uni_train serve`, and give its address.",
            )
    for key, levels in (("prompts.levels", config.prompts.levels), ("held_out.levels", config.held_out.levels)):
        if levels is not None and not levels:
            raise _error(f"{key} is empty", key, where)
    rollout, pictures = config.rollout, config.rollout.prompts_per_epoch * config.rollout.group_size
    if pictures % config.updates_per_epoch:
        updates = (n for n in range(1, pictures + 1) if pictures % n == 0)
        near = min(updates, key=lambda n: abs(n - config.updates_per_epoch))
        raise _error(
            f"rollout.prompts_per_epoch {rollout.prompts_per_epoch} x rollout.group_size {rollout.group_size}: "
            f"{pictures} pictures cannot be divided into {config.updates_per_epoch} equal updates",
            "updates_per_epoch",
            where,
            f"The nearest number is updates_per_epoch={near}.",
        )
    if config.variant == "diffusion_nft":
        return
    first, last = rollout.first_step, rollout.steps - 1 if rollout.last_step is None else rollout.last_step
    most = rollout.steps - 1 if config.variant == "cps" else rollout.steps
    if not first < last <= most or (rollout.window or 1) > last - first:
        raise _error(
            f"rollout.window {rollout.window} does not fit between step {first} and step {last} of {rollout.steps}",
            "rollout",
            where,
            "Raise rollout.steps, or lower rollout.window. The last step of cps has no noise.",
        )
    if rollout.noise_level == 0:
        raise _error("rollout.noise_level 0 leaves no step random", "rollout.noise_level", where)
    if config.variant == "cps" and rollout.noise_level is not None and rollout.noise_level > 1:
        raise _error("rollout.noise_level of cps must be between 0 and 1", "rollout.noise_level", where)
    if config.objective.clip_low >= 1:
        raise _error("objective.clip_low must be below 1", "objective.clip_low", where)


def _check_knowledge(config: KnowledgeConfig, where: Where) -> None:
    if config.model.edits:
        raise _error(
            f"model={config.model.name} answers no questions, and whoever is taught in text must",
            "model",
            where,
            "Choose model=nano or model=bagel_7b.",
        )
    for key in ("directions", "modes"):
        if not getattr(config, key):
            raise _error(f"{key} is empty: nothing would be asked", key, where)
    if config.directions == ("inverse",) and config.characters.n < 2:
        raise _error("characters.n must be at least 2: the inverse search is within a pair", "characters.n", where)
    if config.least_epochs > config.epochs:
        raise _error(f"least_epochs {config.least_epochs} is more than epochs {config.epochs}", "least_epochs", where)
    if config.accumulate > config.rows:
        raise _error(f"accumulate {config.accumulate} is more than rows {config.rows}", "accumulate", where)
    if config.ema is not None:
        raise _error("ema has no meaning here: the exam is of the weights as they are", "ema", where, "ema=null.")
    if config.trained == "lora" and config.lora.targets != "understanding":
        raise _error(
            f"lora.targets={config.lora.targets}: knowledge goes into the understanding weights alone",
            "lora.targets",
            where,
            "lora.targets=understanding.",
        )
    if config.characters.path is not None and config.data.world != "everyday":
        raise _error(
            "characters.path: the published characters are people of the everyday world",
            "characters.path",
            where,
            "data.world=everyday.",
        )
    if config.judge is not None and config.judge.dialect == "nano":
        raise _error("judge.dialect=nano: nano has no words for portraits and flowers", "judge.dialect", where)


def _check_stars(config: StarsConfig, where: Where) -> None:
    if not config.rounds:
        raise _error("rounds is empty: there is nothing to train", "rounds", where)
    tasks = [name for name in TASKS.names() if TASKS.get(name).sets]
    sets = [name for name, source in sources().items() if not source.variant]
    for i, one in enumerate(config.rounds):
        _check_known(one.task, tasks, "task", f"rounds.{i}.task", where)
        levels = TASKS.get(one.task).sets
        if one.level not in levels:
            key, known = f"rounds.{i}.level", ", ".join(map(str, levels))
            raise _error(f"{key} must be one of {known}, not {one.level}", key, where)
    if config.schedule.kind == "ramp" and len(config.rounds) < 2:
        raise _error("schedule.kind=ramp needs at least two rounds, a first and a last", "schedule.kind", where)
    if config.batch.accumulate > config.batch.prompts:
        raise _error(
            f"batch.accumulate {config.batch.accumulate} is more than batch.prompts {config.batch.prompts}",
            "batch.accumulate",
            where,
        )
    if config.model.edits:
        raise _error(
            f"model={config.model.name} edits images, and the prompts of STARS have none",
            "model",
            where,
            "Choose model=nano or model=bagel_7b; sft and flow_grpo train editors.",
        )
    if config.filter == "judge" and config.judge is None:
        raise _error(
            "filter=judge needs to know who judges",
            "filter",
            where,
            "judge={address:'http://HOST:PORT/v1#MODEL'}, or judge={checkpoint:FOLDER}.",
        )
    if config.filter == "verifier" and config.data.world == "everyday":
        raise _error(
            "filter=verifier: no program can read images of the everyday world",
            "filter",
            where,
            "filter=self, or filter=judge with the run's judge.",
        )
    replayed = (*sets, "pretrain")
    for i, one in enumerate(config.rounds):
        _check_round(config, i, where)
        key = f"rounds.{i}.replay"
        for name, part in one.replay.items():
            if name not in replayed:
                raise _error(f"unknown set {name} in {key}", key, where, did_you_mean(name, replayed, "sets"))
            if not 0 <= part <= 1:
                raise _error(f"{key}.{name} must be between 0 and 1, not {part:g}", f"{key}.{name}", where)
            if name == one.set_name:
                raise _error(f"{key} names {name}, the round's own set: it gets what replay leaves", key, where)
            if name != "pretrain" and name not in {earlier.set_name for earlier in config.rounds[:i]}:
                raise _error(f"{key} names {name}, but no earlier round samples it", key, where)
        if sum(one.replay.values()) >= 1:
            raise _error(f"the shares in {key} add up to 1 or more: nothing is left for {one.set_name}", key, where)
    for name in config.budget:
        if name not in sets:
            raise _error(f"unknown set {name} in budget", "budget", where, did_you_mean(name, sets, "sets"))
    if config.teacher == "current" and config.schedule.kind != "sequential":
        raise _error(
            "teacher=current needs schedule.kind=sequential: the other kinds sample all rounds before training",
            "teacher",
            where,
        )


def _check_round(config: StarsConfig, i: int, where: Where) -> None:
    one = config.rounds[i]
    if (one.updates is None) == (one.epochs is None):
        raise _error(
            f"rounds.{i} ({one.set_name}) needs one of updates and epochs",
            f"rounds.{i}.updates",
            where,
            f"rounds.{i}.updates=200, or rounds.{i}.epochs=6; budget.{one.set_name}.epochs=null takes one back.",
        )
    if one.kept is None:
        return
    if one.kept > one.prompts * config.candidates:
        raise _error(
            f"rounds.{i}.kept {one.kept} is more than {one.prompts} prompts x {config.candidates} candidates give",
            f"rounds.{i}.kept",
            where,
            f"Raise rounds.{i}.prompts or budget.{one.set_name}.prompts: the most that is sampled.",
        )
    if config.whole_pairs and TASKS.get(one.task).items_per_draw == 2 and one.kept % 2:
        raise _error(f"rounds.{i}.kept {one.kept} is odd: a whole pair has two samples", f"rounds.{i}.kept", where)
