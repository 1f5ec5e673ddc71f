"""Trains small models on ranks and in processes that are killed, one training after the other.

    python -m tests.training.driver OUT '[{"name": "two", "does": "fit", "ranks": 2, "keys": {"updates": 6}}, ...]'

Every rank is a fork of this process after its imports. A step trains in OUT/NAME with `keys` as one of FITS does, and
every rank leaves its weights there as final-RANK.safetensors. "poison": an update whose gradient is NaN.
"tell": [rank, update, signal] sends a rank a signal in
the middle of an update, "after" one to all of them when the fit has ended; "bytes": [rank, most] of any file of it.
"does": "crash" trains in a process that is killed again and again until it ends ("kills" times).

OUT/reports.json tells of each step what `tests.ranks.on_ranks` reports, its name, and which checkpoints are left.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests.models.bagel.test_examples import ASKED, CHAIN, DRAWN, EDIT
from tests.ranks import on_ranks
from tests.training.flow_grpo.toy import GRPO as TOY
from tests.training.flow_grpo.toy import PROMPTS, SOLVED, ToyFlow
from tests.training.keys import changed, given
from tests.training.toy_model import WIDTH, ToyBatch, ToyModel, toy_examples
from uni_train.config.compose import compose
from uni_train.config.schema import LoraConfig
from uni_train.distributed.preemption import preemptible
from uni_train.distributed.ranks import Ranks, joined
from uni_train.models.load import build_model
from uni_train.models.weights import mapped
from uni_train.rewards.contract import Reward
from uni_train.training.curriculum import Constant, Level, Threshold
from uni_train.training.fit import FitResult, fit_supervised
from uni_train.training.flow_grpo.config import SolvedRowsConfig
from uni_train.training.flow_grpo.rollout import Sampling
from uni_train.training.flow_grpo.trainer import fit_flow_grpo
from uni_train.training.lora import adapted
from uni_train.training.supervised import FitOptions, SupervisedModule

SETTINGS: dict[str, Any] = {
    "updates": 6, "rows": 24, "lr": 3e-3, "weight_decay": 0.1, "clip": 0.5, "accumulate": 4,
    "checkpoint_every": 5, "keep": 9,
}  # fmt: skip
GRPO = changed(
    TOY, kl=0.01, clip_low=0.1, clip_high=0.1, eps=1e-3, sft=SolvedRowsConfig(path="rows.jsonl", rows=5, weight=0.1)
)
CRASHING = given(
    updates=60, rows=12, lr=1e-2, weight_decay=0.1, warmup_updates=5, decay="cosine", checkpoint_every=7, log_every=4,
    ema=0.9, seed=11, progress=False,
)  # fmt: skip
BAGEL_ROWS = [EDIT, CHAIN, ASKED, DRAWN]


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

    def hidden(self, batch: ToyBatch) -> Tensor:
        x = torch.relu(self.body((self.vae(batch.x) + 0.1 * batch.noise).to(self.head.weight.dtype)))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.norm(x)


def fit(out: Path, callbacks: Any = (), **keys: Any) -> Stack:
    model = Stack()
    asked = given(progress=False, callbacks=callbacks, **(SETTINGS | keys))
    fit_supervised(model, {"rows": toy_examples(64, 0)}, Constant({"rows": 1.0}), directory=out, **asked)
    return model


def again(out: Path, kinds: list[str], **keys: Any) -> Stack:
    """Under one strategy after the other in this process, weights in OUT/number.safetensors; returns the last model."""
    for number, kind in enumerate(kinds):
        model = fit(out / str(number), kind=kind, **keys)
        save_file(model.state_dict(), out / f"{number}.safetensors")
    return model


def lit(prompts: list[str], completions: list[np.ndarray], **_: Any) -> list[float]:
    """Bright enough, or not at all: most groups teach nothing, and ranks have unlike numbers of pictures to learn."""
    return [float(image.mean() > 150) for image in completions]


def grpo(out: Path, trained: str = "all", **keys: Any) -> ToyFlow:
    model = ToyFlow()
    looks = lambda step: {"held_out": float(model.read.weight.sum())}  # noqa: E731
    lora = adapted(model, LoraConfig(rank=2, targets="re:body"), 0)
    with lora if trained == "lora" else nullcontext():
        fit_flow_grpo(
            model, Sampling(PROMPTS, [Reward("it", lit)]), changed(GRPO, **keys), out,
            FitOptions(stage="grpo", trained=trained, progress=False, keep=9, log_every=1),
            evaluate=looks, evaluate_every=1, sft_rows=SOLVED,
        )  # fmt: skip
    return model


def bagel(out: Path, checkpoint: str, model: Any = None, **keys: Any) -> Any:
    """One update; with Adam's epsilon far above the gradients it is a step along them."""
    model = model or build_model(compose("sft", [f"model.checkpoint={checkpoint}"]).model)
    model.prepare_training(timestep_shift=4.0, text_dropout=0.0)
    asked = given(updates=1, tokens=150, rows=1, lr=1.0, eps=1e3, clip=0.0, ce_weight=0.25, seed=2, **keys)
    fit_supervised(model, {"rows": BAGEL_ROWS}, Constant({"rows": 1.0}), directory=out, **asked)
    return model


