"""What an evaluation costs beside the model, and what killing it costs: the figures of research/reliability.md.

    python bench/evaluation.py                     # all of it, about three minutes on one core
    python bench/evaluation.py --only kills --kills 50

score   10,000 stored samples of UniSandbox (nano's world), checked by programs and counted; and what memory 2,000 and
        20,000 of them take, each scored in a process of its own. Images are those of the renderer: no model is loaded.
        --benchmark ureason: of UReason.
kills   the same command, killed (SIGKILL) at random moments of either phase and started again until it is finished: how
        many calls were made twice, and whether any number differs from an unbroken run's
hash    how fast a checkpoint's content is hashed, and how fast when its hash is known
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Imported before the forks, like everything that an evaluation needs.
import numpy as np
import pyarrow.parquet  # noqa: F401
import statsmodels.regression.linear_model
import statsmodels.stats.contingency_tables
import statsmodels.stats.proportion  # noqa: F401
import torch

from bench.timing import MB as MIB
from bench.timing import forked, machine
from uni_train.config.schema import EvalConfig
from uni_train.data_gen.registry import task_of
from uni_train.data_gen.ureason.outcomes import Sprites, outcome_from
from uni_train.eval.benchmark import BENCHMARKS, Benchmark, Case, Source
from uni_train.eval.calls import StoredModel
from uni_train.eval.evaluation import Evaluation, EvaluationPlan, run
from uni_train.eval.store import Store
from uni_train.eval.task_benchmark import item_of
from uni_train.models.base import Request
from uni_train.models.identity import CACHE, ModelIdentity, content_hash

BATCH = 16


def plan(out: Path, n: int, batch: int | None = None, benchmark: str = "unisandbox") -> EvaluationPlan:
    """`n` questions of each set of a benchmark: of UniSandbox 18 n samples of nano."""
    return EvaluationPlan(
        checkpoint="shipped",
        benchmarks=[BENCHMARKS.get(benchmark).open(Source(n=n))],
        config=EvalConfig(out=str(out), name="bench", batch=batch),
    )


class Renderer:
    """Draws what is right, and thinks what is right: a model that takes no time."""

    name = "renderer"

    def __init__(self, benchmark: Benchmark) -> None:
        self.cases = {case.id: case for case in benchmark.cases()}

    def think(self, requests: Sequence[Request], *, on_step: Any = None) -> list[str]:
        return [self._thought(self._case(request)) for request in requests]

    def draw(self, requests: Sequence[Request], *, on_step: Any = None) -> list[np.ndarray]:
        return [self._image(self._case(request), request.seed) for request in requests]

    def _case(self, request: Request) -> Case:
        return self.cases[request.id.partition("#")[0]]

    def _thought(self, case: Case) -> str:
        return item_of(case).thought if "item" in case.facts else f"So draw {outcome_from(case.facts['outcome'])} ."

    def _image(self, case: Case, seed: int) -> np.ndarray:
        if "item" in case.facts:
            return task_of(item_of(case)).render(item_of(case), seed)
        outcome = outcome_from(case.facts["outcome"])
        assert isinstance(outcome, Sprites), "of nano's world"
        return outcome.render(seed)


def rendered(out: Path, n: int, k: int, benchmark: str) -> Evaluation:
    """The plan's samples, each drawn `k` times, by the renderer."""
    planned = plan(out, n, benchmark=benchmark)
    asked = replace(planned, config=replace(planned.config, name=f"rendered-{n}-{k}", k=k))
    renderer = Renderer(*asked.benchmarks)
    identity = ModelIdentity("renderer", "bench", "renderer")
    store = Store(asked.store_folder)
    return run(asked, model=StoredModel(identity, store, lambda: renderer))  # type: ignore[arg-type]


