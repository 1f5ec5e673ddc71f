"""Questions of our own, so that the protocol runs without the published files.

    maths       determination    the cue is the image of the number that an expression gives
    inpainting  reconstruction   an image with one cell covered; the cue is the whole image (nano only)
    mapping     augmentation     symbols that stand for objects; the cue is the object, at the end of the chain

Each is asked with choices and openly. Answers are read by program; so are cues in the nano world. nano is asked in the
few sentences that it knows and is shown no choices: its words are matched with them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from uni_train.core.errors import UsageError
from uni_train.core.seeds import derive_seed, digest
from uni_train.data_gen import sprites
from uni_train.data_gen.objects import NANO, get_world
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.eval.benchmark import Case, Source
from uni_train.eval.benchmarks.ufo.cases import LETTERS, make_case
from uni_train.eval.benchmarks.ufo.names import KINDS, kind_of_set, task_of_set
from uni_train.models.family import family_of
from uni_train.models.pictures import encode_png

LEVELS = (1, 2, 3)  # of maths and mapping
_COVER = (128, 128, 128)


def generated(source: Source) -> list[Case]:
    """`source.n` questions a task, the same with choices and open.

    Raises UsageError for a task that the world lacks, DataError where it has too few.
    """
    world, sets = source.world, source.sets
    there = ("maths", "inpainting", "mapping") if world == NANO.name else ("maths", "mapping")
    tasks = there if sets is None else tuple(dict.fromkeys(map(task_of_set, sets)))
    lacking = [task for task in tasks if task not in there]
    if lacking:
        raise UsageError(
            f"UFO has no questions of our own for {lacking[0]} in the {world} world",
            f"There are {', '.join(there)}; name the published files with data.ufo=FOLDER.",
        )
    kinds = KINDS if sets is None else tuple(kind for kind in KINDS if kind in map(kind_of_set, sets))
    cases: list[Case] = []
    for task in (task for task in there if task in tasks):
        if task == "inpainting":
            made = [_inpainting(source.split, at) for at in range(source.n)]
        else:
            made = [_of_item(item, world) for item in _items(task, world, source.n, source.split)]
        cases += [by_kind[kind] for kind in kinds for by_kind in made]
    return cases


def _items(task: str, world: str, n: int, split: str) -> Iterator[Item]:
    """Of each level its share; of a pair of mapping the first question."""
    generator = get_task(task, world)
    for at, level in enumerate(LEVELS):
        share = n // len(LEVELS) + (at < n % len(LEVELS))
        if share:
            items = generator.generate(share, level, split, derive_seed(0, "ufo", task, level))
            yield from items[:: generator.items_per_draw]


def _of_item(item: Item, world: str) -> dict[str, Case]:
    here = get_world(world)
    facts = {"world": world, "level": item.level, "object": item.facts["object"], "count": item.facts["count"]}
    thing = here.noun(item.facts["object"])
    answer = thing.counted(item.facts["count"])
    random_ = random.Random(derive_seed(0, "ufo choices", item.id))
    if item.task == "maths":
        counts = random_.sample([k for k in range(1, 7) if k != item.facts["count"]], 3)
        wrong = [thing.counted(count) for count in counts]
    else:
        named = [right for _, right in item.facts["rules"] if right not in here.symbols and right != thing.singular]
        others = [noun.singular for noun in here.nouns if noun.singular not in (*named, thing.singular)]
        names = [*dict.fromkeys(named), *random_.sample(others, 3)][:3]
        wrong = [here.noun(name).counted(1) for name in names]
    cue = None
    if world == NANO.name:
        cue = encode_png(sprites.render(thing.singular, item.facts["count"], derive_seed(0, "ufo", item.id)))
    question = (item.id, item.task, item.prompt)
    return _by_kind(question, answer, wrong, random_, text_cue=item.thought, cue_image=cue, facts=facts)


def _inpainting(split: str, at: int) -> dict[str, Case]:
    """Objects fill the cells of an image in scan order; one that is not the last of them is covered."""
    random_ = random.Random(derive_seed(0, "ufo inpainting", split, at))
    noun, count = random_.choice(NANO.nouns), random_.randint(2, 6)
    whole = sprites.render(noun.singular, count, random_.getrandbits(60))
    wrong = [noun.counted(k) for k in random_.sample([k for k in range(1, 8) if k not in (count, count - 1)], 2)]
    phrases = family_of(NANO.name).phrases()
    draw = phrases["draw some"].format(objects=noun.plural)
    facts = {"world": NANO.name, "object": noun.singular, "count": count, "draw": draw}
    question = (f"inpainting/{split}/{digest(at, noun.singular, count)}", "inpainting", phrases["caption"])
    images = [encode_png(_covered(whole, random_.randrange(count - 1)))]
    return _by_kind(
        question, noun.counted(count), [noun.counted(count - 1), *wrong], random_, images=images,
        text_cue=f"So draw {noun.counted(count)} .", cue_image=encode_png(whole), facts=facts,
    )  # fmt: skip


def _covered(image: np.ndarray, cell: int) -> np.ndarray:
    covered = image.copy()
    row, column = divmod(cell, sprites.GRID)
    side = sprites.CELL
    covered[row * side : (row + 1) * side, column * side : (column + 1) * side] = _COVER
    return covered


def _by_kind(
    question: tuple[str, str, str], answer: str, wrong: Sequence[str], random_: random.Random, **rest: Any
) -> dict[str, Case]:
    """The same question (id, task, words) with choices and open."""
    texts = [answer, *wrong]
    random_.shuffle(texts)
    choices = dict(zip(LETTERS, texts, strict=False))
    mcq = make_case("mcq", *question, LETTERS[texts.index(answer)], choices=choices, **rest)
    return {"mcq": mcq, "open": make_case("open", *question, answer, **rest)}
