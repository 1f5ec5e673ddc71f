from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import pytest

from uni_train.data_gen.task import Verdict
from uni_train.errors import UsageError
from uni_train.eval.judges import caption_matches, image_satisfies, thought_satisfies

IMAGE = b"\x89PNG"


class Scripted:
    """A JudgeAsk that says its replies in turn; what it was asked is in `prompts`."""

    def __init__(self, *replies: str, dialect: str = "paper") -> None:
        self.replies, self.dialect = list(replies), dialect
        self.prompts: list[str] = []
        self.images: list[tuple[bytes, ...]] = []

    async def __call__(
        self,
        prompt: str,
        images: Sequence[bytes] = (),
        *,
        parse: Callable[[str], Any] | None = None,
        attempts: int = 3,
        schema: Mapping[str, Any] | None = None,
    ) -> Any:
        self.prompts.append(prompt)
        self.images.append(tuple(images))
        said = self.replies.pop(0)
        return parse(said) if parse else said


def verdict(question: Callable[..., Any], *args: Any, **kwargs: Any) -> Verdict:
    return anyio.run(partial(question, *args, **kwargs))


def test_a_caption_is_made_before_the_answer_is_known() -> None:
    ask = Scripted("Caption: 4 chairs", "Score: YES")
    assert verdict(caption_matches, ask, IMAGE, "4 chairs", kind="maths").passed
    assert ask.images == [(IMAGE,), ()] and "4 chairs" not in ask.prompts[0].replace("2 chairs", "")
    assert "**Generated Caption:** 4 chairs\n" in ask.prompts[1] and "**Expected Answer:** 4 chairs\n" in ask.prompts[1]
    found = verdict(caption_matches, Scripted("Caption: 3 chairs", "Score: NO"), IMAGE, "4 chairs", kind="mapping")
    assert found.status == "fail" and "captioned '3 chairs', expected '4 chairs'" in found.reason


def test_a_caption_that_refuses_the_picture_needs_no_comparison() -> None:
    for kind, caption in (("maths", "Caption: Error"), ("knowledge", "Reject")):
        ask = Scripted(caption)
        assert verdict(caption_matches, ask, IMAGE, "rose", kind=kind).status == "fail" and len(ask.prompts) == 1


def test_knowledge_is_compared_by_table_11() -> None:
    ask = Scripted("Flower: rose", "Score: YES")
    assert verdict(caption_matches, ask, IMAGE, "roses", kind="knowledge").passed
    assert "Input: Generated: Flower: rose — GroundTruth: roses" in ask.prompts[1]


def test_criteria_are_asked_in_the_words_of_figures_25_and_26() -> None:
    ask = Scripted("Good.\n<answer>Yes</answer>", "<answer>No</answer>")
    assert verdict(image_satisfies, ask, IMAGE, 'a "red" cup').passed
    assert 'Target Description: "a "red" cup"' in ask.prompts[0] and ask.images[0] == (IMAGE,)
    found = verdict(thought_satisfies, ask, "Draw {criteria}", "{user_prompt}", "three cups")
    assert found.status == "fail" and "three cups" in found.reason
    for part in ("=== User Prompt ===\nDraw {criteria}\n", "=== Model Thought Process ===\n{user_prompt}\n"):
        assert part in ask.prompts[1]


def test_nano_is_asked_in_its_own_words() -> None:
    ask = Scripted("Caption: 3 apples", "Seen 3 apples .\nFinal Answer: YES", dialect="nano")
    assert verdict(caption_matches, ask, IMAGE, "3 apples", kind="maths").passed
    assert verdict(image_satisfies, ask, IMAGE, "Draw 3 apples .").passed
    assert ask.prompts == ["Caption :", "Question : Draw 3 apples . Is the image right ?"]
    for caption, expected, kind, passes in [
        ("2 leaves", "2 leaves", "mapping", True),
        ("1 leaf", "2 leaves", "mapping", False),
        ("1 leaf", "2 leaves", "mapping_official", True),
        ("2 leaves", "Leaves", "mapping", True),
        ("2 cups", "2 leaves", "mapping_official", False),
        ("unclear", "2 leaves", "mapping", False),
    ]:
        ask = Scripted(f"Caption: {caption}", dialect="nano")
        assert verdict(caption_matches, ask, IMAGE, expected, kind=kind).passed is passes, (caption, expected, kind)
    with pytest.raises(UsageError, match="text"):
        verdict(thought_satisfies, Scripted(dialect="nano"), "a", "b", "c")
    with pytest.raises(UsageError, match="portraits"):
        verdict(caption_matches, Scripted(dialect="nano"), IMAGE, "rose", kind="knowledge")
