"""The figures of nano on this machine, as markdown tables: `make bench-nano` (two to four minutes on two cores).

    python bench/nano.py [--only flops,reading,batch,memory,waiting,loop,start] [KEY=VALUE ...]

Every figure stands beside a ratio against a baseline that the same process measured in the same minutes, in turn with
it; times are medians. KEY=VALUE overrides recipes/stars_curriculum.yaml, whose last round gives the training step: its
batch, its replay, its precision, the weights that it trains. The images are the renderer's: nothing is sampled first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.choices import some_of
from bench.markdown import row, table
from bench.timing import Moment, interleaved, machine
from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.registry import get_task
from uni_train.models.bagel.packing import PackedBatch
from uni_train.models.bagel.prefixes import PrefixStore
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Example, Request, UnifiedModel
from uni_train.models.load import build_model
from uni_train.recipes.stars.config import StarsConfig
from uni_train.recipes.stars.finetune import replayed
from uni_train.stages.cpu import prepare_cpu
from uni_train.training.curriculum import Constant
from uni_train.training.steps import Source, StepDataset
from uni_train.training.trained import train_only

ROOT = Path(__file__).resolve().parents[1]
DRAWS = 256  # of each task, to train and to ask with
DTYPES = (torch.float32, torch.bfloat16)
SQUARE = 2048
SIZES = (1, 16, 256)
Table = Iterator[str]


def many(times: int, run: Callable[[], object]) -> Callable[[], None]:
    """What takes too little time to be measured once."""

    def all_of_them() -> None:
        for _ in range(times):
            run()

    return all_of_them


# --- the step -------------------------------------------------------------------------------------------------------


@dataclass
class Workbench:
    """nano and the data of one STARS fine-tuning."""

    config: StarsConfig
    model: UnifiedModel
    sources: Mapping[str, Source]
    schedule: Constant
    requests: Sequence[Request]
    thoughts: Sequence[str]

    @classmethod
    def build(cls, config: StarsConfig) -> Workbench:
        model = build_model(config.model, config.seed)
        model.prepare_training(timestep_shift=config.timestep_shift, text_dropout=config.text_dropout)
        last = config.rounds[-1]
        shares = {last.set_name: 1 - sum(last.replay.values()), **last.replay}
        train_only(model, config.trained)
        sources: dict[str, Source] = replayed(config, model, shares)
        items = []
        for one in config.rounds:
            if one.set_name in shares:
                task = get_task(one.task, config.data.world)
                items = task.generate(DRAWS // task.items_per_draw, one.level, "train", 0)
                sources[one.set_name] = [
                    Example(item.prompt, target=task.render(item, index), noise_draws=config.batch.noise_draws)
                    for index, item in enumerate(items)
                ]
        requests = [Request(item.id, item.prompt, seed=derive_seed(item.id)) for item in items]
        return cls(config, model, sources, Constant(shares), requests, [item.thought for item in items])

    @property
    def data(self) -> StepDataset:
        """One update's."""
        rows = self.config.batch.prompts
        return StepDataset(self.model.collate, self.sources, self.schedule.mixture, rows=rows, updates=1, seed=0)

    def batch(self) -> Sequence[PackedBatch]:
        """One update's packed batches."""
        return self.data[0][0].content

    def forward_backward(self, batch: Sequence[PackedBatch], **options: int) -> None:
        """The loss of a batch and its gradients, in the recipe's precision."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.strategy.precision == "bf16-mixed"):
            loss = self.model.supervised_loss(batch, **options)
            total = loss.ce_sum / loss.ce_tokens.clamp(min=1) + loss.mse_sum / loss.mse_tokens.clamp(min=1)
        self.model.zero_grad()
        total.backward()


# --- (a) products and the step --------------------------------------------------------------------------------------


class Untracked:
    """In place of FlopCounterMode's tracker of modules, which refuses modules whose inputs are frozen."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def flops(nano: Workbench) -> Table:
    """GEMM peak, products of nano's shapes, and the share of the peak that the training step reaches."""
    batch = nano.batch()
    nano.forward_backward(batch)
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = Untracked()  # type: ignore[assignment]
    with counter:
        nano.forward_backward(batch)
    step_flops = counter.get_total_flops()
    precision = nano.config.strategy.precision
    dtype = torch.bfloat16 if precision.startswith("bf16") else torch.float32
    products = [(kind, name, *product) for kind in DTYPES for name, product in _products(nano, batch, kind).items()]
    taken = interleaved(
        7,
        {f"{kind} {name}": many(times, run) for kind, name, _, times, run in products}
        | {"step": lambda: nano.forward_backward(batch)},
    )
    rates = {(kind, name): work * times / taken[f"{kind} {name}"] for kind, name, work, times, _ in products}
    peak = {kind: rates[kind, "square"] for kind in DTYPES}

    yield from table("product", "GFLOP/s, fp32", "of the square", "GFLOP/s, bf16", "of the square")
    for name in dict.fromkeys(name for _, name, *_ in products):
        cells = [
            cell
            for kind in DTYPES
            for cell in (f"{rates[kind, name] / 1e9:.0f}", f"{rates[kind, name] / peak[kind]:.2f}")
        ]
        yield row(_titles(nano, batch)[name], *cells)
    yield ""
    tokens, padded = _tokens(batch)
    yield f"One STARS update: {nano.config.batch.prompts} rows, {nano.config.batch.noise_draws} noise draws each; "
    yield f"{tokens} tokens in {len(batch)} packed batches, {padded / (tokens + padded):.1%} more than that as padding."
    yield ""
    yield from table("training step, forward and backward", "value")
    yield row("matrix products, counted on this batch (padding included)", f"{step_flops / 1e9:.1f} GFLOP")
    yield row(f"seconds, {precision}", f"{taken['step']:.3f}")
    yield row("GFLOP/s", f"{step_flops / taken['step'] / 1e9:.0f}")
    kind = "bf16" if dtype == torch.bfloat16 else "fp32"
    yield row(
        f"**model FLOPs utilisation**, of the {kind} square", f"**{step_flops / taken['step'] / peak[dtype]:.2f}**"
    )


