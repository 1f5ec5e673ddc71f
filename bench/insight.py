"""What watching attention costs while a model draws: time and memory, on and off.

    python bench/insight.py [--rounds 12] [--rows 64] [--side 256]

nano    the shipped checkpoint, by the thoughts of mapping items of levels 2 and 3, one thread, seconds of CPU time: the
        three ways in turn, `rounds` times; the median of each round's ratio, so that a machine that is busy slows down
        both of a pair alike
bagel   random BAGEL weights of a realistic shape (head width 128, grouped keys), bfloat16 on a GPU, else float32

Off: before the hooks were ever put on. Again: after they were taken off. Memory is the most that is resident while it
draws, in a process of its own each (on a GPU: the most that is allocated).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench.markdown import row, table
from bench.timing import MB, forget_peak, resident
from uni_train.data_gen.registry import get_task
from uni_train.models.bagel.hooks import draw_with_attention
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Request
from uni_train.models.load import build_model, model_config

MOST_TIME, MOST_MEMORY = 0.15, 0.10


def nano(level: int, rows: int) -> tuple[BagelUnified, list[Request]]:
    """The shipped nano and requests with the exact thoughts of mapping items."""
    model = build_model(model_config("shipped"))
    assert isinstance(model, BagelUnified)
    items = get_task("mapping", "nano").generate(rows // 2, level, "test", 0)
    return model, [Request(item.id, item.prompt, thought=item.thought, seed=1) for item in items]


def bagel(side: int) -> tuple[BagelUnified, list[Request]]:
    """A nano whose decoder has BAGEL's head width and ratio of heads, and an image of `side` / 8 squared tokens."""
    config = model_config("nano")
    sizes = replace(
        config.architecture,
        hidden_size=1024,
        intermediate_size=2816,
        layers=8,
        heads=8,
        kv_heads=2,
        image_size=side,
    )
    sampling = replace(config.sampling, steps=2)
    model = build_model(replace(config, architecture=sizes, sampling=sampling, checkpoint=None), seed=0)
    assert isinstance(model, BagelUnified)
    if torch.cuda.is_available():
        model = model.to("cuda", torch.bfloat16)
    prompt = "A means cup . Draw what A means ."
    return model, [Request("0", prompt, thought=f"{'A means cup . ' * 20}So draw 1 cup .", seed=1)]


def ways(model: BagelUnified, requests: list[Request]) -> dict[str, Callable[[], Any]]:
    starts = [(one.thought or "").index("So draw") for one in requests]
    return {
        "off": lambda: model.draw(requests),
        "on": lambda: draw_with_attention(model, requests, starts),
        "again": lambda: model.draw(requests),
    }


def seconds(model: BagelUnified, requests: list[Request], rounds: int) -> dict[str, float]:
    """The least CPU time of "off" (on a GPU: wall time), and the median ratio of the others to it, round by round."""
    gpu = torch.cuda.is_available() and model.device.type == "cuda"
    clock = time.perf_counter if gpu else time.process_time
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, way in ways(model, requests).items():
            began = clock()
            way()
            if gpu:
                torch.cuda.synchronize()
            taken.setdefault(name, []).append(clock() - began)
    ratios = {
        name: statistics.median(one / off for one, off in zip(some, taken["off"], strict=True))
        for name, some in taken.items()
    }
    return {**ratios, "off": min(taken["off"])}


def peak(make: Callable[..., tuple[BagelUnified, list[Request]]], arguments: tuple[int, ...], way: str) -> int:
    """Most bytes that are resident in a draw, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (make, arguments, way))


def _peak(make: Callable[..., tuple[BagelUnified, list[Request]]], arguments: tuple[int, ...], way: str) -> int:
    torch.set_num_threads(1)
    model, requests = make(*arguments)
    act = ways(model, requests)[way]
    act()  # what is allocated once a process
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        act()
        return int(torch.cuda.max_memory_allocated())
    forget_peak()
    act()
    return resident("VmHWM")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--only", choices=["nano", "bagel"], help="one of the two")
    given = parser.parse_args()
    torch.set_num_threads(1)
    cases: list[tuple[str, Any, tuple[int, ...]]] = []
    if given.only != "bagel":
        cases += [(f"nano, mapping{level}", nano, (level, given.rows)) for level in (2, 3)]
    if given.only != "nano":
        cases.append((f"BAGEL's shape, {given.side} x {given.side}", bagel, (given.side,)))
    lines, over = [], []
    for name, make, arguments in cases:
        model, requests = make(*arguments)
        taken = seconds(model, requests, given.rounds)
        memory = {way: peak(make, arguments, way) for way in ("off", "on")}
        slower, larger = taken["on"] - 1, memory["on"] / memory["off"] - 1
        again = taken["again"] - 1
        lines.append(
            row(
                name,
                f"{taken['off']:.3f}",
                f"{slower:+.1%}",
                f"{again:+.1%}",
                f"{memory['off'] / MB:.0f}",
                f"{larger:+.1%}",
            )
        )
        if slower > MOST_TIME or larger > MOST_MEMORY:
            over.append(name)
    head = ("drawing", "off, s", "on", "off again", "peak off, MB", "peak on")
    print("\n".join([*table(*head), *lines]))
    if over:
        raise SystemExit(f"more than {MOST_TIME:.0%} of time or {MOST_MEMORY:.0%} of memory: {', '.join(over)}")


if __name__ == "__main__":
    main()
