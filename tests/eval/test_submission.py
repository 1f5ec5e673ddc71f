"""Answers as files, in the layouts that the benchmarks' own code reads."""

from __future__ import annotations

import json
from pathlib import Path

from uni_train.eval.benchmark import Ask, Case, Sample, Scored
from uni_train.eval.benchmarks.ueval import UEval
from uni_train.eval.benchmarks.unisandbox import UniSandbox
from uni_train.eval.benchmarks.ureason import UReason
from uni_train.eval.benchmarks.wise import Wise
from uni_train.eval.submission import samples_and_images, write_submission


def scored(case: Case, setting: str, k: int = 0, **sample: object) -> Scored:
    return Scored(Sample(Ask(case, setting, k, 1), **sample))  # type: ignore[arg-type]


def test_unisandbox_names_images_by_row_and_question() -> None:
    maths, pair = Case("math1/5", "math1", "?"), Case("mapping2/3/A", "mapping2", "?")
    again = Case("math1/5/corrected", "math1", "?")
    found = [
        scored(maths, "normal", parts=(b"1",)), scored(maths, "normal", 1, parts=(b"2",)),
        scored(again, "normal", parts=(b"1",)), scored(pair, "cot", parts=(b"3",)),
        scored(pair, "normal", status="generation_failed"),
    ]  # fmt: skip
    assert dict(UniSandbox.submission(found)) == {"normal/math_1/5.png": b"1", "cot/mapping2/3_A.png": b"3"}


def test_wise_has_a_folder_of_images_by_prompt_id_for_each_setting() -> None:
    case = Case("401", "time", "?")
    found = [
        scored(case, "direct", parts=(b"1",)), scored(case, "direct", 1, parts=(b"2",)),
        scored(case, "cot", parts=(b"3",)), scored(Case("402", "time", "?"), "cot", status="generation_failed"),
    ]  # fmt: skip
    assert dict(Wise.submission(found)) == {"direct/401.png": b"1", "cot/401.png": b"3"}


def test_ueval_is_one_json_array_a_setting() -> None:
    one = scored(Case("7", "art", "?"), "two_passes", parts=("Step 1.", b"a", b"b"))
    files = dict(UEval.submission([one]))
    (answer,) = json.loads(files["two_passes.json"])
    names = ["images/two_passes/7_0.png", "images/two_passes/7_1.png"]
    assert answer == {"id": "7", "text_answer": "Step 1.", "image_answer": names}
    assert [files[name] for name in names] == [b"a", b"b"]


def test_ureason_has_the_folders_of_its_scripts() -> None:
    case = Case("301", "spatial", "?")
    found = [
        scored(case, "direct", parts=(b"1",)), scored(case, "reasoning_guided", parts=(b"2",), thought="so"),
        scored(case, "decontextualized", parts=(b"3",), thought="so", prompt="a desk"),
        scored(case, "decontextualized_4x", parts=(b"4",)),
    ]  # fmt: skip
    assert dict(UReason.submission(found)) == {
        "direct/direct_spatial/301.png": b"1", "think/spatial/301.png": b"2",
        "think/spatial/spatial.jsonl": b'{"id": "301", "thought": "so"}\n',
        "think-generated_prompts/spatial/301.png": b"3",
        "think-generated_prompts/spatial/prompts.jsonl": b'{"id": "301", "prompt": "a desk"}\n',
    }  # fmt: skip


def test_a_benchmark_without_published_code_gives_all_it_has(tmp_path: Path) -> None:
    one = scored(Case("maze/1", "maze", "?"), "process", parts=(b"a", "then", b"b"), prompt="go")
    assert write_submission(tmp_path, samples_and_images([one])) == 3
    (row,) = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    assert row["text"] == "then" and [(tmp_path / name).read_bytes() for name in row["images"]] == [b"a", b"b"]
