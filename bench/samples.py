"""Memory of a process that is trained on the kept samples of STARS, by their number: images stay on disk.

    python bench/samples.py [--samples 200,400,800] [--decoded 100,200] [--draws 800] [--side 1024]

Each row is a process of its own (Linux): it opens shards of so many samples and takes the batches of a fine-tuning from
them, a micro-batch of four at a time, without a model. Measured is the most memory that is resident, beyond what was
before. Images are noise, the largest that PNG can be. Beside it is what a list of all images, decoded, takes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from bench.timing import MB, forget_peak, forked, resident
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample, Scored
from uni_train.eval.scored import read_folder, shard_path, write_scored
from uni_train.eval.task_benchmark import item_case
from uni_train.models.base import Example
from uni_train.models.pictures import decode_png, encode_png
from uni_train.recipes.stars.finetune import kept_samples
from uni_train.training.data.items import images_of
from uni_train.training.data.rows import KEPT_BYTES
from uni_train.training.steps import Source, StepDataset

ROWS, MICROS, A_SHARD = 16, 4, 8  # examples of an update, its micro-batches; samples of a shard (model.draw_batch)
YES = Verdict((Check("no_filter", "pass"),))


def write(folder: Path, n: int, side: int) -> None:
    """Shards of `n` samples that the filter has kept."""
    items = get_task("mapping", "everyday").generate(n // 2, 1, "train", 0)
    noise = np.random.default_rng(0).integers(0, 256, (A_SHARD, side, side, 3), np.uint8)
    images = [encode_png(image) for image in noise]
    for index in range(n // A_SHARD):
        some = zip(items[index * A_SHARD : (index + 1) * A_SHARD], images, strict=True)
        scored = [
            Scored(Sample(ask, prompt=ask.case.prompt, parts=(image,)), YES, filter_verdict=YES)
            for ask, image in ((Ask(item_case(item), "cot", 0, 0), image) for item, image in some)
        ]
        write_scored(shard_path(folder, index), scored)


def train(folder: Path, n: int, draws: int, decoded: bool) -> tuple[int, float]:
    """Bytes at the peak beyond those before, and seconds an example."""
    before = forget_peak()
    source: Source = images_of(kept_samples(folder, range(n)), 1)
    if decoded:
        stored = [one.sample for one in read_folder(folder)]
        source = [Example(one.prompt, target=decode_png(one.image or b"")) for one in stored]
    began = time.perf_counter()
    dataset = StepDataset(
        lambda examples, seed: len(examples),
        {"kept": source},
        lambda step: {"kept": 1.0},
        rows=ROWS,
        updates=draws // ROWS,
        seed=0,
        grad_accumulation_steps=MICROS,
        token_counts=lambda content: (0, 0),
    )
    for step in range(draws // ROWS):
        dataset[step]
    return resident("VmHWM") - before, (time.perf_counter() - began) / draws


def compare(lazy: Sequence[int], decoded: Sequence[int], draws: int, side: int) -> None:
    """Print the table."""
    import pyarrow.parquet  # noqa: F401  # before the forks
    from PIL import PngImagePlugin  # noqa: F401

    for line in table("kept samples", "on disk, MB", "read when needed, MB", "ms an example", "all decoded, MB"):
        print(line, flush=True)
    for n in sorted({*lazy, *decoded}):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            write(place, n, side)
            size = sum(file.stat().st_size for file in place.iterdir())
            peak, each = forked(lambda n=n, at=place: train(at, n, draws, False))() if n in lazy else (None, 0.0)
            all_ = forked(lambda n=n, at=place: train(at, n, ROWS, True))()[0] if n in decoded else None
            cells = [f"{size / MB:.0f}", *((f"{peak / MB:.0f}", f"{1e3 * each:.0f}") if peak else ("", ""))]
            print(row(f"{n}", *cells, "" if all_ is None else f"{all_ / MB:.0f}"), flush=True)
    print(f"\nOf what is read when needed, at most {KEPT_BYTES / MB:.0f} MB are rows that were read last.")


def numbers(text: str) -> list[int]:
    """Whole numbers of shards."""
    return [max(int(one) // A_SHARD, 1) * A_SHARD for one in text.split(",") if one]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=numbers, default="200,400,800", help="kept samples, comma between")
    parser.add_argument("--decoded", type=numbers, default="100,200", help="the same, all decoded at once")
    parser.add_argument("--draws", type=int, default=800, help="examples that are drawn")
    parser.add_argument("--side", type=int, default=1024, help="pixels")
    arguments = parser.parse_args()
    compare(arguments.samples, arguments.decoded, arguments.draws, arguments.side)


if __name__ == "__main__":
    main()
