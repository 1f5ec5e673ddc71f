"""The language of nano: its fixed sentences beside the prompts of tasks, and its vocabulary.

BAGEL takes long English instructions (`eval.prompts`); nano knows a few hundred words, so its filter instruction is
one sentence. Its reply follows Table 13 of UniSandbox all the same: work out what is asked, say what is seen, check
number and object, judge.
"""

from __future__ import annotations

from uni_train.data_gen.objects import NANO, Noun, singular_of
from uni_train.data_gen.phrasing import nano_vocabulary

THINK_SYSTEM = "think"
CAPTION_PROMPT = "Caption :"
VERIFY_PROMPT = "Question : {question} Is the image right ?"
MEANINGS = "what {symbols} ?"
SOME, ONE_OF_THEM = "Draw some {objects} .", "Draw one of them ."
COMPARE = "Asked {asked} . Seen {seen} ."
YES, NO = "\nFinal Answer: YES", "\nFinal Answer: NO"
UNCLEAR = "unclear"

_WORDS = ("think", "Caption", ":", "Caption:", "Question", "Is", "the", "image", "right", "wrong", "?")
# "Count", "by" and "from" are in no row any more; the shipped checkpoint has them.
_MORE_WORDS = ("Count", "by", "from", "some", "any", "object", "one", "of", "them")
_REPLY_WORDS = ("Asked", "Seen", "unclear", "Number", "Object", "Draw", "\n", "Final", "Answer:", "YES", "NO")


def vocabulary() -> tuple[str, ...]:
    """Every word that can be said to nano or by it, in a fixed order."""
    return tuple(dict.fromkeys([*nano_vocabulary(), *_WORDS, *_MORE_WORDS, *_REPLY_WORDS]))


def plain_prompt(noun: Noun, count: int) -> str:
    """A text-to-image prompt that says what to draw: "Draw 3 apples ."."""
    return f"Draw {noun.counted(count)} ."


def counted(singular: str, count: int) -> str:
    """ "3 apples"."""
    return NANO.noun(singular).counted(count)


def caption(seen: str) -> str:
    return f"Caption: {seen}"


def verification(steps: str, asked: str, seen: str) -> str:
    """The reply to `VERIFY_PROMPT`: the reasoning, what is asked, what is seen, then the `judgement`."""
    return f"{steps} {COMPARE.format(asked=asked, seen=seen)} {judgement(asked, seen)}"


def judgement(asked: str, seen: str) -> str:
    """Both criteria in words, "Number : right . Object : wrong .", and on a line of its own "Final Answer: NO"."""
    if seen == UNCLEAR:
        number = object_ = False
    else:
        (wanted, thing), (count, shown) = asked.split(), seen.split()
        number, object_ = wanted == count, singular_of(thing) == singular_of(shown)
    words = {True: "right", False: "wrong"}
    verdict = YES if number and object_ else NO
    return f"Number : {words[number]} . Object : {words[object_]} .{verdict}"


def reasoning(thought: str) -> str:
    """The steps of a thought without its conclusion "So draw ..."."""
    return thought.rpartition("So draw")[0].strip()
