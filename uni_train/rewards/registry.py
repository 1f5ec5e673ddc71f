"""Rewards by the name that a recipe gives them: ours, those of plug-ins, and functions by their place.

    @reward("bright")
    def bright(prompts, completions, **columns): ...

A reward is a function with trl's contract (contract.py), or a class whose objects are such functions. A class is made
once a run, with its part of the recipe and the model that is trained: `SelfCheck(config, trained)`.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from uni_train.core.errors import PLUGINS, UsageError, UserError, described, did_you_mean
from uni_train.core.registry import Registry
from uni_train.rewards.contract import Reward, RewardFunction

if TYPE_CHECKING:
    from uni_train.models.base import UnifiedModel
    from uni_train.rewards.config import RewardConfig

_MODULES = {
    "verifier": "verifier verifier_dense", "judging": "self_check judge", "elsewhere": "python server",
    "clip": "pickscore clip_score",
}  # fmt: skip
_BUILT_IN = {name: f"uni_train.rewards.{module}" for module, names in _MODULES.items() for name in names.split()}
REWARDS: Registry[Any] = Registry("reward", _BUILT_IN, required=("__call__",))
reward = REWARDS.register
TRL_ONLY = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
"""What trl's GRPOTrainer also passes to rewards, and ours do not get."""


@dataclass(frozen=True)
class Trained:
    """What a reward that is a class may use.

    Attributes:
        model: the one that is trained.
        keep: keeps the weights as they are when a reward is made, those that the run starts from; within what it
            returns the model answers with them.
        batch: questions that it answers together.
        name: of the reward. device: of this rank, such as "cuda:1". folder: for logs of this rank; None: nowhere.
    """

    model: UnifiedModel
    keep: Callable[[], Callable[[], AbstractContextManager[Any]]]
    batch: int
    name: str = ""
    device: str = "cpu"
    folder: Path | None = None


def make_rewards(configs: Mapping[str, RewardConfig], trained: Trained) -> list[Reward]:
    """A recipe's rewards by name, in its order. To be called with the weights that the run starts from in the model.

    Raises:
        UsageError: an unknown reward. UserError: its module cannot be imported, or a judge does not answer.
    """
    rewards = []
    for name, config in configs.items():
        function: RewardFunction = implementation_of(config)
        if isinstance(function, type):
            function = function(config, replace(trained, name=name))
        background = config.background or config.judge is not None or config.address is not None
        patience = config.patience if config.python is None else TIMEOUT_MAX  # another interpreter is ended when late
        rewards.append(Reward(name, function, config.weight, patience=patience if background else None))
    return rewards


def implementation_of(config: RewardConfig) -> Any:
    """The function or class of a recipe's reward. Raises as `find_reward`."""
    return find_reward(config.function if config.python is None else "python")


def find_reward(name: str) -> Any:
    """The function or class of a registered name, of "package.module:function" or of "folder/file.py:function".

    An async function comes as one that returns when its coroutine has.

    Raises:
        UsageError: no such reward, or one that needs what only trl's trainer passes. UserError: the module or file
            cannot be imported.
    """
    implementation = _implementation(name)
    if inspect.isfunction(implementation):
        parameters = inspect.signature(implementation).parameters
        needed = [one for one in TRL_ONLY if one in parameters and parameters[one].default is inspect.Parameter.empty]
        if needed:
            hint = f"Give it a default, and do without it where it is None: {needed[0]}=None."
            raise UsageError(f"the reward {name} needs {needed[0]}, which only trl's trainers pass", hint)
    return _awaited(implementation) if inspect.iscoroutinefunction(implementation) else implementation


def _awaited(function: Callable[..., Any]) -> RewardFunction:
    @functools.wraps(function)
    def call(*arguments: Any, **columns: Any) -> Any:
        with ThreadPoolExecutor(1) as thread:  # that of the caller may run a loop, as in a notebook
            return thread.submit(asyncio.run, function(*arguments, **columns)).result()

    return call


def _implementation(name: str) -> Any:
    place, colon, function = name.rpartition(":")
    if not colon and name in REWARDS.names():
        return REWARDS.get(name)
    if not colon or not place or not function:
        raise UsageError(
            f"there is no reward {name}",
            f"{did_you_mean(name, REWARDS.names(), 'rewards')} Or give MODULE:FUNCTION, or FILE.py:FUNCTION.",
        )
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None:
                raise ImportError(f"{place} is no Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            PLUGINS.add(place.partition(".")[0])
            module = importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the reward {name} cannot be imported: {described(error)}",
            "Check its module or file. PYTHONPATH names the folder of a module.",
        ) from error
    implementation = getattr(module, function, None)
    if not callable(implementation):
        raise UsageError(f"{place} has no function {function}", "Name it MODULE:FUNCTION or FILE.py:FUNCTION.")
    return implementation
