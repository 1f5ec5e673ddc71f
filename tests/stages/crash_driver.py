"""Runs the main job in child processes that come to grief in planned ways, one after the other.

    python -m tests.stages.crash_driver OUT '[{"name": "a", "write": 17}, {"name": "a"}]' OVERRIDES...

Steps: {"write": n}: kill -9 just before the n-th time that the child creates, renames or opens a file for writing;
{"seconds": s}: kill -9 after so long; {"file_bytes": n}: no file may grow beyond n bytes; {"disk": "300k"}: OUT lies on
a disk of that size (mounted by this process, which therefore wants a mount namespace of its own); {}: nothing happens.
A step's "name" is that of its run folder, so that several runs can share the cost of the imports.

Prints one JSON line a step: status (exit code, or minus the signal), what the child wrote to stderr, and the inode and
modification time of every finished shard. Each child is a fork of this process after its imports, so a step costs
little more than its work.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

# Imported before the forks, like everything that a run needs.
import lightning.pytorch  # noqa: F401
import PIL.PngImagePlugin  # noqa: F401
import pyarrow.parquet  # noqa: F401
import statsmodels.stats.proportion  # noqa: F401

import uni_train.eval.report
import uni_train.stages.run
from tests.tiny import shards
from uni_train.cli.main import uni_train
from uni_train.config.compose import compose

RECIPE = "stars_curriculum"


def run_child(out: Path, step: dict[str, Any], overrides: list[str], stderr: int) -> None:
    os.dup2(stderr, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if "file_bytes" in step:
        resource.setrlimit(resource.RLIMIT_FSIZE, (step["file_bytes"],) * 2)
    if "write" in step:
        left = step["write"]

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if (writes or event in ("os.rename", "os.mkdir")) and str(out) in str(arguments[0]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
    try:
        uni_train(["fit", "--recipe", RECIPE, f"out={out}", f"name={step['name']}", *overrides], prog_name="uni_train")
    except SystemExit as end:
        os._exit(int(end.code or 0))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(99)


def attempt(out: Path, step: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    if "disk" in step:
        options = f"size={step['disk']}" if not out.is_mount() else f"remount,size={step['disk']}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(out)], check=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        run_child(out, step, overrides, writing)
    os.close(writing)
    timer = threading.Timer(step.get("seconds", 600), os.kill, (child, signal.SIGKILL))
    timer.start()
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    timer.cancel()
    run = out / RECIPE / step["name"]
    kept = {str(path.relative_to(run)): [path.stat().st_ino, path.stat().st_mtime_ns] for path in shards(run)}
    return {"status": status, "stderr": said, "shards": kept}


def main(out: Path, steps: list[dict[str, Any]], overrides: list[str]) -> None:
    compose(RECIPE, overrides)  # imports hydra, too
    for step in steps:
        print(json.dumps(attempt(out, step, overrides)), flush=True)
    summary = out / RECIPE / steps[-1]["name"] / "summary.json"
    print(summary.read_text(encoding="utf-8") if summary.exists() else "{}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
