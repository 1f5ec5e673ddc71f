"""Runs that come to grief again and again, and end in the numbers of runs that were left alone.

    python bench/torture.py --kills 100                      # nightly: all recipes and `eval`, an hour on two cores
    python bench/torture.py --kills 6 --only stars,eval      # some of them
    python bench/torture.py --kills 100 --seed 7 --work /tmp/torture --keep

A subject is a recipe that a CPU can run, with a model of ten thousand weights, or `eval`. Each is first run once,
undisturbed. Then runs of it are started and come to grief until `--kills` processes have ended by SIGKILL, at a random
write to the disk or at a random moment. Between kills a start may meet a full disk, a read-only folder, a second
process in the same folder, a clock that jumps by years, or files dated in the past or future, and go on with 1, 2 or 4
ranks. Every run is at last finished, and every file that it leaves is compared with the undisturbed one.

What is compared: all files but logs, locks and notes of starts; without times and peaks of memory. Exactly, where all
starts had one rank; otherwise floats within TOLERANCE (sums are taken in another order) and pixels within two grey
levels. Finished shards must not be written again, samples not be lost or repeated, and a start that cannot go on must
exit with 1 and one message.

Disks are tmpfs mounts in a mount namespace of this program (`unshare --map-root-user --mount`); where that is not
permitted, a full disk is a limit on the size of a file, and folders are read-only by their mode (not for root). The
clock is `time.time` of the process; `datetime.now` and the kernel's clock, which no process may change alone, stay
right. Each start is a fork of this process after its imports, so it costs little more than its work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import bench.dev_extra  # noqa: E402, F401
from bench.markdown import row, table  # noqa: E402
from bench.timing import forked  # noqa: E402

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("WANDB_MODE", "offline")

import lightning.pytorch  # noqa: E402, F401  # before the forks, like everything that a run needs
import numpy as np  # noqa: E402
import PIL.PngImagePlugin  # noqa: E402
import pyarrow.parquet  # noqa: E402
import statsmodels.stats.proportion  # noqa: E402, F401
import torch.distributed.launcher.api  # noqa: E402, F401
import yaml  # noqa: E402

import uni_train.eval.evaluation  # noqa: E402
import uni_train.recipes.flow_grpo.training  # noqa: E402
import uni_train.recipes.pretrain  # noqa: E402
import uni_train.stages.evaluate  # noqa: E402
from tests.models.bagel.conftest import FOLDER  # noqa: E402
from tests.models.bagel.published import published  # noqa: E402
from tests.models.nano.test_edit import SMALL  # noqa: E402
from tests.tiny import MODEL, TINY  # noqa: E402
from uni_train.cli.main import uni_train  # noqa: E402
from uni_train.config.build import to_plain  # noqa: E402
from uni_train.config.compose import compose  # noqa: E402
from uni_train.core.reading_limits import read_yaml  # noqa: E402
from uni_train.eval.store import Log  # noqa: E402
from uni_train.models.load import build_model, save_model  # noqa: E402

TOLERANCE = 1e-3
LIMIT = 600.0  # seconds that a start may take, also on a machine that others use; more is a hang
DISK = "256m"
_ASKED = ("evaluation.sets=[mapping1]", "evaluation.modes=[normal,cot]", "evaluation.n=2")
_STARS = (*TINY, *_ASKED)
_PARTS = read_yaml(ROOT / "recipes" / "nano_pretrain.yaml")["parts"]
_PRETRAIN = tuple(
    override
    for part, settings in _PARTS.items()
    for override in (
        f"parts.{part}.updates=2",
        *(f"parts.{part}.mixture.{kind}=2" for kind in settings["mixture"] if kind not in ("levels", "noise_draws")),
    )
)
_GRPO = (
    "epochs=2",
    "rollout.prompts_per_epoch=4",
    "rollout.group_size=4",
    "rollout.steps=4",
    "rollout.last_step=3",
    "held_out.n=4",
    "held_out.every=1",
    "checkpoint_every=1",
    "alarms.diversity=null",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A command; {data} in it is the folder of what all runs read, {out} that of this run. ranks: may be shared."""

    name: str
    command: tuple[str, ...]
    ranks: bool = True


