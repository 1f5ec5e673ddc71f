"""What starts a run on several nodes, as text: a SLURM batch script, or the torchrun command of each node."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uni_train.core.errors import UsageError, UserError
from uni_train.distributed.devices import DETERMINISTIC
from uni_train.distributed.preemption import EXIT_CODE

ON_GPUS = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "NCCL_DEBUG": "WARN"}
"""Variables of processes on GPUs: blocks of memory that grow leave few fragments; NCCL says what it warns of."""
LAST = 600  # seconds from the end of the first process to that of the last: W&B may have much to send


@dataclass(frozen=True, kw_only=True)
class Start:
    """What is started where.

    Attributes:
        arguments: of `uni_train`: fit --recipe ...
        processes: on each node; one a GPU where there are GPUs.
        gpus: of each node; 0 for a run on CPUs.
        folder: that the processes run in, the same path on all nodes.
        python: the interpreter, at the same path on all nodes (or in the container).
        deterministic: whether kernels of GPUs are to give the same bits each time.
    """

    arguments: Sequence[str]
    nodes: int
    processes: int
    gpus: int
    folder: Path
    python: str
    deterministic: bool = False

    @property
    def command(self) -> list[str]:
        return ["-m", "uni_train", *self.arguments]

    @property
    def variables(self) -> dict[str, str]:
        """Of each process, where nothing else is set."""
        return (ON_GPUS | (DETERMINISTIC if self.deterministic else {})) if self.gpus else {}


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """What SLURM is asked.

    Attributes:
        cpus: of each process; None leaves it to SLURM.
        gpu: SLURM's name of the type of card; "" takes any of the partition.
        notice: seconds before the time limit at which processes are told to end.
        container: an image for pyxis (srun --container-image), or a .sif file for apptainer.
        mounts: folders that the container sees, beside the one it runs in.
        options: further ones, as written behind #SBATCH.
    """

    name: str
    partition: str | None = None
    account: str | None = None
    time: str | None = None
    cpus: int | None = None
    gpu: str = ""
    notice: int = 300
    container: str | None = None
    mounts: Sequence[str] = ()
    options: Sequence[str] = ()


def sbatch_script(start: Start, slurm: Slurm, made_by: str) -> str:
    """A batch script that runs `start`, and again after each preemption, until it is done.

    SLURM starts every process itself, so that signals reach them all; the variables of torchrun are made from SLURM's.
    """
    asked = {"partition": slurm.partition, "account": slurm.account, "time": slurm.time}
    lines = [
        f"--job-name={shlex.quote(slurm.name)}",
        f"--nodes={start.nodes}",
        f"--ntasks-per-node={start.processes}",
        *([f"--gres=gpu:{slurm.gpu and f'{slurm.gpu}:'}{start.gpus}"] if start.gpus else []),
        *([f"--cpus-per-task={slurm.cpus}"] if slurm.cpus is not None else []),
        *(f"--{key}={shlex.quote(value)}" for key, value in asked.items() if value is not None),
        f"--signal=USR1@{slurm.notice}",
        "--requeue",
        "--open-mode=append",
        "--output=%x-%j.out",
        *slurm.options,
    ]
    # One that fails ends the others itself, with a message for which SLURM would not give it the time.
    srun = ["srun", "--kill-on-bad-exit=0", f"--wait={LAST}", "--distribution=block"]
    if slurm.cpus is not None:
        srun.append(f"--cpus-per-task={slurm.cpus}")  # srun does not take it from the job
    command = [start.python, *start.command]
    bound = [str(start.folder), *slurm.mounts]
    if slurm.container is not None and slurm.container.endswith(".sif"):
        inside = ["apptainer", "exec", *(["--nv"] if start.gpus else [])]
        command = [*inside, "--bind", ",".join(bound), "--pwd", str(start.folder), slurm.container, *command]
    elif slurm.container is not None:
        srun.append(f"--container-image={slurm.container}")
        srun.append(f"--container-mounts={','.join(f'{place}:{place}' for place in bound)}")
        srun.append(f"--container-workdir={start.folder}")
    exports = "".join(f"export {name}=${{{name}:-{value}}}\n" for name, value in start.variables.items())
    return _SCRIPT.format(
        header="\n".join(f"#SBATCH {line}" for line in lines),
        made_by=made_by,
        folder=shlex.quote(str(start.folder)),
        srun=shlex.join(srun),
        process=shlex.quote(_PROCESS.format(processes=start.processes, exports=exports, command=shlex.join(command))),
        exit_code=EXIT_CODE,
        unheard=128 + signal.SIGUSR1,
    )


_SCRIPT = """\
#!/bin/bash
{header}

# Made by: {made_by}
# Start it with sbatch. The processes are told USR1 before the time limit and TERM before a preemption: they save a
# checkpoint and end with {exit_code}; the job goes back into the queue, and the same command continues.
set -u
trap : TERM USR1
cd {folder} || exit 1
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# A port of this job's own, another one after each restart.
MASTER_PORT=$((20000 + (SLURM_JOB_ID * 7 + ${{SLURM_RESTART_COUNT:-0}}) % 10000))
export MASTER_ADDR MASTER_PORT

{srun} bash -c {process}
code=$?
# {unheard}: told before they could hear it. A job that was cancelled is not running any more, and stays so.
if [ "$code" -eq {exit_code} ] || [ "$code" -eq {unheard} ]; then
  if scontrol show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING; then
    scontrol requeue "$SLURM_JOB_ID"
  fi
fi
exit "$code"
"""

_PROCESS = """
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE={processes}
# By these two, libraries that know torchrun take this for a start of its, not for one of their own under SLURM.
export TORCHELASTIC_RUN_ID=$SLURM_JOB_ID GROUP_RANK=$SLURM_NODEID
export OMP_NUM_THREADS=${{OMP_NUM_THREADS:-1}}
{exports}exec {command}
"""


def torchrun_commands(start: Start, hosts: Sequence[str], port: int) -> list[str]:
    """Node by node what to type there; `hosts` are their names, the first of which all others must reach."""
    variables = [f"{name}={value}" for name, value in start.variables.items()]
    common = [*variables, start.python, "-m", "torch.distributed.run", "--nproc-per-node", str(start.processes)]
    if start.nodes == 1:
        return [shlex.join([*common, "--standalone", *start.command])]
    where = ["--master-addr", hosts[0], "--master-port", str(port)]
    return [
        shlex.join([*common, "--nnodes", str(start.nodes), "--node-rank", str(node), *where, *start.command])
        for node in range(start.nodes)
    ]


def host_names(given: str | None, nodes: int) -> list[str]:
    """The nodes' names from "A,B". Raises UsageError: one twice, or not a name for each node."""
    hosts = [host for host in (given or "").split(",") if host]
    twice = next((host for host in hosts if hosts.count(host) > 1), None)
    if twice is not None:
        raise UsageError(f"--hosts names {twice} twice: each node runs one command", "--hosts node1,node2")
    if len(hosts) != nodes and (hosts or nodes > 1):
        named = f"--hosts names {len(hosts)}" if hosts else "--hosts is missing"
        raise UsageError(f"--nodes {nodes}, but {named}", "--hosts node1,node2: the first is where all others meet.")
    return hosts or ["localhost"]


def submit_script(script: str) -> str:
    """Hand a script to sbatch; returns what it prints. Raises UserError: it is not there, or refuses the job."""
    try:
        done = subprocess.run(["sbatch"], input=script, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(
            "sbatch is not on this machine", "Leave --submit out, and take the script to one where it is."
        ) from None
    if done.returncode:
        raise UserError(f"sbatch refused the job: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout.strip()
