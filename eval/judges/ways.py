"""What a judge is asked and how its words are read: questions, the conversation about one, and ways of asking.

Questions are pieces: each asks, has the reply read (`eval.reading`) and gives a Verdict. A benchmark uses them so:

    async def judge(self, sample, ask):
        return await caption_matches(ask, sample.image, "4 chairs", kind="maths")

`ask` says in which dialect its judge is spoken to: "paper" uses the papers' own prompts, "nano" the few sentences that
nano understands (`Family.phrases`). What nano cannot be asked is a UsageError, not a guess.

What is asked is the benchmark's; how often and how is said by the way of asking (`JudgeConfig.way`), for any benchmark:

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

import io
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from uni_train.config.schema import JudgeConfig
from uni_train.core.errors import UsageError
from uni_train.core.reading_limits import open_image, rgb
from uni_train.data_gen.objects import singular_of
from uni_train.data_gen.questions import image_question
from uni_train.data_gen.task import Check, Status, Verdict
from uni_train.eval.benchmark import Benchmark, Case, JudgeAsk, Sample, Unparseable, verdict_of
from uni_train.eval.images import bytes_of
from uni_train.eval.judges.replies import Reply, Turn
from uni_train.eval.prompts import unisandbox, ureason
from uni_train.eval.reading import JsonReader, caption, choice, expecting, knowledge_caption, plain, yes_no
from uni_train.models.family import family_of

REMARK = "Your reply could not be read: {problem}. Answer the same question again, in exactly the format asked for."
CHANGES = ("jpeg", "resize")
"""Changes of an image that should change no verdict; the second there and back."""
QUALITY = 75
SHRUNK = 0.75  # of both sides
_COUNTED = re.compile(r"(?:(\d+) +)?(\D*\S)")
tagged_yes_no = expecting(yes_no, "<answer>Yes</answer> or <answer>No</answer>, one of them")
"""The reader of a judge's answer in tags. Raises ValueError."""
_SCORE = expecting(yes_no, '"Score: YES" or "Score: NO" as the last line')
_FINAL_ANSWER = expecting(yes_no, '"Final Answer: YES" or "Final Answer: NO" as the last line')
_QUOTED = 120  # letters of a reply that cannot be read
_OUTCOMES = {"content_filter": "judge_filtered", "refusal": "judge_refused"}  # by why a reply ended
_ADDED = {
    "binary": "\n\nGive the answer at once, in exactly the form asked for above, without any reasoning around it.",
    "chain_of_thought": (
        "\n\nFirst reason step by step between <think> and </think>. After that give the answer in exactly the form "
        "asked for above."
    ),
    "confidence": (
        "\n\nAfter the answer, in exactly the form asked for above, add one last line: Confidence: N. N is a whole "
        "number from 0 (a guess) to 100 (certain)."
    ),
}
_FREE = ("chain_of_thought", "confidence")  # a server that holds the reply to a schema would leave no room for them
_CONFIDENCE = re.compile(
    r"\n?[ \t*#_]*\bConfidence[*_ ]*[:=][ *_\[]*(\d{1,3})(?:\s*/\s*100)?[ %.*_\]]*\s*\Z", re.IGNORECASE
)
_WINNER = expecting(
    partial(choice, choices={"A": None, "B": None, "Equal": "Equal"}),
    "<answer>A</answer>, <answer>B</answer> or <answer>Equal</answer>, one of them",
)
_COMPARED = """Two candidates answer the same request. Which of them is right, or nearer to right?

Request: {request}
{known}{shown}
Candidate A: {first}
Candidate B: {second}

Go by what the request asks for and by what is known to be right. Which candidate comes first means nothing.
Reply with <answer>A</answer>, <answer>B</answer>, or <answer>Equal</answer> where neither is better."""


# --- questions -------------------------------------------------------------------------------------------------------


