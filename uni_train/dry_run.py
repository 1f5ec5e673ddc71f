"""What `uni_train fit --dry-run` prints: the stages of a recipe, its costs and needs, and its first update.

A dry run whose answer is cached loads no torch, so functions import what they need.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.config.kinds import check_before_run, judge_of, kind_of, stage_list
from uni_train.config.places import recipes
from uni_train.config.schema import RunConfig
from uni_train.distributed.ranks import Ranks
from uni_train.fitting import expect, missing, said_once


def print_plan(recipe: str, overrides: Sequence[str], whole: bool = False) -> None:
    """Print what a run would do; of the `whole` the configuration, too. Raises UserError as the run would."""
    ranks = Ranks.from_environment()
    with said_once(ranks):
        config = compose(recipe, overrides)
        if ranks.is_main:
            _print(config, whole)


def _print(config: RunConfig, whole: bool) -> None:
    """Errors come before any output."""
    import yaml

    from uni_train.stages.cache import cached

    remarks = cached(list[str], config, ["dry run"], lambda: _remarks(config))
    costs = next((recipe.costs for recipe in recipes() if recipe.name == config.recipe), "")
    if (model := re.match(r"(\w+):", costs)) and model[1] != config.model.name:
        costs = f"`uni_train plan {config.recipe} model={config.model.name}` says memory and time on GPUs"
    print(f"# run folder: {config.out}/{config.recipe}/{config.run_name}\n# stages:")
    for stage in stage_list(config):
        print(f"#   {stage.index:02d}-{stage.name:<20} {stage.summary}")
    for line in [*([f"costs: {costs}"] if costs else []), *remarks]:
        print(f"# {line}")
    if whole:
        print()
        print(yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True, width=100), end="")
    else:
        print("# --config prints all keys and their values")


def _remarks(config: RunConfig) -> list[str]:
    """What a run needs, and its first update. Raises UserError as a run would."""
    from uni_train.console.progress import ConsoleProgress
    from uni_train.stages.first_update import describe

    expect(config, ConsoleProgress())
    checks = check_before_run(config, config.strategy.devices * config.strategy.nodes, planned=True)
    return [*needs(config), *checks, *describe(config)]


def needs(config: RunConfig) -> list[str]:
    """Files and packages that are missing, and servers that must answer, a line each."""
    judge = judge_of(config)
    servers = [f"judge: {judge.checkpoint or judge.address}"] if judge is not None else []
    servers += kind_of(config).servers(config)
    lines = [f"missing: {error.message}. {error.hint}" for error in missing(config)]
    return [*lines, *(f"must answer before the first stage: {server}" for server in servers)]
