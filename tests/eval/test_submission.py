"""Answers as files, in the layouts that the benchmarks' own code reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from uni_train.eval.benchmark import BENCHMARKS, Ask, Case, Sample, Scored
from uni_train.eval.submission import samples_and_images, write_submission


def scored(id_: str, kind: str, setting: str, k: int, *parts: str | bytes, **sample: Any) -> Scored:
    """A sample of a case of the set `kind`; without parts it has failed."""
    status = "ok" if parts else "generation_failed"
    return Scored(Sample(Ask(Case(id_, kind, "?"), setting, k, 1), status=status, parts=parts, **sample))


@pytest.mark.parametrize(
    ("name", "samples", "files"),
    [
        ("unisandbox",
         [scored("math1/5", "math1", "normal", 0, b"1"), scored("math1/5", "math1", "normal", 1, b"2"),
          scored("math1/5/corrected", "math1", "normal", 0, b"1"), scored("mapping2/3/A", "mapping2", "cot", 0, b"3"),
          scored("mapping2/3/A", "mapping2", "normal", 0)],
         {"normal/math_1/5.png": b"1", "cot/mapping2/3_A.png": b"3"}),
        ("wise",
         [scored("401", "time", "direct", 0, b"1"), scored("401", "time", "direct", 1, b"2"),
          scored("401", "time", "cot", 0, b"3"), scored("402", "time", "cot", 0)],
         {"direct/401.png": b"1", "cot/401.png": b"3"}),
        ("ueval", [scored("7", "art", "two_passes", 0, "Step 1.", b"a", b"b")],
         {"two_passes.json": [{"id": "7", "text_answer": "Step 1.",
                               "image_answer": ["images/two_passes/7_0.png", "images/two_passes/7_1.png"]}],
          "images/two_passes/7_0.png": b"a", "images/two_passes/7_1.png": b"b"}),
        ("ureason",
         [scored("301", "spatial", "direct", 0, b"1"),
          scored("301", "spatial", "reasoning_guided", 0, b"2", thought="so"),
          scored("301", "spatial", "decontextualized", 0, b"3", thought="so", prompt="a desk"),
          scored("301", "spatial", "decontextualized_4x", 0, b"4")],
         {"direct/direct_spatial/301.png": b"1", "think/spatial/301.png": b"2",
          "think/spatial/spatial.jsonl": {"id": "301", "thought": "so"},
          "think-generated_prompts/spatial/301.png": b"3",
          "think-generated_prompts/spatial/prompts.jsonl": {"id": "301", "prompt": "a desk"}}),
    ],
)  # fmt: skip
def test_first_draws_lie_where_the_published_code_looks(
    name: str, samples: list[Scored], files: dict[str, Any]
) -> None:
    written = dict(BENCHMARKS.get(name).submission(samples))
    assert {path: data if path.endswith("png") else json.loads(data) for path, data in written.items()} == files


def test_a_benchmark_without_published_code_gives_all_it_has(tmp_path: Path) -> None:
    one = scored("maze/1", "maze", "process", 0, b"a", "then", b"b", prompt="go")
    assert write_submission(tmp_path, samples_and_images([one])) == 3
    (row,) = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    assert row["text"] == "then" and [(tmp_path / name).read_bytes() for name in row["images"]] == [b"a", b"b"]
