"""`uni_train launch`: scripts and commands that do what they say, and what is refused before anybody queues."""

from __future__ import annotations

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch.distributed.launcher import api
from torch.distributed.launcher.api import LaunchConfig

from uni_train.cli.main import uni_train
from uni_train.distributed.launch import start
from uni_train.distributed.preemption import EXIT_CODE
from uni_train.distributed.scripts import Slurm, Start, sbatch_script
from uni_train.plan import plan as planning
from uni_train.plan.ready import Ready
from uni_train.plan.updates import Traced

# What SLURM gives a job's script, for one machine: `srun` starts a node's tasks and returns the highest exit code.
SRUN = f"""#!{sys.executable}
import os, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("--"):
    command.pop(0)
tasks = [
    subprocess.Popen(command, env=os.environ | dict(SLURM_PROCID=str(i), SLURM_LOCALID=str(i), SLURM_NODEID="0"))
    for i in range(int(os.environ["SLURM_NTASKS"]))
]
sys.exit(max(task.wait() for task in tasks))
"""
SCONTROL = """#!/bin/sh
case "$1 $2" in
  "show hostnames") echo node7; echo node8;;
  "show job") echo "   JobState=$STATE Reason=None";;
  requeue*) echo "$2" >> "$REQUEUED";;
esac
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(uni_train, ["launch", *arguments], catch_exceptions=False, terminal_width=100)


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("exit_code", "state", "requeued"),
    [(1, "RUNNING", 0), (EXIT_CODE, "RUNNING", 1), (128 + signal.SIGUSR1, "RUNNING", 1), (EXIT_CODE, "CANCELLED", 0)],
)
def test_a_batch_script_places_its_processes_and_requeues_what_was_preempted(
    tmp_path: Path, exit_code: int, state: str, requeued: int
) -> None:
    executable(tmp_path / "srun", SRUN)
    executable(tmp_path / "scontrol", SCONTROL)
    executable(  # in the place of python: writes down what it is given, and ends as asked
        tmp_path / "python",
        "#!/bin/bash\n"
        'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $PWD" >> placed.$RANK\n'
        'echo "$OMP_NUM_THREADS $PYTORCH_CUDA_ALLOC_CONF $NCCL_DEBUG $CUBLAS_WORKSPACE_CONFIG" >> placed.$RANK\n'
        f'printf "%s\\n" "$@" >> placed.$RANK\nexit $(( RANK ? {exit_code} : 0 ))\n',
    )
    given = ["fit", "--recipe", "sft", "name=it's one", "seed=1"]
    python = str(tmp_path / "python")
    start = Start(arguments=given, nodes=1, processes=2, gpus=2, folder=tmp_path, python=python, deterministic=True)
    script = tmp_path / "job"
    script.write_text(sbatch_script(start, Slurm(name="sft"), made_by="a test"))
    job = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NTASKS": "2"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    job |= {"OMP_NUM_THREADS": "3"}  # what the person has set stays
    environment = os.environ | job | {"PATH": path, "REQUEUED": str(tmp_path / "requeued"), "STATE": state}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (exit_code, "")
    for rank in range(2):
        place, variables, *arguments = (tmp_path / f"placed.{rank}").read_text().splitlines()
        assert variables == "3 expandable_segments:True WARN :4096:8"
        assert place == f"{rank}/2 {rank}/2 node7:20287 {tmp_path}"
        assert arguments == ["-m", "uni_train", *given]
    assert (tmp_path / "requeued").exists() == requeued


def test_what_slurm_is_asked() -> None:
    options = ["--partition", "big", "--account", "me", "--time", "1-00:00:00", "--cpus", "12", "--sbatch=--qos=high"]
    shown = run("--nodes", "2", "--gpus", "8", "--slurm", *options, "--", "fit", "--recipe", "sft_maze").output
    asked = [line.removeprefix("#SBATCH ") for line in shown.splitlines() if line.startswith("#SBATCH")]
    assert asked == [
        *("--job-name=sft_maze-seed0", "--nodes=2", "--ntasks-per-node=8", "--gres=gpu:8", "--cpus-per-task=12"),
        *("--partition=big", "--account=me", "--time=1-00:00:00", "--signal=USR1@300", "--requeue"),
        *("--open-mode=append", "--output=%x-%j.out", "--qos=high"),
    ]
    line = next(line for line in shown.splitlines() if line.startswith("srun "))
    assert "--kill-on-bad-exit=0 --wait=600" in line and "--cpus-per-task=12" in line
    container = ["--container", "image.sqsh", "--mount", "/data"]
    inside = run("--gpus", "8", "--slurm", *container, "--", "fit", "-r", "sft_maze")
    assert f"--container-image=image.sqsh --container-mounts={Path.cwd()}:{Path.cwd()},/data:/data" in inside.output
    assert "exec python3 -m uni_train fit -r sft_maze" in inside.output


@pytest.mark.parametrize(
    ("gpu", "asked", "compared"),
    [
        ([], "gpu:2", "h100-80gb"),
        (["--gpu", "a100-40gb"], "gpu:a100:2", "a100-40gb"),
        (["--gpu", "rtx4090-24gb"], "gpu:rtx4090:2", "rtx4090-24gb"),
        (["--gpu", "24"], "gpu:2", "card of 24 GB"),  # which SLURM knows no type for
    ],
)
def test_the_type_of_card_is_what_slurm_is_asked_for_and_what_memory_is_compared_with(
    gpu: list[str], asked: str, compared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "on_gpus", lambda config, gpus, gpu: f"{gpus} of {gpu.name}")
    fit = ["--", "fit", "-r", "sft_maze", "model.checkpoint=weights"]
    shown = run("--gpus", "2", *gpu, "--slurm", *fit)
    assert f"#SBATCH --gres={asked}\n" in shown.output
    assert f"# 2 of {compared}\n" in shown.stderr


def test_torchrun_commands_are_those_of_torchrun() -> None:
    from torch.distributed.run import get_args_parser

    shown = run("--nodes", "2", "--gpus", "8", "--torchrun", "--hosts", "a,b", "--", "fit", "-r", "sft_maze", "seed=1")
    commands = [line for line in shown.output.splitlines() if not line.startswith("#")]
    for node, line in enumerate(commands):
        allocator, nccl, interpreter, _, module, *arguments = shlex.split(line)
        assert (allocator, nccl) == ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "NCCL_DEBUG=WARN")
        assert (interpreter, module) == (sys.executable, "torch.distributed.run")
        parsed = get_args_parser().parse_args(arguments)
        assert (parsed.nnodes, parsed.node_rank, parsed.nproc_per_node) == ("2", node, "8")
        assert (parsed.master_addr, parsed.master_port) == ("a", 29500)
        assert (parsed.module, parsed.training_script) == (True, "uni_train")
        assert parsed.training_script_args == ["fit", "-r", "sft_maze", "seed=1", "strategy.accelerator=gpu"]


@pytest.mark.parametrize(
    ("options", "fit", "says"),
    [
        ("--nodes 4 --gpus 8 --slurm", "flow_grpo_maze rollout.prompts_per_epoch=48", "cannot be divided among 32"),
        ("--nodes 2 --gpus 8 --slurm", "sft_maze strategy.nodes=3", "strategy.nodes=3, but launch is to start 2"),
        ("--nodes 2 --gpus 8 --slurm", "sft_maze --fresh", "each time that the job comes back"),
        ("--nodes 2 --gpus 8 --slurm", "sft_maz", "unknown recipe"),
        ("--nodes 2 --gpus 8 --torchrun --hosts a", "sft_maze", "--hosts names 1"),
        ("--nodes 2 --gpus 2 --torchrun --hosts a,a", "sft_maze", "--hosts names a twice"),
        ("--nodes 2 --gpus 8", "sft_maze", "give --slurm or --torchrun"),
        ("--gpus 8 --gpu a100 --slurm", "sft_maze", "unknown GPU a100"),
        ("--gpus 0 --processes 2 --gpu l4-24gb --slurm", "sft_maze", "--gpu l4-24gb, and --gpus 0"),
        ("--nodes 2 --gpus 0 --slurm", "sft_maze", "--processes says how many"),
        ("--gpus 2 --slurm", "sft_maze strategy.accelerator=cpu", "--gpus 2, and strategy.accelerator=cpu"),
        ("--gpus 8 --slurm", "flow_grpo_math rollout.prompts_per_epoch=3", "cannot be divided among 8 devices"),
        ("--gpus 8 --slurm", "sft model.weights=nf4", "model.weights=nf4 freezes the decoder"),
        ("--gpus 2 --slurm --time soon", "sft_maze", "--time 'soon' is no time limit"),
        ("--gpus 2 --slurm --partition 'a\nrm'", "sft_maze", r"--partition 'a\nrm': give it without line breaks"),
        ("--gpus 2 --slurm --container 'a\nrm'", "sft_maze", r"--container 'a\nrm': give it without"),
        ("--gpus 2 --slurm --sbatch '--qos=x\nrm'", "sft_maze", r"--sbatch '--qos=x\nrm': give it without"),
        ("--gpus 2 --slurm", "sft_maze 'name=a\nrm'", r"'name=a\nrm': give it without line breaks"),
    ],
)
def test_what_would_fail_on_the_nodes_is_refused_here(options: str, fit: str, says: str) -> None:
    refused = run(*shlex.split(f"{options} -- fit -r {fit}"))
    assert refused.exit_code == 2
    assert says in refused.output and len(refused.output.splitlines()) <= 3


def test_submitting_without_slurm_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = run("--gpus", "8", "--slurm", "--submit", "--", "fit", "-r", "stars_math")
    assert refused.exit_code == 1 and "sbatch is not on this machine" in refused.output


def test_what_is_missing_is_told_and_never_queued() -> None:
    assert "launch starts `fit`" in run("--gpus", "2", "--slurm", "--", "watch", "runs/x").output
    command = ["--gpus", "8", "--slurm", "--", "fit", "-r", "sft_nano"]
    shown = run(*command)
    assert shown.exit_code == 0 and "# missing: sources.thoughts.path: there is nothing at" in shown.stderr
    refused = run("--submit", *command)
    assert refused.exit_code == 1 and "there is nothing at data/mapping1/items.jsonl" in refused.stderr


def test_processes_get_the_time_of_an_epoch_after_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's agent kills them after 30 seconds, in which few epochs end."""
    configs: list[LaunchConfig] = []
    monkeypatch.setattr(api, "elastic_launch", lambda config, python: configs.append(config) or (lambda *command: None))
    assert start(["fit"], 2) == 0
    assert configs[0].shutdown_timeout is not None and configs[0].shutdown_timeout >= 3600


