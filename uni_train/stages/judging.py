"""The run's judge: it scores images that no program can verify, and with filter=judge it filters samples.

It is a model behind an OpenAI-compatible address, or a checkpoint. The run serves a checkpoint on this machine while
it runs, by `uni_train serve` in a process of its own. The first rank asks for all; replies and logs are in
`judge/` of the stage's folder, so that a start after a kill asks nothing twice.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from uni_train.config.kinds import judge_of, kind_of
from uni_train.config.schema import JudgeConfig, RunConfig
from uni_train.core.addresses import held_port
from uni_train.core.errors import UserError
from uni_train.distributed.watchdog import STARTER
from uni_train.eval.benchmark import Benchmark, Sample, Scored
from uni_train.stages.work import Work

LOG = "judge.log"  # in the run's folder: what a served checkpoint says
LOADING = 1800.0  # seconds that a checkpoint may take until it answers


def ready(work: Work[Any]) -> None:
    """Make sure that all servers of this run answer; a judge's checkpoint is served from now on. All ranks call it.

    Raises:
        UserError: one does not answer, refuses the key, or its weights cannot be served.
    """
    if work.answered:
        return
    judge, servers = judge_of(work.config), kind_of(work.config).servers(work.config)
    work.ranks.from_main(lambda: [ask() is None for ask in servers.values()])
    work.answered = True
    if judge is not None:
        work.judge = work.ranks.from_main(lambda: _answering(judge, work.folder.path / LOG))


def judged(work: Work[Any], folder: Path, benchmark: Benchmark, scored: Sequence[Scored]) -> list[Scored]:
    """The samples, with the judge's verdict on those that no program could check.

    Args:
        folder: of the stage; `judge/` in it keeps replies and logs.

    Raises:
        UserError: the judge did not answer for some of them.
    """
    left = [place for place, answer in enumerate(scored) if answer.verdict is None and answer.sample.status == "ok"]
    replies = judge_samples(work, folder, [scored[place].sample for place in left], benchmark) if left else []
    by_judge = dict(zip(left, replies, strict=True))
    return [by_judge.get(place, answer) for place, answer in enumerate(scored)]


def judge_samples(work: Work[Any], folder: Path, samples: Sequence[Sample], benchmark: Benchmark) -> list[Scored]:
    """Judge samples of a benchmark by the run's judge. On the first rank.

    Raises:
        UserError: the judge did not answer for some of them.
    """
    from uni_train.eval import judges

    assert work.judge is not None, "`ready` comes before the first stage"
    judged_samples = judges.run(samples, benchmark, work.judge, folder, work.progress)
    failed = sum(sample.failure == "judge_failed" for sample in judged_samples)
    if failed:
        raise silent(work.config, failed, len(judged_samples))
    return judged_samples


def silent(config: RunConfig, failed: int, images: int) -> UserError:
    """The error for a judge that did not answer."""
    where = config.judge.model or config.judge.checkpoint if config.judge is not None else None
    return UserError(
        f"the judge {where} did not answer for {failed} of {images} images",
        "Start it, or wait, and run the same command again: images and replies are kept.",
    )


# --- who is asked -----------------------------------------------------------------------------------------------------


def _answering(config: JudgeConfig, log: Path) -> JudgeConfig:
    """The judge, at the address of the served checkpoint where it is one, after a test question."""
    from uni_train.eval import judges

    judge = config if config.checkpoint is None else replace(config, model=_served(config.checkpoint, log))
    judges.expect_answer(judge)
    return judges.with_served_revision(judge)


def _served(checkpoint: str, log: Path) -> str:
    """Serve a checkpoint until this process ends; its address, with the model's name.

    Raises:
        UserError: it cannot be served.
    """
    alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    alone |= {STARTER: str(os.getpid())}
    with held_port() as port, open(log, "wb") as output:
        command = [sys.executable, "-m", "uni_train", "serve", "--model", checkpoint, "--port", str(port)]
        server = subprocess.Popen(command, stdout=output, stderr=output, env=alone)
        atexit.register(_end, server)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the environment's proxy is for others
        address, until = f"http://127.0.0.1:{port}/v1", time.monotonic() + LOADING
        while time.monotonic() < until and server.poll() is None:
            try:
                with opener.open(f"{address}/models", timeout=5) as reply:
                    return f"{address}#{json.load(reply)['data'][0]['id']}"
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.2)
    _end(server)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    reason = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "no reason given")
    raise UserError(
        f"judge.checkpoint={checkpoint} cannot be served: {reason}",
        f"{log} has all that it said.",
    )


def _end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
