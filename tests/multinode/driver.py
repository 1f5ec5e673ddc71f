"""Runs recipes on several ranks, one run after the other, with planned faults: as torchrun does it, without its starts.

    python -m tests.multinode.driver OUT '[{"arguments": ["fit", "--recipe", "stars_curriculum", ...]}, ...]'

Every rank is a fork of this process after its imports, under torchrun's own agent, so that a run costs little more than
its work. Steps:

    nodes       network namespaces of these names joined by a cable, an agent in each; else one node, this machine
    each        ranks a node, 2 unless given; 0: one process without torchrun
    fault       {"rank": r, "path": part, "write": n, "does": what}: happens to the rank when for the n-th time it
                creates, renames or opens for writing a file below OUT whose path has this part: "kill" (SIGKILL),
                "kill node" (its agent as well), "interrupt" (SIGINT to the agent), "unplug" (the cable)
    disk        OUT/small becomes a disk of that size, in a mount namespace of this process where there are nodes; when
                all is done its content is copied to OUT/kept
    seconds     all are killed after so long
    bytes       no file may grow longer
    deepspeed   import it before forking
    alone       one rank is left that can speak, so that it need not wait long for what others say

OUT/reports.json tells of each step: "exits" of the agents (0 or not), "out" and "err" of each node, and inode and time
of every shard of samples that is there.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Imported before the forks, like everything that a run needs.
import lightning.pytorch  # noqa: F401
import PIL.PngImagePlugin  # noqa: F401
import pyarrow.parquet  # noqa: F401
import statsmodels.stats.proportion  # noqa: F401
import torch.distributed.launcher.api as launcher
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

import uni_train.fitting
import uni_train.recipes.flow_grpo.training
from tests.multinode.network import ADDRESSES, CABLE, enter, own_mounts, plug
from tests.processes import python
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose
from uni_train.console import ranks as console
from uni_train.core.addresses import held_port
from uni_train.core.errors import UserError
from uni_train.distributed.launch import exit_code

LIMIT = 1200  # seconds that a step may take


def rank_main(step: dict[str, Any], out: str) -> None:
    """One rank, from torchrun's environment to its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a process that was started by its name
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if step.get("alone"):
        console.GRACE, console.ANSWER = 0.2, 8.0
    fault = step.get("fault", {})
    if "bytes" in step:
        resource.setrlimit(resource.RLIMIT_FSIZE, (step["bytes"],) * 2)
    if fault.get("rank") == int(os.environ.get("RANK", "0")):
        left = fault["write"]

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if (writes or event in ("os.rename", "os.mkdir")) and str(arguments[0]).startswith(out):
                left -= fault["path"] in str(arguments[0])
                if left == 0:
                    left = -1
                    strike(fault["does"])

        sys.addaudithook(count)
    try:
        uni_train(step["arguments"], prog_name="uni_train")
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        if end.code:
            os._exit(int(end.code))


def strike(what: str) -> None:
    if what == "unplug":
        subprocess.run(["ip", "link", "set", CABLE, "down"], check=True)
    elif what == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
    else:
        if what == "kill node":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def agent(step: dict[str, Any], out: str, node: int, port: int) -> int:
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # what the agent says is not what is tested
    nodes = step.get("nodes", [])
    address = ADDRESSES[0] if nodes else "localhost"
    if nodes:
        enter(nodes[node])
        os.environ["GLOO_SOCKET_IFNAME"] = CABLE
    if step.get("each") == 0:
        rank_main(step, out)
        return 0
    config = launcher.LaunchConfig(
        min_nodes=len(nodes) or 1,
        max_nodes=len(nodes) or 1,
        nproc_per_node=step.get("each", 2),
        run_id="test",
        rdzv_backend="static",
        rdzv_endpoint=f"{address}:{port}",
        rdzv_configs={"rank": node, "timeout": LIMIT},
        local_addr=ADDRESSES[node] if nodes else "localhost",
        max_restarts=0,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(),
    )
    try:
        launcher.elastic_launch(config, rank_main)(step, out)
    except SignalException as ended:
        return 128 + ended.sigval
    except ChildFailedError as failed:
        try:
            return exit_code(failed)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    except BaseException as error:
        print(f"agent: {type(error).__name__}", file=sys.stderr)
        return 1
    return 0


