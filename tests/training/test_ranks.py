"""Trainings on two ranks and in processes that are killed end as those of one process that nobody disturbs.

Every strategy, going on under another one, half precision, offloading, a full disk, reinforcement, BAGEL, signals.
All trainings are forks of one process (driver.py), which takes longer to start than they run.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.models.bagel.conftest import FOLDER
from tests.models.bagel.published import published
from tests.once import once
from tests.processes import python
from tests.training.driver import BAGEL_ROWS, Stack, bagel, dpo, fit, grpo, train_crashing
from tests.training.flow_grpo.toy import ToyFlow
from uni_train.config.compose import compose
from uni_train.models.load import build_model
from uni_train.training.checkpoint_io import load_folder
from uni_train.training.metric_log import read_metrics
from uni_train.training.steps import StepDataset

pytestmark = [pytest.mark.multinode, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
DEEPSPEED = importlib.util.find_spec("deepspeed") is not None
ZEROS = ("deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3") if DEEPSPEED else ()
ZERO1, ZERO2, ZERO3 = ZEROS or ("fsdp2", "fsdp2", "fsdp2")
CHAIN = ((ZERO3, 2), (ZERO3, 4), ("fsdp2", 2), (ZERO1, 2))
STRATEGIES = ("ddp", "fsdp2", *ZEROS[1:])
SHARDED = ("fsdp2", *ZEROS[2:])
HALF = {"precision": "bf16-true"}
POISON = {"poison": 6}
TOLD = {"kind": "ddp", "rows": 8, "accumulate": 1, "updates": 12, "ema": 0.9}
AFTER = "; the same command continues from there\n"
Ran = tuple[Path, dict[str, list[dict[str, Any]]]]


def step(name: str, does: str = "fit", ranks: int = 2, more: dict[str, Any] | None = None, **keys: Any) -> Any:
    return {"name": name, "does": does, "ranks": ranks, "keys": keys, **(more or {})}


def told(name: str, ranks: int, *tell: int, **more: Any) -> Any:
    return step(name, "fit", ranks, more | {"tell": tell}, **TOLD)


def start(out: Path) -> dict[str, list[dict[str, Any]]]:
    """All trainings of this file in one folder, and what became of every start of each."""
    place = published(FOLDER, out / "BAGEL")
    steps = [
        *(
            step(kind, more=more, kind=kind, ema=0.9, checkpoint_every=3)
            for kind in STRATEGIES
            for more in (POISON, {})
        ),
        *(step("chain", "fit", ranks, kind=kind, updates=n, ema=0.9) for n, (kind, ranks) in enumerate(CHAIN, 1)),
        step("hybrid", "fit", 4, kind="fsdp2", replicas=2, updates=5, ema=0.9),
        step("hybrid", "fit", 2, kind="fsdp2", ema=0.9),
        *(step("half", kind=kind, updates=n, **HALF) for kind, n in ((ZERO2, 2), (ZERO3, 4), ("fsdp2", 6))),
        step("mixed", kind=ZERO3, updates=2, precision="bf16-mixed"),
        step("full_first", more={"bytes": [0, 2048]}, kind=ZERO2, checkpoint_every=1),
        step("full_last", more={"bytes": [1, 2048]}, kind="fsdp2", checkpoint_every=1),
        step("grpo", "grpo", kind="ddp"),
        step("stopped", "grpo", kind="ddp", epochs=1),
        step("stopped", "grpo", kind="ddp"),
        step("shared", "grpo", kind=ZERO3, epochs=1, kl=0.0),
        step("adapters", "grpo", kind="fsdp2", epochs=1, steps=2, trained="lora"),
        step("bagel", "bagel", checkpoint=str(place), kind="ddp"),
        step("dpo", "dpo", kind="ddp", accumulate=2),
        step("dpo_adapters", "dpo", kind="fsdp2", trained="lora"),
        *(step(f"loaded_{kind}", "loaded", checkpoint=str(place), kind=kind) for kind in SHARDED),
        step("unbroken", **TOLD),
        told("told", 2, 1, 6, signal.SIGUSR1),
        step("told", **TOLD),
        told("alone", 1, 0, 3, signal.SIGTERM),
        told("alone", 1, 0, 9, signal.SIGUSR1),  # an update that is saved anyway
        step("alone", "fit", 1, {"after": signal.SIGTERM}, **TOLD),
        told("interrupted", 2, 1, 3, signal.SIGINT),
        {"name": "crashed", "does": "crash", "kills": 5},
    ]
    if DEEPSPEED:
        away = {f"offload_{what}": True for what in ("optimizer", "weights", "averages")}
        steps.append(step("offloaded", kind=ZERO3, updates=2, ema=0.9, **away))
        steps.append(step("again", "again", 1, kinds=[ZERO2, "fsdp2", ZERO3, ZERO2], updates=2))
    done = python("-m", "tests.training.driver", str(out), json.dumps(steps), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    reports: dict[str, list[dict[str, Any]]] = {}
    for report in json.loads((out / "reports.json").read_text()):
        reports.setdefault(report["name"], []).append(report)
    return reports


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return once(tmp_path_factory, "trainings", start)


def finished(ran: Ran, name: str) -> Path:
    """The folder of a training whose last start has succeeded."""
    report = ran[1][name][-1]
    assert not any(report["codes"]), report["said"]
    return ran[0] / name


def lines(out: Path, file: str = "metrics") -> list[dict[str, Any]]:
    found = read_metrics(out / f"{file}.jsonl")
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def close(out: Path, other: Path, rel: float, file: str = "metrics") -> None:
    assert len(lines(out, file)) == len(lines(other, file)) > 0
    for one, two in zip(lines(out, file), lines(other, file), strict=True):
        assert one.keys() == two.keys()
        for name, value in two.items():
            assert one[name] == pytest.approx(value, rel=rel, abs=1e-6), (out, name)


def same(out: Path, model: torch.nn.Module, most: float) -> None:
    """The weights are whole and those of `model`: of all ranks, of the first where they were sharded."""
    finals = sorted(out.glob("final-*"))
    assert len(finals) == (1 if out.name in (*SHARDED, "hybrid", "shared", "adapters", "half", "offloaded") else 2)
    for rank in range(len(finals)):
        found = load_file(out / f"final-{rank}.safetensors")
        for name, value in model.state_dict().items():
            assert found[name].shape == value.shape and found[name].dtype == value.dtype
            assert float((found[name].float() - value.float()).abs().max()) <= most, (out, name)


def test_two_ranks_train_as_one_device_does_and_continue_under_any_strategy(ran: Ran, tmp_path: Path) -> None:
    alone = fit(tmp_path / "alone", ema=0.9)
    assert float((alone.head.weight.detach() - Stack().head.weight.detach()).abs().max()) > 1e-3
    for name in (*STRATEGIES, "hybrid"):
        close(finished(ran, name), tmp_path / "alone", 1e-5)
        same(ran[0] / name, alone, 1e-6)
    chain = shutil.copytree(finished(ran, "chain"), tmp_path / "chain")
    last = fit(chain, ema=0.9).state_dict()  # the last update on one device
    close(chain, tmp_path / "alone", 1e-5)
    for name, value in alone.state_dict().items():
        assert float((last[name] - value).abs().max()) <= 1e-6, name


def test_half_precision_and_offloading_under_sharing_strategies(ran: Ran, tmp_path: Path) -> None:
    half = fit(tmp_path / "half", precision="bf16-true")
    close(finished(ran, "half"), tmp_path / "half", 0.02)
    same(ran[0] / "half", half, 0.02)
    assert half.head.weight.dtype == torch.bfloat16 and half.vae.weight.dtype == torch.float32
    fit(tmp_path / "mixed", updates=2, precision="bf16-mixed")
    close(finished(ran, "mixed"), tmp_path / "mixed", 0.02)
    if DEEPSPEED:
        whole = fit(tmp_path / "offloaded", updates=2, ema=0.9)
        close(finished(ran, "offloaded"), tmp_path / "offloaded", 1e-5)
        same(ran[0] / "offloaded", whole, 1e-6)


@pytest.mark.skipif(not DEEPSPEED, reason="DeepSpeed is not installed")
def test_one_device_alone_may_have_any_strategy_again_and_again(ran: Ran, tmp_path: Path) -> None:
    alone, out = fit(tmp_path / "alone", updates=2).state_dict(), finished(ran, "again")
    for number in range(4):
        weights = load_file(out / f"{number}.safetensors")
        for name, value in alone.items():
            assert float((weights[name] - value).abs().max()) <= 1e-6, (number, name)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_gradient_that_is_not_finite_ends_all_ranks_before_the_step_and_the_save(ran: Ran, strategy: str) -> None:
    """The run goes on afterwards, and ends as if nothing had been: the first test."""
    report = ran[1][strategy][0]
    assert report["codes"] == [99, 99] and report["saved"] == ["step=00000003"]
    for said in report["said"]:
        assert "the gradient of update 6 has the norm" in said, said
    assert "continues from" in report["said"][0]  # the others may look before the first rank has renamed its checkpoint


def test_a_checkpoint_that_cannot_be_written_ends_all_ranks_and_leaves_none(ran: Ran) -> None:
    for name, full in (("full_first", 0), ("full_last", 1)):
        (report,) = ran[1][name]
        assert report["codes"] == [99, 99] and report["saved"] == []
        said = report["said"][1 - full]  # the other's is cut off, too
        assert f"rank {full}: " in said and "File too large" in said, said


def test_ranks_that_share_weights_out_write_what_they_hold(ran: Ran) -> None:
    for name in SHARDED:
        last = finished(ran, name) / "checkpoints/step=00000006"
        one, two = sorted(path.stat().st_size for path in last.glob("*.safetensors"))
        assert two < 1.6 * one, (name, one, two)
        stored, final = load_folder(last), load_file(ran[0] / name / "final-0.safetensors")
        averages = stored["callbacks"]["Ema"]["averages"]
        for weight in averages:
            assert torch.equal(averages[weight], final[weight.removeprefix("model.")]), (name, weight)


def test_replicas_write_their_weights_once(ran: Ran) -> None:
    sizes = [path.stat().st_size for path in sorted((ran[0] / "hybrid/checkpoints/step=00000005").glob("*-of-00004.*"))]
    empty = max(sizes[2:])  # names and shapes alone
    assert len(sizes) == 4 and min(sizes[:2]) > 2 * empty


def test_reinforcement_draws_and_learns_what_one_device_does_and_goes_on_where_it_stopped(
    ran: Ran, tmp_path: Path
) -> None:
    """Groups that teach nothing give ranks unlike numbers of pictures; beside them are solved rows and a reference."""
    whole = grpo(tmp_path / "whole")
    one, two, stopped = tmp_path / "whole", finished(ran, "grpo"), finished(ran, "stopped")
    assert any(line["frac_reward_zero_std"] > 0 for line in lines(one, "rollouts"))
    assert any(line["kl"] > 0 for line in lines(one))
    for file in ("rollouts", "metrics"):
        close(two, one, 1e-3, file)
    begun = ToyFlow().state_dict()
    both = load_file(two / "final-0.safetensors")
    for name, value in whole.state_dict().items():
        assert float((both[name] - value).abs().max()) <= 1e-3 * float((value - begun[name]).abs().max()) + 1e-9, name
    for file in ("metrics.jsonl", "held_out.jsonl", "final-0.safetensors", "final-1.safetensors"):
        assert (stopped / file).read_bytes() == (two / file).read_bytes(), file


def test_reinforcement_with_weights_shared_out_and_with_adapters(ran: Ran, tmp_path: Path) -> None:
    alone = grpo(tmp_path / "alone", epochs=1, kl=0.0)
    # The same pictures, bit for bit, before weights have moved; means over ranks are summed in another order.
    close(finished(ran, "shared"), tmp_path / "alone", 1e-12, "rollouts")
    same(ran[0] / "shared", alone, 1e-6)
    adapters = grpo(tmp_path / "adapters", epochs=1, steps=2, trained="lora")
    close(finished(ran, "adapters"), tmp_path / "adapters", 1e-5, "rollouts")
    same(ran[0] / "adapters", adapters, 1e-6)
    # Begun with weights shared out, it continues on one device.
    again = grpo(shutil.copytree(ran[0] / "shared", tmp_path / "again"), epochs=2, kl=0.0).state_dict()
    for name, value in grpo(tmp_path / "two", epochs=2, kl=0.0).state_dict().items():
        assert float((again[name] - value).abs().max()) <= 1e-6, name


def test_bagel_on_two_ranks_equals_one(ran: Ran, tmp_path: Path) -> None:
    """Though the ranks have unlike numbers of tokens."""
    place = str(ran[0] / "BAGEL")
    model: Any = build_model(compose("sft", [f"model.checkpoint={place}"]).model)
    begun = model.state_dict()
    drawn = StepDataset(
        model.collate, {"rows": BAGEL_ROWS}, lambda step: {"rows": 1.0}, rows=1, updates=1, seed=2, stage="finetune",
        grad_accumulation_steps=2, token_counts=model.token_counts, tokens=150, example_tokens=model.example_tokens,
    )[0]  # fmt: skip
    (text, latent), (other_text, other_latent) = (model.token_counts(part.content) for part in drawn)
    assert text * other_latent != other_text * latent and (text, latent) != (other_text, other_latent)
    whole = bagel(tmp_path, place, accumulate=2).state_dict()
    for run in ("bagel", *(f"loaded_{kind}" for kind in SHARDED)):
        close(finished(ran, run), tmp_path, 1e-5)
        both, moved = load_file(ran[0] / run / "final-0.safetensors"), 0
        for name, value in whole.items():
            change, other = value - begun[name], both[name] - begun[name]
            rounding = 2**-23 * float(begun[name].abs().max())  # of the weights that the change was added to
            assert float((change - other).abs().max()) <= 1e-4 * float(change.abs().max()) + rounding, (run, name)
            moved += bool(change.any())
        assert moved > 100


@pytest.mark.parametrize(("name", "keys"), [("dpo", {"accumulate": 2}), ("dpo_adapters", {"trained": "lora"})])
def test_preferences_on_two_ranks_equal_one(ran: Ran, tmp_path: Path, name: str, keys: dict[str, Any]) -> None:
    """With rows of another kind, and with weights shared out whose adapters are switched off for the reference."""
    whole = dpo(tmp_path, **keys).state_dict()
    close(finished(ran, name), tmp_path, 1e-3)
    for key, value in load_file(ran[0] / name / "final-0.safetensors").items():
        torch.testing.assert_close(value, whole[key], rtol=1e-4, atol=1e-5)


def test_no_rank_holds_a_model_whole_while_it_is_loaded_to_be_sharded(ran: Ran) -> None:
    model: Any = build_model(compose("sft", [f"model.checkpoint={ran[0] / 'BAGEL'}"]).model)
    sizes = [weight.nbytes for weight in model.bagel.state_dict().values()]
    for kind in SHARDED:
        out = finished(ran, f"loaded_{kind}")
        for rank in (0, 1):
            most = json.loads((out / f"held-{rank}.json").read_text())
            assert 0.4 * sum(sizes) < most < 0.55 * sum(sizes) + max(sizes), (kind, rank)


def test_told_ranks_save_at_the_next_update_and_continue_as_if_nothing_had_been(ran: Ran) -> None:
    out, reports = ran
    first, continued = reports["told"]
    assert first["codes"] == [75, 75] and first["saved"] == ["step=00000005", "step=00000007"]
    assert first["said"][0].endswith(f"another rank was told to end: update 7 is saved{AFTER}")
    assert first["said"][1].endswith(f"SIGUSR1: update 7 is saved{AFTER}")
    assert continued["codes"] == [0, 0]
    for name in ("final-0.safetensors", "metrics.jsonl"):
        assert (out / "told" / name).read_bytes() == (finished(ran, "unbroken") / name).read_bytes(), name

    alone, again, last = reports["alone"]
    assert alone["codes"] == again["codes"] == [75]
    assert (alone["saved"][-1], again["saved"][-1]) == ("step=00000004", "step=00000010")
    # Finished, and then told outside of a fit.
    assert last["codes"] == [75] and last["said"][0].endswith(f"SIGTERM: what is finished is kept{AFTER}")
    assert len(lines(out / "alone")) == 12
    (interrupted,) = reports["interrupted"]
    assert interrupted["codes"] == [130, 130] and interrupted["saved"] == ["step=00000004"]
    for said in interrupted["said"]:
        assert said.endswith("interrupted: update 4 is saved; run the same command again to continue\n")


def test_killed_again_and_again_ends_the_same(ran: Ran, tmp_path: Path) -> None:
    """kill -9 at random moments with dropout, averages, schedule and a threshold curriculum."""
    (report,) = ran[1]["crashed"]
    assert report["codes"].count(-9) >= 2 and report["codes"][-1] == 0, report
    model, _ = train_crashing(tmp_path)
    found = load_file(ran[0] / "crashed" / "final-0.safetensors")
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    assert (ran[0] / "crashed/metrics.jsonl").read_bytes() == (tmp_path / "metrics.jsonl").read_bytes()
    assert not [name for name in report["saved"] if name.startswith(".")]