PLUGIN = """
import os, time
from pathlib import Path
file = Path(__file__).with_name("pid" + os.environ.get("RANK", "0"))
file.with_suffix(".new").write_text(str(os.getpid()))
file.with_suffix(".new").rename(file)
while True:
    time.sleep(1)
"""
RANKS = "from uni_train.distributed.launch import start\nstart(['data', 'tasks'], 2)"
SERVER = """
import os, subprocess, sys
from uni_train.distributed.watchdog import STARTER
command = [sys.executable, "-m", "uni_train", "data", "tasks"]
subprocess.run(command, env=os.environ | {STARTER: str(os.getpid())})
"""


@pytest.mark.parametrize(("program", "count"), [(RANKS, 2), (SERVER, 1)], ids=["ranks", "a judge's server"])
def test_what_a_killed_process_has_started_ends(program: str, count: int, tmp_path: Path) -> None:
    """Also within a plug-in, as deep in anything else."""
    (tmp_path / "sleeper.py").write_text(PLUGIN)
    place = os.environ | {"UNI_TRAIN_PLUGINS": "sleeper", "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    files = [tmp_path / f"pid{rank}" for rank in range(count)]
    with subprocess.Popen([sys.executable, "-c", program], env=place) as starter:
        while not all(file.exists() for file in files):
            assert starter.poll() is None
            time.sleep(0.05)
        pids = [int(file.read_text()) for file in files]
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        starter.kill()
    while any(
        Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text() for pid in pids
    ):
        time.sleep(0.05)


@pytest.mark.slow
def test_a_large_model_s_figure_of_plan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/scale.md trains BAGEL on eight GPUs with ZeRO-3; with ZeRO-2 its averages would not fit."""
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"fit sft model\.checkpoint=\S+ (strategy=deepspeed_\w+) strategy\.devices=8", page)
    assert shown == "strategy=deepspeed_zero3"
    traced = Ready.traced
    updates: list[Traced] = []

    def traced_once(made: Ready, activation_checkpointing: bool) -> Traced:
        """The update is the same under both strategies."""
        if not updates:
            updates.append(traced(made, activation_checkpointing))
        return updates[0]

    monkeypatch.setattr(Ready, "traced", traced_once)
    for strategy, said in (("deepspeed_zero3", "which fits"), ("deepspeed_zero2", "does not fit")):
        told = run("--gpus", "8", "--slurm", "--", "fit", "-r", "sft", f"strategy={strategy}").stderr
        assert re.search(rf"# an update takes \d+\.\d GiB of 76 on each of 8 h100-80gb with {strategy}, .*{said}", told)


def test_a_model_that_cannot_be_planned_is_launched_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    told = run("--gpus", "8", "--slurm", "--", "fit", "-r", "sft", f"model.checkpoint={tmp_path}")
    assert told.exit_code == 0 and "GiB" not in told.stderr and "#SBATCH" in told.stdout, told.output
