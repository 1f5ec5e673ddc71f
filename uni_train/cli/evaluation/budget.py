"""`uni_train eval --plan`: what an evaluation takes, before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uni_train.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from uni_train.config.schema import EvalConfig
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.evaluation import EvaluationPlan
    from uni_train.eval.plan import Row
    from uni_train.eval.store import Speed


def print_plan(checkpoint: str, config: EvalConfig, progress: ConsoleProgress) -> None:
    """Calls, judge tokens, cost and GPU hours of an evaluation, by the seconds that are given, else measured."""
    from uni_train.eval import plan as planning
    from uni_train.eval.configured import plan_of

    costs, plan = config.costs, plan_of(checkpoint, config)
    for kind in costs.seconds:
        if kind not in planning.KINDS[:-1]:
            hint = did_you_mean(kind, planning.KINDS[:-1], "calls")
            raise UsageError(f"costs.seconds.{kind}: no such call", hint)
    measured = {kind: speed for kind, speed in _measured(plan).items() if kind not in costs.seconds}
    seconds = {kind: speed.each for kind, speed in measured.items()} | costs.seconds
    draws = 1 if plan.judge is None else plan.judge.votes
    if plan.judge is not None and plan.judge.way == "tournament":
        draws = config.k - 1  # each of k samples against the others, in two orders, which two samples share
    rows = [
        planning.estimate(one, plan.asks(one)[2], judge=config.judge, draws=draws, costs=costs, seconds=seconds)
        for one in plan.benchmarks
    ]
    if len(rows) > 1:
        rows.append(planning.total(rows))
    shown = [_plan_column(row, costs.gpu_hour) for row in rows]
    progress.table(
        f"What it takes to evaluate {plan.checkpoint}",
        ["", *(row.benchmark for row in rows)],
        [[name, *(column[name] for column in shown)] for name in shown[0]],
    )
    progress.say("Nothing was asked. Calls that are stored already cost nothing, and are counted here all the same.")
    if config.judge is not None:
        progress.say(
            f"A token of the judge: {planning.LETTERS:g} letters; an image {costs.image_tokens} tokens, a reply "
            f"{costs.reply_tokens} (costs.image_tokens, costs.reply_tokens)."
        )
        if plan.judge is not None and plan.judge.small:
            progress.say("Small judges are asked about all of this, and the large one only about what they leave.")
    else:
        progress.say("Without a judge, what no program can check has no score.")
    if measured:
        from uni_train.eval.store import machine

        said = ", ".join(f"{kind} {speed.each:.3g} s (of {speed.calls:,})" for kind, speed in sorted(measured.items()))
        progress.say(
            f"Seconds of a call as earlier evaluations of this model took them on this machine ({machine()}), in "
            f"batches: {said}. The hours are that machine's; costs.seconds replaces them."
        )
    elif not seconds:
        progress.say(
            "GPU hours need the seconds of a call: costs.seconds={draw:9,think:4}. Or run with --subset 16 first: "
            "the next --plan uses what it takes here, and what it asks is stored and not asked again."
        )


def _measured(plan: EvaluationPlan) -> dict[str, Speed]:
    """Kind of call -> how fast this machine was at it, of a model that was evaluated here before; asks nobody."""
    from uni_train.eval.respondent import identity_of
    from uni_train.eval.store import Store, machine

    store = Store(plan.store_folder)
    if not store.measured():  # a checkpoint's hash may take a minute
        return {}
    here = machine()
    found: dict[str, Speed] = {}
    for benchmark in plan.benchmarks:
        for helped, model in benchmark.helpers().items():
            found |= {kind: one for kind, one in store.speed_of(model.identity, here).items() if kind == helped}
    identity = identity_of(plan.checkpoint, plan.config.sampling)
    if identity is not None:
        own = store.speed_of(identity, here)
        found = dict(own) | found
    return found


def _plan_column(row: Row, gpu_hour: float | None) -> dict[str, str]:
    from uni_train.eval import plan as planning

    hours = row.gpu_hours
    found = {"cases": f"{row.cases:,}", "samples": f"{row.samples:,}"}
    found |= {f"{kind} calls": f"{row.calls.get(kind, 0):,}" for kind in planning.KINDS}
    found |= {"judge reads, tokens": f"{row.tokens_in:,}", "judge writes, tokens": f"{row.tokens_out:,}"}
    found["judge, dollars"] = "–" if row.cost is None else f"{row.cost:.2f}"
    found["GPU hours"] = "–" if hours is None else f"{hours:.2f}"
    if hours is not None and gpu_hour is not None:
        found["GPU, dollars"] = f"{hours * gpu_hour:.2f}"
    return found
