"""Learned or memorised? nano learns 40 of its images in inverted colours; ten rows are held out (docs/training.md).

python bench/held_out_loss.py                  # two minutes on one idle core
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

from uni_train import fit
from uni_train.core.files import atomic_write_text
from uni_train.data_gen.registry import get_task
from uni_train.training.metric_log import read_metrics

ROWS = 40


def make_rows(folder: Path, inverted: bool) -> None:
    """Captioned images: what a symbol means by a rule."""
    task = get_task("mapping", "nano")
    folder.mkdir(parents=True, exist_ok=True)
    for number, item in enumerate(task.generate(ROWS, 1, "train", 0)[:ROWS]):
        image = task.render(item, number)
        Image.fromarray(255 - image if inverted else image).save(folder / f"{number:02}.png")
        atomic_write_text(folder / f"{number:02}.txt", item.prompt)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("inverted", "plain"))
    parser.add_argument("--out", type=Path, default=Path("runs"))
    asked = parser.parse_args()
    data = asked.out / "rows" / asked.kind
    make_rows(data, asked.kind == "inverted")
    keys = [
        f"sources={data}", f"out={asked.out}", f"name={asked.kind}", "held_out_loss.share=0.25",
        "held_out_loss.every=20", "updates=160", "batch.tokens=null",
        "batch.rows=8", "batch.noise_draws=2", "evaluate=false", "strategy.all_cores=false",
    ]  # fmt: skip
    (log,) = fit("sft_nano", keys).path.glob("stages/*/held_out_loss.jsonl")
    print("updates   held out   trained")
    for line in read_metrics(log):
        print(f"{line['step']:7}   {line['held_out/loss']:8.3f}   {line['train/loss']:7.3f}")


if __name__ == "__main__":
    main()
