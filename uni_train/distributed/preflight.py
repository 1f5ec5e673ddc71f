"""What is compared before a run of several processes begins: cards, versions, configuration, code, the run folder."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import Any

from uni_train.config.build import to_plain
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.core.files import sha256_of
from uni_train.distributed.devices import card_name
from uni_train.distributed.ranks import Ranks
from uni_train.run_folder import flat, versions_of

PACKAGES = ("uni_train", "uni_train.data_gen", "uni_train.eval")  # `rglob` follows no symbolic links
VERSIONS_OF = (
    *("unified-train", "torch", "lightning", "deepspeed", "transformers", "diffusers", "peft", "accelerate"),
    *("numpy", "scipy", "safetensors", "tokenizers", "pyarrow", "pillow", "opencv-python-headless"),
)
VISIBLE_WITHIN = 60.0  # seconds until a file that another node has written must be seen; NFS caches folders for a while


def expect_layout(ranks: Ranks, config: RunConfig) -> None:
    """Raises UsageError if the configuration asks for another number of nodes or devices than were started."""
    strategy = config.strategy
    nodes = ranks.world_size // ranks.local_world_size
    if strategy.nodes > 1 and ranks.world_size == 1:
        raise UsageError(
            f"strategy.nodes={strategy.nodes}, but this process was started alone",
            f"Start it with: uni_train launch --nodes {strategy.nodes} --gpus {strategy.devices} --slurm -- fit ...",
        )
    for key, wanted, started in (
        ("nodes", strategy.nodes, nodes),
        ("devices", strategy.devices, ranks.local_world_size),
    ):
        if wanted > 1 and wanted != started and ranks.world_size > 1:
            hint = "Leave strategy.nodes and strategy.devices out: they follow from what is started."
            raise UsageError(f"strategy.{key}={wanted}, but {started} were started", hint)


def preflight(ranks: Ranks, config: RunConfig) -> None:
    """Compare cards, versions, configuration and code of several ranks. Each must call it.

    Raises:
        UserError: on all ranks the same; it names the first rank that differs from rank 0, and in what.
    """
    versions = {f"version of {name}": version for name, version in versions_of(VERSIONS_OF).items()}
    card = {"GPU": card_name(config.strategy.accelerator, ranks.local_rank)}
    own = card | versions | flat(to_plain(config)) | code_hashes()
    hashes = ranks.gather(hashlib.sha256(repr(sorted(own.items())).encode()).hexdigest())
    if len(set(hashes)) == 1:
        return
    everyone: list[tuple[str, Mapping[str, Any]]] = ranks.gather((platform.node(), own))
    rank = next(rank for rank, other in enumerate(hashes) if other != hashes[0])
    (first_host, first), (host, other) = everyone[0], everyone[rank]
    raise UserError(
        f"rank {rank} ({host}) and rank 0 ({first_host}) differ: {difference(first, other)}",
        "Give every node the same cards, packages, code, recipes/, configs/ and command.",
    )


def difference(first: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first three entries that differ, hashes of code by name only."""
    names = [name for name in dict.fromkeys([*first, *other]) if first.get(name) != other.get(name)]

    def shown(name: str) -> str:
        if name.startswith("uni_train/"):
            return name
        return f"{name} {other.get(name, 'absent')}, on rank 0 {first.get(name, 'absent')}"

    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return "; ".join(shown(name) for name in names[:3]) + more


def code_hashes() -> dict[str, str]:
    """Name -> hash of every file of the program's packages: code, templates, prompts, the weights that come with it."""
    hashes = {}
    for package in PACKAGES:
        spec = util.find_spec(package)
        assert spec is not None and spec.submodule_search_locations
        root = Path(next(iter(spec.submodule_search_locations)))
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                hashes[f"{package.replace('.', '/')}/{file.relative_to(root).as_posix()}"] = sha256_of(file)
    return hashes


def expect_shared(ranks: Ranks, file: Path) -> None:
    """Raises UserError unless every rank reads in `file` what rank 0 has written there."""
    written = ranks.from_main(lambda: sha256_of(file))

    def read() -> None:
        end = time.monotonic() + VISIBLE_WITHIN
        while not file.is_file() or sha256_of(file) != written:
            if time.monotonic() > end:
                raise UserError(
                    f"{file.parent} on {platform.node()} is not the folder of rank 0",
                    "All nodes must see one folder at the same path: choose a shared one with out=FOLDER.",
                )
            time.sleep(0.2)

    ranks.on_all(read)
