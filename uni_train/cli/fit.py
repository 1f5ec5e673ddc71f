"""The body of `uni_train fit`: compose, open the run folder, run the stages."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from uni_train.config import Config
from uni_train.config.compose import compose
from uni_train.config.stage_list import stage_list
from uni_train.run_folder import RunFolder


def run_recipe(recipe: str, overrides: Sequence[str], *, fresh: bool, dry_run: bool) -> None:
    """Raises UserError for everything that a person can put right."""
    config = compose(recipe, overrides)
    if dry_run:
        _print_plan(config)
        return
    if fresh:
        run = RunFolder.fresh(config.out, config.recipe, config.run_name)
    else:
        run = RunFolder(config.out, config.recipe, config.run_name)
    with run:
        continues = run.begin(config, sys.argv)
        from uni_train.cli.progress import ConsoleProgress

        progress = ConsoleProgress()
        progress.say(f"{'continuing' if continues else 'run folder'} {run.path}")
        if fresh and run.name != config.run_name:
            progress.say(f"to continue it later, leave out --fresh and add name={run.name}")

        from uni_train.stages.run import fit

        fit(config, run, progress)
        report = run.path / "report.html"
        if report.is_file():
            progress.say(f"report: {report.resolve()}")


def _print_plan(config: Config) -> None:
    import yaml

    from uni_train.config.build import to_plain

    print(yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True, width=100), end="")
    print(f"\n# run folder: {config.out}/{config.recipe}/{config.run_name}\n# stages:")
    for stage in stage_list(config):
        print(f"#   {stage.index:02d}-{stage.name:<20} {stage.summary}")

    from uni_train.stages.plan import describe

    for line in describe(config):
        print(f"# {line}")
