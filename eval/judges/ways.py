"""Ways of asking a judge, for any benchmark: what it is asked stays the benchmark's, how often and how is said here.

published         the benchmark's own question, once
binary            the same, and the answer at once, without reasoning
chain_of_thought  the same, and reasoning first
majority          the same so many times (draws); each check by the vote of the draws
confidence        the same, each draw with how sure it is, by which its vote counts
tournament        the samples of a case against each other, in pairs, in both orders

The names are those of UFO's Table 7, which prints no prompts: the words added here are ours. A way changes no stored
reply: other words are other questions, and a draw is part of a question's key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from uni_train.data_gen.task import Check, Status, Verdict
from uni_train.eval.benchmark import Benchmark, Case, Sample, Unparseable
from uni_train.eval.images import bytes_of
from uni_train.eval.judges.asking import Questioner

_WINNER = re.compile(r"<answer>\s*(A|B|Equal)\s*</answer>", re.IGNORECASE)
_COMPARED = """Two candidates answer the same request. Which of them is right, or nearer to right?

Request: {request}
{known}{shown}
Candidate A: {first}
Candidate B: {second}

Go by what the request asks for and by what is known to be right. Which candidate comes first means nothing.
Reply with <answer>A</answer>, <answer>B</answer>, or <answer>Equal</answer> where neither is better."""


async def judged(benchmark: Benchmark, sample: Sample, rivals: Sequence[Sample], ask: Questioner) -> Verdict:
    """The judge's verdict, in the way that its configuration names.

    rivals: the other samples of the same case and setting, for a tournament. Raises Unparseable: no draw answers.
    """
    config = ask.session.config
    if config.way == "tournament":
        return await _tournament(benchmark, sample, rivals, ask)
    if config.votes == 1:
        return await benchmark.judge(sample, ask)
    verdicts: list[Verdict] = []
    silent = Unparseable("")
    weights: list[float] = []
    for draw in range(config.first_draw, config.first_draw + config.votes):
        ask.draw, ask.raised, said = draw, None, len(ask.confidences)
        try:
            verdicts.append(await benchmark.judge(sample, ask))
        except (Unparseable, ExceptionGroup) as error:  # this draw abstains
            problem = ask.raised or error
            if not isinstance(problem, Unparseable):
                raise
            silent = problem
            continue
        sure = ask.confidences[said:]
        weights.append(sum(sure) / len(sure) if sure else 1.0)
    if not verdicts:
        raise silent
    return combined(verdicts, weights)


def combined(verdicts: Sequence[Verdict], weights: Sequence[float]) -> Verdict:
    """One verdict by the weighted vote of several, check by check; a tie is no pass.

    A check counts where draws of more than half of the weight have it: some are asked only of what has failed. Graded
    values: the weighted median, which for 0 and 1 is the majority.
    """
    if not any(weights):
        weights = [1.0] * len(weights)
    checks = []
    for name in dict.fromkeys(check.name for verdict in verdicts for check in verdict.checks):
        votes = [
            (check, weight)
            for verdict, weight in zip(verdicts, weights, strict=True)
            for check in verdict.checks
            if check.name == name
        ]
        if 2 * sum(weight for _, weight in votes) > sum(weights):
            checks.append(_voted(name, votes))
    return Verdict(tuple(checks))


def _voted(name: str, votes: Sequence[tuple[Check, float]]) -> Check:
    weight: dict[Status, float] = {"pass": 0.0, "fail": 0.0, "unreadable": 0.0}
    for check, one in votes:
        weight[check.status] += one
    status: Status = "unreadable" if weight["unreadable"] > weight["fail"] else "fail"
    if 2 * weight["pass"] > sum(weight.values()):
        status = "pass"
    reason = next((check.reason for check, _ in votes if check.status == status and check.reason), "")
    agreed = sum(check.status == status for check, _ in votes)
    if status != "pass":
        reason = f"{reason or name} ({agreed} of {len(votes)} draws)"
    values = [(check.value, one) for check, one in votes if check.value is not None]
    return Check(name, status, reason, _median(values) if values else None)


def _median(values: Sequence[tuple[float, float]]) -> float:
    """The weighted median, the lower one of two."""
    half, reached = sum(weight for _, weight in values) / 2, 0.0
    for value, weight in sorted(values):
        reached += weight
        if reached >= half:
            return value
    return max(value for value, _ in values)


async def _tournament(benchmark: Benchmark, sample: Sample, rivals: Sequence[Sample], ask: Questioner) -> Verdict:
    """The share of comparisons that a sample wins, an equal one counting half; it passes above one half."""
    ask.draw = ask.session.config.first_draw
    if not rivals:
        return Verdict((Check("tournament", "unreadable", "no other sample of its case to compare it with", 0.0),))
    won = 0.0
    for rival in rivals:
        for first, second, letter in ((sample, rival, "a"), (rival, sample, "b")):
            prompt, images = _comparison(benchmark, first, second)
            winner = await ask(prompt, images, parse=_winner)
            won += 0.5 if winner == "equal" else float(winner == letter)
    value = won / (2 * len(rivals))
    status: Status = "pass" if value > 0.5 else "fail"
    return Verdict((Check("tournament", status, f"won {value:.0%} of its comparisons", value),))


def _comparison(benchmark: Benchmark, first: Sample, second: Sample) -> tuple[str, tuple[bytes, ...]]:
    """The question which of two samples of a case is better, and its images."""
    case = first.ask.case
    reference = benchmark.reference(case)
    known = _known(case)
    groups = [
        ("given with the request", tuple(map(bytes_of, case.images))),
        ("a right answer, for reference", () if reference is None else (reference,)),
        ("of candidate A", first.images),
        ("of candidate B", second.images),
    ]
    counted = "; ".join(f"{len(images)} {what}" for what, images in groups if images)
    prompt = _COMPARED.format(
        request=case.prompt,
        known=f"Known to be right: {known}\n" if known else "",
        shown=f"Images, in this order: {counted}.\n" if counted else "",
        first=_said(first),
        second=_said(second),
    )
    return prompt, tuple(image for _, images in groups for image in images)


def _said(sample: Sample) -> str:
    """The words of a candidate; its thought where that is all that it has."""
    return sample.text or ("(see its images)" if sample.images else sample.thought or "(nothing)")


def _known(case: Case) -> str:
    facts = case.facts
    return str(facts.get("criterion") or facts.get("right") or facts.get("answer") or "")


def _winner(text: str) -> str:
    found = {one.lower() for one in _WINNER.findall(text)}
    if len(found) != 1:
        raise ValueError("it must hold <answer>A</answer>, <answer>B</answer> or <answer>Equal</answer>, one of them")
    return found.pop()