def _fit(name: str, recipe: str, *overrides: str, ranks: bool = True) -> Subject:
    return Subject(name, ("fit", "--recipe", recipe, "out={out}", *overrides), ranks)


SUBJECTS = (
    _fit("stars", "stars_curriculum", *_STARS),
    _fit("sft", "sft_nano", *MODEL, *_ASKED, "sources.thoughts.path={data}/mapping1/items.jsonl",
         "sources.images.path={data}/mapping1/items.jsonl", "updates=6", "batch.tokens=400", "checkpoint_every=2",
         "optimizer.warmup_updates=1", ranks=False),  # packed by tokens: each rank draws its own micro-batches
    _fit("flow_grpo", "flow_grpo_math", *MODEL, *_GRPO, "evaluate=false", "rows=8", "updates_per_epoch=2"),
    _fit("knowledge", "knowledge", *MODEL, "model.sampling.max_think_tokens=26", "characters.n=1", "rows=40",
         "exam_every=2", "least_epochs=1", "epochs=4", "optimizer.warmup_updates=1", "checkpoint_every=1", "draws=1"),
    _fit("pretrain", "nano_pretrain", *MODEL, *_ASKED, "vae.updates=3", "vae.batch=8", "checkpoint_every=1",
         *_PRETRAIN),
    Subject("eval", ("eval", "-c", "{data}/tiny/stages/00-made/model", "--n", "6", "--sets", "math1,mapping1",
                     "batch=2", "--out", "{out}"), ranks=False),
    _fit("distil", "distil_curriculum", *_STARS, "states=teacher", "batch.noise_draws=2", "optimizer.warmup_updates=0"),
    Subject("insight", ("insight", "links", "-c", "{data}/tiny/stages/00-made/model", "--task", "mapping", "--level",
                        "1", "--n", "3", "batch=2", "--out", "{out}"), ranks=False),
    _fit("stars_mixed", "stars_mixed", *_STARS),
    _fit("stars_no_filter", "stars_no_filter", *_STARS),
    _fit("stars_mapping", "stars_mapping", *_STARS, "level=2"),
    _fit("stars_mapping_rounds", "stars_mapping_rounds", *_STARS, "level=1"),
    _fit("stars_math", "stars_math", *_STARS[:-4], *_ASKED, "filter=none", "level=1",
         "budget={math1:{prompts:8,updates:3}}"),
    _fit("sft_maze", "sft_maze", *SMALL, "model.threads=1", "sources.mazes.path={data}/maze4/items.jsonl", "updates=6",
         "batch.rows=4", "held_out.n=4", "held_out.every=2", "checkpoint_every=2", "optimizer.warmup_updates=1"),
    _fit("flow_grpo_maze", "flow_grpo_maze", *SMALL, "model.threads=1", *_GRPO, "rows=4", "model.checkpoint=null",
         "rewards.solved.function=verifier_dense"),
    _fit("unigrpo", "unigrpo_math", *MODEL, *_GRPO, "evaluate=false", "rows=8"),
    _fit("stars_maze", "stars_maze", *SMALL, "model.threads=1", "model.checkpoint=null", "filter=none",
         "solved={data}/maze4/items.jsonl", "rounds=[{task:maze,level:4,prompts:8,updates:3,replay:{solved:0.3}}]",
         "batch.prompts=4", "checkpoint_every=2", "evaluation.n=2", "optimizer.warmup_updates=0"),
    _fit("stars_bagel", "stars_curriculum", "model=bagel_7b", "model.checkpoint={data}/bagel", "data.world=nano",
         "model.threads=1", "model.draw_batch=4", "model.sampling.steps=1", "model.sampling.max_think_tokens=2",
         "strategy.precision=32-true", "filter=none", "data.distractors=0", "rounds=[{task:mapping,level:1}]",
         "budget={mapping1:{prompts:8,kept:null,epochs:null,updates:3}}", "batch.prompts=4", "batch.accumulate=2",
         "checkpoint_every=1", "evaluation.n=1", "evaluation.sets=[mapping1]"),
)  # fmt: skip
KINDS = SUBJECTS[:8]
"""One of each kind of recipe, `eval` and `insight`."""


# --- starts, in forks of this process --------------------------------------------------------------------------------


