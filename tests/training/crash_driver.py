"""Trains the toy model; as a program: in a child process that is killed again and again until the fit is done.

    python -m tests.training.crash_driver FOLDER KILLS

Each child is a fork of this process after its imports, so a try costs milliseconds; SIGKILL falls at random moments.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.training.keys import given
from tests.training.toy_model import ToyModel, toy_examples
from uni_train.training.curriculum import Curriculum, Level, Threshold
from uni_train.training.fit import FitResult, fit_supervised

GIVEN = given(
    updates=60,
    rows=12,
    lr=1e-2,
    weight_decay=0.1,
    warmup_updates=5,
    decay="cosine",
    checkpoint_every=7,
    log_every=4,
    ema=0.9,
    seed=11,
)


def curriculum() -> Curriculum:
    """The one whose state matters most: levels end when the loss on held-out rows is low enough."""
    levels = [Level({name: 1.0, "base": 0.25}, "accuracy", 0.47, 25) for name in ("easy", "middle", "hard")]
    return Threshold(levels, check_every=5)


def train(directory: Path, **changes) -> tuple[ToyModel, FitResult]:
    model = ToyModel(dropout=0.2)
    held_out = model.collate(toy_examples(64, 99), 0)

    def evaluate(step: int) -> Mapping[str, float]:
        assert not model.training and not torch.is_grad_enabled()
        loss = model.supervised_loss(held_out)
        return {"accuracy": 1 / (1 + float(loss.ce_sum / loss.ce_tokens)), "weights": float(model.head.weight.sum())}

    sources = {name: toy_examples(40, seed) for seed, name in enumerate(("easy", "middle", "hard", "base"))}
    options = GIVEN | {"evaluate": evaluate, "progress": False} | changes
    result = fit_supervised(model, sources, curriculum(), directory=directory, **options)
    return model, result


def newest(directory: Path) -> int:
    """The update of the newest checkpoint, 0 without one."""
    return max((int(path.name.split("=")[1]) for path in (directory / "checkpoints").glob("step=*")), default=0)


def main(directory: Path, kills: int) -> None:
    moments = random.Random(0)
    while True:
        child = os.fork()
        if child == 0:
            with contextlib.redirect_stdout(sys.stderr):
                model, result = train(directory)
            save_file(model.state_dict(), directory / "final.safetensors")
            os._exit(0 if result.updates == GIVEN["updates"].total else 3)
        if kills:
            kills -= 1
            wanted = newest(directory) + moments.randrange(2)  # one checkpoint more than there is, or none
            while newest(directory) < wanted and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                time.sleep(0.002)
            time.sleep(moments.uniform(0.0, 0.03))
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, len(list((directory / "checkpoints").glob("step=*"))), flush=True)
        if status not in (0, -signal.SIGKILL):
            sys.exit(status)
        if status == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