def _shapes(nano: Workbench, batch: Sequence[PackedBatch]) -> tuple[int, int, int, int]:
    """Rows, tokens a row, understanding and generation tokens of the largest packed batch."""
    largest = max(batch, key=lambda part: part.und_id.numel() + part.gen_rope.numel())
    rows, und, gen = *largest.und_id.shape, largest.gen_rope.shape[1]
    return rows, und + gen, rows * und, rows * gen


def _titles(nano: Workbench, batch: Sequence[PackedBatch]) -> dict[str, str]:
    rows, length, und, _ = _shapes(nano, batch)
    sizes = nano.config.model.architecture
    d, hidden, head = sizes.hidden_size, sizes.intermediate_size, sizes.hidden_size // sizes.heads
    return {
        "square": f"square: {SQUARE} x {SQUARE} by {SQUARE} x {SQUARE}",
        "projection": f"q, k, v, o: {und} x {d} by {d} x {d}",
        "up": f"gate, up: {und} x {d} by {d} x {hidden}",
        "down": f"down: {und} x {hidden} by {hidden} x {d}",
        "weight": f"gradient of up's weight: {hidden} x {und} by {und} x {d}",
        "scores": f"attention scores: {rows * sizes.heads} times {length} x {head} by {head} x {length}",
    }


