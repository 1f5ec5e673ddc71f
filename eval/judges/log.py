"""Judgements in inspect-ai's log format, which `inspect view` opens. Only its writer is used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from uni_train.config.schema import JudgeConfig
from uni_train.core.files import atomic_path, disk_errors
from uni_train.eval.benchmark import Benchmark, Scored
from uni_train.eval.sample import mostly_failed


def write_log(folder: Path, benchmark: Benchmark, judge: JudgeConfig, scored: Sequence[Scored]) -> str | None:
    """Write one log, an entry a sample; its path. None where inspect-ai is not installed.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        from inspect_ai.log import (
            EvalConfig,
            EvalDataset,
            EvalLog,
            EvalMetric,
            EvalResults,
            EvalSample,
            EvalScore,
            EvalSpec,
            write_eval_log,
        )
        from inspect_ai.model import ChatMessageAssistant, ChatMessageUser
        from inspect_ai.scorer import Score
    except ImportError:
        return None
    entries = []
    for number, judged in enumerate(scored):
        ask = judged.sample.ask
        question = ChatMessageUser(content=ask.case.prompt)
        replies = [ChatMessageAssistant(content=reply) for reply in judged.replies]
        reason = judged.verdict.reason if judged.verdict is not None else (judged.replies or ("",))[-1]
        score = Score(value=float(judged.outcome == "pass"), answer=judged.outcome, explanation=reason)
        name = f"{number:06d} {ask.case.id} {ask.setting} {ask.k}"
        entries.append(
            EvalSample(
                id=name,
                epoch=1,
                input=ask.case.prompt,
                target="",
                messages=[question, *replies],
                scores={"passed": score} if judged.verdict is not None else None,
            )
        )
    passed = sum(judged.outcome == "pass" for judged in scored) / len(scored)
    mean = EvalScore(name="passed", scorer="passed", metrics={"mean": EvalMetric(name="mean", value=passed)})
    scores = [] if mostly_failed(scored) else [mean]
    spec = EvalSpec(
        created=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        task=f"judge_{benchmark.name}",
        dataset=EvalDataset(name=benchmark.name, samples=len(entries)),
        model=judge.name,
        config=EvalConfig(),
        metadata={"benchmark_revision": benchmark.revision, "judge": judge.to_dict()},
    )
    results = EvalResults(total_samples=len(entries), completed_samples=len(entries), scores=scores)
    path = folder / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}_{benchmark.name}_{time.time_ns() % 10**9:09d}.eval"
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            write_eval_log(EvalLog(status="success", eval=spec, results=results, samples=entries), str(temporary))
    return str(path)
