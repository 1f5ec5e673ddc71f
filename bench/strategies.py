"""The strategies beside DDP: layers of nano trained under each of them, on the same ranks from the same weights.

    python bench/strategies.py                      two ranks, 20 updates, on the CPU
    python bench/strategies.py --ranks 4 --rows 32 --layers 8

Prints for each strategy the largest relative difference of an update's loss from DDP's, the largest difference of a
final weight, and seconds an update (the median, without the first two). A difference beyond rounding ends it with an
error. Rows are of all kinds that nano was pretrained on, so ranks have unlike work: images shown or not, several
forward passes or one. The time is that of communication and bookkeeping: nano is far too small to gain anything.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

STRATEGIES = ("ddp", "deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3", "fsdp2")
ROUNDING = 1e-5
"""Largest relative difference of a loss that counts as rounding."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rows", type=int, default=4, help="of an update, on all ranks")
    parser.add_argument("--layers", type=int, default=2, help="of the decoder, with random weights")
    parser.add_argument("--precision", default="32-true", choices=("32-true", "bf16-mixed", "bf16-true"))
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, help="the first one is compared with")
    arguments = parser.parse_args()
    if "RANK" not in os.environ:
        from torch.distributed.run import main as torchrun

        torchrun(["--standalone", "--nproc-per-node", str(arguments.ranks), __file__, *sys.argv[1:]])
        return
    from uni_train.distributed.ranks import Ranks, joined

    ranks = Ranks.from_environment()
    with joined(ranks), tempfile.TemporaryDirectory() as own:
        place = Path(ranks.gather(own)[0])
        if not measure(ranks, place, arguments):
            sys.exit(1)


def measure(ranks: Any, place: Path, arguments: argparse.Namespace) -> bool:
    """Train under each strategy and print its line on the first rank; whether all differences are rounding."""
    import torch

    torch.set_num_threads(1)
    first: tuple[list[float], dict[str, torch.Tensor]] | None = None
    fine = True
    if ranks.is_main:
        asked = f"{arguments.updates} updates of {arguments.rows} rows, {arguments.layers} layers"
        print(f"{ranks.world_size} ranks, {asked}, {arguments.precision}\n")
        print(f"{'strategy':<17}{'loss':>10}{'weights':>10}{'s/update':>10}{'s in all':>10}")
    for strategy in arguments.strategies:
        began = time.perf_counter()
        losses, weights, seconds = train(place / strategy, strategy, arguments)
        first = first or (losses, weights)
        loss = max(abs(one - other) / abs(one) for one, other in zip(first[0], losses, strict=True))
        weight = max(float((value - weights[name]).abs().max()) for name, value in first[1].items())
        fine &= loss <= ROUNDING or arguments.precision != "32-true"
        if ranks.is_main:
            print(f"{strategy:<17}{loss:>10.1e}{weight:>10.1e}{seconds:>10.3f}{time.perf_counter() - began:>10.1f}")
            sys.stdout.flush()
    return fine


def train(place: Path, strategy: str, arguments: argparse.Namespace) -> tuple[list[float], dict[str, Any], float]:
    """Losses, final weights and median seconds of an update."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import Callback

    from uni_train.config.compose import compose
    from uni_train.config.kinds import Updates
    from uni_train.config.schema import OptimizerConfig, StrategyConfig, TrainingConfig
    from uni_train.models.load import build_model
    from uni_train.training.curriculum import Constant
    from uni_train.training.fit import fit_supervised
    from uni_train.training.supervised import FitOptions

    class Clock(Callback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            self.ends.append(time.perf_counter())

    sizes = [f"model.architecture.layers={arguments.layers}", "model.architecture.vit_layers=1"]
    model = build_model(compose("stars_curriculum", ["model.checkpoint=null", *sizes]).model)
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0)
    rows = model.replay_rows(())
    assert rows is not None
    config = TrainingConfig(
        optimizer=OptimizerConfig(lr=1e-3, weight_decay=0.01, clip=1.0),
        checkpoint_every=arguments.updates,
        strategy=StrategyConfig(kind=strategy, precision=arguments.precision, accelerator="cpu"),  # type: ignore[arg-type]
    )
    clock = Clock()
    result = fit_supervised(
        model,
        {name: source for name, (_, source) in rows.items()},
        Constant({name: share for name, (share, _) in rows.items()}),
        config,
        Updates(arguments.updates, rows=arguments.rows),
        place,
        FitOptions(progress=False),
        callbacks=[clock],
    )
    times = [after - before for before, after in zip(clock.ends[1:], clock.ends[2:], strict=False)]
    weights = {name: value.detach().float().clone() for name, value in model.state_dict().items()}
    return result.losses, weights, statistics.median(times)


if __name__ == "__main__":
    main()
