"""What tests/training/test_strategies.py runs on each rank, one program for all its checks, because starting one takes
longer than what it does: python -m tests.training.strategies_driver OUT COMMAND..., the ranks from the environment.

    fit:NAME:key=value,...     a supervised fit in OUT/NAME of a small stack, weights to OUT/NAME/final.safetensors
    grpo:NAME:key=value,...    a reinforced one of a toy
    full:NAME:key=value,...    a fit whose first rank has no room for a checkpoint; must be the last
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.training.flow_grpo.test_ranks import GRPO, lit
from tests.training.flow_grpo.toy import PROMPTS, SOLVED, ToyFlow
from tests.training.keys import changed, given
from tests.training.toy_model import WIDTH, ToyBatch, ToyModel, toy_examples
from uni_train.addresses import held_port
from uni_train.config.schema import LoraConfig
from uni_train.distributed.ranks import Ranks, joined
from uni_train.errors import UserError
from uni_train.rewards.contract import Reward
from uni_train.training.curriculum import Constant
from uni_train.training.fit import fit_supervised
from uni_train.training.flow_grpo.trainer import fit_flow_grpo
from uni_train.training.lora import adapted

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "updates": 20, "rows": 24, "lr": 3e-3, "weight_decay": 0.1, "clip": 0.5, "accumulate": 4, "accelerator": "cpu",
    "checkpoint_every": 5, "keep": 9,
}  # fmt: skip


class Block(nn.Module):
    """A layer with parts of its own, which FSDP2 takes for a unit."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 16)
        self.still = nn.Parameter(torch.full((16,), 0.5), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.still * self.down(torch.tanh(self.up(x)))


class Stack(ToyModel):
    """The toy with layers, weights that nobody trains and a VAE; recomputes its layers; any precision."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.layers = nn.ModuleList(Block() for _ in range(3))
            self.vae = nn.Linear(WIDTH, WIDTH).requires_grad_(False)

    def supervised_loss(self, batch: ToyBatch) -> SimpleNamespace:
        kind = self.head.weight.dtype
        x = torch.relu(self.body((self.vae(batch.x) + 0.1 * batch.noise).to(kind)))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        hidden = self.norm(x)
        ce = nn.functional.cross_entropy(self.head(hidden).float(), batch.labels, reduction="none")
        mse = (self.out_moe_gen(hidden).float() - batch.noise).square()
        return SimpleNamespace(
            ce_sum=(ce * batch.text).sum(),
            ce_tokens=batch.text.sum(),
            mse_sum=(mse * batch.image[:, None]).sum(),
            mse_tokens=batch.image.sum() * WIDTH,
        )


def fit(out: Path, **changes: Any) -> Stack:
    model = Stack()
    asked = given(progress=False, **(SETTINGS | _named(changes)))
    fit_supervised(model, {"rows": toy_examples(64, 0)}, Constant({"rows": 1.0}), directory=out, **asked)
    return model


def grpo(out: Path, **changes: Any) -> ToyFlow:
    model = ToyFlow()
    trained = changes.pop("trained", "all")
    looks = lambda step: {"held_out": float(model.read.weight.sum())}  # noqa: E731
    lora = adapted(model, LoraConfig(rank=2, targets="re:body"), 0)
    with lora if trained == "lora" else nullcontext():
        fit_flow_grpo(
            model, PROMPTS, [Reward("it", lit)], changed(GRPO, **({"kl": 0.0} | _named(changes))), out,
            trained=trained, evaluate=looks, evaluate_every=1, progress=False, keep=9, log_every=1, sft_rows=SOLVED,
        )  # fmt: skip
    return model


def _named(changes: dict[str, Any]) -> dict[str, Any]:
    """`strategy` of a command is the kind of one."""
    return {"kind" if name == "strategy" else name: value for name, value in changes.items()}


def full(ranks: Ranks, out: Path, changes: dict[str, Any]) -> None:
    """The first rank cannot write files of more than two kilobytes."""
    if ranks.is_main:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
    try:
        fit(out, **changes)
    except UserError as error:
        print(error.message, error.hint)


def main(ranks: Ranks, out: Path, commands: list[str]) -> None:
    torch.set_num_threads(1)
    with joined(ranks):
        for command in commands:
            kind, name, given = command.split(":")
            changes = {key: _value(value) for key, value in (one.split("=") for one in given.split(",") if one)}
            if kind == "full":
                full(ranks, out / name, changes)
                continue
            model = {"fit": fit, "grpo": grpo}[kind](out / name, **changes)
            save_file(model.state_dict(), out / name / f"final-{ranks.rank}.safetensors")


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def start(ranks: int, out: Path, commands: list[str]) -> list[subprocess.CompletedProcess[str]]:
    """Run the commands on so many ranks; how each ended."""
    running = []
    with held_port() as port:
        for rank in range(ranks):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
            environment = os.environ | {key: str(value) for key, value in place.items()}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "tests.training.strategies_driver", str(out), *commands]
            running.append(
                subprocess.Popen(
                    command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
        said = [process.communicate()[0] for process in running]
    return [
        subprocess.CompletedProcess(one.args, one.returncode, text) for one, text in zip(running, said, strict=True)
    ]


if __name__ == "__main__":
    main(Ranks.from_environment(), Path(sys.argv[1]), sys.argv[2:])