def dpo(out: Path, trained: str = "all", **keys: Any) -> Any:
    """Two updates on pairs and a replayed row of a tiny nano, as tests/training/test_dpo.py makes them."""
    from tests.training.test_dpo import fit as preferred
    from tests.training.test_dpo import nano

    model, small = nano(), {"updates": 2, "lr": 1.0, "eps": 1e3, "clip": 0.0}  # as `bagel`
    lora = adapted(model, LoraConfig(rank=2), 0)
    with lora if trained == "lora" else nullcontext():
        preferred(out, model, trained, replayed=trained == "all", **small, **keys)
    return model


class Held(TorchDispatchMode):
    """Bytes of tensors in memory of their own, not in a mapped file: how many now, and at most."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.now = self.most = 0
        lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        spans = [line[0].split("-") for line in lines if line[-1].endswith(".safetensors")]
        weights = [weight.untyped_storage() for weight in model.state_dict().values()]
        in_files = [one for one in weights if any(int(a, 16) <= one.data_ptr() < int(b, 16) for a, b in spans)]
        self.seen = {one.data_ptr() for one in in_files}
        for one in weights:
            self.see(one)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and not isinstance(leaf, DTensor) and not leaf.is_meta:
                self.see(leaf.untyped_storage())
        return out

    def see(self, storage: torch.UntypedStorage) -> None:
        size, place = storage.nbytes(), storage.data_ptr()
        if size and place not in self.seen:
            self.seen.add(place)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self.gone, place, size)

    def gone(self, place: int, size: int) -> None:
        self.seen.discard(place)
        self.now -= size


def loaded(out: Path, checkpoint: str, **keys: Any) -> Any:
    """As `bagel`, with weights that stay in their file until they are sharded; says what was held until then."""
    with mapped():
        model = build_model(compose("sft", [f"model.checkpoint={checkpoint}"]).model)
    held, optimizers = Held(model), SupervisedModule.configure_optimizers

    def after_sharding(module: SupervisedModule) -> Any:
        SupervisedModule.configure_optimizers = optimizers  # type: ignore[method-assign]
        held.__exit__(None, None, None)
        (out / f"held-{module.global_rank}.json").write_text(json.dumps(held.most))
        return optimizers(module)

    SupervisedModule.configure_optimizers = after_sharding  # type: ignore[method-assign]
    held.__enter__()
    return bagel(out, checkpoint, model, **keys)


FITS: dict[str, Callable[..., nn.Module]] = {"fit": fit, "again": again, "grpo": grpo, "bagel": bagel, "loaded": loaded}
FITS["dpo"] = dpo


class Tell(Callback):
    """Sends this process a signal in the middle of an update."""

    def __init__(self, at: int, number: int) -> None:
        self.at, self.number = at, number

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch.step == self.at and not batch.micro:
            os.kill(os.getpid(), self.number)


class Poison(Callback):
    """The gradient of an update (from 1) holds a NaN, though its loss is finite."""

    def __init__(self, update: int, layer: str = "norm") -> None:
        self.update, self.layer = update, layer

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch.step == self.update - 1 and batch.last:
            layer = pl_module.model.get_submodule(self.layer)
            spoilt = lambda gradient: gradient.index_fill(-1, torch.tensor([0]), float("nan"))  # noqa: E731
            layer.register_forward_hook(lambda module, args, out: out.register_hook(spoilt) and None)


def train(step: dict[str, Any], out: Path, rank: int) -> None:
    keys = dict(step["keys"])
    if "poison" in step:
        keys["callbacks"] = [Poison(step["poison"])]
    if "tell" in step and step["tell"][0] == rank:
        keys["callbacks"] = [Tell(*step["tell"][1:])]
    if "bytes" in step and rank == step["bytes"][0]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (step["bytes"][1],) * 2)
    (out / f"final-{rank}.safetensors").unlink(missing_ok=True)
    with joined(Ranks.from_environment()), preemptible({}):
        model = FITS[step["does"]](out, **keys)
        if not next(model.parameters()).is_meta:
            save_file(model.state_dict(), out / f"final-{rank}.safetensors")
        if "after" in step:
            os.kill(os.getpid(), step["after"])
            raise AssertionError("a signal outside of a fit ends the run at once")


# --- killed again and again -------------------------------------------------------------------------------------------


def train_crashing(directory: Path) -> tuple[ToyModel, FitResult]:
    """With dropout, and the curriculum whose state matters most: levels end when the loss on held-out rows is low."""
    model = ToyModel(dropout=0.2)
    held_out = model.collate(toy_examples(64, 99), 0)

    def evaluate(step: int) -> Mapping[str, float]:
        assert not model.training and not torch.is_grad_enabled()
        loss = model.supervised_loss(held_out)
        return {"accuracy": 1 / (1 + float(loss.ce_sum / loss.ce_tokens)), "weights": float(model.head.weight.sum())}

    sources = {name: toy_examples(40, seed) for seed, name in enumerate(("easy", "middle", "hard", "base"))}
    levels = [Level({name: 1.0, "base": 0.25}, "accuracy", 0.47, 25) for name in ("easy", "middle", "hard")]
    curriculum = Threshold(levels, check_every=5)
    result = fit_supervised(model, sources, curriculum, directory=directory, evaluate=evaluate, **CRASHING)
    return model, result


def newest(directory: Path) -> int:
    """The update of the newest checkpoint, 0 without one."""
    return max((int(path.name.split("=")[1]) for path in (directory / "checkpoints").glob("step=*")), default=0)


def crash(directory: Path, kills: int) -> dict[str, Any]:
    """SIGKILL at random moments: just after a start, or after a checkpoint more than there was."""
    moments, codes = random.Random(0), list[int]()
    while not codes or codes[-1] == -signal.SIGKILL:
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)
            model, result = train_crashing(directory)
            save_file(model.state_dict(), directory / "final-0.safetensors")
            os._exit(0 if result.updates == CRASHING["updates"].total else 3)
        if kills:
            kills -= 1
            wanted = newest(directory) + moments.randrange(2)
            while newest(directory) < wanted and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                time.sleep(0.002)
            time.sleep(moments.uniform(0.0, 0.03))
            os.kill(child, signal.SIGKILL)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return {"codes": codes}


def main(out: Path, steps: list[dict[str, Any]]) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs are born ignoring it
    compose("sft")  # imports more
    if importlib.util.find_spec("deepspeed"):
        import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401  (every rank would import it for seconds)
    reports = []
    for step in steps:
        folder = out / step["name"]
        if step["does"] == "crash":
            report = crash(folder, step["kills"])
        else:
            report = on_ranks(folder, step["ranks"], lambda rank, at=folder, step=step: train(step, at, rank))
        saved = sorted(path.name for path in folder.glob("checkpoints/*"))
        reports.append(report | {"name": step["name"], "saved": saved})
    (out / "reports.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
