"""Reward functions by the name that a recipe gives them."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from uni_train.errors import UsageError, UserError
from uni_train.rewards import verifier
from uni_train.rewards.contract import RewardFunction, place_of

KNOWN: dict[str, RewardFunction] = {"verifier": verifier.verified, "verifier_dense": verifier.dense}
ASKING = ("self_check", "judge")
"""Those that ask a model, which the stage has (uni_train/stages/rewards.py)."""


def reward_function(name: str) -> RewardFunction:
    """`verifier`, `verifier_dense`, "package.module:function" or "folder/file.py:function".

    Raises:
        UsageError: no such reward. UserError: the module or file cannot be imported.
    """
    if name in KNOWN:
        return KNOWN[name]
    place, colon, function = name.rpartition(":")
    if not colon or not place or not function:
        raise UsageError(
            f"there is no reward {name}",
            f"Known: {', '.join((*KNOWN, *ASKING))}; or MODULE:FUNCTION, or FILE.py:FUNCTION.",
        )
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or spec.loader is None:
                raise ImportError(f"{place} is no Python file")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except Exception as error:
        raise UserError(
            f"the reward {name} cannot be imported ({type(error).__name__}: {error}){place_of(error)}",
            "Check its module or file.",
        ) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise UsageError(f"{place} has no function {function}", "Name it MODULE:FUNCTION or FILE.py:FUNCTION.")
    return found
