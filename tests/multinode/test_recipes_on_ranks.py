"""Recipes on one, two and four ranks: the same samples and pictures, the same losses but for rounding; what ends one
rank ends all with one message; what was begun on some ranks is finished on others.

Two nodes are network namespaces joined by a cable, an agent of torchrun in each: one is killed, the cable pulled, the
disk full."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.multinode.driver import Start, drive
from tests.multinode.network import NoNetwork, two_networks
from tests.once import once
from tests.processes import python
from tests.tiny import MODEL, QUICK, fit, save_drawer, shards
from uni_train.eval.scored import read_scored
from uni_train.training.metric_log import read_metrics

# The runs of the fixture take half a minute on an idle machine.
pytestmark = [pytest.mark.multinode, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
ZERO = importlib.util.find_spec("deepspeed") is not None
ROUND = "{task:mapping,level:1}"
STARS = ("fit", "--recipe", "stars_curriculum", *QUICK, f"rounds=[{ROUND},{{task:mapping,level:2}}]")
DISTIL = ("fit", "--recipe", "distil_curriculum", *QUICK, f"rounds=[{ROUND}]", "states=student", "teacher=ema")
TAUGHT = (
    *("fit", "--recipe", "distil_math", *QUICK, "level=1", "budget.math1={prompts:8,updates:3}", "states=student"),
    *("thoughts=none", "thoughts_replay=0", "rounds.0.replay={}"),
)
GRPO = (
    *("fit", "--recipe", "flow_grpo_math", *MODEL, "epochs=2", "updates_per_epoch=2", "rows=8"),
    *("rollout.prompts_per_epoch=4", "rollout.group_size=2", "rollout.steps=3", "rollout.last_step=2"),
    *("held_out.n=6", "held_out.every=1", "evaluate=false", "checkpoint_every=1", "alarms.diversity=null"),
    *("objective.clip_low=0.2", "objective.clip_high=0.2"),
    "rewards.lit={function:tests/multinode/rewards.py:lit,background:true}",
)


def fault(does: str, rank: int, path: str) -> dict[str, Any]:
    """Happens when the rank first writes below a path that has this part."""
    return {"fault": {"does": does, "rank": rank, "path": path, "write": 1}}


def start(out: Path) -> dict[str, list[dict[str, Any]]]:
    """All runs of this file, in one folder, and what became of every start of each; of two nodes where they can be."""
    drawer = f"model.checkpoint={save_drawer(out / 'drawer')}"
    distil, other = (*DISTIL, drawer), save_drawer(out / "other", seed=1)
    two_teachers = f"teachers={{a:{{checkpoint:{other},weight:2}},b:{{checkpoint:{out / 'drawer'}}}}}"
    taught = (*TAUGHT, drawer, two_teachers)
    starts: list[Start] = [
        ("one", STARS, {"each": 1}),
        ("two", STARS, fault("interrupt", 0, "01-sample")),
        ("two", STARS, {}),
        ("two", (*STARS, "optimizer.lr=0.5"), {}),
        ("changed", STARS, fault("kill", 1, "04-sample")),
        ("changed", STARS, {"each": 1}),
        ("one", distil, {"each": 1}),
        ("changed", distil, fault("kill", 0, "distil-mapping1/checkpoints/.step=00000003")),
        ("changed", distil, {"each": 1}),
        ("one", taught, {"each": 1}),
        ("changed", taught, fault("kill", 0, "distil-math1/checkpoints/.step=00000003")),
        ("changed", taught, {"each": 1}),
        ("one", GRPO, {"each": 1}),
        ("changed", GRPO, fault("kill", 0, "step=00000004")),
        ("changed", GRPO, {"each": 4}),
        ("broken", (*GRPO, "rewards.lit.function=tests/multinode/rewards.py:broken"), {}),
    ]
    kind = [f"strategy.kind={f'deepspeed_zero{n}' if ZERO else 'ddp'}" for n in (2, 3)]
    unplugged = {"deepspeed": ZERO, "alone": True, **fault("unplug", 0, "step=00000004")}
    small = (*STARS, f"out={out / 'small'}")
    try:
        with two_networks() as nodes:
            two = {"nodes": nodes, "each": 1}
            starts_on_nodes: list[Start] = [
                ("nodes", small, two | {"disk": "600k"}),
                ("nodes", small, two | {"disk": "64m", "alone": True, **fault("kill node", 1, "04-sample")}),
                ("nodes", small, two),
                ("nodes", (*GRPO, kind[0], "strategy.timeout=12"), two | unplugged),
                ("nodes", (*GRPO, kind[1]), two),
            ]
            return drive(out, starts + starts_on_nodes)
    except NoNetwork as error:
        return drive(out, starts) | {"no nodes": [{"why": str(error)}]}


Runs = tuple[Path, dict[str, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return once(tmp_path_factory, "ranks", start)


@pytest.fixture
def nodes(runs: Runs) -> Runs:
    if "no nodes" in runs[1]:
        pytest.skip(f"no network namespaces here: {runs[1]['no nodes'][0]['why']}")
    return runs


def shown(report: dict[str, Any]) -> str:
    """The one message of a start that failed."""
    assert report["exits"] != [0] and "Traceback" not in report["err"][0], report["err"][0]
    lines = report["err"][0].splitlines()
    assert sum(line.startswith("error:") for line in lines) == 1, report["err"][0]
    return next(line for line in lines if line.startswith("error:"))


def same(out: Path, recipe: str, name: str, tolerance: float, place: str = "") -> None:
    """A run has the losses of "one", its samples, and its rollouts, rewards and held-out looks byte for byte."""
    run, expected = out / place / recipe / name, out / recipe / "one"
    files = sorted(expected.glob("stages/*/metrics.jsonl"))
    assert files
    for file in files:
        mine, others = read_metrics(run / file.relative_to(expected)), read_metrics(file)
        assert [line["step"] for line in mine] == [line["step"] for line in others]
        for line, other in zip(mine, others, strict=True):
            assert line["loss"] == pytest.approx(other["loss"], rel=tolerance), file
    if recipe == "flow_grpo_math":
        stage = expected / "stages/00-grpo"
        rollouts = read_metrics(run / "stages/00-grpo/rollouts.jsonl")
        assert [line["epoch"] for line in rollouts] == [0, 1], "none is lost or drawn twice"
        pictures = [file for part in ("gallery", "held_out") for file in stage.glob(f"{part}/**/*") if file.is_file()]
        assert {file.suffix for file in pictures} == {".png", ".parquet"}
        for file in pictures:
            assert (run / file.relative_to(expected)).read_bytes() == file.read_bytes(), file
        return
    names = [file.relative_to(expected) for file in shards(expected)]
    assert [file.relative_to(run) for file in shards(run)] == names and names
    assert all(read_scored(run / name) == read_scored(expected / name) for name in names)


def test_two_ranks_sample_filter_and_ask_what_one_does_after_ctrl_c(runs: Runs) -> None:
    out, reports = runs
    one, two = out / "stars_curriculum/one", out / "stars_curriculum/two"
    interrupted, finished, refused = reports["stars_curriculum/two"]
    assert "interrupted: run the same command again" in shown(interrupted)
    assert reports["stars_curriculum/one"][0]["exits"] == finished["exits"] == [0], finished["err"]
    same(out, "stars_curriculum", "two", 1e-5)
    logs = [finished["out"][0], (two / "logs/rank1.log").read_text()]
    assert all(text.count("[8/8] evaluate-after") == 1 and "think and draw, rank" in text for text in logs)
    assert "rank 1 of 2: 4/4" in logs[1] and not (one / "logs").exists()
    assert "optimizer.lr was 0.003, now 0.5" in shown(refused)


# Rank 1 is killed while it samples, and is named. The others are killed before their last checkpoint. Distillation has
# the student's own states, which carry rounding on.
@pytest.mark.parametrize(
    ("recipe", "tolerance", "message"),
    [
        ("stars_curriculum", 1e-5, "error: rank 1 was ended by SIGKILL"),
        ("distil_curriculum", 1e-4, "error: "),
        ("distil_math", 1e-4, "error: "),  # by two other models
        ("flow_grpo_math", 1e-4, "error: "),
    ],
)
def test_a_run_killed_on_two_ranks_goes_on_on_another_number(
    runs: Runs, recipe: str, tolerance: float, message: str
) -> None:
    out, reports = runs
    first, last = reports[f"{recipe}/changed"]
    assert shown(first).startswith(message) and last["exits"] == [0], last["err"]
    same(out, recipe, "changed", tolerance)


def test_a_reward_that_is_no_number_ends_all_ranks_and_is_said_once(runs: Runs) -> None:
    message = shown(runs[1]["flow_grpo_math/broken"][0])
    assert "rank 1" in message and "the reward lit of the image of maths1/train/" in message and "is nan" in message


def test_one_command_starts_the_processes_itself(runs: Runs) -> None:
    """strategy.devices=2 on a run that is finished: nothing is left to do but to start, compare and agree."""
    out, _ = runs
    done = python("-m", "uni_train", *STARS, f"out={out}", "name=two", "strategy.devices=2", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(already done)") == 8 and "2 processes; their logs are in" in done.stdout
    refused = fit(out, "strategy.devices=2", "seed=-1")
    assert refused.exit_code == 2 and refused.output.count("error:") == 1
    assert "seed must be at least 0" in refused.output


def test_stars_on_two_nodes_after_the_disk_was_full_and_one_was_killed(nodes: Runs) -> None:
    out, reports = nodes
    full, lost, last = reports["stars_curriculum/nodes"]
    assert "no space left" in shown(full).lower()
    assert "rank 1 on" in shown(lost) and "did not answer" in shown(lost)
    assert last["exits"] == [0, 0], last["err"]
    same(out, "stars_curriculum", "nodes", 1e-5, "kept")


def test_reinforcement_on_two_nodes_after_the_cable_was_pulled(nodes: Runs) -> None:
    """With DeepSpeed where it is installed: ZeRO-2 until then, ZeRO-3 afterwards."""
    out, reports = nodes
    first, second = reports["flow_grpo_math/nodes"]
    assert all(status > 0 for status in first["exits"]), first  # by themselves: the driver would have killed them
    assert "rank 1 on" in shown(first) and "did not answer" in shown(first)
    assert second["exits"] == [0, 0], second["err"]
    same(out, "flow_grpo_math", "nodes", 1e-4)