@dataclass(slots=True)
class Start:
    """How one start of a run goes. kill_write, kill_after: SIGKILL before so many writes, after so many seconds.
    jump: seconds that the clock is wrong, and wrong the other way after a moment."""

    ranks: int = 1
    kill_write: int | None = None
    kill_after: float | None = None
    jump: float = 0.0
    file_bytes: int | None = None


@dataclass(slots=True)
class Ended:
    """status: the exit code, minus the signal, or "hang". said: what it wrote to stderr."""

    status: int | str
    said: str
    writes: int = 0
    seconds: float = 0.0


def _child(arguments: list[str], out: Path, start: Start, report: Path) -> None:
    """In a process of its own, until its end."""
    os.dup2(os.open(report.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
    os.dup2(os.open(report.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
    if start.file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (start.file_bytes,) * 2)
    if start.jump:
        right, began = time.time, time.time()
        time.time = lambda: right() + (start.jump if right() < began + 0.4 else -start.jump)
    os._exit(_agent(arguments, out, start) if start.ranks > 1 else _work(arguments, out, start, report))


def _work(arguments: list[str], out: Path, start: Start, report: Path | None) -> int:
    writes = 0

    def count(event: str, given: tuple[Any, ...]) -> None:
        nonlocal writes
        written = event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (written or event in ("os.rename", "os.mkdir", "os.remove")) and str(given[0]).startswith(str(out)):
            writes += 1
            if writes == start.kill_write:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    code = 99
    try:
        uni_train(arguments, prog_name="uni_train")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    if report is not None:
        report.write_text(str(writes))
    return code


def _agent(arguments: list[str], out: Path, start: Start) -> int:
    """The ranks as torchrun starts them, each a fork; the first one is killed at its write, or all at a moment."""
    import logging

    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=start.ranks, run_id="torture", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", local_addr="localhost", max_restarts=0, start_method="fork",
        logs_specs=DefaultLogsSpecs(),
    )  # fmt: skip
    try:
        elastic_launch(config, _rank)(arguments, str(out), start)
    except BaseException:
        return 1
    return 0


def _rank(arguments: list[str], out: str, start: Start) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    mine = start if os.environ["RANK"] == "0" else Start()
    code = _work(arguments, Path(out), mine, None)
    if code:
        os._exit(code)


class Going:
    """A start that is going on; `wait` for its end."""

    def __init__(self, arguments: list[str], out: Path, start: Start, report: Path) -> None:
        self.start, self._report, self._began = start, report, time.monotonic()
        report.unlink(missing_ok=True)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            _child(arguments, out, start, report)
        self._hang = False
        self._timers = [threading.Timer(LIMIT, self._end, (True,))]
        if start.kill_after is not None:
            self._timers.append(threading.Timer(start.kill_after, self._end, (False,)))
        for timer in self._timers:
            timer.start()

    def _end(self, hang: bool) -> None:
        self._hang = hang
        with contextlib.suppress(ProcessLookupError):  # over, or not yet the head of its group
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        for timer in self._timers:
            timer.cancel()
        seconds = time.monotonic() - self._began
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # ranks whose agent was killed
        said = self._report.with_suffix(".err").read_text(errors="replace")
        writes = int(self._report.read_text()) if self._report.exists() else 0
        return Ended("hang" if self._hang else status, said, writes, seconds)


# --- what a run leaves -----------------------------------------------------------------------------------------------

_NOTES = ("run.json", "report.html", "insight.html", "config.yaml", "asked.json", "record.json")
"""Starts, commands, times, places; config.yaml is compared by `fit` itself at every start."""
_TIMES = {
    "seconds",
    "wall_seconds",
    "peak_rss_bytes",
    "sha256",
    "bytes",
    "split",
    "time",
    "command",
    "calls",
    "started",
    "code",
}


def files_of(out: Path) -> list[Path]:
    """What is compared of the folder of a run, relative to it."""
    found = []
    for path in sorted(out.rglob("*")):
        relative = path.relative_to(out)
        skipped = (
            path.name in _NOTES or path.name.startswith(".lock") or relative.name in (".owner.json", ".clock.json")
        )
        skipped |= (
            relative.parts[0] == "store" and ".partial" in path.name
        )  # others may be writing there: nobody tidies
        skipped |= path.suffix == ".jsonl" and "calls" in relative.parts  # named by time: `_samples` counts their rows
        if path.is_file() and not skipped and not {"logs"} & set(relative.parts):
            found.append(relative)
    return found


def content(path: Path, out: Path, exact: bool) -> Any:
    """A file below `out` as numbers and texts, without times; its bytes where nothing is known of it."""
    match path.suffix:
        case ".json":
            return _without_times(json.loads(path.read_text(encoding="utf-8").replace(str(out), "OUT")))
        case ".jsonl":
            return [_without_times(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line]
        case ".parquet":
            found = pyarrow.parquet.read_table(path, use_threads=False).to_pylist()
            return found if exact else [{name: _looser(value) for name, value in one.items()} for one in found]
        case ".safetensors" if not exact:
            from safetensors.numpy import load_file

            return load_file(path)
        case ".png" if not exact:
            return _looser(path.read_bytes())
    return path.read_bytes()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if name not in _TIMES}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


def _looser(value: Any) -> Any:
    """Images as pixels, JSON as what it holds: for comparisons within a tolerance."""
    if isinstance(value, bytes) and value.startswith(b"\x89PNG"):
        import io

        with PIL.Image.open(io.BytesIO(value)) as image:
            return np.asarray(image.convert("RGB"), dtype=np.float32) / 255
    if isinstance(value, str) and value.startswith(("{", "[")):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return [_looser(one) for one in value] if isinstance(value, list) else value


def differences(mine: Any, other: Any, exact: bool, at: str = "") -> Iterator[str]:
    """Where two contents differ."""
    if isinstance(mine, dict) and isinstance(other, dict):
        for name in sorted(mine.keys() | other.keys(), key=str):
            if name not in mine or name not in other:
                yield f"{at}.{name} is {'missing' if name not in mine else 'new'}"
            else:
                yield from differences(mine[name], other[name], exact, f"{at}.{name}")
    elif isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        for number, pair in enumerate(zip(mine, other, strict=True)):
            yield from differences(*pair, exact, f"{at}[{number}]")
    elif isinstance(mine, np.ndarray) and isinstance(other, np.ndarray):
        near = mine.shape == other.shape and np.allclose(mine, other, rtol=TOLERANCE, atol=2.5 / 255)
        if not near:
            yield f"{at}: tensors differ"
    elif isinstance(mine, float) and isinstance(other, int | float) and not exact:
        if not np.isclose(mine, other, rtol=TOLERANCE, atol=TOLERANCE):
            yield f"{at} is {mine}, expected {other}"
    elif mine != other:
        yield f"{at} is {str(mine)[:60]}, expected {str(other)[:60]}"


def compare(out: Path, expected: Path, exact: bool) -> dict[str, Any]:
    """files compared; problems: what is missing, new or differs; lost, repeated: samples, by their keys."""
    mine, others = files_of(out), files_of(expected)
    problems = [f"{name} is missing" for name in sorted(set(others) - set(mine))]
    problems += [f"{name} is new" for name in sorted(set(mine) - set(others))]
    shared = sorted(set(mine) & set(others))
    for name in shared:
        found = list(differences(content(out / name, out, exact), content(expected / name, expected, exact), exact))
        problems += [f"{name}{one}" for one in found[:2]]
    keys, wanted = _samples(out), _samples(expected)
    return {
        "files": len(shared),
        "problems": problems,
        "samples": sum(wanted.values()),
        "lost": sum((wanted - keys).values()),
        "repeated": sum((keys - wanted).values()),
    }


def _samples(out: Path) -> Counter[str]:
    """How often each sample is there, by its stage and what it is."""
    found: Counter[str] = Counter()
    for path in out.rglob("[!.]*.parquet"):
        stored = pyarrow.parquet.read_table(path, use_threads=False)
        names = [name for name in ("id", "case", "setting", "k", "seed", "key") if name in stored.column_names]
        found.update(f"{path.parent.relative_to(out)} {sample}" for sample in stored.select(names).to_pylist())
    for folder in out.rglob("calls/*/"):
        for batch in Log(folder).read(dict):
            found.update(f"{folder.relative_to(out)} {call['key']}" for call in batch["calls"])
    return found


# --- trouble ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What one subject went through."""

    done: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    files: int = 0
    samples: int = 0
    lost: int = 0
    repeated: int = 0
    again: int = 0
    differing: list[str] = field(default_factory=list)
    bad_ends: list[str] = field(default_factory=list)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /tmp"]
    return subprocess.run(probe, capture_output=True).returncode == 0


class Place:
    """The disk of one run: a tmpfs of its own where this process may mount one."""

    def __init__(self, folder: Path, mounts: bool) -> None:
        self.path, self._mounts = folder, mounts
        folder.mkdir(parents=True)
        if mounts:
            self._mount(f"size={DISK}")

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)], check=True)

    def fill(self, moments: random.Random) -> int | None:
        """Leave a little room; the largest size of a file, where the disk cannot be made small."""
        if not self._mounts:
            return moments.choice([200, 2_000, 20_000])
        used = sum(4096 + path.lstat().st_blocks * 512 for path in self.path.rglob("*"))
        self._mount(f"remount,size={used // 1024 + moments.choice([8, 40, 150, 400])}k")
        return None

    def protect(self) -> bool:
        """Make it read-only; whether that is possible here."""
        if self._mounts:
            self._mount("remount,ro")
        elif os.geteuid() == 0:
            return False
        else:
            for path in (self.path, *self.path.rglob("*")):
                path.chmod(0o555 if path.is_dir() else 0o444)
        return True

    def restore(self) -> None:
        if self._mounts:
            self._mount(f"remount,rw,size={DISK}")
            return
        for path in (self.path, *self.path.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def remove(self) -> None:
        if self._mounts:
            subprocess.run(["umount", str(self.path)], check=True)
        shutil.rmtree(self.path, ignore_errors=True)


class Torture:
    def __init__(self, work: Path, seed: int, mounts: bool, ranks: tuple[int, ...]) -> None:
        self.work, self.moments, self.mounts, self.ranks = work, random.Random(seed), mounts, ranks
        self.data = work / "data"

    def arguments(self, subject: Subject, out: Path) -> list[str]:
        return [part.replace("{data}", str(self.data)).replace("{out}", str(out)) for part in subject.command]

    def go(self, arguments: list[str], out: Path, start: Start) -> Ended:
        return Going(arguments, out, start, self.work / "writes").wait()

    def prepare(self) -> None:
        """What all runs read: rows of two tasks, a nano, a BAGEL in the published layout."""
        self.data.mkdir(parents=True)
        published(FOLDER, self.data / "bagel")
        for task, folder in (("mapping --level 1 --world nano", "mapping1"), ("maze --style nano --size 4", "maze4")):
            options = f"data make --task {task} --n 12 --split train --out {self.data / folder}".split()
            ended = self.go(options, self.data, Start())
            assert ended.status == 0, ended.said

        def save() -> None:
            """A model where a run would have left it, which says how it is made."""
            config, run = compose("stars_curriculum", MODEL), self.data / "tiny"
            save_model(build_model(config.model), run / "stages" / "00-made" / "model")
            (run / "config.yaml").write_text(yaml.safe_dump(to_plain(config)), encoding="utf-8")

        forked(save)()

    def subject(self, subject: Subject, kills: int) -> Tally:
        """Runs of one subject until so many starts were killed; each is finished and compared."""
        tally, expected = Tally(), self.work / subject.name / "undisturbed"
        expected.mkdir(parents=True)
        alone = self.go(self.arguments(subject, expected), expected, Start())
        if alone.status != 0:
            tally.bad_ends.append(f"undisturbed: {alone.status}: {alone.said[-400:]}")
            return tally
        while tally.done["kill -9"] < kills and not tally.bad_ends:
            tally.runs += 1
            place = Place(self.work / subject.name / f"run{tally.runs}", self.mounts)
            try:
                left = kills - tally.done["kill -9"]
                self.run(subject, place, expected, alone, min(left, self.moments.randint(1, 5)), tally)
            finally:
                place.remove()
            if tally.runs > 20 * kills:
                raise SystemExit(f"bench/torture.py: {subject.name} ends before it can be killed")
        return tally

    def run(self, subject: Subject, place: Place, expected: Path, alone: Ended, kills: int, tally: Tally) -> None:
        """One run: trouble until it was killed so often or is finished, then a last start and the comparison."""
        arguments, one_rank, shards = self.arguments(subject, place.path), True, {}
        before = tally.done["kill -9"]
        for _ in range(4 * kills):
            if tally.done["kill -9"] - before >= kills:
                break
            start = Start()
            if subject.ranks and self.moments.random() < 0.25:
                start.ranks = self.moments.choice(self.ranks)
            if self.moments.random() < 0.3:
                start.jump = self.moments.choice([-1, 1]) * self.moments.uniform(60, 3e8)
                tally.done["clock"] += 1
            trouble = self.moments.choices(["kill", "full", "read-only", "two"], [12, 1, 1, 1])[0]
            ended = self.trouble(trouble, arguments, place, start, alone, tally)
            if start.ranks > 1:
                one_rank = False
                tally.done[f"{start.ranks} ranks"] += 1
            tally.again += self._written_again(place.path, shards)
            if ended == 0:
                break
            if self.moments.random() < 0.2:
                self._date(place.path)
                tally.done["dates"] += 1
        last = self.go(arguments, place.path, Start())
        if last.status != 0:
            tally.bad_ends.append(f"the last start: {last.status}: {last.said[-400:]}")
            return
        tally.again += self._written_again(place.path, shards)
        found = forked(lambda: compare(place.path, expected, one_rank))()
        tally.files += found["files"]
        tally.samples += found["samples"]
        tally.lost += found["lost"]
        tally.repeated += found["repeated"]
        tally.differing += found["problems"]

    def trouble(
        self, what: str, arguments: list[str], place: Place, start: Start, alone: Ended, tally: Tally
    ) -> int | str:
        """One start with one trouble, its end judged; its status."""
        other: Ended | None = None
        if what == "full":
            start.file_bytes = place.fill(self.moments)
        elif what == "read-only" and not place.protect():
            what = "kill"
        if what == "two":
            going = Going(arguments, place.path, start, self.work / "writes")
            time.sleep(self.moments.uniform(0.05, alone.seconds))
            other = self.go(arguments, place.path, Start())
            ended = going.wait()
            if other.status not in (0, 1) or (other.status == 1 and not _one_message(other.said)):
                tally.bad_ends.append(f"two processes, the second: {other.status}: {other.said[-400:]}")
        else:
            if what == "kill":
                if self.moments.random() < 0.6:
                    start.kill_write = self.moments.randint(1, max(2, round(0.7 * alone.writes)))
                else:
                    slower = 1 + 2 * (start.ranks > 1)
                    start.kill_after = self.moments.uniform(0.1, 0.8 * alone.seconds * slower)
            ended = self.go(arguments, place.path, start)
        place.restore()
        was_killed = ended.status == -signal.SIGKILL or (
            start.ranks > 1 and start.kill_write is not None and ended.status == 1
        )
        if what == "kill" and was_killed:
            tally.done["kill -9"] += 1
        elif what != "kill":
            tally.done[what] += 1
        stops = what in ("full", "read-only") or (what == "two" and "in use" in ended.said)
        if ended.status == 1 and stops:
            if not _one_message(ended.said):
                tally.bad_ends.append(f"{what}: no single message: {ended.said[-400:]}")
        elif (ended.status != 0 and not was_killed) or "Traceback" in ended.said:
            tally.bad_ends.append(f"{what} ({start}): {ended.status}: {ended.said[-600:]}")
        return ended.status

    def _date(self, out: Path) -> None:
        """Files get dates of the past and the future."""
        for path in out.rglob("*"):
            when = self.moments.choice([0.0, time.time() - 3e8, time.time() + 3e8])
            os.utime(path, (when, when), follow_symlinks=False)

    @staticmethod
    def _written_again(out: Path, known: dict[str, int]) -> int:
        """How many finished shards are not the file that they were after an earlier start; notes the new ones."""
        again = 0
        for path in out.rglob("shards/[0-9]*.parquet"):
            name, inode = str(path), path.stat().st_ino
            again += known.get(name, inode) != inode
            known[name] = inode
        return again


def _one_message(said: str) -> bool:
    lines = said.splitlines()
    return "Traceback" not in said and sum(line.startswith("error:") for line in lines) == 1 and len(said) < 3000


# --- the command -----------------------------------------------------------------------------------------------------

_COLUMNS = ("kill -9", "full", "read-only", "two", "clock", "dates", "2 ranks", "4 ranks")


def rows(found: dict[str, Tally]) -> Iterator[str]:
    """A row a subject, in markdown."""
    sums = ("runs", "files", "differing", "samples", "lost", "repeated", "again", "bad_ends")
    heads = ("runs", "files compared", "differing", "samples", "lost", "repeated", "asked again", "bad ends")
    yield from table("subject", *_COLUMNS, *heads)
    total = Tally()
    for tally in found.values():
        total.done += tally.done
        for name in sums:
            setattr(total, name, getattr(total, name) + getattr(tally, name))
    for name, one in (*found.items(), ("**all**", total)):
        values = (getattr(one, part) for part in sums)
        counts = (len(value) if isinstance(value, list) else value for value in values)
        yield row(name, *(one.done[column] for column in _COLUMNS), *counts)


def torture(
    kills: int, subjects: tuple[Subject, ...], work: Path, seed: int, ranks: tuple[int, ...], mounts: bool
) -> dict[str, Tally]:
    """What became of every subject; says so on the way on stderr."""
    compose("stars_curriculum")  # imports hydra, too
    one = Torture(work, seed, mounts, ranks)
    one.prepare()
    found: dict[str, Tally] = {}
    for number, subject in enumerate(subjects):
        share = (number + 1) * kills // len(subjects) - number * kills // len(subjects)
        began = time.monotonic()
        one.moments = random.Random(f"{seed} {subject.name}")
        found[subject.name] = tally = one.subject(subject, share)
        bad = [*tally.differing, *tally.bad_ends]
        print(f"{subject.name}: {tally.done['kill -9']} kills, {tally.runs} runs, {time.monotonic() - began:.0f} s"
              + "".join(f"\n  {line}" for line in bad[:8]), file=sys.stderr, flush=True)  # fmt: skip
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=100, help="processes that end by SIGKILL, over all subjects")
    parser.add_argument("--only", default="", help=f"of {','.join(one.name for one in SUBJECTS)}; or: kinds")
    parser.add_argument("--ranks", default="1,2,4", help="world sizes of starts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="where to run; it must not exist  [default: a temporary folder]")
    parser.add_argument("--keep", action="store_true", help="do not remove it")
    parser.add_argument("--no-mounts", action="store_true", help="no disks of its own")
    asked = parser.parse_args(arguments)
    if not asked.no_mounts and "TORTURE_MOUNTS" not in os.environ:
        os.environ["TORTURE_MOUNTS"] = str(int(can_mount()))
        if os.environ["TORTURE_MOUNTS"] == "1" and arguments is None:
            command = ["unshare", "--map-root-user", "--mount", sys.executable, str(Path(__file__)), *sys.argv[1:]]
            os.execvp("unshare", command)
    mounts = not asked.no_mounts and os.environ.get("TORTURE_MOUNTS") == "1"
    known = {one.name: one for one in SUBJECTS}
    if asked.only == "kinds":
        subjects = KINDS
    else:
        names = [name for name in asked.only.split(",") if name] or list(known)
        unknown = [name for name in names if name not in known]
        if unknown:
            parser.error(f"no subject {unknown[0]}; there are {', '.join(known)}, and kinds for one of each kind")
        subjects = tuple(known[name] for name in names)
    work = asked.work or Path(tempfile.mkdtemp(prefix="torture-"))
    ranks = tuple(int(part) for part in asked.ranks.split(","))
    try:
        found = torture(asked.kills, subjects, work, asked.seed, ranks, mounts)
    finally:
        if not asked.keep:
            shutil.rmtree(work, ignore_errors=True)
    print("\n".join(rows(found)))
    if not mounts:
        print("\nNo disks of its own: a full disk was a limit on the size of files.")
    for name, tally in found.items():
        for line in [*tally.differing, *tally.bad_ends]:
            print(f"\n{name}: {line}")
    return int(any(one.differing or one.bad_ends or one.lost or one.repeated or one.again for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
