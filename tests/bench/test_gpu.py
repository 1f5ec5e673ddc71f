"""The benchmark of GPUs at tiny sizes: every part has figures, in its page and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench import gpu


@pytest.mark.slow
def test_every_part_measures_a_tiny_bagel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchao")
    monkeypatch.setattr(gpu, "TRAININGS", (("lora", "nf4", "full"),))
    monkeypatch.setattr(gpu, "TINY", replace(gpu.TINY, counts=(1,), written=2, rows=1))
    names = [name for name in gpu.PARTS if name != "compiled"]  # minutes: tests/models/test_compile.py
    gpu.main(["--tiny", "--models", "bagel_7b", "--only", ",".join(names), "--out", str(tmp_path)])
    parts = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))["parts"]
    assert list(parts) == names
    assert [one["by"] for one in parts["write"]] == ["ours", "official", "eager"]
    for name in ("draw", "write"):
        official = parts[name].pop(1)
        assert official["by"] == "official" and "the released code is not here" in official["left out"]
    for name, rows in parts.items():
        assert rows and not any("left out" in one for one in rows), (name, rows)
        numbers = [value for one in rows for value in one.values() if isinstance(value, float)]
        assert numbers and all(math.isfinite(value) and value >= 0 for value in numbers)
    assert len(parts["draw"]) == len(gpu.TINY.counts) and parts["grpo"][0]["gate"] == 0
    gpu.main(["--tiny", "--models", "bagel_7b", "--only", "load", "--out", str(tmp_path)])  # another call, later
    page = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert all(f"## {name}" in page for name in names) and "Tiny sizes" in page
