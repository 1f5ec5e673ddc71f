"""The teacher's sampling trajectories under its kept thoughts: latents, one safetensors file per batch.

Nothing is decoded or judged. A trajectory depends on (run seed, prompt, candidate) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from uni_train.core.files import atomic_path
from uni_train.models.base import FlowPolicy, Request, expect_skill
from uni_train.recipes.distil.config import DistilConfig
from uni_train.recipes.distil.thinking import sampler
from uni_train.stages.work import StageRun, Work, in_batches
from uni_train.training.distillation import Trajectory, trajectories

STATES, LEVELS = "states", "levels"


def run(work: Work[DistilConfig], stage: StageRun, requests: Sequence[Request]) -> None:
    """Sample the teacher's trajectories for its requests; unless states=teacher, store only the clean latents."""
    config = work.config
    teacher = expect_skill(sampler(work), FlowPolicy)
    batches = [batch for _, batch in in_batches(range(len(requests)), config.model.draw_batch)]
    done = work.ranks.from_main(lambda: {i for i in range(len(batches)) if _file(stage.shards, i).is_file()})
    stage.shards.mkdir(parents=True, exist_ok=True)
    mine = work.share(len(batches), done)
    with (
        work.bar("draw", sum(len(batches[i]) for i in mine), sum(len(batches[i]) for i in done)) as bar,
        teacher.guided_at(config.guidance),
    ):
        for index in mine:
            states, levels = trajectories(teacher, [requests[row] for row in batches[index]])
            if config.states != "teacher":
                states, levels = states[:, -1:], levels[:, -1:]
            with atomic_path(_file(stage.shards, index)) as temporary:
                save_file({STATES: states.cpu().contiguous(), LEVELS: levels.contiguous()}, temporary)
            bar.advance(len(batches[index]))
    work.ranks.barrier()
    stage.result = {"images": len(requests), "velocities": len(requests) * config.model.sampling.steps}
    stage.outputs = sorted(stage.shards.glob("*.safetensors"))


class StoredTrajectories:
    """Trajectories of a finished stage, read when they are asked for."""

    def __init__(self, shards: Path, size: int) -> None:
        self.shards, self.size = shards, size

    def __getitem__(self, row: int) -> Trajectory:
        index, place = divmod(row, self.size)
        with safe_open(str(_file(self.shards, index)), "pt") as file:
            return Trajectory(file.get_slice(STATES)[place], file.get_slice(LEVELS)[place])


def _file(shards: Path, index: int) -> Path:
    return shards / f"{index:05d}.safetensors"
