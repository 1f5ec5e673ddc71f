"""Trains the toy model on ranks that are told to end: `python -m tests.distributed.preempted_driver FOLDER`.

Ranks are forks of this process after its imports. Prints a JSON line a run: exit codes, checkpoints, what was said.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from safetensors.torch import save_file

from tests.training.keys import given
from tests.training.toy_model import ToyModel, toy_examples
from uni_train.addresses import held_port
from uni_train.distributed.preemption import preemptible
from uni_train.distributed.ranks import Ranks, joined
from uni_train.training.curriculum import Constant
from uni_train.training.fit import fit_supervised

UPDATES = 40


class Tell(Callback):
    """Sends this process a signal in the middle of an update."""

    def __init__(self, at: int, number: signal.Signals) -> None:
        self.at, self.number = at, number

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch.step == self.at:
            os.kill(os.getpid(), self.number)


def train(ranks: Ranks, folder: Path, tell: list[Callback]) -> None:
    asked = given(
        updates=UPDATES,
        rows=8,
        lr=1e-2,
        checkpoint_every=15,
        log_every=4,
        seed=3,
        ema=0.9,
        devices=ranks.world_size,
        accelerator="cpu",
    )
    model = ToyModel()
    with joined(ranks), preemptible({}):
        fit_supervised(
            model,
            {"rows": toy_examples(40, 1)},
            Constant({"rows": 1.0}),
            directory=folder,
            progress=False,
            **asked,
            callbacks=tell,
        )
        if ranks.is_main:
            save_file(model.state_dict(), folder / "final.safetensors")
        if ranks.world_size == 1 and tell:
            os.kill(os.getpid(), signal.SIGTERM)  # outside of a fit
            raise AssertionError("a signal outside of a fit ends the run at once")


def run(folder: Path, ranks: int, tell: dict[int, Callback]) -> None:
    folder.mkdir(exist_ok=True)
    with held_port() as port:
        codes = _run(folder, ranks, tell, port)
    saved = sorted(path.name for path in (folder / "checkpoints").glob("step=*"))
    said = [(folder / f"said{rank}").read_text() for rank in range(ranks)]
    print(json.dumps({"codes": codes, "saved": saved, "said": said}), flush=True)


def _run(folder: Path, ranks: int, tell: dict[int, Callback], port: int) -> list[int]:
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
            os.environ |= {"LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            os.dup2(os.open(folder / f"said{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
            try:
                train(Ranks.from_environment(), folder, [tell[rank]] if rank in tell else [])
            except SystemExit as end:
                os._exit(int(end.code or 0))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(99)
            os._exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main() -> None:
    folder = Path(sys.argv[1])
    run(folder / "unbroken", 2, {})
    run(folder / "told", 2, {1: Tell(21, signal.SIGUSR1)})
    run(folder / "told", 2, {})
    run(folder / "alone", 1, {0: Tell(9, signal.SIGTERM)})
    run(folder / "alone", 1, {0: Tell(29, signal.SIGUSR1)})  # an update that is saved anyway
    run(folder / "alone", 1, {0: Tell(1000, signal.SIGUSR1)})
    run(folder / "interrupted", 2, {1: Tell(9, signal.SIGINT)})


if __name__ == "__main__":
    main()
