"""One rank of test_checkpoint.py: a meta model is sharded, read, used, and saved whole again.

Prints the loss of an example and the bytes that this rank has read.

python -m tests.models.bagel.sharded_driver FOLDER OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from uni_train.models.bagel import checkpoint
from uni_train.models.bagel.checkpoint import PublishedBagel
from uni_train.models.base import Example
from uni_train.models.load import model_config
from uni_train.models.weights import Weights


@torch.no_grad()
def loss_of(model: PublishedBagel) -> float:
    """Of one text-to-image example."""
    target = np.zeros((model.image_size, model.image_size, 3), np.uint8)
    return float(model.supervised_loss(model.collate([Example("a cat", target=target, seed=1)], 0)).mse_sum)


def main(folder: Path, out: Path) -> None:
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    model = checkpoint.build_on_meta(model_config(str(folder)))
    for layer in model.bagel.language_model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model.bagel, mesh=mesh)

    read = 0
    plain = Weights.read

    def counted(self: Weights, name: str, rows: slice | None = None) -> torch.Tensor:
        nonlocal read
        value = plain(self, name, rows)
        if self.files[0].name == "ema.safetensors":
            read += value.numel() * value.element_size()
        return value

    Weights.read = counted  # type: ignore[method-assign]
    checkpoint.load(model, folder)
    kept = sum(value.to_local().numel() for value in model.bagel.parameters())  # type: ignore[attr-defined]
    assert kept < 0.55 * sum(value.numel() for value in model.bagel.parameters())
    checkpoint.save(model, out)
    loss = loss_of(model)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    print(loss, read)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
