"""Two nodes: network namespaces joined by a cable, an agent of torchrun in each. STARS and reinforcement end in the
numbers of one process, also after a node was killed, the cable pulled, the disk full."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.multinode.network import NoNetwork, two_networks
from tests.multinode.test_recipes_on_ranks import GRPO, ROOT, STARS, same_losses, same_pictures, same_samples, shown

pytestmark = [pytest.mark.multinode, pytest.mark.slow]
ZERO = importlib.util.find_spec("deepspeed") is not None


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    """Names of two namespaces with a cable between them; skips with the reason where there can be none."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    try:
        with two_networks() as names:
            yield names
    except NoNetwork as error:
        pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture(scope="module")
def runs(nodes: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    """All runs of this file, in one folder, and what became of every start of each."""
    out = tmp_path_factory.mktemp("nodes")
    two = {"nodes": nodes, "each": 1}
    lost = {"rank": 1, "path": "04-sample", "write": 1, "does": "kill node"}
    unplugged = {"rank": 0, "path": "step=00000002", "write": 1, "does": "unplug"}
    zero = {"deepspeed": True} if ZERO else {}
    kind = {n: f"strategy.kind=deepspeed_zero{n}" if ZERO else "strategy.kind=ddp" for n in (2, 3)}
    asked: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
        ("one", STARS, {"each": 1}),
        ("lost", STARS, two | {"fault": lost}),
        ("lost", STARS, two),
        ("full", (*STARS, f"out={out / 'small'}"), two | {"disk": "1200k"}),
        ("full", (*STARS, f"out={out / 'small'}"), two | {"disk": "64m"}),
        ("one", GRPO, {"each": 1}),
        ("unplugged", (*GRPO, kind[2], "strategy.timeout=12"), two | {"fault": unplugged} | zero),
        ("unplugged", (*GRPO, kind[3]), two | zero),
    ]
    steps = []
    for name, arguments, more in asked:
        place = [] if any(one.startswith("out=") for one in arguments) else [f"out={out}"]
        steps.append({"arguments": [*arguments, *place, f"name={name}"], **more})
    command = ["unshare", "--mount", sys.executable, "-m", "tests.multinode.driver", str(out), json.dumps(steps)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for (name, arguments, _), line in zip(asked, done.stdout.splitlines(), strict=True):
        found.setdefault(f"{arguments[2]}/{name}", []).append(json.loads(line))
    return out, found


def test_stars_after_a_node_was_killed(runs: Any) -> None:
    out, found = runs
    first, second = found["stars_curriculum/lost"]
    assert "rank 1 on" in shown(first) and "did not answer" in shown(first)
    assert second["exits"] == [0, 0], second["err"]
    same_samples(out / "stars_curriculum/lost", out / "stars_curriculum/one")
    same_losses(out / "stars_curriculum/lost", out / "stars_curriculum/one", 1e-5)


def test_stars_after_the_disk_was_full(runs: Any) -> None:
    out, found = runs
    first, second = found["stars_curriculum/full"]
    assert "no space left" in shown(first).lower()
    assert second["exits"] == [0, 0], second["err"]
    same_samples(out / "kept/stars_curriculum/full", out / "stars_curriculum/one")
    same_losses(out / "kept/stars_curriculum/full", out / "stars_curriculum/one", 1e-5)


def test_reinforcement_after_the_cable_was_pulled(runs: Any) -> None:
    """With DeepSpeed where it is installed: ZeRO-2 until then, ZeRO-3 afterwards."""
    out, found = runs
    first, second = found["flow_grpo_math/unplugged"]
    assert all(status > 0 for status in first["exits"]), first  # by themselves: the driver would have killed them
    assert "rank 1 on" in shown(first) and "did not answer" in shown(first)
    assert second["exits"] == [0, 0], second["err"]
    same_pictures(out / "flow_grpo_math/unplugged", out / "flow_grpo_math/one")
    same_losses(out / "flow_grpo_math/unplugged", out / "flow_grpo_math/one", 1e-4)
