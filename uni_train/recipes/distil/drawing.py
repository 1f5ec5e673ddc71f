"""What the teacher draws by its kept thoughts: trajectories of latents, a file of tensors a batch.

Nothing is decoded or judged. A trajectory depends on (run seed, prompt, candidate) alone.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from uni_train.files import atomic_path
from uni_train.flow.distillation import trajectory
from uni_train.models.base import Request
from uni_train.recipes.distil.config import DistilConfig
from uni_train.stages.work import StageRun, Work, in_batches

STATES = "states"


def run(work: Work[DistilConfig], stage: StageRun, told: list[Request]) -> None:
    """Draw what the teacher is told; with states=noised only the clean latents are kept."""
    config = work.config
    teacher = work.model(None if config.teacher == "start" else work.weights)
    size = config.model.draw_batch
    batches = [batch for _, batch in in_batches(told, size)]
    done = work.ranks.from_main(lambda: {i for i in range(len(batches)) if _file(stage.shards, i).is_file()})
    stage.shards.mkdir(parents=True, exist_ok=True)
    mine = work.share(len(batches), done)
    with (
        work.bar("draw", sum(len(batches[i]) for i in mine), sum(len(batches[i]) for i in done)) as bar,
        teacher.guided_at(config.guidance),
        torch.no_grad(),
    ):
        for index in mine:
            requests = batches[index]
            condition = teacher.encode(requests)
            schedule = teacher.schedule(condition).to(teacher.device)
            way = trajectory(partial(teacher.velocity, condition=condition), teacher.noise(requests), schedule)
            kept = way if config.states == "teacher" else way[:, -1:]
            with atomic_path(_file(stage.shards, index)) as temporary:
                save_file({STATES: kept.cpu().contiguous()}, temporary)
            bar.advance(len(requests))
    work.ranks.barrier()
    stage.result = {"images": len(told), "velocities": len(told) * config.model.sampling.steps}
    stage.outputs = sorted(stage.shards.glob("*.safetensors"))


class Drawn:
    """Trajectories of a finished stage, float32 [S, G, C] each, read when they are asked for."""

    def __init__(self, shards: Path, size: int) -> None:
        self.shards, self.size = shards, size

    def __getitem__(self, row: int) -> Tensor:
        index, place = divmod(row, self.size)
        with safe_open(str(_file(self.shards, index)), "pt") as file:
            return file.get_slice(STATES)[place]


def _file(shards: Path, index: int) -> Path:
    return shards / f"{index:05d}.safetensors"