def scoring(out: Path, n: int, sizes: Sequence[int], benchmark: str) -> list[str]:
    """Samples a second of processor time, and the peak of memory by their number."""
    told = []
    (opened,) = plan(out, n, benchmark=benchmark).benchmarks
    for samples in sizes:
        k = max(1, samples // (len(opened.cases()) * len(opened.settings)))
        rendered(out, n, k, benchmark)  # draws, and stores
        done = forked(partial(_measured, out, n, k, benchmark))()
        each = done["samples"] / done["cpu"]
        told.append(
            f"score: {done['samples']:.0f} stored samples in {done['cpu']:.1f} s of processor time, {each:.0f} samples "
            f"a second of it; peak {done['peak'] / MIB:.0f} MiB, {done['more'] / MIB:.0f} MiB more than before"
        )
    return told


def _measured(out: Path, n: int, k: int, benchmark: str) -> dict[str, float]:
    """What scoring of stored samples takes: processor seconds, and memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cpu = time.process_time()
    found = rendered(out, n, k, benchmark)
    spent, peak = time.process_time() - cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert found.calls["draw"]["made"] == 0
    return {"samples": found.results[benchmark].n, "cpu": spent, "peak": peak, "more": peak - before}


@dataclass(frozen=True)
class Kills:
    """What came of killing the same command again and again.

    Attributes:
        kills: how many. in_scoring: those that came after all was drawn.
        calls: the model's, of an unbroken run. repeated: those that were made again after kills, in all; most: after
            one.
        rounds: evaluations that were finished. same: whether every number and image of each equals the unbroken
            run's.
    """

    kills: int
    in_scoring: int
    calls: int
    repeated: int
    most: int
    rounds: int
    same: bool


def killing(out: Path, n: int, kills: int, seed: int) -> Kills:
    """Start, kill, start again until an evaluation is finished; and all of that until there were `kills` kills."""
    began = time.perf_counter()
    assert start(out / "unbroken", n, None) == 0
    seconds = time.perf_counter() - began
    expected, calls = _numbers(out / "unbroken"), len(_log(out / "unbroken"))
    draw = random.Random(seed)
    done = in_scoring = repeated = most = rounds = 0
    same = True
    while done < kills:
        folder = out / f"round{rounds}"
        status = None
        while status != 0:
            before = _log(folder)
            after = draw.uniform(0.2, seconds) if done < kills else None
            status = start(folder, n, after)
            again = _repeats(_log(folder)) - _repeats(before)
            repeated, most = repeated + again, max(most, again)
            if status == -signal.SIGKILL:
                done += 1
                in_scoring += (folder / "scoring").exists()
            elif status != 0:
                raise SystemExit(f"a start ended with {status}: see its traceback above")
        rounds += 1
        same = same and _numbers(folder) == expected
    return Kills(done, in_scoring, calls, repeated, most, rounds, same)


def start(folder: Path, n: int, kill_after: float | None) -> int:
    """Run the plan in a child of this process, killed after so many seconds; its exit code, or minus the signal."""
    folder.mkdir(exist_ok=True)
    child = os.fork()
    if child == 0:
        try:
            _watch(folder)
            run(plan(folder, n, BATCH))
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(99)
    timer = None
    if kill_after is not None:
        timer = threading.Timer(kill_after, os.kill, (child, signal.SIGKILL))
        timer.start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if timer is not None:
        timer.cancel()
    return status


def _watch(folder: Path) -> None:
    """Note, in this process, every call before it reaches the model, and when the last one has been made."""
    forward, release = StoredModel._forward, StoredModel.release

    def noted(self: StoredModel, skill: Any, asked: Mapping[str, Request], on_step: Any) -> tuple[list[Any], float]:
        with open(folder / "calls.log", "a") as log:
            log.write("".join(f"{key}\n" for key in asked))
        return forward(self, skill, asked, on_step)

    def released(self: StoredModel) -> None:
        (folder / "scoring").touch()
        release(self)

    StoredModel._forward, StoredModel.release = noted, released  # type: ignore[method-assign]


def _log(folder: Path) -> list[str]:
    file = folder / "calls.log"
    return file.read_text().split() if file.exists() else []


def _repeats(keys: Sequence[str]) -> int:
    return len(keys) - len(set(keys))


def _numbers(folder: Path) -> Any:
    """Scores, outcomes, tables, and the content hashes of all samples with their images."""
    return json.loads((folder / "bench" / "scores.json").read_text())["results"]


def hashing(folder: Path, mib: int) -> list[str]:
    """How fast a checkpoint of so many MiB is hashed, and how fast where its hash is kept."""
    folder.mkdir()
    file = folder / "model.safetensors"
    with open(file, "wb") as stream:
        for _ in range(mib):
            stream.write(os.urandom(MIB))
    began, cpu = time.perf_counter(), time.process_time()
    first = content_hash(folder)
    fresh, cpu = time.perf_counter() - began, time.process_time() - cpu
    began = time.perf_counter()
    again = content_hash(folder)
    known = time.perf_counter() - began
    assert first == again and (folder / CACHE).exists()
    return [
        f"hash: {mib} MiB in {fresh:.1f} s ({cpu:.1f} s of processor time, {mib / cpu:.0f} MiB a second of it); "
        f"{known * 1e3:.1f} ms where it is known"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="score,kills,hash", help="what to measure: score, kills, hash")
    parser.add_argument("--n", type=int, default=37, help="questions of each set for `score`")
    parser.add_argument("--benchmark", default="unisandbox", choices=("unisandbox", "ureason"), help="for `score`")
    parser.add_argument("--samples", default="2000,10000,20000", help="about how many for `score`")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    torch.set_num_threads(1)  # and so that a fork has no threads to miss
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        if "kills" in wanted:
            one = killing(out, 6, arguments.kills, arguments.seed)
            verdict = "every number and image as in an unbroken run" if one.same else "NUMBERS DIFFER"
            print(
                f"kills: {one.kills} ({one.in_scoring} while scoring), {one.rounds} evaluations of {one.calls} calls, "
                f"{BATCH} a batch; {one.repeated} calls made again, at most {one.most} after a kill; {verdict}",
                flush=True,
            )
            if not one.same or one.most > BATCH:
                raise SystemExit(1)
        if "score" in wanted:
            sizes = [int(one) for one in arguments.samples.split(",")]
            print(
                *scoring(out / "score", arguments.n, sizes, arguments.benchmark),
                sep="\n",
                flush=True,
            )
        if "hash" in wanted:
            print(*hashing(out / "hash", 512), sep="\n")


if __name__ == "__main__":
    main()
