"""uni_train: train unified multimodal models to internalise their own reasoning, and measure what got better.

The Python API is `uni_train.api`; its names are here as well, and imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from uni_train.api import Generated, Run, analyse, answer, evaluate, fit, generate, get_reward, get_task, load_model
    from uni_train.core.errors import UsageError, UserError

__all__ = [
    "Generated", "Run", "UsageError", "UserError", "analyse", "answer", "evaluate", "fit", "generate", "get_reward",
    "get_task", "load_model",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = "uni_train.core.errors" if name.endswith("Error") else "uni_train.api"
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