def mount(small: Path, size: str) -> None:
    small.mkdir(exist_ok=True)
    options = f"size={size}" if not small.is_mount() else f"remount,size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(small)], check=True)


def shards(out: Path) -> Iterator[Path]:
    for run in out.glob("**/run.json"):
        yield from run.parent.glob("stages/*/shards/[0-9]*.parquet")


def run(step: dict[str, Any], out: str, number: int, port: int) -> dict[str, Any]:
    plug(step.get("nodes", []))
    if "disk" in step:
        mount(Path(out) / "small", step["disk"])
    began = time.monotonic()
    nodes = range(len(step.get("nodes", [])) or 1)
    written = [[Path(out) / f".step{number}-{node}.{name}" for name in ("out", "err")] for node in nodes]
    children = []
    for node in nodes:
        child = os.fork()
        if child == 0:
            os.setsid()
            for descriptor, path in enumerate(written[node], start=1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            os._exit(agent(step, out, node, port))
        children.append(child)
    exits = []
    for child in children:
        status = None
        while status is None:
            done, found = os.waitpid(child, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(found)
            elif time.monotonic() - began > step.get("seconds", LIMIT):
                os.killpg(child, signal.SIGKILL)
                began = time.monotonic()
            else:
                time.sleep(0.02)
        exits.append(status)
    texts = [[path.read_text(encoding="utf-8", errors="replace") for path in paths] for paths in written]
    return {
        "exits": exits,
        "out": [said for said, _ in texts],
        "err": [said for _, said in texts],
        "shards": {str(file): [file.stat().st_ino, file.stat().st_mtime_ns] for file in shards(Path(out))},
    }


def main(out: str, steps: list[dict[str, Any]]) -> None:
    compose("stars_curriculum")  # imports hydra, too
    if any("nodes" in step for step in steps):
        own_mounts()
    if any(step.get("deepspeed") for step in steps):
        import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    gc.freeze()  # else each fork's collector walks, and copies, what this process has imported
    reports = []
    for number, step in enumerate(steps):
        with held_port("") as port:
            reports.append(run(step, out, number, port))
    (Path(out) / "reports.json").write_text(json.dumps(reports), encoding="utf-8")
    if (small := Path(out) / "small").is_mount():
        shutil.copytree(small, Path(out) / "kept")


Start = tuple[str, tuple[str, ...], dict[str, Any]]
"""The name of a run, its command, and further keys of a step."""


def drive(out: Path, starts: Sequence[Start], *prefix: str) -> dict[str, list[dict[str, Any]]]:
    """Recipe and name of each run -> what became of its starts. Runs are in `out` unless they say where."""
    steps = []
    for name, arguments, more in starts:
        place = [] if any(key.startswith("out=") for key in arguments) else [f"out={out}"]
        steps.append({"arguments": [*arguments, *place, f"name={name}"], **more})
    root, command = Path(__file__).parents[2], ("-m", "tests.multinode.driver", str(out), json.dumps(steps))
    fresh = [*prefix, sys.executable, *command]
    done = subprocess.run(fresh, capture_output=True, text=True, cwd=root) if prefix else python(*command, cwd=root)
    assert done.returncode == 0, done.stderr
    reports: dict[str, list[dict[str, Any]]] = {}
    found = json.loads((out / "reports.json").read_text(encoding="utf-8"))
    for (name, arguments, _), report in zip(starts, found, strict=True):
        reports.setdefault(f"{arguments[2]}/{name}", []).append(report)
    return reports


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
