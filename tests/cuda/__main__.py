"""All paths on the pretended device, as the table of research/gpu.md: python -m tests.cuda

The paths run in a process of their own, for the pretended device is registered for good.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MOST: dict[str, dict[str, float]] = {
    "nano_generation": {"text token": 1 / 8, "denoising step": 0},
    "nano_a_little": {},
    "nano_nf4_generation": {},
    "bagel_generation": {"text token": 1 / 8, "denoising step": 0},
    "bagel_half_generation": {},
    "editor_generation": {"denoising step": 2},
    "pipeline_generation": {},
    "janus_generation": {},
    "nano_sft": {"micro-batch": 0},
    "nano_flow_grpo": {"micro-batch": 0.5, "velocity": 0},
    "nano_guard_with_thoughts_and_kl": {"micro-batch": 0.5, "velocity": 0},
    "nano_diffusion_nft": {"micro-batch": 0.5, "velocity": 0},
    "bagel_guided_flow_grpo": {"micro-batch": 0.5, "velocity": 0},
    "editor_flow_grpo": {"micro-batch": 40},
    "stars": {"micro-batch": 1},
    "distillation": {"micro-batch": 0.5, "velocity": 0},
    "evaluation": {},
    "insight": {},
    "doctor": {},
}
"""Syncs by path and unit, at most."""


def run(folder: Path) -> dict[str, Any]:
    """Build the device in `folder` by g++ and run all paths: their measurements by name, and "caught" defects.

    Raises:
        RuntimeError: a path failed; with the end of what it printed.
    """
    torch_folder, library = Path(torch.__file__).parent, folder / "shim.so"
    include = [f"-I{torch_folder / one}" for one in ("include", "include/torch/csrc/api/include")]
    link = [f"-L{torch_folder / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch_folder / 'lib'}"]
    flags = ("-O1", "-std=c++20", "-shared", "-fPIC")
    build = ["g++", *flags, *include, str(HERE / "shim.cpp"), "-o", str(library), *link]
    subprocess.run(build, check=True, capture_output=True, text=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.cuda.paths", *MOST]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def table(found: dict[str, Any]) -> str:
    """In Markdown: a row a path."""
    rows = [
        "| path | largest difference to the CPU | waits for the device | masks beside grouped heads |",
        "|---|---|---|---|",
    ]
    for name in MOST:
        apart = ", ".join(f"{key} {value:.1g}" for key, value in found[name]["apart"].items())
        waits = ", ".join(f"{value:.3g} a {unit}" for unit, value in found[name]["syncs"].items())
        rows.append(f"| {name.replace('_', ' ')} | {apart} | {waits} | {found[name]['masked_grouped']} |")
    return "\n".join(rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(table(run(Path(folder))))