def _products(
    nano: Workbench, batch: Sequence[PackedBatch], dtype: torch.dtype
) -> dict[str, tuple[float, int, Callable[[], object]]]:
    """Name -> FLOPs, how often to run it in one measurement, and the product itself, into memory that is there."""
    rows, length, und, _ = _shapes(nano, batch)
    sizes = nano.config.model.architecture
    d, hidden, head = sizes.hidden_size, sizes.intermediate_size, sizes.hidden_size // sizes.heads
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "square": ((SQUARE, SQUARE), (SQUARE, SQUARE)),
        "projection": ((und, d), (d, d)),
        "up": ((und, d), (d, hidden)),
        "down": ((und, hidden), (hidden, d)),
        "weight": ((hidden, und), (und, d)),
        "scores": ((rows * sizes.heads, length, head), (rows * sizes.heads, head, length)),
    }
    found: dict[str, tuple[float, int, Callable[[], object]]] = {}
    for name, (left, right) in shapes.items():
        a, b = torch.randn(left, dtype=dtype), torch.randn(right, dtype=dtype)
        out = a @ b
        work = 2.0 * math.prod(left) * right[-1]
        times = 1 if name == "square" else max(1, round(1e9 / work))
        found[name] = (work, times, partial(torch.matmul, a, b, out=out))
    return found


def _tokens(batch: Sequence[PackedBatch]) -> tuple[int, int]:
    """Tokens of all packed batches, and padding beside them."""
    real = sum(int(part.und_valid.sum()) + int(part.gen_valid.sum()) for part in batch)
    places = sum(part.und_valid.numel() + part.gen_valid.numel() for part in batch)
    return real, places - real


def reading(nano: Workbench) -> Table:
    """The step with all tokens in one pass, with texts read without gradients, and with texts read before."""
    batch = nano.batch()
    nano.model.read_often(next(nano.data.drawn(0).examples))
    assert isinstance(nano.model, BagelUnified)
    bagel, store = nano.model.bagel, nano.model.bagel.prefixes

    def step(kept: PrefixStore | None, **options: int) -> None:
        bagel.prefixes = kept
        nano.forward_backward(batch, **options)

    steps = {
        "all tokens in one pass": partial(step, None, passes=len(batch)),
        "texts without gradients": partial(step, None),
        "keys and values of texts kept": partial(step, store),
    }
    taken = interleaved(15, steps, "cpu")
    bagel.prefixes = None
    yield from table("training step, forward and backward", "CPU ms", "of one pass")
    for name, seconds in taken.items():
        yield row(name, f"{1e3 * seconds:.0f}", f"{seconds / next(iter(taken.values())):.2f}")


# --- (b) thinking and drawing by batch size -------------------------------------------------------------------------


def batches(nano: Workbench) -> Table:
    """Thoughts and images a second when 1, 16 or 256 are asked for at once."""
    drawn = [
        Request(request.id, request.prompt, thought=thought, seed=request.seed)
        for request, thought in zip(nano.requests, nano.thoughts, strict=True)
    ]
    nano.model.eval()
    taken = interleaved(
        3,
        {f"think {n}": partial(nano.model.think, nano.requests[:n]) for n in SIZES}
        | {f"draw {n}": partial(nano.model.draw, drawn[:n]) for n in SIZES},
    )
    rate = {(use, n): n / taken[f"{use} {n}"] for use in ("think", "draw") for n in SIZES}
    yield from table("batch", "thoughts/s", "of batch 1", "images/s", "of batch 1")
    for n in SIZES:
        cells = [
            text
            for use in ("think", "draw")
            for text in (f"{rate[use, n]:.1f}", f"{rate[use, n] / rate[use, SIZES[0]]:.1f}")
        ]
        yield row(n, *cells)
    yield ""
    yield f"{nano.config.rounds[-1].set_name}; {nano.config.model.sampling.steps} Euler steps, by the exact thought."


# --- (c) memory kept or given back ----------------------------------------------------------------------------------


