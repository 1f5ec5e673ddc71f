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
STARS = ("fit", "--recipe", "stars_curriculum", *QUICK, "rounds=[{task:mapping,level:1},{task:mapping,level:2}]")
DISTIL = ("fit", "--recipe", "distil_curriculum", *STARS[3:], "states=student", "teacher=ema")
GRPO = (
    *("fit", "--recipe", "flow_grpo_math", *MODEL, "epochs=2", "updates_per_epoch=2", "rows=8"),
    *("rollout.prompts_per_epoch=4", "rollout.group_size=4", "rollout.steps=4", "rollout.last_step=3"),
    *("held_out.n=6", "held_out.every=1", "evaluate=false", "checkpoint_every=1", "alarms.diversity=null"),
    *("objective.clip_low=0.2", "objective.clip_high=0.2"),
    "rewards.lit={function:tests/multinode/rewards.py:lit,background:true}",
)


def killed(rank: int, path: str) -> dict[str, Any]:
    return {"fault": {"rank": rank, "path": path, "write": 1, "does": "kill"}}


def start(out: Path) -> dict[str, list[dict[str, Any]]]:
    """All runs of this file, in one folder, and what became of every start of each; of two nodes where they can be."""
    distil = (*DISTIL, f"model.checkpoint={save_drawer(out / 'drawer')}")
    starts: list[Start] = [
        ("one", STARS, {"each": 1}),
        ("two", STARS, {}),
        ("changed", STARS, killed(1, "04-sample")),
        ("changed", STARS, killed(0, "step=00000003")),
        ("changed", STARS, {"each": 1}),
        ("interrupted", STARS, {"fault": {"rank": 0, "path": "01-sample", "write": 1, "does": "interrupt"}}),
        ("two", (*STARS, "optimizer.lr=0.5"), {}),
        ("one", distil, {"each": 1}),
        ("changed", distil, killed(0, "distil-mapping2/checkpoints/.step=00000003")),
        ("changed", distil, {"each": 1}),
        ("one", GRPO, {"each": 1}),
        ("four", GRPO, {"each": 4}),
        ("changed", GRPO, killed(0, "step=00000004")),
        ("changed", GRPO, {"each": 1}),
        ("broken", (*GRPO, "rewards.lit.function=tests/multinode/rewards.py:broken"), {}),
    ]  # fmt: skip
    lost = {"rank": 1, "path": "04-sample", "write": 1, "does": "kill node"}
    unplugged = {"rank": 0, "path": "step=00000002", "write": 1, "does": "unplug"}
    kind = [f"strategy.kind={f'deepspeed_zero{n}' if ZERO else 'ddp'}" for n in (2, 3)]
    small = (*STARS, f"out={out / 'small'}")
    try:
        with two_networks() as nodes:
            two = {"nodes": nodes, "each": 1}
            more: list[Start] = [
                ("lost", STARS, two | {"fault": lost, "alone": True}),
                ("lost", STARS, two),
                ("full", small, two | {"disk": "1200k"}),
                ("full", small, two | {"disk": "64m"}),
                (
                    "unplugged",
                    (*GRPO, kind[0], "strategy.timeout=12"),
                    two | {"fault": unplugged, "deepspeed": ZERO, "alone": True},
                ),
                ("unplugged", (*GRPO, kind[1]), two),
            ]  # fmt: skip
            return drive(out, starts + more, "unshare", "--mount")
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
    """A run has the losses of "one", its samples, and its first rollouts, rewards and held-out looks byte for byte."""
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
        pictures = [file for part in ("gallery", "held_out") for file in stage.glob(f"{part}/**/*") if file.is_file()]
        assert {file.suffix for file in pictures} == {".png", ".parquet"}
        for file in pictures:
            assert (run / file.relative_to(expected)).read_bytes() == file.read_bytes(), file
        return
    names = [file.relative_to(expected) for file in shards(expected)]
    assert [file.relative_to(run) for file in shards(run)] == names and len(names) > (1 if "distil" in recipe else 6)
    assert all(read_scored(run / name) == read_scored(expected / name) for name in names)


