"""What a process can see of its own place, fingerprints of data, and what the watchdog makes of heartbeats."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from uni_train.config.compose import compose
from uni_train.distributed import preflight
from uni_train.distributed.preflight import before_joining, fingerprint
from uni_train.distributed.ranks import ALONE, Ranks
from uni_train.distributed.rendezvous import rendezvous
from uni_train.distributed.watchdog import Wait, describe
from uni_train.errors import UsageError, UserError

FOUND = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "TORCHELASTIC_USE_AGENT_STORE": "True"}
CPU = "strategy.accelerator=cpu"


@pytest.mark.parametrize(
    ("ranks", "overrides", "environment", "error", "says"),
    [
        (Ranks(0, 4, 0, 2), ["strategy.nodes=4"], {}, UsageError, "strategy.nodes=4, but processes were started on 2"),
        (ALONE, ["strategy.nodes=2"], {}, UsageError, "strategy.nodes=2, but this process was started alone"),
        (Ranks(0, 4, 0, 2), ["strategy.devices=4"], {}, UsageError, "strategy.devices=4, but 2 processes"),
        (Ranks(0, 3, 0, 2), [], {}, UserError, "3 processes on nodes of 2"),
        (Ranks(0, 4, 0, 2), [], {"SLURM_STEP_NUM_NODES": "4"}, UserError, "on 4 nodes, but RANK and WORLD_SIZE say 2"),
        (Ranks(0, 4, 0, 2), [], {"MASTER_ADDR": ""}, UserError, "MASTER_ADDR='' MASTER_PORT='29511'"),
        (
            Ranks(0, 4, 0, 2),
            [],
            {"MASTER_ADDR": "no.such.host.invalid"},
            UserError,
            "no.such.host.invalid is no address",
        ),
        (Ranks(0, 2, 0, 2), ["strategy.accelerator=gpu"], {}, UserError, "which shows 0 GPUs"),
    ],
)
def test_a_place_that_cannot_be_is_refused(
    ranks: Ranks,
    overrides: list[str],
    environment: dict[str, str],
    error: type[UserError],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    config = compose("sft_maze", [CPU, *overrides])
    with pytest.raises(error) as refused:
        before_joining(ranks, config, FOUND | environment)
    assert says in refused.value.message and type(refused.value) is error
    before_joining(Ranks(0, 4, 0, 2), compose("sft_maze", [CPU, "strategy.nodes=2", "strategy.devices=2"]), FOUND)


def test_a_port_that_somebody_has_is_refused_and_a_free_one_taken() -> None:
    config = compose("sft_maze", [CPU])
    with socket.socket() as other:
        other.bind(("", 0))
        port = str(other.getsockname()[1])
        own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        other.listen()
        with pytest.raises(UserError, match=f"port {port} of .* is in use"):
            before_joining(Ranks(0, 2, 0, 2), config, own)
        before_joining(Ranks(1, 2, 1, 2), config, own)  # the first rank's to have
        before_joining(Ranks(0, 2, 0, 2), config, own | {"TORCHELASTIC_USE_AGENT_STORE": "True"})
    before_joining(Ranks(0, 2, 0, 2), config, own)


def test_ranks_meet_and_those_that_do_not_come_are_named() -> None:
    def place() -> dict[str, str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}

    there = place()
    with ThreadPoolExecutor(3) as threads:
        stores = list(
            threads.map(lambda rank: rendezvous(Ranks(rank, 3, rank, 3), timedelta(seconds=30), there), range(3))
        )
    stores[2].set("said", "by the third")
    assert stores[1].get("said") == b"by the third"
    there = place()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(rendezvous, Ranks(r, 8, r, 8), timedelta(seconds=1), there) for r in (0, 2)]
        told = [one.exception(timeout=30) for one in waiting]
    assert all(isinstance(error, UserError) for error in told)
    assert "6 of 8 ranks did not come" in str(told[0]) and "within 1 s: 1, 3, 4, 5, 6, 7\n" in str(told[0])
    with pytest.raises(UserError, match="cannot reach the first one at"):
        rendezvous(Ranks(1, 2, 1, 2), timedelta(seconds=1), place())


def test_fingerprints_see_every_byte_of_small_data_and_the_size_and_ends_of_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "WHOLE", 100)
    monkeypatch.setattr(preflight, "PIECE", 10)
    monkeypatch.setattr(preflight, "PIECES", 4)
    folder = tmp_path / "weights"
    (folder / "parts").mkdir(parents=True)
    small, large = folder / "config.json", folder / "parts" / "1.safetensors"
    small.write_bytes(bytes(100))
    large.write_bytes(bytes(1000))
    seen = {fingerprint(folder)}

    def changes(file: Path, content: bytes) -> bool:
        before = file.read_bytes()
        file.write_bytes(content)
        new = fingerprint(folder) not in seen
        seen.add(fingerprint(folder))
        file.write_bytes(before)
        assert fingerprint(folder) in seen
        return new

    assert all(changes(small, bytes(i) + b"x" + bytes(99 - i)) for i in range(0, 100, 9))
    assert changes(large, b"x" + bytes(999)) and changes(large, bytes(999) + b"x")
    assert changes(large, bytes(1001))
    assert not changes(large, bytes(500) + b"x" + bytes(499))  # what is not looked at
    large.rename(folder / "parts" / "2.safetensors")
    assert fingerprint(folder) not in seen
    with pytest.raises(FileNotFoundError):
        fingerprint(tmp_path / "none")


# --- what heartbeats mean ---------------------------------------------------------------------------------------------

PLACE = "uni_train/stages/a.py:5 f (in torch/x.py:1 y), stage 01-sample"
WAIT = Wait("all_reduce", "0/gloo", 7, 61.0, (0, 1, 2, 3))


def heartbeat(rank: int, **changes: Any) -> dict[str, Any]:
    frames = [
        "/lib/site-packages/torch/x.py:1 y",
        "uni_train/distributed/ranks.py:71 gather",
        "uni_train/stages/a.py:5 f",
    ]
    state = {"rank": rank, "host": f"node{rank // 2}", "pid": 100 + rank, "frames": frames, "stage": "01-sample"}
    return {**state, "update": None, "silent": 0.1, "still": 61.0, "begun": {"0/gloo": 7}, **changes}


def told(**changes: dict[str, Any]) -> str:
    return describe(WAIT, {rank: heartbeat(rank, **changes.get(f"rank{rank}", {})) for rank in range(4)}, 30.0)[0]


def test_a_hang_is_told_by_who_is_missing_and_why() -> None:
    late = {"begun": {"0/gloo": 6}}
    assert told(rank2=late) == (
        "rank 2 (node1, pid 102) did not arrive at all_reduce (collective 7), where ranks 0, 1, 3 waited for 61 s at "
        f"{PLACE}: it has been at {PLACE} for 61 s"
    )
    # Of several that are missing, one that is gone explains the others.
    gone = told(rank1=late, rank2=late | {"silent": 45.0})
    assert gone.startswith(
        "rank 2 (node1, pid 102) did not arrive at all_reduce (collective 7) (nor did rank 1), where"
    )
    assert gone.endswith("it has given no sign of life for 45 s, last at " + PLACE)
    assert told(rank3=late | {"ended": "no space left"}).endswith("it had ended: no space left")


def test_a_hang_that_all_are_in_is_told_as_the_networks() -> None:
    assert told() == (
        f"all ranks are in all_reduce (collective 7) at {PLACE}, and it has not ended for 61 s: "
        "nothing passes between node0 and node1"
    )
    gone = told(rank3={"silent": 50.0})
    assert gone.startswith("rank 3 (node1, pid 103) has given no sign of life for 50 s") and "has not ended" in gone
