"""`uni_train report`: the page of a run or an evaluation, written again."""

from __future__ import annotations

from pathlib import Path

import click

from uni_train.console.terminal import echo
from uni_train.core.errors import UserError


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
def report(run: Path) -> None:
    """Write the report.html of a run or an evaluation again.

    RUN is its folder; the report is made from what is stored there.

    \b
    Examples:
      uni_train report runs/stars_curriculum/seed0
      uni_train report evals/nano-unisandbox-0a1b2c
    """
    if (run / "evaluation.json").is_file():
        from uni_train.eval.evaluation import load
        from uni_train.eval.report.evaluation import report_of

        echo(f"report: {report_of(load(run))}")
        return
    if not (run / "config.yaml").is_file():
        raise UserError(
            f"{run} is no run folder: it has no config.yaml",
            "Run folders are runs/<recipe>/<name>, evaluations evals/<name>.",
        )
    from uni_train.core.registry import PluginError
    from uni_train.eval.report.run import without_samples, write_report
    from uni_train.run_folder import stored_config

    try:
        stored_config(run)
    except PluginError as error:
        echo(f"the report does without a plug-in: {error}")
    except UserError:
        pass  # it is written of what is left
    echo(f"report: {write_report(run)}")
    for folder in without_samples(run):
        echo(f"{folder}: no samples here, so the gallery lacks them")
