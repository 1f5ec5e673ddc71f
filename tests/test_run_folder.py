"""The run folder keeps what is finished, lets one process in, and refuses what it cannot trust."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.core.errors import UserError
from uni_train.run_folder import Manifest, RunFolder, decisive, final_model, stage_folders, stage_key

OURS = compose("stars_curriculum")
OTHER = compose("stars_curriculum", ["optimizer.lr=0.5", "rounds.1.updates=7"])
SAME_NUMBERS = compose("stars_curriculum", ["logger=wandb", "data.bad_rows=skip"])

HOLD = """
import sys, time
from uni_train.run_folder import RunFolder
with RunFolder(sys.argv[1], "stars", "seed0"):
    print("held", flush=True)
    time.sleep(9999)
"""


def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path, "stars", "seed0")


def test_a_second_process_is_told_who_has_the_folder_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline().strip() == "held"
        with pytest.raises(UserError, match=rf"run folder .*stars/seed0 is in use by pid {holder.pid} since 20"):
            folder(tmp_path).open()
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with folder(tmp_path) as run:
        assert json.loads((run.path / ".owner.json").read_text())["pid"] == os.getpid()
    assert (run.path / ".lock").exists(), "who waits for it has opened this file: with a new one two would hold it"


def test_a_forked_worker_does_not_keep_the_lock_of_a_dead_run(tmp_path: Path) -> None:
    child = "import os; p = os.fork()\n    if p == 0: time.sleep(3600); os._exit(0)\n    print(p, flush=True)"
    code = HOLD.replace('print("held", flush=True)', child).replace("time.sleep(9999)", "os.kill(os.getpid(), 9)")
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    worker = int(holder.stdout.readline())
    holder.wait()
    try:
        time.sleep(0.05)
        with folder(tmp_path):
            os.kill(worker, 0)  # still there, and no obstacle
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("kept", ["manifest.json", "checkpoints/step=00000100/state.json", "scored/0.parquet"])
def test_the_same_configuration_continues_and_another_is_refused(tmp_path: Path, kept: str) -> None:
    with folder(tmp_path) as run:
        assert run.begin(OURS, ["uni_train", "fit"]) is False
        written = (run.path / "config.yaml").read_bytes()
        file = run.stage_dir(0, "evaluate") / kept
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    with folder(tmp_path) as run:
        assert run.begin(SAME_NUMBERS) is True
        with pytest.raises(UserError) as caught:
            run.begin(OTHER)
        for said in (f"optimizer.lr was {OURS.optimizer.lr}, now 0.5", "rounds.1.updates was", "--fresh", "name="):
            assert said in str(caught.value)
        assert (run.path / "config.yaml").read_bytes() == written
        starts = json.loads((run.path / "run.json").read_text())["starts"]
    assert [start["command"] for start in starts] == [["uni_train", "fit"], []]
    assert starts[0]["versions"]["python"] == sys.version.split()[0]


def test_a_run_of_a_version_that_lacked_a_key_is_continued_by_the_default(tmp_path: Path) -> None:
    former = {key: value for key, value in to_plain(OURS).items() if key not in ("augment", "text_dropout")}
    key = stage_key(config=decisive(former))
    with folder(tmp_path) as run:
        run.begin(OURS)
        (run.path / "config.yaml").write_text(yaml.safe_dump(former))
        run.write_manifest(0, "evaluate", key=key, seconds=0.0)
    with folder(tmp_path) as run:
        assert run.begin(OURS) is True and run.key == key, "finished stages stay valid"
        with pytest.raises(UserError, match=r"text_dropout was 0\.0, now 0\.5"):
            run.begin(compose("stars_curriculum", ["text_dropout=0.5"]))


def test_a_run_without_work_to_lose_is_replaced(tmp_path: Path) -> None:
    with folder(tmp_path) as run:
        run.begin(OURS)
        run.start_clock(0, "evaluate")
        assert run.begin(OURS) is False, "it has written nothing"
        (run.stage_dir(0, "evaluate") / "shard").write_bytes(b"work")
        assert run.begin(OURS) is True
    with folder(tmp_path) as run:
        assert run.begin(OTHER) is False and not list(run.path.rglob("shard"))
        assert "lr: 0.5" in (run.path / "config.yaml").read_text()


def test_fresh_takes_the_next_free_name(tmp_path: Path) -> None:
    for expected in ("seed0", "seed0-2", "seed0-3"):
        run = RunFolder.fresh(tmp_path, "stars", "seed0")
        assert run.name == expected
        with run:
            run.begin(OURS)


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "stars").write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"cannot write to the run folder .*stars/seed0") as caught:
        folder(tmp_path).open()
    assert "out=" in (caught.value.hint or "")


def finished(tmp_path: Path) -> tuple[RunFolder, Path]:
    run = folder(tmp_path).open()
    stage = run.stage_dir(1, "sample-mapping1")
    (stage / "shards").mkdir()
    (stage / "shards" / "00000.parquet").write_bytes(b"pictures")
    run.write_manifest(1, "sample-mapping1", key="k", seconds=1.5, outputs=["shards/00000.parquet"], result={"n": 3})
    return run, stage


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run, _ = finished(tmp_path)
    with run:
        manifest = run.read_manifest(1, "sample-mapping1", key="k")
        assert isinstance(manifest, Manifest)
        assert (manifest.stage, manifest.seconds, manifest.result) == ("sample-mapping1", 1.5, {"n": 3})
        assert manifest.outputs[0].bytes == 8
        assert run.read_manifest(2, "filter-mapping1") is None
        with pytest.raises(UserError, match="other inputs"):
            run.read_manifest(1, "sample-mapping1", key="another")
    assert stage_key(a=1, b=[2]) == stage_key(b=[2], a=1) != stage_key(a=1, b=[3])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("manifest.json", b"\xff\xfe\x00", "manifest.json is damaged"),
        ("manifest.json", b"[]", "manifest.json is damaged"),
        ("manifest.json", b'{"stage": "x"}', "manifest.json is damaged"),
        ("shards/00000.parquet", None, "00000.parquet is missing"),
        ("shards/00000.parquet", b"pictureZ", "00000.parquet is damaged"),
        ("shards/00000.parquet", b"pict", "00000.parquet is damaged"),
    ],
)
def test_damage_is_named_with_the_remedy_and_nothing_is_removed(
    tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    run, stage = finished(tmp_path)
    with run:
        (stage / file).unlink()
        if content is not None:
            (stage / file).write_bytes(content)
        before = sorted(stage.rglob("*"))
        with pytest.raises(UserError, match=message) as caught:
            run.read_manifest(1, "sample-mapping1")
        assert str(stage) in caught.value.message
        assert f"Delete the folder {stage}" in (caught.value.hint or "")
        assert sorted(stage.rglob("*")) == before


def test_the_time_of_a_stage_adds_up_over_its_starts(tmp_path: Path) -> None:
    """A killed start counts until the last file that it wrote."""
    with RunFolder(tmp_path, "r", "n") as run:
        assert run.start_clock(0, "sft") == 0
        clock = run.stage_dir(0, "sft") / ".clock.json"
        began = json.loads(clock.read_text())["began"]
        written = run.stage_dir(0, "sft") / "metrics.jsonl"
        written.write_text("")
        os.utime(written, (began + 100, began + 100))
        assert run.start_clock(0, "sft") == pytest.approx(100, abs=0.1)
        os.utime(written, (began - 5, began - 5))
        assert 100 <= run.start_clock(0, "sft") < 101, "the second start wrote nothing"
        run.write_manifest(0, "sft", key="k", seconds=1.0)
        assert not clock.exists()


def test_opening_a_folder_removes_what_killed_writers_left(tmp_path: Path) -> None:
    stage = tmp_path / "r" / "n" / "stages" / "00-a"
    stage.mkdir(parents=True)
    for name in (".model.0a1b2c3d.partial.safetensors", ".manifest.ffffffff.partial.json", ".run.00000000.partial"):
        (stage / name).write_text("half")
    kept = [stage / name for name in ("model.partial.json", ".mine.partial.json", "00000.parquet")]
    for file in kept:
        file.write_text("whole")
    with RunFolder(tmp_path, "r", "n"):
        assert sorted(stage.iterdir()) == sorted(kept)


def test_the_hundredth_stage_comes_after_the_ninety_ninth(tmp_path: Path) -> None:
    for number in (98, 99, 100, 101):
        model = tmp_path / "stages" / f"{number:02d}-inject-forward{number}" / "model"
        model.mkdir(parents=True)
        (model.parent / "manifest.json").write_text("{}")
    assert [folder.name.partition("-")[0] for folder in stage_folders(tmp_path)] == ["98", "99", "100", "101"]
    assert final_model(tmp_path).parent.name.startswith("101-")
