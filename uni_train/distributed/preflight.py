"""What is checked before a run of several processes begins, so that it does not fail after hours, or silently lie.

`before_joining` looks at what one process can see of itself; `preflight` compares the processes once they can talk:
code, versions, configuration, data, and that the run folder is one and the same for all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from uni_train.config.build import to_plain
from uni_train.config.paths import named_paths
from uni_train.config.schema import RunConfig
from uni_train.distributed.ranks import Ranks
from uni_train.errors import UsageError, UserError
from uni_train.files import sha256_of
from uni_train.run_folder import flat, versions_of

PACKAGES = ("uni_train", "uni_train.data_gen", "uni_train.eval")  # `rglob` follows no symbolic links
VERSIONS_OF = (
    *("uni-train", "torch", "lightning", "deepspeed", "transformers", "diffusers", "peft", "accelerate"),
    *("numpy", "scipy", "safetensors", "tokenizers", "pyarrow", "pillow", "opencv-python-headless"),
)
WHOLE = 16 << 20  # bytes: files up to this size are hashed whole
PIECES, PIECE = 32, 1 << 20  # of larger ones so many pieces of this size, evenly spread, with the first and the last
OF_A_FOLDER = 256  # files of a folder whose content is looked at, evenly spread; all names are
VISIBLE_WITHIN = 60.0  # seconds until a file that another node has written must be seen; NFS caches folders for a while


# --- before the processes can talk ------------------------------------------------------------------------------------


def before_joining(ranks: Ranks, config: RunConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Check this process's place: the number of nodes and devices as asked, enough GPUs, a port to meet at.

    Raises:
        UsageError: the configuration asks for other numbers than were started.
        UserError: SLURM started another number of nodes, a node lacks GPUs, the address is unknown, the port taken.
    """
    strategy = config.strategy
    if ranks.world_size % ranks.local_world_size:
        raise UserError(
            f"{ranks.world_size} processes on nodes of {ranks.local_world_size}: every node must start equally many",
            "Give all nodes the same --nproc-per-node.",
        )
    nodes = ranks.world_size // ranks.local_world_size
    hint = "Leave strategy.nodes and strategy.devices out: they follow from what is started."
    if strategy.nodes > 1 and strategy.nodes != nodes:
        found = "this process was started alone" if ranks.world_size == 1 else f"processes were started on {nodes}"
        alone = f"Start it with: uni_train launch --nodes {strategy.nodes} --gpus {strategy.devices} --slurm -- fit ..."
        raise UsageError(f"strategy.nodes={strategy.nodes}, but {found}", alone if ranks.world_size == 1 else hint)
    if ranks.world_size == 1:
        return
    if strategy.devices > 1 and strategy.devices != ranks.local_world_size:
        raise UsageError(
            f"strategy.devices={strategy.devices}, but {ranks.local_world_size} processes were started on this node",
            hint,
        )
    stepped = environment.get("SLURM_STEP_NUM_NODES", "")
    if stepped.isdigit() and int(stepped) != nodes:
        raise UserError(
            f"SLURM started this step on {stepped} nodes, but RANK and WORLD_SIZE say {nodes}",
            "Start one torchrun a node with --nnodes equal to #SBATCH --nodes, or use `uni_train launch --slurm`.",
        )
    _expect_gpus(ranks, strategy.accelerator)
    _expect_address(ranks, environment)


def _expect_gpus(ranks: Ranks, accelerator: str) -> None:
    if accelerator == "cpu":
        return
    import torch

    found = torch.cuda.device_count()
    if 0 < found < ranks.local_world_size or (accelerator == "gpu" and not found):
        raise UserError(
            f"{ranks.local_world_size} processes on node {platform.node()}, which shows {found} GPUs",
            "Start one process a GPU, and let each see all of them (no --gpus-per-task, no CUDA_VISIBLE_DEVICES).",
        )


def _expect_address(ranks: Ranks, environment: Mapping[str, str]) -> None:
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if not address or not port.isdigit():
        raise UserError(
            f"MASTER_ADDR={address!r} MASTER_PORT={port!r} in the environment: processes would not find each other",
            "Start with torchrun or `uni_train launch`, which set both.",
        )
    try:
        socket.getaddrinfo(address, int(port))
    except OSError as error:
        raise UserError(
            f"MASTER_ADDR={address} is no address that node {platform.node()} knows: {error.strerror}",
            "Give the name or number under which the other nodes reach the first one.",
        ) from error
    # Where torchrun's agent holds the store, it has the port already.
    if ranks.is_main and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        expect_free_port(int(port))


