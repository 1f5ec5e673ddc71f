"""Draw and say: questions of our own in UEval's schema, whose rubrics a program decides in nano's world.

maths and mapping are those of UniSandbox: so many of one thing, or the thing that a symbol stands for. any_number asks
for some things and leaves open how many: the text must then count what the image shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uni_train.data_gen import sprites
from uni_train.data_gen.knowledge.nano import counted
from uni_train.data_gen.objects import NANO, get_world
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.seeds import derive_seed, rng
from uni_train.data_gen.task import Check, Item
from uni_train.eval.benchmark import Case
from uni_train.eval.images import Image, pixels

CLOSED = ("maths", "mapping")
OPEN = ("any_number",)
SETS = (*CLOSED, *OPEN)
LEVELS = (1, 2, 3)


def generated(world: str, n: int, split: str, seed: int, sets: Sequence[str]) -> list[Case]:
    """`n` questions a set (of pairs, both; of any_number at most one for each thing there is), all levels alike.

    Raises DataError where the world has not that many.
    """
    cases: list[Case] = []
    for task in sets:
        if task in CLOSED:
            for level in LEVELS:
                share = n // len(LEVELS) + (level - 1 < n % len(LEVELS))
                source = derive_seed("evaluation", seed)
                items = get_task(task, world).generate(share, level, split, source) if share else []
                cases += [_question(world, task, item.id, item.prompt, *_asked(item), pair=item.pair) for item in items]
        else:
            nouns = get_world(world).nouns
            for noun in rng("any_number", split, seed).sample(nouns, min(n, len(nouns))):
                id_ = f"any_number/{split}/{noun.singular}"
                cases.append(_question(world, task, id_, f"Draw some {noun.plural} .", noun.singular, noun.plural))
    return cases


def _asked(item: Item) -> tuple[str, str, int]:
    return str(item.facts["object"]), str(item.facts["plural"]), int(item.facts["count"])


def _question(
    world: str, task: str, id_: str, prompt: str, singular: str, plural: str, count: int = 0, pair: str | None = None
) -> Case:
    """count: 0 where it is open; pair: of questions with the same rules.

    nano is asked in its own words, others are told that text is wanted too."""
    terse = world == NANO.name
    if not terse:
        asked = prompt.removesuffix(" .") + "." if task == "any_number" else prompt
        prompt = f"{asked} Answer with an image, and say in one sentence what it shows and how many."
    noun = singular if count == 1 else plural
    image = {"object": f"The image shows {noun} and nothing else."}
    text = {"object": f"The text names {noun} as what is shown."}
    if count:
        image["count"] = f"The image shows exactly {count} {noun}."
        text["count"] = f"The text gives the number {count}."
    else:
        text["agreement"] = f"The text gives the number of {plural} that the image shows."
    facts: dict[str, Any] = {
        "image_rubrics": list(image.values()), "text_rubrics": list(text.values()),
        "text_ref": f"{count} {noun}" if count else "",
    }  # fmt: skip
    if terse:
        facts["program"] = {"image": list(image), "text": list(text), "object": singular, "count": count}
    category = "closed-ended" if task in CLOSED else "open-ended"
    return Case(id_, task, prompt, cluster=pair, category=category, facts=facts)


def decided(case: Case, part: str, number: int, text: str, image: Image | None) -> Check | None:
    """What a program says of one rubric; None where none can. `text` and `image` are the answer's.

    A text is read as nano speaks: its last sentence that counts something says what is shown.
    """
    program = case.facts.get("program")
    if program is None:
        return None
    kind, name = program[part][number], f"{part} {number + 1}"
    seen = None if image is None else sprites.read(pixels(image))
    said = next((found for one in reversed(text.split(" .")) if (found := counted(one))), frozenset())
    if part == "image" or kind == "agreement":
        if seen is None:
            return Check(name, "fail", "there is no image", 0.0)
        if not seen.readable:
            return Check(name, "unreadable", seen.reason, 0.0)
    if part == "text" and len(said) != 1:
        return Check(name, "fail", f"the text counts {len(said)} different things", 0.0)
    count, object_ = (seen.count, seen.name) if part == "image" and seen is not None else next(iter(said))
    wanted = {"object": program["object"], "count": program["count"], "agreement": seen.count if seen else None}[kind]
    shown = object_ if kind == "object" else count
    right = shown == wanted
    return Check(name, "pass" if right else "fail", "" if right else f"{shown}, not {wanted}", float(right))
