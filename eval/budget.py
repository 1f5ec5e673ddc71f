"""What an evaluation would take, before anything is spent: calls, judge tokens, money, hours of a GPU.

Calls are counted exactly, by the benchmarks themselves. Tokens are estimated: a judge's prompt is rendered for a few
cases and its letters counted, `LETTERS` to a token; images and replies have a given size. Hours follow from seconds
a call, given or measured here by an earlier evaluation; without them there are none, rather than a guess.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uni_train.config.schema import CostsConfig, EvalConfig, JudgeConfig
from uni_train.core.errors import UsageError, did_you_mean
from uni_train.eval.benchmark import Ask, Benchmark, Sample
from uni_train.eval.configured import plan_of
from uni_train.eval.evaluation import EvaluationPlan
from uni_train.eval.nobody import JudgeAsked, ask_nobody
from uni_train.eval.respondent import identity_of
from uni_train.eval.results import Table
from uni_train.eval.store import Speed, Store, machine

LETTERS = 4.0  # of English a token, about what Qwen's and OpenAI's tokenizers need
_RENDERED = 8  # cases whose judge prompt is rendered
KINDS = ("think", "draw", "answer", "compose", "judge")


def budget(checkpoint: str, config: EvalConfig) -> tuple[Table, list[str]]:
    """Calls, judge tokens, cost and GPU hours of an evaluation, and remarks on them; asks nobody.

    Raises:
        UsageError: seconds of a call that there is not; whatever `plan_of` raises.
    """
    costs, plan = config.costs, plan_of(checkpoint, config)
    for kind in costs.seconds:
        if kind not in KINDS[:-1]:
            hint = did_you_mean(kind, KINDS[:-1], "calls")
            raise UsageError(f"costs.seconds.{kind}: no such call", hint)
    measured = {kind: speed for kind, speed in _measured(plan).items() if kind not in costs.seconds}
    seconds = {kind: speed.each for kind, speed in measured.items()} | costs.seconds
    draws = 1 if plan.judge is None else plan.judge.votes
    if plan.judge is not None and plan.judge.way == "tournament":
        draws = config.k - 1  # each of k samples against the others, in two orders, which two samples share
    rows = [
        estimate(
            benchmark,
            plan.asks(benchmark)[2],
            judge=config.judge,
            draws=draws,
            costs=costs,
            seconds=seconds,
            redraw=config.redraw,
        )
        for benchmark in plan.benchmarks
    ]
    if len(rows) > 1:
        rows.append(total(rows))
    shown = [_column(row, costs.gpu_hour) for row in rows]
    table = Table(
        f"What it takes to evaluate {plan.checkpoint}",
        ("", *(row.benchmark for row in rows)),
        tuple((name, *(column[name] for column in shown)) for name in shown[0]),
    )
    return table, _remarks(plan, config, measured, known=bool(seconds))


def _remarks(plan: EvaluationPlan, config: EvalConfig, measured: dict[str, Speed], *, known: bool) -> list[str]:
    remarks = ["Nothing was asked. Calls that are stored already cost nothing, and are counted here all the same."]
    if config.redraw > 1:
        remarks.append(
            f"redraw={config.redraw}: these are the most calls, of a model that accepts no image. One more answer "
            "shows whether it can judge."
        )
    if config.judge is None:
        remarks.append("Without a judge, what no program can check has no score.")
    else:
        remarks.append(
            f"A token of the judge: {LETTERS:g} letters; an image {config.costs.image_tokens} tokens, a reply "
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
    speeds: dict[str, Speed] = {}
    for benchmark in plan.benchmarks:
        for helped, model in benchmark.helpers().items():
            speeds |= {kind: speed for kind, speed in store.speed_of(model.identity, here).items() if kind == helped}
    config = plan.config
    identity = identity_of(plan.checkpoint, config.sampling, config.weights, config.compile)
    own = {} if identity is None else store.speed_of(identity, here)
    if config.text_model is not None:
        text_identity = identity_of(config.text_model, {})
        texts = {} if text_identity is None else store.speed_of(text_identity, here)
        own = {kind: speed for kind, speed in own.items() if kind == "draw"}
        own |= {kind: speed for kind, speed in texts.items() if kind != "draw"}
    return own | speeds


def _column(row: Row, gpu_hour: float | None) -> dict[str, str]:
    hours = row.gpu_hours
    row_ = {"cases": f"{row.cases:,}", "samples": f"{row.samples:,}"}
    row_ |= {f"{kind} calls": f"{row.calls.get(kind, 0):,}" for kind in KINDS}
    row_ |= {"judge reads, tokens": f"{row.tokens_in:,}", "judge writes, tokens": f"{row.tokens_out:,}"}
    row_["judge, dollars"] = "–" if row.cost is None else f"{row.cost:.2f}"
    row_["GPU hours"] = "–" if hours is None else f"{hours:.2f}"
    if hours is not None and gpu_hour is not None:
        row_["GPU, dollars"] = f"{hours * gpu_hour:.2f}"
    return row_


@dataclass(frozen=True, slots=True)
class Row:
    """One benchmark's share.

    calls: of each of KINDS. tokens_in, tokens_out: of the judge. cost: of the judge; None without prices. seconds: of
    the model, by kind of call, where the seconds of one are known.
    """

    benchmark: str
    cases: int
    samples: int
    calls: Mapping[str, int]
    tokens_in: int
    tokens_out: int
    cost: float | None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def gpu_hours(self) -> float | None:
        """None where the seconds of some kind of call are not known."""
        asked = [kind for kind in KINDS[:-1] if self.calls.get(kind)]
        if any(kind not in self.seconds for kind in asked):
            return None
        return sum(self.seconds[kind] for kind in asked) / 3600


def estimate(
    benchmark: Benchmark,
    asks: Sequence[Ask],
    *,
    judge: JudgeConfig | None,
    draws: int,
    costs: CostsConfig,
    seconds: Mapping[str, float],
    redraw: int = 1,
) -> Row:
    """What asking and scoring `asks` takes.

    judge: None: nobody is asked; without a price there is no cost. draws: how often it is asked each question.
    seconds: a call of each kind, on one GPU, in batches as they would be made. redraw: the most images of a sample;
    all but the last one are judged, and each may take all calls of its sample.
    """
    calls = {kind: count for kind, count in benchmark.calls(asks).items() if kind in KINDS}
    if redraw > 1:
        calls |= {kind: count * redraw for kind, count in calls.items() if kind != "judge"}
        calls["answer"] = calls.get("answer", 0) + calls.get("draw", 0) // redraw * (redraw - 1) + 1
    asked = calls["judge"] = calls.get("judge", 0) * draws if judge is not None else 0
    text, images = judge_prompt(benchmark, asks) if asked else (0.0, 0.0)
    tokens_in = round(asked * (text / LETTERS + images * costs.image_tokens))
    tokens_out = asked * costs.reply_tokens
    cost = None if judge is None else judge.dollars(tokens_in, tokens_out)
    known = {kind: calls[kind] * each for kind, each in seconds.items() if kind in KINDS[:-1] and kind in calls}
    cases = len({ask.case.id for ask in asks})
    return Row(benchmark.name, cases, len(asks), calls, tokens_in, tokens_out, cost, known)


def total(rows: Sequence[Row]) -> Row:
    """All benchmarks together."""
    calls = {kind: sum(row.calls.get(kind, 0) for row in rows) for kind in KINDS}
    costs = [row.cost for row in rows]
    known = [kind for kind in KINDS[:-1] if all(kind in row.seconds or not row.calls.get(kind) for row in rows)]
    return Row(
        "all",
        sum(row.cases for row in rows),
        sum(row.samples for row in rows),
        calls,
        sum(row.tokens_in for row in rows),
        sum(row.tokens_out for row in rows),
        None if any(cost is None for cost in costs) else sum(cost for cost in costs if cost is not None),
        {kind: sum(row.seconds.get(kind, 0.0) for row in rows) for kind in known},
    )


def judge_prompt(benchmark: Benchmark, asks: Sequence[Ask]) -> tuple[float, float]:
    """Mean letters and images of a call of the judge, from the first call for a few samples, evenly spread.

    What a model will say is not known yet: its thought is taken to be as long as its prompt. A benchmark whose judge
    is asked nothing for these gives the length of their prompts and one image.
    """
    spread = asks[:: max(1, len(asks) // _RENDERED)][:_RENDERED]
    lengths = [asyncio.run(_first_call(benchmark, ask)) for ask in spread]
    known = [length for length in lengths if length is not None]
    if not known:
        return sum(len(ask.case.prompt) for ask in spread) / max(1, len(spread)), 1.0
    return sum(letters for letters, _ in known) / len(known), sum(images for _, images in known) / len(known)


async def _first_call(benchmark: Benchmark, ask: Ask) -> tuple[int, int] | None:
    prompt = ask.case.prompt
    sample = Sample(ask, prompt=prompt, thought=prompt, parts=(prompt, _blank()))
    try:
        await benchmark.judge(sample, ask_nobody)
    except JudgeAsked as asked:
        return asked.letters, asked.images
    except NotImplementedError:
        pass
    return None


def _blank() -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (24, 24), "white").save(buffer, format="PNG")
    return buffer.getvalue()