def memory(nano: Workbench, overrides: Sequence[str]) -> Table:
    """The same work in processes with and without `uni_train.stages.cpu.keep_memory`, in turn."""
    measured: dict[str, list[dict[str, float]]] = {"give": [], "keep": []}
    overrides = [*overrides, f"model.threads={torch.get_num_threads()}"]
    for _ in range(3):
        for how, found in measured.items():
            command = [sys.executable, str(Path(__file__)), "--probe", how, *overrides]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    yield from table("work", "CPU ms, given back", "CPU ms, kept", "times as fast")
    for name in measured["give"][0]:
        give, keep = (statistics.median(one[name] for one in measured[how]) for how in ("give", "keep"))
        yield row(name, f"{1e3 * give:.2f}", f"{1e3 * keep:.2f}", f"{give / keep:.2f}")


def probe(nano: Workbench) -> dict[str, float]:
    """Median CPU seconds (processes cannot be compared in turn as closely) of products that make their own result, and
    of a step."""
    batch = nano.batch()
    rows, length, und, _ = _shapes(nano, batch)
    sizes = nano.config.model.architecture
    d, hidden, head = sizes.hidden_size, sizes.intermediate_size, sizes.hidden_size // sizes.heads
    x, w = torch.randn(und, d), torch.randn(d, hidden)
    q, k = torch.randn(rows * sizes.heads, length, head), torch.randn(rows * sizes.heads, head, length)
    products = {"a product (up)": many(20, lambda: x @ w), "a batched product": many(20, lambda: q @ k)}
    small = interleaved(9, products, "cpu")
    step = interleaved(3, {"forward and backward": lambda: nano.forward_backward(batch)}, "cpu")
    return {name: seconds / 20 for name, seconds in small.items()} | step


# --- (d) threads that wait for each other ---------------------------------------------------------------------------


def waiting(overrides: Sequence[str]) -> Table:
    """A step with as many threads as cores, waiting threads spinning or asleep, alone and beside another process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    command = [sys.executable, str(Path(__file__)), "--probe", "wait", *overrides, f"model.threads={cores}"]
    yield from table("waiting threads", "ms a step, alone", "ms a step, beside one busy process", "times as long")
    # libgomp spins for a long time unless told otherwise; the command line says PASSIVE (uni_train/cli/main.py).
    for name, policy in (("spin", "ACTIVE"), ("sleep (as `uni_train` does)", "PASSIVE")):
        environment = {**os.environ, "OMP_WAIT_POLICY": policy}
        seconds = []
        for neighbours in (0, 1):
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(neighbours)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
            finally:
                for process in busy:
                    process.kill()
                    process.wait()
            seconds.append(json.loads(done.stdout.splitlines()[-1])["step"])
        yield row(name, *(f"{1e3 * one:.0f}" for one in seconds), f"{seconds[1] / seconds[0]:.1f}")


def wait_probe(nano: Workbench) -> dict[str, float]:
    """Median wall seconds of a training step."""
    batch = nano.batch()
    return interleaved(3, {"step": lambda: nano.forward_backward(batch)})


# --- (e) (f) Lightning's loop, and making batches -------------------------------------------------------------------


def loop(nano: Workbench) -> Table:
    """`fit_supervised` against a bare loop over the same updates, and the share of collating in it."""
    from bench import lightning_loop
    from uni_train.config.kinds import Updates

    config = nano.config
    optimizer, strategy = replace(config.optimizer, warmup_updates=2), replace(config.strategy, accelerator="cpu")
    config = replace(config, checkpoint_every=10**6, optimizer=optimizer, strategy=strategy)
    updates = Updates(8, rows=config.batch.prompts)
    own = lightning_loop.compare(nano.model, nano.sources, nano.schedule, config, updates, 3, config.trained)
    empty = lightning_loop.compare(
        lightning_loop.NearlyEmpty(),
        {"rows": [Example("")]},
        Constant({"rows": 1.0}),
        config,
        Updates(200, rows=1),
        repeats=3,
    )
    yield from table("update", "bare, ms", "Lightning, ms", "ratio, wall", "ratio, CPU", "more, CPU ms", "updates each")
    for name, cost in (("nano, STARS", own), ("nearly empty", empty)):
        bare, lightning = (f"{1e3 * one.wall:.1f}" for one in (cost.bare, cost.lightning))
        more = f"{1e3 * (cost.lightning.cpu - cost.bare.cpu):+.1f}"
        yield row(name, bare, lightning, f"{cost.wall_ratio:.3f}", f"{cost.cpu_ratio:.3f}", more, cost.updates)
    yield ""
    yield from table("of nano's bare update", "ms", "share")
    yield row("making the batch (draw rows, encode, collate)", f"{1e3 * own.batch.wall:.1f}",
              f"{own.batch.wall / own.bare.wall:.3f}")  # fmt: skip
    yield row("everything", f"{1e3 * own.bare.wall:.1f}", "1")


# --- (g) start ------------------------------------------------------------------------------------------------------


def start() -> Table:
    """How long a person waits for a command that computes nothing, or little; nothing is cached from an earlier one."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "uni_train --help": ["-m", "uni_train", "--help"],
        "uni_train recipes": ["-m", "uni_train", "recipes"],
        "python -c 'import torch'": ["-c", "import torch"],
        "uni_train fit stars_curriculum --dry-run": ["-m", "uni_train", "fit", "stars_curriculum", "--dry-run"],
        "uni_train generate, a picture of nano": ["-m", "uni_train", "generate", "-m", "nano", "-p", "Draw 2 cups ."],
        "uni_train plan stars_curriculum": ["-m", "uni_train", "plan", "stars_curriculum"],
        "uni_train plan sft model=bagel_7b": ["-m", "uni_train", "plan", "sft", "model=bagel_7b"],
    }
    yield from table("command", "seconds", "CPU s")
    for name, arguments in commands.items():
        with tempfile.TemporaryDirectory() as folder:
            cost = Moment.median(
                [Moment.of_python(arguments, folder, UNI_TRAIN_CACHE="", PYTHONPATH=str(ROOT)) for _ in range(3)]
            )
        yield row(f"`{name}`", f"{cost.wall:.2f}", f"{cost.cpu:.2f}")


