"""Early rejection: how early does the filter of STARS know what it will say of the finished image?

    python bench/early_rejection.py [--sets math3,mapping3] [--n 500] [--temperature 1.0] [--model CHECKPOINT]

The model thinks and draws, as when STARS samples. After each step it is asked the filter's question (filter=self) about
the image that its velocity predicts, x_t - t v, decoded. Compared with what it says of the finished image:

    kept: of those that it accepts in the end, the share that it accepts now: what is not lost
    rejected: of those that it refuses in the end, the share that it refuses now
    steps: of all velocities, the share that is left if what it refuses now is not drawn on (judging costs more)

The items are those of the train split. They are unlike those of an evaluation, on which nothing is chosen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.choices import some_of
from bench.markdown import row, table
from uni_train.data_gen.registry import get_task, sources
from uni_train.eval.benchmark import Ask, Sample, with_image
from uni_train.eval.redraw import accepts
from uni_train.eval.task_benchmark import TaskBenchmark, request_of, verification_request
from uni_train.flow.euler import euler_step
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.load import build_model, model_config
from uni_train.stages.cpu import prepare_cpu

BATCH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=some_of(sources()), default=["math3", "mapping3"])
    parser.add_argument("--n", type=int, default=500, help="of each set")
    parser.add_argument("--temperature", type=float, default=1.0, help="of thoughts")
    parser.add_argument("--model", default="nano")
    arguments = parser.parse_args()
    prepare_cpu("auto")
    model = build_model(model_config(arguments.model))
    assert isinstance(model, BagelUnified)
    for name in arguments.sets:
        source = sources()[name]
        items = get_task(source.task, "nano").generate(arguments.n, source.level, "train", 0)[: arguments.n]
        benchmark = TaskBenchmark.from_items(items, "cot")
        asks = benchmark.asks(0)
        judged, right = [], []
        for begin in range(0, len(asks), BATCH):
            some, verdicts = judgements(model, benchmark, asks[begin : begin + BATCH], arguments.temperature)
            judged.append(some)
            right += verdicts
        print("\n".join(report(name, torch.cat(judged, 1), torch.tensor(right))), flush=True)


@torch.inference_mode()
def judgements(
    model: BagelUnified, benchmark: TaskBenchmark, asks: Sequence[Ask], temperature: float
) -> tuple[torch.Tensor, list[bool]]:
    """Whether the filter accepts the image predicted after each step, bool [steps + 1, rows], the last one finished;
    and whether the program accepts the finished one."""
    requests = [request_of(ask) for ask in asks]
    thoughts = model.think(requests, temperature)
    requests = [replace(request, thought=text) for request, text in zip(requests, thoughts, strict=True)]
    condition, x = model.encode(requests), model.noise(requests)
    schedule = model.schedule(condition)
    accepted: list[list[bool]] = []
    for step in range(schedule.steps):
        t, t_next = schedule.step(step)
        velocity = model.velocity(x, t, condition)
        accepted.append(judged(model, asks, model.decode(x - t * velocity, condition))[0])
        x = euler_step(x, velocity, t, t_next)
    last, samples = judged(model, asks, model.decode(x, condition))
    verdicts = [benchmark.check(sample) for sample in samples]
    return torch.tensor([*accepted, last]), [verdict is not None and verdict.passed for verdict in verdicts]


def judged(model: BagelUnified, asks: Sequence[Ask], images: Sequence[object]) -> tuple[list[bool], list[Sample]]:
    samples = [with_image(Sample(ask), image) for ask, image in zip(asks, images, strict=True)]  # type: ignore[arg-type]
    replies = model.answer([verification_request(model.family, sample) for sample in samples])
    return [accepts(reply) for reply in replies], samples


def report(name: str, accepted: torch.Tensor, right: torch.Tensor) -> Iterator[str]:
    last, steps = accepted[-1], len(accepted) - 1
    yield f"\n{name}: {len(last)} samples, {int(right.sum())} right, the filter accepts {int(last.sum())}"
    yield ""
    yield from table("after step", "kept", "of right ones kept", "rejected", "steps left")
    for step, now in enumerate(accepted[:-1], start=1):
        groups = (now[last], now[last & right], ~now[~last])
        cells = [f"{float(group.float().mean()):.3f}" if len(group) else "-" for group in groups]
        yield row(step, *cells, f"{1 - float((~now).float().mean()) * (1 - step / steps):.3f}")


if __name__ == "__main__":
    main()
