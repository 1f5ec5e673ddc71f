"""What an evaluation takes, as a table, by the seconds of a call that are given or were measured here."""

from __future__ import annotations

from uni_train.config.schema import EvalConfig
from uni_train.errors import UsageError, did_you_mean
from uni_train.eval import plan as planning
from uni_train.eval.configured import plan_of
from uni_train.eval.evaluation import EvaluationPlan
from uni_train.eval.plan import Row
from uni_train.eval.respondent import identity_of
from uni_train.eval.results import Table
from uni_train.eval.store import Speed, Store, machine


def budget(checkpoint: str, config: EvalConfig) -> tuple[Table, list[str]]:
    """Calls, judge tokens, cost and GPU hours of an evaluation, and remarks on them; asks nobody.

    Raises:
        UsageError: seconds of a call that there is not; whatever `plan_of` raises.
    """
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
    shown = [_column(row, costs.gpu_hour) for row in rows]
    table = Table(
        f"What it takes to evaluate {plan.checkpoint}",
        ("", *(row.benchmark for row in rows)),
        tuple((name, *(column[name] for column in shown)) for name in shown[0]),
    )
    return table, _remarks(plan, config, measured, known=bool(seconds))


def _remarks(plan: EvaluationPlan, config: EvalConfig, measured: dict[str, Speed], *, known: bool) -> list[str]:
    remarks = ["Nothing was asked. Calls that are stored already cost nothing, and are counted here all the same."]
    if config.judge is None:
        remarks.append("Without a judge, what no program can check has no score.")
    else:
        remarks.append(
            f"A token of the judge: {planning.LETTERS:g} letters; an image {config.costs.image_tokens} tokens, a reply "
            f"{config.costs.reply_tokens} (costs.image_tokens, costs.reply_tokens)."
        )
    if plan.judge is not None and plan.judge.small:
        remarks.append("Small judges are asked about all of this, and the large one only about what they leave.")
    if measured:
        each = ", ".join(f"{kind} {speed.each:.3g} s (of {speed.calls:,})" for kind, speed in sorted(measured.items()))
        remarks.append(
            f"Seconds of a call as earlier evaluations of this model took them on this machine ({machine()}), in "
            f"batches: {each}. The hours are that machine's; costs.seconds replaces them."
        )
    elif not known:
        remarks.append(
            "GPU hours need the seconds of a call: costs.seconds={draw:9,think:4}. Or run with --subset 16 first: "
            "the next --plan uses what it takes here, and what it asks is stored and not asked again."
        )
    return remarks


def _measured(plan: EvaluationPlan) -> dict[str, Speed]:
    """Kind of call -> how fast this machine was at it, of a model that was evaluated here before; asks nobody."""
    store = Store(plan.store_folder)
    if not store.measured():  # a checkpoint's hash may take a minute
        return {}
    here = machine()
    found: dict[str, Speed] = {}
    for benchmark in plan.benchmarks:
        for helped, model in benchmark.helpers().items():
            found |= {kind: one for kind, one in store.speed_of(model.identity, here).items() if kind == helped}
    identity = identity_of(plan.checkpoint, plan.config.sampling, plan.config.weights, plan.config.compile)
    if identity is not None:
        own = store.speed_of(identity, here)
        found = dict(own) | found
    return found


def _column(row: Row, gpu_hour: float | None) -> dict[str, str]:
    hours = row.gpu_hours
    found = {"cases": f"{row.cases:,}", "samples": f"{row.samples:,}"}
    found |= {f"{kind} calls": f"{row.calls.get(kind, 0):,}" for kind in planning.KINDS}
    found |= {"judge reads, tokens": f"{row.tokens_in:,}", "judge writes, tokens": f"{row.tokens_out:,}"}
    found["judge, dollars"] = "–" if row.cost is None else f"{row.cost:.2f}"
    found["GPU hours"] = "–" if hours is None else f"{hours:.2f}"
    if hours is not None and gpu_hour is not None:
        found["GPU, dollars"] = f"{hours * gpu_hour:.2f}"
    return found
