"""Whether the first update of a recipe fits into this machine's memory, asked before anything of it is made.

A CPU's memory that runs out takes other programs with it. A GPU's allocator refuses by itself, and what a recipe needs
there is for `plan` to say: nothing is refused on a machine that would train on a GPU.
"""

from __future__ import annotations

import torch

from uni_train.config.kinds import before_run, kind_of
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UserError
from uni_train.plan.ready import SAMPLE, ready
from uni_train.stages.cpu import memory
from uni_train.training.trained import train_only

_KEPT = 8
"""Numbers that each row of a matrix may keep of a token (measured: at most 1.2). What needs less is not followed."""


@before_run("plan")
def expect_memory(config: RunConfig, ranks: int = 1, planned: bool = False) -> str | None:
    """Refuse an update whose tensors are more than this machine has memory.

    Args:
        ranks: processes that share an update. planned: the run may be meant for another machine (`--dry-run`). A
            published model that is too large for this one is then only reported, but not a batch that alone is.

    Returns:
        What to say of a model that is too large for this machine.

    Raises:
        UsageError: no parameter is left to train.
        UserError: with the keys and the estimate. Too low rather than too high: without what allocators add, nor
            with what a CPU's kernels keep beyond those of a GPU.
    """
    here = memory()
    if config.strategy.accelerator != "cpu" and torch.cuda.is_available():
        return None
    try:
        made = ready(config, ranks, SAMPLE)
    except UserError:  # a model or rows of which nothing can be said; whoever uses them says why
        return None
    train_only(made.model, *kind_of(config).trained(config))
    work, model = made.work, config.model
    weights = made.parameters * (2 if made.cast is not None else 4)
    rows = sum(weight.shape[0] for weight in made.model.parameters() if weight.ndim > 1)
    if 4 * _KEPT * rows * work.tokens + 10 * weights < here:
        return None
    from uni_train.plan.hardware import GIB
    from uni_train.plan.plan import on_gpus, scaled
    from uni_train.plan.result import Choice
    from uni_train.plan.strategies import share

    if weights > here:
        needed, rest = weights, weights
    else:
        traced = scaled(made.traced(config.checkpointed_every)[0], work.times)
        own = share(Choice.from_config(config.strategy), traced, ranks, work.micros, made.cast is not None)
        needed = own.peak + own.host
        rest = needed - own.parts["activations"] - own.parts["rollouts"]
    if needed <= here:
        return None
    has = f"this machine has {here / GIB:,.0f} GiB"
    if rest > here:
        message = f"training {model.name} takes at least {rest / GIB:,.0f} GiB of memory, and {has}"
        hint = "Lower model.architecture, or see `uni_train plan` for the GPUs that it takes."
    else:
        micro, hint = f"a micro-batch has {work.units:,} {work.unit}", kind_of(config).less_memory
        message = f"an update of {config.recipe} takes about {needed / GIB:,.0f} GiB of memory, and {has}: {micro}"
    if planned and model.checkpoint is not None and (rest > here or needed - rest <= here):
        return f"{message}; on GPUs {on_gpus(config, ranks, made)}"
    raise UserError(message, hint)
