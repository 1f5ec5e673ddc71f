"""Does a long trace keep nano from drawing what its refined prompt says? (UReason, arXiv 2602.08336, Table 3)

    python bench/experiment.py interference [-o pairs=24] [-o updates=200] [--only shipped] [--seeds 0]

The same mapping items are drawn by the plain refined prompt ("Draw 1 cup .", setting 3 of the paper), and by a thought
that ends in it (setting 2): the refined prompt alone, the item's own short trace, and longer and longer traces before
it. Every thought is exact and ends in the right refined prompt, so an image that is wrong was led astray by the trace.

others  traces of other items: rules about symbols and objects that nobody asks for
drafts  the same with their conclusions, "So draw 1 moon ."
sums    as many sentences without any object: the control for length

Two bases: the shipped nano, whose thoughts in pretraining are short, and the same after `updates` on nothing but
short thoughts and refined prompts. Beside accuracy stand shares of attention (`uni_train insight attention`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from bench.experiment import Lab
from bench.markdown import interval, row, table
from uni_train.core.seeds import rng
from uni_train.data_gen import sprites
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.task import Item
from uni_train.eval.statistics import paired, share
from uni_train.insight.questions import plainly
from uni_train.models.bagel.hooks import GROUPS, draw_with_attention
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Example, Request
from uni_train.models.load import build_model, model_config

LEVELS = (1, 2, 3)
LENGTHS = (2, 4, 8)  # other items' thoughts, or as many sums as these have sentences
PLAIN, REFINED, OWN = "plain prompt", "refined prompt alone", "own short trace"
SHOWN = ("instruction", "thought", "refined", "itself")
_BATCH = 64


class Found(NamedTuple):
    """One way of asking: right or not and the object drawn for each item, and mean shares of attention."""

    words: float  # of the thought, mean
    right: list[bool]
    distracted: list[bool]  # it shows an object that the trace names and nobody asks for
    unreadable: list[bool]
    shares: dict[str, list[float]]


def ways(items: Sequence[Item]) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Name -> prompt and thought of every item."""
    yield PLAIN, [(plainly(item), None) for item in items]
    yield REFINED, [(item.prompt, _parts(item)[1]) for item in items]
    yield OWN, [(item.prompt, item.thought) for item in items]
    for kind in ("sums", "others", "drafts"):
        for length in LENGTHS:
            yield f"{length} {kind}", [(item.prompt, _long(item, items, kind, length)) for item in items]


def _parts(item: Item) -> tuple[str, str]:
    """Trace and refined prompt of an exact thought."""
    at = item.thought.index("So draw")
    return item.thought[:at].strip(), item.thought[at:]


def _long(item: Item, items: Sequence[Item], kind: str, length: int) -> str:
    """The item's own thought behind `length` others', or behind sums of as many sentences."""
    random_ = rng("interference", item.id, length)
    strange = [one for one in items if one.pair != item.pair and one.facts["object"] != item.facts["object"]]
    others = random_.sample(strange, length)
    said = [one.thought if kind == "drafts" else _parts(one)[0] for one in others]
    if kind == "sums":
        sentences = sum(text.count(" .") for text in said)
        pairs = [(random_.randint(1, 6), random_.randint(1, 6)) for _ in range(sentences)]
        said = [f"{a} + {b} = {a + b} ." for a, b in pairs]
    return " ".join([*said, item.thought])


