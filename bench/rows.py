"""Memory and time of many rows to train on, by kind of file, beside reading all of them first.

    python bench/rows.py [--rows 1000000] [--draws 2000]

Each row of the table is a process of its own (Linux), in which libraries are loaded. Measured are CPU seconds until the
file is open (the better of two), the most memory that is resident beyond that before, and rows drawn at random in a
second of CPU time. Of Parquet, the file has one row group, and the first draw writes its copy.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from bench.timing import MB, forget_peak, forked, resident
from uni_train.core.reading_limits import read_json
from uni_train.training.data.rows import FILES, open_rows

Rows = Sequence[Any]


def write(folder: Path, n: int) -> None:
    """The same rows in every kind of file; every other caption is in quotes."""
    import pyarrow as pa
    from pyarrow import parquet

    words = random.Random(0).choices(["very "] * 3 + ["red, "], k=8 * n)
    rows = [{"image": f"images/{i:07d}.png", "caption": f"a cat, {''.join(words[8 * i : 8 * i + 8])}asleep"
             if i % 2 else f"a plain caption of picture {i}", "width": 512} for i in range(n)]  # fmt: skip
    with open(folder / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    lines = [json.dumps(one) for one in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "rows.json").write_text(f"[{', '.join(lines)}]", encoding="utf-8")
    parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")


def whole(file: Path) -> Rows:
    """All rows in memory, as objects of Python."""
    if file.suffix == ".csv":
        with open(file, newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if file.suffix == ".json":
        rows: Rows = read_json(file)
        return rows
    from pyarrow import parquet

    rows = parquet.read_table(file).to_pylist()
    return rows


def measure(read: Callable[[Path], Rows], file: Path, draws: int) -> Mapping[str, float]:
    """Seconds to open and for the first draw, draws a second, and MB at the peak after opening and at the end."""
    before, times = forget_peak(), []
    for _ in range(2):
        rows: Rows = ()
        began = time.process_time()
        rows = read(file)
        times.append(time.process_time() - began)
    opened, first = time.process_time(), resident("VmHWM") - before
    rows[0]
    drawn = time.process_time()
    random_ = random.Random(0)
    for _ in range(draws):
        rows[random_.randrange(len(rows))]
    speed = draws / (time.process_time() - drawn)
    return {"open": min(times), "first": drawn - opened, "speed": speed, "MB": first / MB,
            "MB at the end": (resident("VmHWM") - before) / MB}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=2_000)
    arguments = parser.parse_args()
    import pyarrow.parquet  # noqa: F401  # before the forks

    kinds = ("csv", "jsonl", "json", "parquet")
    for kind in kinds:
        FILES.get(kind)
    for line in table("file", "read", "open, CPU s", "first draw, CPU s", "draws a second", "open, MB", "drawn, MB"):
        print(line, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNI_TRAIN_CACHE"] = f"{folder}/cache"
        forked(lambda: write(Path(folder), arguments.rows))()
        for kind in kinds:
            for name, read in (("when drawn", lambda path: open_rows(str(path))), ("whole", whole)):
                file = Path(folder, f"rows.{kind}")
                got = forked(lambda read=read, file=file: measure(read, file, arguments.draws))()
                cells = (f"{got['open']:.2f}", f"{got['first']:.2f}", f"{got['speed']:,.0f}")
                size = f"{file.suffix} ({file.stat().st_size / MB:.0f} MB)"
                print(row(size, name, *cells, f"{got['MB']:.0f}", f"{got['MB at the end']:.0f}"), flush=True)


if __name__ == "__main__":
    main()