def expect_free_port(port: int) -> None:
    """Raises UserError if another process of this machine listens at `port`."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the process group will: a closing one is free
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            what = "is in use" if error.errno == errno.EADDRINUSE else "needs the rights of root"
            raise UserError(
                f"port {port} of {platform.node()} {what}: the processes cannot meet there",
                "End the run that has it, or choose another: MASTER_PORT=PORT, --port PORT, --master-port PORT.",
            ) from error


# --- once they can ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """What a rank tells about itself. Files and folders of data: None on all but the first of a node."""

    host: str
    local_rank: int
    local_world_size: int
    versions: Mapping[str, str]
    code: str
    config: Mapping[str, Any]
    data: Mapping[str, str | None] | None


def preflight(ranks: Ranks, config: RunConfig, run_path: Path) -> None:
    """Compare all ranks, and see that they share `run_path`, which is made if missing. Every rank must call it.

    Raises:
        UserError: on all ranks the same, naming those that differ from rank 0 and in what.
    """
    if ranks.world_size == 1:
        return
    plain = to_plain(config)
    own = ranks.on_all(lambda: _facts(ranks, plain))
    facts = ranks.gather(own)
    _expect_layout(facts)
    for what, values, hint in (
        ("versions", [f.versions for f in facts], "Install the same packages on every node."),
        ("configuration", [f.config for f in facts], "Give every node the same command, recipes/ and configs/."),
    ):
        _expect_equal(facts, what, values, hint)
    if len({f.code for f in facts}) > 1:
        hint = "Install the same version on every node, or run all of them from one shared folder."
        _expect_equal(facts, "code", ranks.gather(code_hashes()), hint)
    on_nodes = [i for i, f in enumerate(facts) if f.data is not None]
    hint = "Copy the same files to every node, or name a shared folder."
    _expect_equal([facts[i] for i in on_nodes], "data", [facts[i].data or {} for i in on_nodes], hint, on_nodes)
    _expect_shared(ranks, [f.host for f in facts], run_path)


def _facts(ranks: Ranks, plain: Mapping[str, Any]) -> Facts:
    hashes = code_hashes()
    return Facts(
        host=platform.node(),
        local_rank=ranks.local_rank,
        local_world_size=ranks.local_world_size,
        versions=versions_of(VERSIONS_OF),
        code=hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest(),
        config=flat(plain),
        data=data_hashes(plain) if ranks.local_rank == 0 else None,
    )


def code_hashes() -> dict[str, str]:
    """Name -> hash of every file of the program's packages: code, templates, prompts, the weights that come with it."""
    found = {}
    for package in PACKAGES:
        spec = util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations
        root = Path(next(iter(spec.submodule_search_locations)))
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                found[f"{package}/{file.relative_to(root).as_posix()}"] = sha256_of(file)
    return found


def data_hashes(plain: Mapping[str, Any]) -> dict[str, str | None]:
    """Key and path -> fingerprint of every file or folder that a configuration names; None where there is none."""
    found: dict[str, str | None] = {}
    for key, value, path in named_paths(plain):
        try:
            found[f"{key} ({value})"] = fingerprint(path)
        except FileNotFoundError:
            found[f"{key} ({value})"] = None
        except OSError as error:
            raise UserError(f"{key}: cannot read {error.filename or path}: {error.strerror}") from error
    return found


def fingerprint(path: Path) -> str:
    """A hash of a file's size and content, or of a folder's names and its files' sizes and contents; of large ones a
    part, evenly spread (see WHOLE, PIECES, OF_A_FOLDER), so that terabytes take seconds.

    Raises:
        FileNotFoundError: there is no such file or folder.
    """
    digest = hashlib.sha256()
    if not path.is_dir():
        _add_content(digest, path)
        return digest.hexdigest()
    files = sorted(Path(at) / name for at, _, names in os.walk(path) for name in names)
    digest.update("\0".join(file.relative_to(path).as_posix() for file in files).encode())
    for file in _spread(files, OF_A_FOLDER):
        _add_content(digest, file)
    return digest.hexdigest()


