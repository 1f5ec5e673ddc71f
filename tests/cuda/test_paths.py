"""GPU paths without a GPU: no mix of devices, the CPU's numbers, few waits for the device, fused attention."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest
import torch

from tests.cuda.__main__ import MOST, run

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the pretended device is built by g++, which is missing"),
    pytest.mark.skipif(sys.platform != "linux", reason="the pretended device is loaded by LD_PRELOAD, which Linux has"),
    pytest.mark.skipif(
        torch.version.cuda is not None, reason="this torch has CUDA; the pretended device needs one without"
    ),
]

IMAGE, HALF_IMAGE, NUMBER, EDITOR = 1.0, 24.0, 1e-4, 2e-3
"""Largest differences to the CPU: of an image's bytes, in float32 and in bfloat16; of numbers, relative.

EDITOR: where transformers' and diffusers' attention takes other kernels on the two devices.
"""


def bounds_of(name: str, result: str) -> float:
    """The largest difference of a path's result."""
    bounds = {"images": HALF_IMAGE if "half" in name else IMAGE, "texts": 0.0}
    return bounds.get(result, EDITOR if "editor" in name else NUMBER)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("cuda"))


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST)
def test_a_path_runs_on_the_device_as_on_the_cpu(name: str, measured: dict[str, dict[str, Any]]) -> None:
    found = measured[name]
    assert found["mixes"] == []
    assert {key: off for key, off in found["apart"].items() if not off <= bounds_of(name, key)} == {}
    assert found["masked_grouped"] == 0, "it has no fused kernel on most cards"
    above = {unit: rate for unit, rate in found["syncs"].items() if rate > MOST[name][unit]}
    assert above == {} and MOST[name].keys() == found["syncs"].keys(), "\n".join(found["where"])


@pytest.mark.slow
def test_defects_are_caught(measured: dict[str, Any]) -> None:
    assert measured["caught"] == {
        "positions stay on the host": "mix",
        "a generator of the host": "mix",
        "noise stays on the host": "mix",
        "rope turns the other way": "numbers",
        "masks beside grouped heads": "kernels",
        "a question for each token": "syncs",
    }
