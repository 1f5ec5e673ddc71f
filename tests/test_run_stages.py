"""The main job end to end: what a finished run holds, what a second start does, and what damage is called."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import TINY, fit
from uni_train.config.schema import SIX_SETS
from uni_train.eval.scored import read_folder, read_scored
from uni_train.eval.task_benchmark import item_of
from uni_train.models.pictures import decode_png
from uni_train.run_folder import run_checkpoints
from uni_train.training.checkpoint_io import list_checkpoints
from uni_train.training.metric_log import read_metrics

NOTES = {".lock", ".owner.json", "run.json"}
"""What every start writes, whether there is work or not."""


def state(run: Path) -> dict[str, tuple[int, int]]:
    """Of everything that lasts: what a training would continue from is removed when its stage is finished."""
    files = [file for file in run.rglob("*") if file.is_file() and file.name not in NOTES]
    files = [file for file in files if "checkpoints" not in file.parts]
    return {str(file.relative_to(run)): (file.stat().st_ino, file.stat().st_mtime_ns) for file in files}


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def numbers(run: Path) -> dict[str, Any]:
    """The summary without times and memory."""
    found = summary(run)
    for key in ("wall_seconds", "peak_rss_bytes"):
        del found[key]
    for one in found["rounds"]:
        del one["seconds"]
    return found


def assert_clear(result, *parts: str) -> None:
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    message = " ".join(result.output[result.output.index("error:") :].split())
    assert len(message) < 700, message
    for part in parts:
        assert part in message


def test_the_summary_keeps_its_contract(finished: Path) -> None:
    found = summary(finished)
    contract = ["recipe", "model", "seed", "wall_seconds", "peak_rss_bytes", "scores", "rounds"]
    assert list(found)[: len(contract)] == contract
    assert (found["recipe"], found["model"], found["seed"]) == ("stars_curriculum", "nano", 0)
    assert found["wall_seconds"] > 0 and 50e6 < found["peak_rss_bytes"] < 20e9
    assert set(found["scores"]) == {"before", "after"}
    for by_mode in found["scores"].values():
        assert list(by_mode) == ["normal", "cot", "said"]
        assert all(list(by_set) == list(SIX_SETS) for by_set in by_mode.values())
        for one in (one for by_set in by_mode.values() for one in by_set.values()):
            assert set(one) == {"value", "n", "low", "high"} and one["n"] == 2
            assert 0 <= one["low"] <= one["value"] <= one["high"] <= 1
    wanted = {"task", "level", "sampled", "kept", "precision", "recall", "updates", "seconds"}
    assert [(one["task"], one["level"]) for one in found["rounds"]] == [("mapping", level) for level in (1, 2, 3)]
    for one in found["rounds"]:
        assert wanted <= set(one)
        assert (one["sampled"], one["kept"], one["updates"]) == (8, 8, 3) and one["seconds"] > 0
        assert one["distinct"] == 4, "a pair is one set of rules"


def test_every_stage_has_a_manifest_and_every_sample_is_there_once(finished: Path) -> None:
    stages = sorted(path.name for path in (finished / "stages").iterdir())
    rounds = [f"{kind}-mapping{level}" for level in (1, 2, 3) for kind in ("sample", "filter", "finetune")]
    assert stages == [f"{i:02d}-{name}" for i, name in enumerate(["evaluate-before", *rounds, "evaluate-after"])]
    for name in stages:
        stage = finished / "stages" / name
        manifest = json.loads((stage / "manifest.json").read_text(encoding="utf-8"))
        assert (manifest["stage"], manifest["status"]) == (name.partition("-")[2], "done")
        listed = {output["path"] for output in manifest["outputs"]}
        files = [file for part in ("shards", "scored", "model") for file in (stage / part).glob("*")]
        files += [stage / part for part in ("evaluation.json", "scores.json") if "evaluate" in name]
        assert listed == {str(file.relative_to(stage)) for file in files}
        assert not list(stage.glob("store/calls"))
        samples = [one.sample for part in ("shards", "scored") for one in read_folder(stage / part)]
        assert len({sample.identity for sample in samples}) == len(samples)
        assert len(samples) == (0 if "finetune" in name else 8 if "mapping" in name else 3 * (3 * 2 + 3 * 2 * 2))


def test_samples_carry_what_was_asked_thought_drawn_and_judged(finished: Path) -> None:
    sampled = list(read_folder(finished / "stages/01-sample-mapping1/shards"))
    judged = list(read_folder(finished / "stages/02-filter-mapping1/shards"))
    for one, same in zip(sampled, judged, strict=True):
        sample, item = one.sample, item_of(one.sample.ask.case)
        assert sample.image is not None
        assert (item.split, sample.ask.setting, item.level) == ("train", "cot", 1)
        assert isinstance(sample.thought, str) and one.verdict is not None and one.filter_verdict is None
        assert decode_png(sample.image).shape == (24, 24, 3)
        assert same.filter_verdict is not None and same.filter_verdict.passed  # filter=none
        assert (same.sample, same.verdict) == (sample, one.verdict)
    asked = [one.sample for one in read_folder(finished / "stages/00-evaluate-before/scored", images=False)]
    assert {item_of(sample.ask.case).split for sample in asked} == {"test"}
    settings = {("normal", False, False), ("cot", True, False), ("said", False, True)}
    found = {(one.ask.setting, one.thought is not None, one.text is not None) for one in asked}
    assert found == settings
    again = [one.sample for one in read_folder(finished / "stages/10-evaluate-after/scored", images=False)]
    assert [(s.identity, s.ask.seed) for s in again] == [(s.identity, s.ask.seed) for s in asked]


def test_finished_stages_keep_no_optimizer_states(copy: Path, finished: Path, tmp_path: Path) -> None:
    """A start that was killed before it could remove them leaves that to the next one, which needs none of them."""
    for stage in (finished / "stages").glob("*-finetune-*"):
        lines = read_metrics(stage / "metrics.jsonl")
        assert [line["step"] for line in lines] == [1, 2, 3] and all(math.isfinite(line["loss"]) for line in lines)
        assert [path.name for path in list_checkpoints(stage / "checkpoints")] == ["step=00000002", "step=00000003"]
    assert len(list(copy.glob("stages/*/checkpoints"))) == 3
    assert fit(tmp_path, *TINY).exit_code == 0
    assert not list(copy.glob("stages/*/checkpoints"))
    assert numbers(copy) == numbers(finished)
    assert [one.path.name for one in run_checkpoints(copy)] == ["model"] * 3  # for `watch`


def test_the_same_command_again_does_nothing(copy: Path, tmp_path: Path) -> None:
    before = state(copy)
    result = fit(tmp_path, *TINY)
    assert result.exit_code == 0, result.output
    assert state(copy) == before
    assert result.output.count("(already done)") == 11 and "Table 3" in result.output
    assert len(json.loads((copy / "run.json").read_text(encoding="utf-8"))["starts"]) == 2


@pytest.mark.slow
def test_lost_conclusions_are_drawn_again_from_what_is_stored(copy: Path, tmp_path: Path) -> None:
    expected, before, lost = summary(copy), state(copy), ("summary.json", "report.html")
    for name in lost:
        (copy / name).unlink()
    assert fit(tmp_path, *TINY).exit_code == 0
    page, found = (copy / "report.html").read_text(encoding="utf-8"), summary(copy)
    assert "Table 3" in page and page.count("data:image/png;base64,") > 4
    assert 'src="http' not in page and 'href="http' not in page
    assert found.pop("peak_rss_bytes") >= expected.pop("peak_rss_bytes")
    assert found == expected
    assert all(stamp == before.get(path) or path in lost for path, stamp in state(copy).items())


def cut(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return file


def flip(file: Path) -> Path:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    return file


@pytest.mark.slow
def test_of_an_unfinished_stage_a_damaged_shard_is_named_and_only_what_is_missing_is_made_again(
    copy: Path, finished: Path, tmp_path: Path
) -> None:
    stage = copy / "stages/07-sample-mapping3"
    (stage / "manifest.json").unlink()
    damaged = cut(stage / "shards/00001.parquet")
    assert_clear(fit(tmp_path, *TINY), str(damaged), "Delete this file", "only its batch")
    damaged.unlink()
    before = state(copy)
    assert fit(tmp_path, *TINY).exit_code == 0
    changed = {path for path, stamp in state(copy).items() if stamp != before.get(path)}
    redone = {str(path.relative_to(copy)) for path in (stage / "manifest.json", damaged)}
    assert changed == redone | {"summary.json", "report.html"}
    assert numbers(copy) == numbers(finished)
    assert read_scored(damaged) == read_scored(finished / damaged.relative_to(copy))


@pytest.mark.parametrize("name", ["01-sample-mapping1/shards/00001.parquet", "06-finetune-mapping2/manifest.json"])
def test_damage_of_a_finished_stage_or_the_configuration_is_named_and_nothing_changed(
    copy: Path, tmp_path: Path, name: str
) -> None:
    """Every kind of damage of a stage is in tests/test_run_folder.py."""
    file = cut(copy / "stages" / name)
    before = state(copy)
    assert_clear(fit(tmp_path, *TINY), str(file), f"Delete the folder {copy / 'stages' / name.split('/')[0]}")
    assert state(copy) == before
    (copy / "config.yaml").write_text("rounds: [", encoding="utf-8")
    assert_clear(fit(tmp_path, *TINY), str(copy / "config.yaml"), "damaged", "--fresh")


def unfinished_training(run: Path) -> Path:
    """Make the last fine-tuning look as if it was interrupted after its last checkpoint; its folder."""
    stage = run / "stages/09-finetune-mapping3"
    for file in (stage / "manifest.json", run / "stages/10-evaluate-after/manifest.json", *(stage / "model").iterdir()):
        file.unlink()
    return stage


def test_when_every_checkpoint_is_damaged_they_are_named_and_nothing_starts_over_in_silence(
    copy: Path, tmp_path: Path
) -> None:
    stage = unfinished_training(copy)
    for checkpoint in list_checkpoints(stage / "checkpoints"):
        cut(checkpoint / "state.json")
    with pytest.warns(UserWarning, match="trying the one before"):
        assert_clear(fit(tmp_path, *TINY), "step=00000003", "state.json", f"Delete {stage / 'checkpoints'}")