def asked(model: BagelUnified, items: Sequence[Item], told: Sequence[tuple[str, str | None]], seed: int) -> Found:
    """Draw every item one way, its attention watched."""
    right, distracted, unreadable = [], [], []
    shares: dict[str, list[float]] = {name: [] for name in SHOWN}
    for start in range(0, len(items), _BATCH):
        some = items[start : start + _BATCH]
        requests = [
            Request(item.id, prompt, thought=thought, seed=rng("interference", seed, item.id).getrandbits(31))
            for item, (prompt, thought) in zip(some, told[start : start + _BATCH], strict=True)
        ]
        refined = [None if one.thought is None else one.thought.rindex("So draw") for one in requests]
        images, seen = draw_with_attention(model, requests, refined)
        mean = seen.shares.mean((0, 1))
        for name, values in shares.items():
            values += mean[:, GROUPS.index(name)].tolist()
        for item, request, image in zip(some, requests, images, strict=True):
            reading = sprites.read(image)
            named = reading.readable and f" {reading.name} " in (request.thought or "")
            right.append(sprites.verify_sprites(image, item.facts["object"], item.facts["count"]).status == "pass")
            distracted.append(bool(named and reading.name != item.facts["object"]))
            unreadable.append(not reading.readable)
    words = sum(len((thought or "").split()) for _, thought in told) / len(told)
    return Found(words, right, distracted, unreadable, shares)


def taught(model: BagelUnified, updates: int, seed: int) -> None:
    """Some hundreds of updates on images by short thoughts and by refined prompts alone, and nothing else."""
    task = get_task("mapping", "nano")
    model.prepare_training(timestep_shift=1.0, text_dropout=0.0)
    model.train()
    optimizer = torch.optim.AdamW(model.bagel.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=0.0)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / updates)
    for update in range(updates):
        examples = []
        for place in range(_BATCH // 4):
            random_ = rng("interference", "lesson", seed, update, place)
            item = random_.choice(task.sample(random_.getrandbits(60), random_.choice(LEVELS)))
            thought = item.thought if random_.random() < 0.5 else _parts(item)[1]
            image = sprites.render(item.facts["object"], item.facts["count"], random_.getrandbits(60))
            examples.append(
                Example(item.prompt, thought=thought, target=image, noise_draws=4, learn_thought=False, seed=place)
            )
        loss = model.supervised_loss(model.collate(examples, seed=rng("interference", update).getrandbits(31)))
        (loss.mse_sum / loss.mse_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.bagel.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        decay.step()
    model.eval()


def lines(found: dict[str, Found], items: Sequence[Item]) -> list[str]:
    """A row a way: right, its difference to the refined prompt alone, what it shows, shares."""
    pairs = [str(item.pair) for item in items]
    printed = []
    for name, one in found.items():
        effect = paired(found[REFINED].right, one.right, pairs).difference
        astray, unclear = (share(some, [item.id for item in items], pairs) for some in (one.distracted, one.unreadable))
        printed.append(
            row(
                *(name, f"{one.words:.0f}", interval(share(one.right, [item.id for item in items], pairs))),
                "" if name == REFINED else interval(effect, "+.2f"),
                *(interval(astray), interval(unclear)),
                *(interval(share([min(max(x, 0.0), 1.0) for x in one.shares[g]], pairs)) for g in SHOWN[:3]),
            )
        )
    return printed


def interference(lab: Lab, pairs: int = 24, updates: int = 200) -> Iterator[str]:
    """pairs: of mapping, of each level. updates: of the second base."""
    torch.set_num_threads(1)
    task, seed = get_task("mapping", "nano"), lab.seeds[0]
    items = [item for level in LEVELS for item in task.generate(pairs, level, "test", seed)]
    model = build_model(replace(model_config("shipped"), threads=1))
    assert isinstance(model, BagelUnified)
    titles = {
        "shipped": "the shipped nano",
        "taught": f"after {updates} updates on short thoughts and refined prompts",
    }
    for base in lab.arms(titles):
        if base == "taught":
            taught(model, updates, seed)
        found = {name: asked(model, items, told, seed) for name, told in ways(items)}
        yield from ("", f"{titles[base]}, {len(items)} items in {len(items) // 2} pairs:", "")
        yield from table("drawn by", "words", "right", "minus refined alone", "an object of the trace", "unreadable",
                         "P", "R_t", "R_p")  # fmt: skip
        yield from lines(found, items)
