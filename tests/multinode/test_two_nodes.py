"""Two nodes: network namespaces joined by a cable, an agent of torchrun in each. STARS and reinforcement end in the
numbers of one process, also after a node was killed, the cable pulled, the disk full."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.multinode.network import NoNetwork, two_networks
from tests.multinode.test_recipes_on_ranks import GRPO, STARS, drive, same_losses, same_pictures, same_samples, shown
from tests.once import once

pytestmark = [pytest.mark.multinode, pytest.mark.slow]
ZERO = importlib.util.find_spec("deepspeed") is not None


def start(out: Path) -> dict[str, list[dict[str, Any]]]:
    """All runs of this file, in one folder, and what became of every start of each; skips where there are no nodes."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    lost = {"rank": 1, "path": "04-sample", "write": 1, "does": "kill node"}
    unplugged = {"rank": 0, "path": "step=00000002", "write": 1, "does": "unplug"}
    kind = {n: f"strategy.kind=deepspeed_zero{n}" if ZERO else "strategy.kind=ddp" for n in (2, 3)}
    small = (*STARS, f"out={out / 'small'}")
    try:
        with two_networks() as nodes:
            two = {"nodes": nodes, "each": 1}
            return drive(out, [
                ("one", STARS, {"each": 1}),
                ("lost", STARS, two | {"fault": lost, "alone": True}),
                ("lost", STARS, two),
                ("full", small, two | {"disk": "1200k"}),
                ("full", small, two | {"disk": "64m"}),
                ("one", GRPO, {"each": 1}),
                (
                    "unplugged",
                    (*GRPO, kind[2], "strategy.timeout=12"),
                    two | {"fault": unplugged, "deepspeed": ZERO, "alone": True},
                ),
                ("unplugged", (*GRPO, kind[3]), two),
            ], "unshare", "--mount")  # fmt: skip
    except NoNetwork as error:
        pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    return once(tmp_path_factory, "nodes", start)


def test_stars_after_a_node_was_killed(runs: Any) -> None:
    out, reports = runs
    first, second = reports["stars_curriculum/lost"]
    assert "rank 1 on" in shown(first) and "did not answer" in shown(first)
    assert second["exits"] == [0, 0], second["err"]
    same_samples(out / "stars_curriculum/lost", out / "stars_curriculum/one")
    same_losses(out / "stars_curriculum/lost", out / "stars_curriculum/one", 1e-5)


def test_stars_after_the_disk_was_full(runs: Any) -> None:
    out, reports = runs
    first, second = reports["stars_curriculum/full"]
    assert "no space left" in shown(first).lower()
    assert second["exits"] == [0, 0], second["err"]
    same_samples(out / "kept/stars_curriculum/full", out / "stars_curriculum/one")
    same_losses(out / "kept/stars_curriculum/full", out / "stars_curriculum/one", 1e-5)


def test_reinforcement_after_the_cable_was_pulled(runs: Any) -> None:
    """With DeepSpeed where it is installed: ZeRO-2 until then, ZeRO-3 afterwards."""
    out, reports = runs
    first, second = reports["flow_grpo_math/unplugged"]
    assert all(status > 0 for status in first["exits"]), first  # by themselves: the driver would have killed them
    assert "rank 1 on" in shown(first) and "did not answer" in shown(first)
    assert second["exits"] == [0, 0], second["err"]
    same_pictures(out / "flow_grpo_math/unplugged", out / "flow_grpo_math/one")
    same_losses(out / "flow_grpo_math/unplugged", out / "flow_grpo_math/one", 1e-4)
