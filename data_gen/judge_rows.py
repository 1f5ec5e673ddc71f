"""`data make --format judge`: questions whether an image is right, with what is seen and the proved verdict.

Each item gets one image: a right one, a near miss where sprites show the answer, another item's answer, or an attack
(data_gen/attacks.py). `task.verify` proves every label; an image that it cannot read, or does not judge as meant, is
replaced. About half are wrong, and equal counts or equal objects alone decide nothing (`sprite_task.SEEN`).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from uni_train.core.errors import DataError
from uni_train.core.seeds import rng
from uni_train.data_gen import sprites
from uni_train.data_gen.attacks import ATTACKS, attack_items
from uni_train.data_gen.export import Form
from uni_train.data_gen.formats import Sample, png, write_table
from uni_train.data_gen.objects import NANO
from uni_train.data_gen.questions import image_question
from uni_train.data_gen.sprite_task import SpriteTask, beside_item
from uni_train.data_gen.task import Item, Task, Verdict

OTHER = "another item's answer"
VERDICTS = {"pass": "Final Answer: YES", "fail": "Final Answer: NO"}
_TEXTS = ("id", "task", "split", "kind", "verdict", "item")
_OTHERS = 20  # items that are looked at for one with another answer


def judge_samples(task: Task, items: Sequence[Item], seed: int) -> Iterator[Sample]:
    """A row an item, in their order; an item of which no image is readable has none.

    Raises:
        DataError: the items have no images, or the rows no right or no wrong ones.
    """
    verdicts: Counter[str] = Counter()
    for item in items:
        if not task.has_image(item):
            raise DataError(f"{item.id} has no image to judge: leave out the world, or take another task")
        random_ = rng("judge", seed, item.id)
        for kind, right, image in _images(task, item, items, random_):
            verdict = task.verify(item, image)
            if verdict.status == ("pass" if right else "fail"):
                verdicts[verdict.status] += 1
                yield _sample(task, item, kind, image, verdict)
                break
    for status, noun in (("pass", "right"), ("fail", "wrong")):
        if not verdicts[status]:
            raise DataError(
                f"{task.name}: none of {sum(verdicts.values())} images is proved {noun}, so no judge can learn from "
                "them: ask for more items (n), or for another task"
            )


def _images(
    task: Task, item: Item, items: Sequence[Item], random_: random.Random
) -> Iterator[tuple[str, bool, np.ndarray]]:
    """A kind of image, whether it is meant to be right, and an image: the wanted one, then what may replace it."""
    seed = random_.getrandbits(60)
    if isinstance(task, SpriteTask) and (shown := beside_item(item, random_)) is not None:
        (name, count), facts = shown, item.facts
        kinds = ["object"] * (name != facts["object"]) + ["count"] * (count != facts["count"])
        yield "other " + " and ".join(kinds) if kinds else "right", not kinds, sprites.render(name, count, seed)
        return
    right = random_.random() < 0.5
    if right and random_.random() < 0.7:
        yield "right", True, task.render(item, seed)
        return
    others = [other for other in random_.choices(items, k=_OTHERS) if other.answer != item.answer][:1]
    if others and not right and random_.random() < 0.3:
        yield OTHER, False, task.render(others[0], seed)
    wanted = "accept" if right else "refuse"
    names = [attack.name for attack in ATTACKS if attack.expected == wanted and attack.name not in ("as it is", OTHER)]
    for name in random_.sample(names, len(names)):
        for case in islice(attack_items(task, [item, *others], seed, only=[name]), 1):
            if case.item is item:
                yield name, right, case.image


def _sample(task: Task, item: Item, kind: str, image: np.ndarray, verdict: Verdict) -> Sample:
    if isinstance(task, SpriteTask):
        objects = Counter(sprites.read(image).objects)
        seen = " and ".join(noun.counted(objects[noun.singular]) for noun in NANO.nouns if noun.singular in objects)
        seen = f"Seen {seen or 'nothing'} ."
    else:
        seen = " ".join(f"{check.name.capitalize()}: {check.reason or check.status}." for check in verdict.checks)
    row = {
        **{name: getattr(item, name) for name in ("id", "task", "split", "level")},
        "prompt": [{"role": "user", "content": image_question(item.prompt, task.name)}],
        "completion": [{"role": "assistant", "content": f"{item.thought} {seen}\n{VERDICTS[verdict.status]}"}],
        "kind": kind, "verdict": verdict.status, "item": json.dumps(item.to_dict(), ensure_ascii=False),
    }  # fmt: skip
    given = task.input_image(item)
    images = {"image": png(image)} if given is None else {"input_image": png(given), "image": png(image)}
    return Sample(row, images)


def write_judge(folder: Path, split: str, samples: Iterable[Sample]) -> None:
    """Write SPLIT.parquet, whose columns `images`, `prompt` and `completion` trl's SFTTrainer takes as they are."""
    import pyarrow as pa

    text = {"dtype": "string", "_type": "Value"}
    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [*((name, pa.string()) for name in _TEXTS), ("level", pa.int64()), ("images", pa.list_(image)),
              ("prompt", messages), ("completion", messages)]  # fmt: skip
    said = {"feature": {"role": text, "content": text}, "_type": "List"}
    features = {
        **{name: text for name in _TEXTS}, "level": {"dtype": "int64", "_type": "Value"},
        "images": {"feature": {"_type": "Image"}, "_type": "List"}, "prompt": said, "completion": said,
    }  # fmt: skip
    rows = ({**one.row, "images": [{"bytes": data} for data in one.images.values()]} for one in samples)
    write_table(folder / f"{split}.parquet", fields, features, rows)


JUDGE = Form(judge_samples, write_judge)