# --- all of it ------------------------------------------------------------------------------------------------------

SECTIONS = {
    "flops": "Products, and the training step's share of the peak",
    "reading": "Frozen texts, read anew or kept",
    "batch": "Thinking and drawing",
    "memory": "Memory kept (`uni_train.stages.cpu.keep_memory`) or given back to the system",
    "waiting": "Threads that wait for each other, beside another process",
    "loop": "The Lightning loop",
    "start": "Start",
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--only", type=some_of(SECTIONS), default=",".join(SECTIONS), help="sections, with commas (default: all)"
    )
    made.add_argument("--probe", choices=["keep", "give", "wait"], help=argparse.SUPPRESS)
    made.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of recipes/stars_curriculum.yaml")
    return made


def main() -> None:
    chosen = parser().parse_args()
    try:
        config = compose("stars_curriculum", chosen.overrides)
        assert isinstance(config, StarsConfig)
        if chosen.probe == "give":
            torch.set_num_threads(int(config.model.threads))
        else:
            prepare_cpu(config.model.threads)
        nano = Workbench.build(config)
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    if chosen.probe:
        print(json.dumps(wait_probe(nano) if chosen.probe == "wait" else probe(nano)))
        return
    print(machine())
    began = time.perf_counter()
    for name in chosen.only:
        print(f"\n### {SECTIONS[name]}\n", flush=True)
        made = {
            "flops": lambda: flops(nano),
            "reading": lambda: reading(nano),
            "batch": lambda: batches(nano),
            "memory": lambda: memory(nano, chosen.overrides),
            "waiting": lambda: waiting(chosen.overrides),
            "loop": lambda: loop(nano),
            "start": start,
        }[name]()
        for line in made:
            print(line, flush=True)
    print(f"\nmeasured in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
