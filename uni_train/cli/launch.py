"""`uni_train launch`: what starts a run on several nodes, printed or handed to SLURM."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.fit import fit
from uni_train.console.terminal import echo
from uni_train.core.errors import UsageError, UserError

if TYPE_CHECKING:
    from uni_train.config.schema import RunConfig

# sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
_TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE", re.ASCII | re.IGNORECASE)


def _one_line(_: click.Context, option: click.Parameter, value: Any) -> Any:
    """`value`, or a UsageError where it is empty or has a line break: it would become a line of the script."""
    for text in [value] if isinstance(value, str) else value or ():
        if not text or not text.isprintable():
            raise UsageError(f"{option.opts[0]} {text!r}: give it without line breaks or control characters")
    return value


@click.command()
@click.option("--nodes", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Number of nodes.")
@click.option(
    "--gpus", type=click.IntRange(0, 1_024), required=True, help="GPUs of each node, one process each; 0 = CPUs."
)
@click.option(
    "--gpu",
    metavar="NAME",
    help="Which card, as `plan` names them, or its memory in GB (24). With it the update's memory is compared, and "
    "SLURM is asked for that type: of h100-80gb for h100. Without it: an H100's memory, any card.",
)
@click.option("--processes", type=click.IntRange(1, 1_024), help="Processes of each node, with --gpus 0.")
@click.option("--slurm", is_flag=True, help="Print a SLURM batch script.")
@click.option("--torchrun", is_flag=True, help="Print the torchrun command of each node.")
@click.option("--submit", is_flag=True, help="Submit the script by sbatch.")
@click.option("--partition", callback=_one_line, metavar="NAME", help="SLURM's partition.")
@click.option("--account", callback=_one_line, metavar="NAME", help="The SLURM account.")
@click.option("--time", metavar="D-HH:MM:SS", help="Time limit of the job.")
@click.option("--cpus", type=click.IntRange(1), help="Cores of each process.")
@click.option(
    "--notice",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Save a checkpoint so long before the time limit.",
)
@click.option(
    "--container", callback=_one_line, metavar="IMAGE", help="An image for pyxis, or a .sif file for apptainer."
)
@click.option(
    "--mount",
    "mounts",
    callback=_one_line,
    multiple=True,
    metavar="FOLDER",
    help="A further folder that the container sees.",
)
@click.option(
    "--sbatch",
    "options",
    callback=_one_line,
    multiple=True,
    metavar="OPTION",
    help="A further option of sbatch: --sbatch=--qos=high",
)
@click.option(
    "--hosts",
    callback=_one_line,
    metavar="A,B,...",
    help="Names of the nodes for --torchrun; all must reach the first.",
)
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    default=29500,
    show_default=True,
    help="Port of the first node, for --torchrun.",
)
@click.option(
    "--python", callback=_one_line, metavar="PATH", help="The Python interpreter on the nodes.  [default: this one]"
)
@click.argument("command", callback=_one_line, nargs=-1, required=True, metavar="-- fit --recipe NAME [KEY=VALUE]...")
def launch(
    nodes: int,
    gpus: int,
    gpu: str | None,
    processes: int | None,
    slurm: bool,
    torchrun: bool,
    submit: bool,
    hosts: str | None,
    port: int,
    python: str | None,
    command: tuple[str, ...],
    **job: Any,
) -> None:
    """Start a run on several nodes: print the script or commands, or submit them.

    The nodes share this folder and see it at this path. When the time is over or another job preempts it, the script
    saves a checkpoint and queues its job again. The job then continues from that checkpoint.

    \b
    Examples:
      uni_train launch --nodes 4 --gpus 8 --slurm --time 1-00:00:00 -- fit --recipe flow_grpo_maze strategy=ddp
      uni_train launch --nodes 2 --gpus 8 --torchrun --hosts node1,node2 -- fit --recipe sft model=bagel_7b
    """
    from uni_train.distributed.scripts import (
        Slurm,
        Start,
        host_names,
        sbatch_script,
        submit_script,
        torchrun_commands,
    )
    from uni_train.dry_run import needs
    from uni_train.fitting import missing_files
    from uni_train.plan.hardware import GPUS, gpu_named

    if slurm == torchrun:
        raise UsageError("give --slurm or --torchrun", "--slurm makes a batch script, --torchrun a command a node.")
    if submit and not slurm:
        raise UsageError("--submit hands a script to SLURM: it needs --slurm")
    if bool(gpus) == (processes is not None):
        hint = "--gpus 8, or --gpus 0 --processes 8"
        raise UsageError("there is a process for each GPU; --processes says how many where there are none", hint)
    if gpu is not None and not gpus:
        raise UsageError(f"--gpu {gpu}, and --gpus 0", "--gpus says how many of them each node has.")
    card = gpu_named(gpu or "h100-80gb")
    if job["time"] is not None and not _TIME.fullmatch(job["time"]):
        raise UsageError(
            f"--time {job['time']!r} is no time limit of SLURM's", "--time 1-00:00:00, 12:00:00 or 90 (minutes)"
        )
    each = processes or gpus
    config = _checked(command, nodes, each, requeued=slurm)
    if gpus and config.strategy.accelerator == "cpu":
        raise UsageError(f"--gpus {gpus}, and strategy.accelerator=cpu", "--gpus 0 --processes N starts on CPUs.")
    if submit:
        for error in missing_files(config):
            raise error
    for line in needs(config):
        echo(f"# {line}", err=True)
    if gpus and config.model.checkpoint not in (None, "shipped"):
        from uni_train.plan.plan import on_gpus

        with suppress(UserError):  # a model of which `plan` can say nothing; whoever uses it says why
            echo(f"# {on_gpus(config, nodes * gpus, gpu=card)}", err=True)
    if gpus and config.strategy.accelerator == "auto":  # where torch finds none there, no run goes on without them
        command = (*command, "strategy.accelerator=gpu")
    start = Start(
        arguments=command,
        nodes=nodes,
        processes=each,
        gpus=gpus,
        folder=Path.cwd(),
        python=python or ("python3" if job["container"] is not None else sys.executable),
        deterministic=config.strategy.deterministic,
    )
    if torchrun:
        names = host_names(hosts, nodes)
        for host, line in zip(names, torchrun_commands(start, names, port), strict=True):
            echo(f"# on {host}, in {Path.cwd()}:\n{line}")
        return
    kind = card.name.partition("-")[0] if gpu in GPUS else ""
    job_request = Slurm(name=f"{config.recipe}-{config.run_name}", gpu=kind, **job)
    script = sbatch_script(start, job_request, made_by=shlex.join(["uni_train", *sys.argv[1:]]))
    echo(submit_script(script) if submit else script, nl=submit)


def _checked(command: tuple[str, ...], nodes: int, each: int, *, requeued: bool) -> RunConfig:
    """The configuration that the nodes will run, with what would fail there only.

    Raises:
        UsageError: another command than fit, options that cannot be repeated, a layout that does not divide.
    """
    from uni_train.config.compose import compose
    from uni_train.config.kinds import check_ranks

    if command[0] != "fit":
        raise UsageError(f"launch starts `fit`, not {command[0]}", "uni_train launch ... -- fit --recipe NAME")
    with fit.make_context("fit", list(command[1:])) as context:
        options = dict(context.params)
    if options["dry_run"] or options["config"]:
        raise UsageError("--dry-run and --config need no nodes", "Leave `launch ... --` out.")
    if options["fresh"] and requeued:
        raise UsageError(
            "--fresh would start over each time that the job comes back from the queue",
            "Give the run a name of its own instead: name=NAME",
        )
    config = compose(options["recipe"], options["overrides"])
    for key, wanted, given in (("nodes", nodes, config.strategy.nodes), ("devices", each, config.strategy.devices)):
        if given not in (1, wanted):
            raise UsageError(f"strategy.{key}={given}, but launch is to start {wanted}", f"Leave strategy.{key} out.")
    check_ranks(config, nodes * each)
    return config