def _add_content(digest: Any, path: Path) -> None:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"{size}\0".encode())
        if size <= WHOLE:
            digest.update(file.read())
            return
        for start in _spread(range(0, size - PIECE + 1), PIECES):
            file.seek(start)
            digest.update(file.read(PIECE))


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """All items, or `most` of them at equal distances, the first and the last included."""
    if len(items) <= most:
        return list(items)
    return [items[i * (len(items) - 1) // (most - 1)] for i in range(most)]


# --- comparing --------------------------------------------------------------------------------------------------------


def _expect_layout(facts: Sequence[Facts]) -> None:
    """Raises UserError if the ranks of a node are not one block, or nodes started unequally many."""
    each = facts[0].local_world_size
    for rank, one in enumerate(facts):
        if one.local_world_size != each:
            raise UserError(
                f"{named([rank], facts)} is one of {one.local_world_size} on its node, "
                f"rank 0 ({facts[0].host}) of {each}",
                "Start equally many processes on every node.",
            )
        if one.local_rank != rank % each or one.host != facts[rank - one.local_rank].host:
            raise UserError(
                f"{named([rank], facts)} has LOCAL_RANK={one.local_rank}: ranks are not numbered node by node",
                "Start with torchrun or `uni_train launch`; with srun, keep --distribution=block.",
            )


def _expect_equal(
    facts: Sequence[Facts],
    what: str,
    values: Sequence[Mapping[str, Any]],
    hint: str,
    numbers: Sequence[int] | None = None,
) -> None:
    """Raises UserError naming the ranks whose mapping is not that of the first, and the entries that differ."""
    others = [i for i, value in enumerate(values) if value != values[0]]
    if not others:
        return
    first, other = values[0], values[others[0]]
    differing = [name for name in dict.fromkeys([*first, *other]) if first.get(name) != other.get(name)]
    shown = ", ".join(_difference(what, name, first.get(name), other.get(name)) for name in differing[:3])
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    ranks = numbers or range(len(facts))
    who = named([ranks[i] for i in others], dict(zip(ranks, facts, strict=True)))
    raise UserError(f"{who} and rank 0 ({facts[0].host}) differ in their {what}: {shown}{more}", hint)


def _difference(what: str, name: str, first: Any, other: Any) -> str:
    if what in ("code", "data"):
        if first is None or other is None:
            return f"{name} (missing {'on rank 0' if first is None else 'there'})"
        return name
    return f"{name} {'absent' if other is None else other}, on rank 0 {'absent' if first is None else first}"


def named(numbers: Sequence[int], facts: Sequence[Facts] | Mapping[int, Facts]) -> str:
    """ "rank 1 (b)", "ranks 8 to 15 (b)", "ranks 1, 3 (a, b)"."""
    hosts = ", ".join(dict.fromkeys(facts[i].host for i in numbers))
    if len(numbers) == 1:
        return f"rank {numbers[0]} ({hosts})"
    run = list(numbers) == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2
    which = f"{numbers[0]} to {numbers[-1]}" if run else ", ".join(map(str, numbers))
    return f"ranks {which} ({hosts})"


def _expect_shared(ranks: Ranks, hosts: Sequence[str], run_path: Path) -> None:
    """Raises UserError unless each rank sees what the first wrote into `run_path`, and the first what each wrote."""
    token = ranks.from_main(lambda: uuid.uuid4().hex)
    mark = run_path / f".preflight-{token}-{ranks.rank}"
    hint = "All nodes must see one folder at the same path: choose a shared one with out=FOLDER."

    def write() -> None:
        try:
            run_path.mkdir(parents=True, exist_ok=True)
            mark.write_text(token)
        except OSError as error:
            where = f"rank {ranks.rank} ({hosts[ranks.rank]}) cannot write to {run_path}: {error.strerror}"
            raise UserError(where, "Choose another place with out=FOLDER.") from error

    try:
        ranks.on_all(write)
        wanted = {f".preflight-{token}-{rank}" for rank in (range(ranks.world_size) if ranks.is_main else (0,))}
        missing = sorted(int(name.rsplit("-", 1)[1]) for name in _unseen(run_path, wanted))
        reports = ranks.gather(missing)
        blind = next((rank for rank in range(1, ranks.world_size) if reports[rank] or rank in reports[0]), None)
        if blind is not None:
            raise UserError(
                f"{run_path} is not the same folder on rank 0 ({hosts[0]}) and on rank {blind} ({hosts[blind]})", hint
            )
    finally:
        with contextlib.suppress(OSError):  # why it could not be written is told already
            mark.unlink(missing_ok=True)


def _unseen(folder: Path, wanted: set[str]) -> set[str]:
    """Those of `wanted` that are still not in `folder` after VISIBLE_WITHIN seconds."""
    end = time.monotonic() + VISIBLE_WITHIN
    while left := wanted - set(os.listdir(folder)):
        if time.monotonic() > end:
            break
        time.sleep(0.2)
    return left
