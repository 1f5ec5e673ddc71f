"""What a network between two nodes costs: one recipe on two processes of one node, and on two nodes of one process.

    python bench/nodes.py [--runs 3]

The nodes are network namespaces of this machine, joined by a cable (needs root, iproute2): what is measured is the way
through the network's code, not the delay of a real one. Seconds of a stage are from its manifest: without starts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import bench.dev_extra  # noqa: E402, F401
from bench.markdown import row, table  # noqa: E402
from tests.multinode.network import NoNetwork, two_networks  # noqa: E402
from tests.tiny import MODEL  # noqa: E402

RECIPE = "flow_grpo_math"
EPOCHS = 12
ARGUMENTS = (
    "fit",
    "--recipe",
    RECIPE,
    *MODEL,
    f"epochs={EPOCHS}",
    "rollout.prompts_per_epoch=8",
    "rollout.group_size=8",
    "held_out.n=16",
    "evaluate=false",
    "alarms.diversity=null",
    "rewards.lit={function:tests/multinode/rewards.py:lit}",
)


def seconds(run: Path) -> float:
    manifest = next(run.glob("stages/*/manifest.json"))
    return float(json.loads(manifest.read_text(encoding="utf-8"))["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each kind, in turns")
    wanted = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as out, two_networks() as names:
        kinds = {"one-node": {"each": 2}, "two-nodes": {"each": 1, "nodes": names}}
        steps = [
            {"arguments": [*ARGUMENTS, f"out={out}", f"name={kind}-{run}"], **more}
            for run in range(wanted)
            for kind, more in kinds.items()
        ]
        command = [sys.executable, "-m", "tests.multinode.driver", out, json.dumps(steps)]
        subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        for report in json.loads((Path(out) / "reports.json").read_text(encoding="utf-8")):
            assert not any(report["exits"]), report["err"]
        found = {kind: sorted(seconds(Path(out) / RECIPE / f"{kind}-{run}") for run in range(wanted)) for kind in kinds}
    middle = {kind: times[len(times) // 2] for kind, times in found.items()}
    print(f"{EPOCHS} epochs of Flow-GRPO on a tiny nano, two processes, seconds of the stage (median of {wanted}):\n")
    print(*table("", "seconds", "all"), sep="\n")
    for kind, times in found.items():
        print(row(kind.replace("-", " "), f"{middle[kind]:.2f}", ", ".join(f"{one:.2f}" for one in times)))
    print(f"\ntwo nodes take {middle['two-nodes'] / middle['one-node'] - 1:+.1%}")


if __name__ == "__main__":
    try:
        main()
    except NoNetwork as error:
        sys.exit(f"no network namespaces here: {error}")
