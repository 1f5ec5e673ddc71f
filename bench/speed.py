"""Every figure of speed and memory beside its baseline, on one page: `make bench-speed`, about 20 minutes on two cores.

    git clone https://github.com/ByteDance-Seed/Bagel official
    python bench/speed.py --official official [--against CHECKOUT] [--only demo,nano,...] [--out research/speed.md]

Each section is printed by a benchmark of its own, one after the other, for they would slow each other down. The page
is written after each; sections that a call does not measure stay as they are. --official adds the released code of
BAGEL, --against the main job of another checkout. The exit code is 1 if a benchmark failed: its section stays, too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.choices import some_of
from uni_train.core.files import atomic_path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Speed and memory on a CPU

Every ratio is to a baseline that was measured in the same minutes.
Baselines are at their best: batched where they can be, in the same precision, on as many threads.
Limits: tiny models, or 100 million random weights in BAGEL's proportions. [One GPU](gpu.md) has its own page.
One command prints this page:

    git clone https://github.com/ByteDance-Seed/Bagel official
    python bench/speed.py --official official
"""
NAMES = {"--official": "official", "--against": "earlier"}
"""What a section calls the folders that these options give."""


@dataclass(frozen=True, slots=True)
class Section:
    """A benchmark, its options, and what to know of it."""

    title: str
    command: str
    about: str


SECTIONS = {
    "demo": Section("The main job", "demo.py", "`make demo` without its installation; *there* is an earlier commit."),
    "official": Section(
        "BAGEL beside the released code",
        "bagel.py --only official --threads 1",
        "The same weights, in turn, on one thread; packed for 16 at once, bfloat16. flash_attn has no CPU.",
    ),
    "bagel": Section(
        "BAGEL",
        "bagel.py",
        "*tiny* is the official tiny checkpoint (0.3 M). Guidance goes through one pass up to 256 latent tokens: where "
        "the gain ends on a CPU.",
    ),
    "qwen": Section(
        "Qwen-Image-Edit beside diffusers",
        "qwen_image_edit.py",
        "Plain diffusers, transformers and PyTorch on the same weights, with true CFG.",
    ),
    "nano": Section(
        "nano",
        "nano.py",
        "Frozen texts are kept if their rows come more than 1.5 times each. Drawing: mapping3, 10 Euler steps.",
    ),
    "puzzles": Section(
        "Verified puzzles", "puzzles.py speed --items 400", "Items that a core draws, renders and verifies."
    ),
    "memory": Section(
        "Planned memory",
        "memory.py",
        "Predicted by `plan`, and measured; each configuration trains in a process of its own.",
    ),
    "samples": Section(
        "Memory of many images",
        "samples.py",
        "Recent rows stay in memory up to 1024 MB. Images are noise of 1024 x 1024 pixels, without a model.",
    ),
}


def measured(section: Section, command: str) -> str:
    """A section of the page. Raises SystemExit where the benchmark fails."""
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, *f"bench/{command}".split()]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode:
        raise SystemExit(f"bench/{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    about = f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.stdout.strip() or 'unknown'}"
    lines = [line for line in done.stdout.splitlines() if not re.match(r"measured in|\[\d{4}-", line)]  # nor logs
    page = "\n".join(lines).strip().replace(str(ROOT), "this checkout")
    for option, name in NAMES.items():
        if given := re.search(rf"{option} (\S+)", command):
            page, command = page.replace(given[1], name), command.replace(given[1], name)
    minutes = f"{about}, {(time.monotonic() - began) / 60:.0f} minutes:"
    return f"## {section.title}\n\n{section.about}\n{minutes}\n\n    python bench/{command}\n\n{page}\n"


def sections_of(page: str) -> dict[str, str]:
    """Title -> section of an earlier page."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.splitlines()[0][3:]: part.rstrip() + "\n" for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=some_of(SECTIONS), help="sections, with commas (default: all that can be)")
    parser.add_argument("--official", type=Path, help="a checkout of the released code of BAGEL")
    parser.add_argument("--against", type=Path, help="an earlier checkout, whose main job is measured in turn")
    parser.add_argument("--out", type=Path, default=ROOT / "research/speed.md")
    chosen = parser.parse_args()
    only = chosen.only or [name for name in SECTIONS if name != "official" or chosen.official]
    if "official" in only and chosen.official is None:
        parser.error("the section `official` needs --official FOLDER, or choose others with --only")
    known = sections_of(chosen.out.read_text(encoding="utf-8")) if chosen.out.is_file() else {}
    failed = False
    for name in only:
        section = SECTIONS[name]
        command = section.command
        command += f" --official {chosen.official.resolve()}" if name == "official" else ""
        command += f" --against {chosen.against.resolve()}" if name == "demo" and chosen.against else ""
        print(f"{section.title} ...", flush=True)
        try:
            known[section.title] = measured(section, command)
        except SystemExit as error:
            failed = True
            print(error, file=sys.stderr)
        parts = [known[part.title] for part in SECTIONS.values() if part.title in known]
        with atomic_path(chosen.out) as path:
            path.write_text("\n".join([HEAD, *parts]), encoding="utf-8")
    print(chosen.out)
    sys.exit(failed)


if __name__ == "__main__":
    main()