def test_two_ranks_sample_filter_and_ask_what_one_does(runs: Runs) -> None:
    out, reports = runs
    one, two = out / "stars_curriculum/one", out / "stars_curriculum/two"
    assert [reports[f"stars_curriculum/{name}"][0]["exits"] for name in ("one", "two")] == [[0], [0]]
    same(out, "stars_curriculum", "two", 1e-5)
    said = [reports["stars_curriculum/two"][0]["out"][0], (two / "logs/rank1.log").read_text()]
    assert all(text.count("[8/8] evaluate-after") == 1 and "think and draw, rank" in text for text in said)
    assert "rank 1 of 2: 4/4" in said[1] and not (one / "logs").exists()


def test_a_run_begun_on_two_ranks_goes_on_on_one(runs: Runs) -> None:
    out, reports = runs
    first, second, last = reports["stars_curriculum/changed"]
    assert shown(first).startswith("error: rank 1 was ended by SIGKILL")
    assert second["exits"] != [0] and last["exits"] == [0], last["err"]
    same(out, "stars_curriculum", "changed", 1e-5)


def test_distillation_begun_on_two_ranks_goes_on_on_one(runs: Runs) -> None:
    """The second round until its last checkpoint on two. The student's own states carry rounding on."""
    out, reports = runs
    first, last = reports["distil_curriculum/changed"]
    assert first["exits"] != [0] and last["exits"] == [0], last["err"]
    same(out, "distil_curriculum", "changed", 1e-4)


def test_what_ends_one_rank_is_said_once(runs: Runs) -> None:
    _, reports = runs
    assert "interrupted: run the same command again" in shown(reports["stars_curriculum/interrupted"][0])
    assert "optimizer.lr was 0.003, now 0.5" in shown(reports["stars_curriculum/two"][1])
    message = shown(reports["flow_grpo_math/broken"][0])
    assert "rank 1" in message and "the reward lit of the image of maths1/train/" in message and "is nan" in message


def test_four_ranks_draw_and_reward_what_one_does(runs: Runs) -> None:
    out, reports = runs
    assert reports["flow_grpo_math/four"][0]["exits"] == [0], reports["flow_grpo_math/four"][0]["err"]
    same(out, "flow_grpo_math", "four", 1e-4)


def test_reinforcement_stopped_inside_the_second_epoch_on_two_ranks_goes_on_on_one(runs: Runs) -> None:
    out, reports = runs
    first, last = reports["flow_grpo_math/changed"]
    assert first["exits"] != [0] and last["exits"] == [0], last["err"]
    rollouts = read_metrics(out / "flow_grpo_math/changed/stages/00-grpo/rollouts.jsonl")
    assert [line["epoch"] for line in rollouts] == [0, 1]
    same(out, "flow_grpo_math", "changed", 1e-4)


def test_one_command_starts_the_processes_itself(runs: Runs) -> None:
    """strategy.devices=2 on a run that is finished: nothing is left to do but to start, compare and agree."""
    out, _ = runs
    done = python("-m", "uni_train", *STARS, f"out={out}", "name=two", "strategy.devices=2", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(already done)") == 8 and "2 processes; their logs are in" in done.stdout
    refused = fit(out, "strategy.devices=2", "seed=-1")
    assert refused.exit_code == 2 and refused.output.count("error:") == 1
    assert "seed must be at least 0" in refused.output


def test_stars_on_two_nodes_after_one_was_killed(nodes: Runs) -> None:
    out, reports = nodes
    first, second = reports["stars_curriculum/lost"]
    assert "rank 1 on" in shown(first) and "did not answer" in shown(first)
    assert second["exits"] == [0, 0], second["err"]
    same(out, "stars_curriculum", "lost", 1e-5)


def test_stars_on_two_nodes_after_the_disk_was_full(nodes: Runs) -> None:
    out, reports = nodes
    first, second = reports["stars_curriculum/full"]
    assert "no space left" in shown(first).lower()
    assert second["exits"] == [0, 0], second["err"]
    same(out, "stars_curriculum", "full", 1e-5, "kept")


def test_reinforcement_on_two_nodes_after_the_cable_was_pulled(nodes: Runs) -> None:
    """With DeepSpeed where it is installed: ZeRO-2 until then, ZeRO-3 afterwards."""
    out, reports = nodes
    first, second = reports["flow_grpo_math/unplugged"]
    assert all(status > 0 for status in first["exits"]), first  # by themselves: the driver would have killed them
    assert "rank 1 on" in shown(first) and "did not answer" in shown(first)
    assert second["exits"] == [0, 0], second["err"]
    same(out, "flow_grpo_math", "unplugged", 1e-4)
