"""What a judge is asked, in pieces: each asks, reads the reply strictly and gives a Verdict. A benchmark uses them so:

    async def judge(self, sample, ask):
        return await caption_matches(ask, sample.image, "4 chairs", kind="maths")

`ask` says in which dialect its judge is spoken to: "paper" uses the papers' own prompts, "nano" the few sentences that
nano understands (`uni_train.models.nano.language`). What nano cannot be asked is a UsageError, not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from uni_train.data_gen.objects import singular_of
from uni_train.data_gen.task import Check, Verdict
from uni_train.errors import UsageError
from uni_train.eval.benchmark import JudgeAsk
from uni_train.eval.judges.reading import JsonReader
from uni_train.eval.prompts import unisandbox, ureason
from uni_train.models.nano import language

T = TypeVar("T")
_COUNTED = re.compile(r"(?:(\d+) +)?(\D*\S)")


def dialect(ask: JudgeAsk) -> str:
    """How the judge behind `ask` is spoken to: one of `uni_train.eval.judges.config.DIALECTS`."""
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
    read = unisandbox.parse_knowledge_caption if kind == "knowledge" else unisandbox.parse_caption
    wanted = "one line in one of the formats given" if kind == "knowledge" else '"Caption: ..." as the last line'
    caption = await ask(
        unisandbox.CAPTIONS.get(kind, unisandbox.CAPTIONS["maths"]), (image,), parse=_reader(read, wanted)
    )
    if caption.strip(".'\"*") in unisandbox.REFUSED_CAPTIONS:
        return _verdict("caption", False, f"the judge captions the image {caption!r}")
    question = unisandbox.compare_prompt(caption, expected, kind)
    matches = await ask(question, parse=_reader(unisandbox.parse_score, '"Score: YES" or "Score: NO" as the last line'))
    return _verdict("caption", matches, f"captioned {caption!r}, expected {expected!r}")


async def image_satisfies(ask: JudgeAsk, image: bytes, criterion: str) -> Verdict:
    """Does the image meet the criterion (UReason, Figure 25)? For nano the criterion is a prompt: "Draw 3 apples .".

    Raises Unparseable.
    """
    if dialect(ask) == "nano":
        question = language.VERIFY_PROMPT.format(question=criterion)
        read = _reader(unisandbox.parse_final_answer, '"Final Answer: YES" or "Final Answer: NO" as the last line')
    else:
        question = ureason.verify_image_prompt(criterion)
        read = _reader(ureason.parse_answer, _ANSWER)
    satisfied = await ask(question, (image,), parse=read)
    return _verdict("criterion", satisfied, f"the judge does not see: {criterion}")


async def prompt_accepted(ask: JudgeAsk, image: bytes, task: str, prompt: str) -> Verdict:
    """Does the image fit the prompt that it was drawn from: the filter of STARS (Table 13, its twin for mapping),
    asked of another model. The judge is not told the answer.

    Args:
        task: whose filter question is asked.

    Raises Unparseable.
    """
    if dialect(ask) == "nano":
        question = language.VERIFY_PROMPT.format(question=prompt)
    else:
        question = unisandbox.filter_prompt(task, prompt)
    read = _reader(unisandbox.parse_final_answer, '"Final Answer: YES" or "Final Answer: NO" as the last line')
    accepted = await ask(question, (image,), parse=read)
    return _verdict("filter", accepted, "the judge does not accept it")


async def thought_satisfies(ask: JudgeAsk, prompt: str, thought: str, criterion: str) -> Verdict:
    """Does the reasoning arrive at the criterion (UReason, Figure 26)?

    Raises Unparseable; UsageError where the judge is spoken to in nano's words, which hold no such question.
    """
    if dialect(ask) == "nano":
        raise UsageError("nano cannot be asked to judge a text", "Judge thoughts by program, or with another judge.")
    question = ureason.verify_reasoning_prompt(prompt, thought, criterion)
    satisfied = await ask(question, parse=_reader(ureason.parse_answer, _ANSWER))
    return _verdict("reasoning", satisfied, f"the judge does not read: {criterion}")


async def filled_in(ask: JudgeAsk, prompt: str, schema: Mapping[str, Any], images: Sequence[bytes] = ()) -> Any:
    """The judge's reply as JSON that the schema (JSON Schema) accepts. Raises Unparseable.

    The prompt says what is wanted in words; a server that can hold a model to a schema is given it too.
    """
    return await ask(prompt, images, parse=JsonReader(schema), schema=schema)


_ANSWER = "<answer>Yes</answer> or <answer>No</answer>, one of them"


async def _nano_caption_matches(ask: JudgeAsk, image: bytes, expected: str, kind: str) -> Verdict:
    """nano captions; the comparison is a program's, for nano compares no texts."""
    if kind == "knowledge":
        raise UsageError("nano has no words for portraits and flowers", "Judge knowledge with another judge.")
    read = _reader(unisandbox.parse_caption, '"Caption: ..."')
    caption = await ask(language.CAPTION_PROMPT, (image,), parse=read)
    if caption == language.UNCLEAR:
        return _verdict("caption", False, "the judge sees no clear object")
    (seen_count, seen), (count, thing) = _counted(caption), _counted(expected)
    right = seen == thing and (kind == "mapping_official" or count is None or seen_count == count)
    return _verdict("caption", right, f"captioned {caption!r}, expected {expected!r}")


def _counted(text: str) -> tuple[int | None, str]:
    """ "3 apples" -> (3, "apple"); "Apples" -> (None, "apple")."""
    found = _COUNTED.fullmatch(text.strip(" ."))
    if found is None:
        return None, text
    return (int(found[1]) if found[1] else None), singular_of(found[2].lower())


def _reader(read: Callable[[str], T | None], wanted: str) -> Callable[[str], T]:
    """A reader that gives None for no answer, as one that says what it wanted."""

    def parse(text: str) -> T:
        found = read(text)
        if found is None:
            raise ValueError(f"it must give {wanted}")
        return found

    return parse


def _verdict(name: str, right: bool, reason: str) -> Verdict:
    return Verdict((Check(name, "pass" if right else "fail", "" if right else reason),))
