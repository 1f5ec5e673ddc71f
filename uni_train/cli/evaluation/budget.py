"""`uni_train eval --plan`: what an evaluation takes, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uni_train.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from eval.benchmark import Ask, Benchmark
    from eval.evaluation import EvaluationPlan
    from eval.plan import Row
    from uni_train.cli.progress import ConsoleProgress


def print_plan(
    plan: EvaluationPlan, prices: Any, sizes: Any, seconds: Mapping[str, float], progress: ConsoleProgress
) -> None:
    """Calls, judge tokens, cost and GPU hours of an evaluation."""
    from eval import plan as planning

    for kind in seconds:
        if kind not in planning.KINDS[:3]:
            raise UsageError(f"--seconds {kind}: no such call", did_you_mean(kind, planning.KINDS[:3], "calls"))
    judged = plan.judge is not None or prices.judge_in is not None
    rows = [
        planning.estimate(one, _asks(one, plan), judged=judged, prices=prices, sizes=sizes, seconds=seconds)
        for one in plan.benchmarks
    ]
    if len(rows) > 1:
        rows.append(planning.total(rows))
    shown = [_plan_column(row, prices) for row in rows]
    progress.table(
        f"What it takes to evaluate {plan.checkpoint}",
        ["", *(row.benchmark for row in rows)],
        [[name, *(column[name] for column in shown)] for name in shown[0]],
    )
    progress.say("Nothing was asked. Calls that are stored already cost nothing, and are counted here all the same.")
    if judged:
        progress.say(
            f"A token of the judge: {planning.LETTERS:g} letters; a picture {sizes.image_tokens} tokens, a reply "
            f"{sizes.reply_tokens} (--image-tokens, --reply-tokens)."
        )
    else:
        progress.say("Without --judge, what no program can check has no score.")
    if not seconds:
        progress.say(
            "GPU hours need the seconds of a call: --seconds draw=9,think=4. Run with --subset 16 first and divide "
            "the time that it took; what it asks is stored and not asked again."
        )


def _asks(benchmark: Benchmark, plan: EvaluationPlan) -> list[Ask]:
    from eval.generation import asks_of, cases_of, settings_of

    settings = settings_of(benchmark, plan.settings)
    cases = cases_of(benchmark, sets=plan.sets, subset=plan.subset, seed=plan.seed)
    return asks_of(cases, settings, k=plan.k, seed=plan.seed)


def _plan_column(row: Row, prices: Any) -> dict[str, str]:
    from eval import plan as planning

    hours = row.gpu_hours
    found = {"cases": f"{row.cases:,}", "samples": f"{row.samples:,}"}
    found |= {f"{kind} calls": f"{row.calls.get(kind, 0):,}" for kind in planning.KINDS}
    found |= {"judge reads, tokens": f"{row.tokens_in:,}", "judge writes, tokens": f"{row.tokens_out:,}"}
    found["judge, dollars"] = "–" if row.cost is None else f"{row.cost:.2f}"
    found["GPU hours"] = "–" if hours is None else f"{hours:.2f}"
    if hours is not None and prices.gpu_hour is not None:
        found["GPU, dollars"] = f"{hours * prices.gpu_hour:.2f}"
    return found