def dialect(ask: JudgeAsk) -> str:
    """How the judge behind `ask` is spoken to: "paper" or "nano"."""
    return str(getattr(ask, "dialect", "paper"))


async def caption_matches(ask: JudgeAsk, image: bytes, expected: str, *, kind: str) -> Verdict:
    """Caption the image, then compare the caption with the expected answer (UniSandbox, Tables 9 to 11).

    Two questions, so that the judge does not see the answer while it looks. A caption that says that nothing fits
    ("Error", "Reject") is a fail without a second question, as both prompts demand.

    Args:
        image: an encoded image.
        expected: "4 chairs", a sentence for a portrait, a word for a fruit or a flower.
        kind: "maths", "mapping" (exact number and object, as in the paper), "mapping_official" (the object alone, as in
            the released code), "knowledge".

    Raises:
        Unparseable: no reply answered. UsageError: the judge's dialect lacks the words.
    """
    if dialect(ask) == "nano":
        return await _nano_caption_matches(ask, image, expected, kind)
    read = expecting(caption, '"Caption: ..." as the last line')
    if kind == "knowledge":
        read = expecting(knowledge_caption, "one line in one of the formats given")
    said = await ask(unisandbox.CAPTIONS.get(kind, unisandbox.CAPTIONS["maths"]), (image,), parse=read)
    if said in unisandbox.REFUSED_CAPTIONS:
        return verdict_of("caption", False, f"the judge captions the image {said!r}")
    matches = await ask(unisandbox.compare_prompt(said, expected, kind), parse=_SCORE)
    return verdict_of("caption", matches, f"captioned {said!r}, expected {expected!r}")


async def image_satisfies(ask: JudgeAsk, image: bytes, criterion: str) -> Verdict:
    """Does the image meet the criterion (UReason, Figure 25)? For nano the criterion is a prompt: "Draw 3 apples .".

    Raises Unparseable.
    """
    nano = dialect(ask) == "nano"
    question = _nano_verify(criterion) if nano else ureason.verify_image_prompt(criterion)
    satisfied = await ask(question, (image,), parse=_FINAL_ANSWER if nano else tagged_yes_no)
    return verdict_of("criterion", satisfied, f"the judge does not see: {criterion}")


async def prompt_accepted(ask: JudgeAsk, images: Sequence[bytes], task: str, prompt: str) -> Verdict:
    """Does the last image fit the prompt that it was drawn from: the filter of STARS (Table 13, its twin for mapping),
    asked of another model. The judge is not told the answer.

    Args:
        images: those that belong to the prompt, and the one that was drawn.
        task: whose filter question is asked.

    Raises Unparseable.
    """
    question = _nano_verify(prompt) if dialect(ask) == "nano" else image_question(prompt, task)
    accepted = await ask(question, images, parse=_FINAL_ANSWER)
    return verdict_of("filter", accepted, "the judge does not accept it")


async def thought_satisfies(ask: JudgeAsk, prompt: str, thought: str, criterion: str) -> Verdict:
    """Does the reasoning arrive at the criterion (UReason, Figure 26)?

    Raises Unparseable; UsageError where the judge is spoken to in nano's words, which hold no such question.
    """
    if dialect(ask) == "nano":
        raise UsageError("nano cannot be asked to judge a text", "Judge thoughts by program, or with another judge.")
    question = ureason.verify_reasoning_prompt(prompt, thought, criterion)
    satisfied = await ask(question, parse=tagged_yes_no)
    return verdict_of("reasoning", satisfied, f"the judge does not read: {criterion}")


async def filled_in(ask: JudgeAsk, prompt: str, schema: Mapping[str, Any], images: Sequence[bytes] = ()) -> Any:
    """The judge's reply as JSON that the schema (JSON Schema) accepts. Raises Unparseable.

    The prompt says what is wanted in words; a server that can hold a model to a schema is given it too.
    """
    return await ask(prompt, images, parse=JsonReader(schema), schema=schema)


