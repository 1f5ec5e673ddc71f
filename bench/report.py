"""How long a browser takes to open the report of an evaluation: 2,000 samples with long thoughts, images of 5 kB.

    python bench/report.py [--samples 2000] [--opens 5]

Prints seconds by the clock and of all the browser's processors, from the address to the first page of the gallery. The
first is what a person waits; where other work shares the machine only the second means anything.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Case, Sample, Scored
from uni_train.eval.report.evaluation import sections_of
from uni_train.eval.report.page import Page, write_page
from uni_train.eval.report.samples import Part

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTINGS = ("direct", "reasoning_guided", "decontextualized")


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening of a page: seconds by the clock, and of processor time in all processes of the browser."""

    seconds: float
    processor: float


def noise(seed: int, edge: int) -> bytes:
    """An image that no compression makes smaller, as PNG."""
    pixels = np.random.default_rng(seed).integers(0, 256, (edge, edge, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", compress_level=0)
    return buffer.getvalue()


def large_part(samples: int) -> Part:
    """So many samples of three settings, right, wrong and unreadable in turn."""
    scored = []
    for i in range(samples):
        case = Case(f"case{i // 3}", f"task{i % 5}", f"Prompt {i // 3}. " * 20, category=f"kind {i % 6}")
        thought = f"Thought {i}. " * 150
        sample = Sample(Ask(case, SETTINGS[i % 3], 0, i), prompt=case.prompt, thought=thought, parts=(noise(i, 36),))
        status: Any = ("pass", "fail", "unreadable")[i % 7 % 3]
        verdict = Verdict((Check("criterion", status, "" if status == "pass" else "it does not"),))
        scored.append(Scored(sample, verdict, "openai/judge", replies=("Because. " * 30,), cause="drawn wrong"))
    sets = tuple(f"task{i}" for i in range(5))
    return Part("many", {"": scored}, settings=SETTINGS, sets=sets)


def write_large(path: Path, samples: int) -> Path:
    return write_page(path, Page(title="many", sections=[*sections_of([large_part(samples)])]))


@contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium. Raises LookupError where there is none."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        raise LookupError(f"no browser on this machine (looked for {', '.join(BROWSERS)})")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield launched
        finally:
            launched.close()


def open_page(tab: Any, page: Path) -> Opening:
    """Open the page in a tab and wait until the first samples are shown."""
    began, before = time.perf_counter(), _processor()
    tab.goto(page.as_uri())
    tab.wait_for_function("document.querySelectorAll('#list img').length > 0")
    return Opening(time.perf_counter() - began, _processor() - before)


def _processor() -> float:
    import psutil

    spent = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            spent += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return spent


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--opens", type=int, default=5)
    wanted = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        page = write_large(Path(folder) / "report.html", wanted.samples)
        print(f"{wanted.samples} samples, {page.stat().st_size / 1e6:.1f} MB")
        with browser() as launched:
            for _ in range(wanted.opens):
                tab = launched.new_page()
                opening = open_page(tab, page)
                tab.close()
                print(f"opened in {opening.seconds:.2f} s ({opening.processor:.2f} s of processor)")


if __name__ == "__main__":
    main()
