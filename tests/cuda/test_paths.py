"""GPU paths without a GPU: no mix of devices, the CPU's numbers, few waits for the device, fused attention.

The paths run in a process of their own, for the pretended device is registered for good.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the pretended device is built by g++, which is missing"),
    pytest.mark.skipif(sys.platform != "linux", reason="the pretended device is loaded by LD_PRELOAD, which Linux has"),
    pytest.mark.skipif(
        torch.version.cuda is not None, reason="this torch has CUDA; the pretended device needs one without"
    ),
]

IMAGE, LOSS = 1.0, 1e-4
"""Largest differences to the CPU: of an image's bytes, and of a loss."""

MOST = {
    "nano_generation": {"text token": 3.0, "denoising step": 1.0},
    "nano_nf4_generation": {"text token": 3.0, "denoising step": 1.0},
    "nano_sft": {"micro-batch": 55.0},
    "nano_flow_grpo": {"micro-batch": 14.0, "velocity": 4.0},
}
"""Syncs by path and unit, at most."""

MASKED_GROUPED = {"nano_generation": 168, "nano_nf4_generation": 168}
"""Calls of masked attention with grouped heads, at most."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    torch_folder, library = Path(torch.__file__).parent, tmp_path_factory.mktemp("cuda") / "shim.so"
    include = [f"-I{torch_folder / one}" for one in ("include", "include/torch/csrc/api/include")]
    link = [f"-L{torch_folder / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch_folder / 'lib'}"]
    build = [
        "g++",
        "-O1",
        "-std=c++20",
        "-shared",
        "-fPIC",
        *include,
        str(HERE / "shim.cpp"),
        "-o",
        str(library),
        *link,
    ]
    subprocess.run(build, check=True, capture_output=True, text=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.cuda.paths", *MOST]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST)
def test_a_path_runs_on_the_device_as_on_the_cpu(name: str, measured: dict[str, dict[str, Any]]) -> None:
    found = measured[name]
    assert found["mixes"] == []
    bounds = {"images": IMAGE, "texts": 0.0}
    assert {key: off for key, off in found["apart"].items() if not off <= bounds.get(key, LOSS)} == {}
    assert found["masked_grouped"] <= MASKED_GROUPED.get(name, 0), "it has no fused kernel on most cards"
    above = {unit: rate for unit, rate in found["syncs"].items() if rate > MOST[name][unit]}
    assert above == {} and MOST[name].keys() == found["syncs"].keys(), "\n".join(found["where"])