def _nano_verify(prompt: str) -> str:
    return family_of("nano").phrases()["verify"].format(question=prompt)


async def _nano_caption_matches(ask: JudgeAsk, image: bytes, expected: str, kind: str) -> Verdict:
    """nano captions; the comparison is a program's, for nano compares no texts."""
    if kind == "knowledge":
        raise UsageError("nano has no words for portraits and flowers", "Judge knowledge with another judge.")
    phrases = family_of(dialect(ask)).phrases()
    said = await ask(phrases["caption"], (image,), parse=expecting(caption, '"Caption: ..."'))
    if said == phrases["unclear"]:
        return verdict_of("caption", False, "the judge sees no clear object")
    (seen_count, seen), (count, thing) = _counted(said), _counted(expected)
    right = seen == thing and (kind == "mapping_official" or count is None or seen_count == count)
    return verdict_of("caption", right, f"captioned {said!r}, expected {expected!r}")


def _counted(text: str) -> tuple[int | None, str]:
    """ "3 apples" -> (3, "apple"); "Apples" -> (None, "apple")."""
    match = _COUNTED.fullmatch(text.strip(" ."))
    if match is None:
        return None, text
    return (int(match[1]) if match[1] else None), singular_of(match[2].lower())


# --- reading ---------------------------------------------------------------------------------------------------------


def split_confidence(text: str) -> tuple[str, float]:
    """What the benchmark reads of a reply, and the confidence in [0, 1]. Raises ValueError: a confidence is missing."""
    match = _CONFIDENCE.search(text)
    if match is None or int(match[1]) > 100:
        raise ValueError('its last line must be "Confidence: N" with N from 0 to 100')
    return text[: match.start()], int(match[1]) / 100


def least_confidence(replies: Sequence[str]) -> float:
    """The lowest confidence, in [0, 1], that a judge's replies state; 0 where none does."""
    return min((int(found[1]) / 100 for reply in replies if (found := _CONFIDENCE.search(reply))), default=0.0)


def reader(way: str, parse: Callable[[str], Any] | None) -> Callable[[str], tuple[Any, float | None]]:
    """Reads a reply in a way: the benchmark's value, and the confidence. Raises ValueError where it does not answer."""

    def read(text: str) -> tuple[Any, float | None]:
        words, confidence = plain(text), None
        if way == "confidence":
            words, confidence = split_confidence(words)
        return (words if parse is None else parse(words)), confidence

    return read


# --- the conversation about a sample ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Questioner:
    """The `JudgeAsk` of one sample.

    reply: to a conversation, a schema and the number of a draw (`Session.reply`).
    replies: the judge's words, in order. raised: why a question has no answer. draw: the number of the replies that are
    asked for now. confidences: in [0, 1], of the questions answered, where the way of asking wants them.
    """

    config: JudgeConfig
    reply: Callable[[Sequence[Turn], Mapping[str, Any] | None, int], Awaitable[Reply]]
    replies: list[str] = field(default_factory=list)
    raised: Exception | None = None
    draw: int = field(init=False)
    confidences: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = self.config.first_draw

    @property
    def dialect(self) -> str:
        return self.config.dialect

    async def __call__(
        self,
        prompt: str,
        images: Sequence[bytes] = (),
        *,
        parse: Callable[[str], Any] | None = None,
        attempts: int = 3,
        schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """As `JudgeAsk`; the configuration's `attempts` bounds those of the caller.

        nano is asked once: it has no words for a remark, and says the same again. So is a judge that refused. After a
        blank reply the same words are sent again.
        """
        way = self.config.way
        turns = [Turn("user", prompt + _ADDED.get(way, ""), tuple(images))]
        schema, read = None if way in _FREE else schema, reader(way, parse)
        reply, problem = Reply(""), ""
        for _ in range(1 if self.dialect == "nano" else min(attempts, self.config.attempts)):
            try:
                reply = await self.reply(turns, schema, self.draw)
            except Exception as error:
                self.raised = error
                raise
            self.replies.append(reply.text)
            if reply.stop == "max_tokens":  # it would be cut off again
                problem = f"it was cut off after {reply.output_tokens:,} tokens in all: raise judge.max_tokens"
                break
            try:
                value, confidence = read(reply.text)
            except ValueError as error:
                problem = str(error)
            else:
                self.confidences += [] if confidence is None else [confidence]
                return value
            if reply.stop in _OUTCOMES:
                break
            if not reply.blank:
                turns += [Turn("assistant", reply.text), Turn("user", REMARK.format(problem=problem))]
        outcome = _OUTCOMES.get(reply.stop, "judge_blank" if reply.blank else "unparseable")
        self.raised = Unparseable(f"{' '.join(reply.text.split())[:_QUOTED]!r}: {problem}", outcome)
        raise self.raised


# --- ways ------------------------------------------------------------------------------------------------------------


async def judged(benchmark: Benchmark, sample: Sample, rivals: Sequence[Sample], ask: Questioner) -> Verdict:
    """The judge's verdict, in the way that its configuration names.

    rivals: the other samples of the same case and setting, for a tournament. Raises Unparseable: no draw answers.
    """
    config = ask.config
    if config.way == "tournament":
        return await _tournament(benchmark, sample, rivals, ask)
    if config.votes == 1:
        return await benchmark.judge(sample, ask)
    verdicts: list[Verdict] = []
    silent = Unparseable("")
    weights: list[float] = []
    for draw in range(config.first_draw, config.first_draw + config.votes):
        ask.draw, ask.raised, earlier = draw, None, len(ask.confidences)
        try:
            verdicts.append(await benchmark.judge(sample, ask))
        except (Unparseable, ExceptionGroup) as error:  # this draw abstains
            problem = ask.raised or error
            if not isinstance(problem, Unparseable):
                raise
            silent = problem
            continue
        sure = ask.confidences[earlier:]
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
    for check, vote in votes:
        weight[check.status] += vote
    status: Status = "unreadable" if weight["unreadable"] > weight["fail"] else "fail"
    if 2 * weight["pass"] > sum(weight.values()):
        status = "pass"
    reason = next((check.reason for check, _ in votes if check.status == status and check.reason), "")
    agreed = sum(check.status == status for check, _ in votes)
    if status != "pass":
        reason = f"{reason or name} ({agreed} of {len(votes)} draws)"
    values = [(check.value, vote) for check, vote in votes if check.value is not None]
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
    if not rivals:
        return Verdict((Check("tournament", "unreadable", "no other sample of its case to compare it with", 0.0),))
    won = 0.0
    for rival in rivals:
        for first, second, letter in ((sample, rival, "A"), (rival, sample, "B")):
            prompt, images = _comparison(benchmark, first, second)
            winner = await ask(prompt, images, parse=_WINNER)
            won += 0.5 if winner == "Equal" else float(winner == letter)
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


def perturbed(sample: Sample, change: str) -> Sample:
    """The sample with all of its own images changed; those of its case stay. change: one of CHANGES."""
    parts = tuple(part if isinstance(part, str) else _changed(bytes_of(part), change) for part in sample.parts)
    return replace(sample, parts=parts)


def _changed(image: bytes, change: str) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    with open_image(image, "an image that is judged") as opened:
        pixels = Image.fromarray(rgb(opened))
    if change == "jpeg":
        pixels.save(buffer, format="JPEG", quality=QUALITY)
        return buffer.getvalue()
    width, height = (max(1, round(side * SHRUNK)) for side in pixels.size)
    small = pixels.resize((width, height), Image.Resampling.BICUBIC)
    small.resize(pixels.size, Image.Resampling.BICUBIC).save(buffer, format="PNG")
    return buffer.getvalue()
