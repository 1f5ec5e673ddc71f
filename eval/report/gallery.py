"""Galleries: samples as cards, by whole clusters, with as many images as a page can hold."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uni_train.core.reading_limits import open_image, rgb
from uni_train.core.seeds import derive_seed
from uni_train.eval.benchmark import Scored
from uni_train.eval.images import Image, bytes_of, digest_of

IMAGE_BUDGET = 12_000_000  # bytes of images in a page, as base64: some 2,500 of a large model
MOST_CARDS = 6_000
_BLOCK = 48  # images that the script reads at once
_LARGEST_EDGE = 192  # larger images are shown as thumbnails

Moments = Mapping[str, Sequence[Scored]]
"""An evaluation's moment ("before", "after") -> its samples, in the order of asking."""
Slot = dict[str, Scored]
"""The samples of one case, setting and draw: the evaluation's moment ("before", "after") -> sample."""


class Shelf:
    """The images of a page, each once."""

    def __init__(self) -> None:
        self._urls: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, image: Image) -> int:
        """The number of the image."""
        digest = digest_of(image)
        if digest not in self._places:
            self._urls.append(data_url(bytes_of(image)))
            self._places[digest] = len(self._urls) - 1
        return self._places[digest]

    @property
    def blocks(self) -> list[list[str]]:
        return [self._urls[i : i + _BLOCK] for i in range(0, len(self._urls), _BLOCK)]


@dataclass(frozen=True, slots=True)
class Gallery:
    """cards: JSON-able, for the page's script. blocks: data URLs of their images. total: samples in all."""

    cards: list[dict[str, Any]]
    blocks: list[list[str]]
    total: int


def build(
    parts: Mapping[str, Moments],
    cards: int = MOST_CARDS,
    budget: int = IMAGE_BUDGET,
    changed_first: bool = False,
) -> Gallery:
    """A card for every case, setting and draw of `parts`, by benchmark.

    Beyond `cards` samples, or images of `budget` bytes, whole clusters (pairs) are left out, of every set the same
    number. A hash chooses, not how samples turned out.

    Args:
        changed_first: only samples of all moments, without regard to clusters. Those that are right at some moment and
            wrong at another come first, and lack nothing that fits.
    """
    slots: dict[tuple[Hashable, ...], Slot] = defaultdict(dict)
    for benchmark, moments in parts.items():
        for moment, scored in moments.items():
            for answer in scored:
                slots[benchmark, *answer.sample.identity][moment] = answer
    if changed_first:
        slots = {key: slot for key, slot in slots.items() if len(slot) == len(parts[str(key[0])])}
    same = {key for key, slot in slots.items() if changed_first and len({row.passed for row in slot.values()}) == 1}
    unit_of = {
        key: (key[0], key[1:] if changed_first else case.cluster or case.id)
        for key, slot in slots.items()
        for case in [next(iter(slot.values())).sample.ask.case]
    }
    ranked = _ranked(slots, unit_of, {unit_of[key] for key in same})
    chosen = _within(ranked, Counter(unit_of.values()), cards)
    pictures = Counter({unit: 0 for unit in chosen})
    for key, slot in slots.items():
        pictures[unit_of[key]] += sum(len(pictures_of(answer)) for answer in slot.values())
    pictured = _within([unit for unit in ranked if unit in chosen], pictures, _room(parts, budget))
    shelf = Shelf()
    shown: dict[tuple[Hashable, ...], dict[str, Any]] = {key: {} for key in slots if unit_of[key] in chosen}
    for benchmark, moments in parts.items():
        for moment, scored in moments.items():
            for answer in scored:
                if (key := (benchmark, *answer.sample.identity)) in shown:
                    held = shelf if unit_of[key] in pictured else None
                    card = shown[key] = shown[key] or _card(benchmark, answer, held, whole=len(moments) == 1)
                    card["answers"][moment] = _answer(answer, held, whole=len(moments) == 1)
    return Gallery([shown[key] for key in sorted(shown, key=same.__contains__)], shelf.blocks, len(slots))


def _ranked(slots: Mapping[Any, Slot], unit_of: Mapping[Any, Any], late: Iterable[Any]) -> list[Any]:
    """Units by turns of their sets, by a hash within each; the late ones last."""
    sets: dict[Any, dict[Any, int]] = defaultdict(dict)
    for key, slot in slots.items():
        unit = unit_of[key]
        sets[key[0], next(iter(slot.values())).sample.ask.case.set][unit] = derive_seed("gallery", *map(str, unit))
    turns = {unit: (turn, seed) for some in sets.values()
             for turn, (unit, seed) in enumerate(sorted(some.items(), key=lambda pair: pair[1]))}  # fmt: skip
    return sorted(turns, key=lambda unit: (unit in late, turns[unit]))


def _within(units: Iterable[Any], sizes: Mapping[Any, int], most: int) -> set[Any]:
    """The first units that together have at most `most`; one at least."""
    kept: set[Any] = set()
    for unit in units:
        most -= sizes[unit]
        if most < 0 and kept:
            break
        kept.add(unit)
    return kept


def _room(parts: Mapping[str, Moments], budget: int) -> int:
    """How many images fit, by the size of the first ones."""
    every: Iterator[Image] = (
        image for moments in parts.values() for scored in moments.values() for answer in scored
        for image in pictures_of(answer)
    )  # fmt: skip
    sizes = [len(thumbnail(bytes_of(image))[1]) * 4 / 3 for image, _ in zip(every, range(_BLOCK), strict=False)]
    return round(budget / (sum(sizes) / len(sizes))) if sizes else 0


def excerpt(moments: Moments, n: int) -> dict[str, list[Scored]]:
    """At most `n` samples with an image, the same in every moment: sets, settings and outcomes in turn, by a hash."""
    strata: dict[Hashable, tuple[str, str, str]] = {}
    for scored in moments.values():
        for answer in scored:
            if answer.sample.drawn:
                ask = answer.sample.ask
                strata[answer.sample.identity] = ask.case.set, ask.setting, answer.outcome
    queues: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for key in sorted(strata, key=lambda key: derive_seed("gallery", *map(str, key))):  # type: ignore[call-overload]
        queues[strata[key]].append(key)
    chosen: set[Any] = set()
    while len(chosen) < n and any(queues.values()):
        chosen.update([queue.pop() for _, queue in sorted(queues.items()) if queue][: n - len(chosen)])
    return {
        moment: [answer for answer in scored if answer.sample.identity in chosen and answer.sample.drawn]
        for moment, scored in moments.items()
    }


# --- what a card says -----------------------------------------------------------------------------------------------

_EXPECTED = ("answer", "criterion", "expected")  # what benchmarks call that which is right


def _card(benchmark: str, answer: Scored, shelf: Shelf | None, whole: bool) -> dict[str, Any]:
    """What was asked; what is empty is left out. whole: with all that is known of the case."""
    ask, case = answer.sample.ask, answer.sample.ask.case
    facts = _plain(case.facts)
    expected = next((facts.pop(name) for name in _EXPECTED if name in facts), "")
    return _filled(
        benchmark=benchmark, id=case.id, set=case.set, category=case.category, setting=ask.setting, k=ask.k,
        prompt=case.prompt, expected=expected, facts=facts if whole else {},
        given=[shelf.place(image) for image in case.images] if shelf else [],
        references=[shelf.place(image) for image in case.references] if shelf else [],
    ) | {"answers": {}}  # fmt: skip


def _answer(one: Scored, shelf: Shelf | None, whole: bool) -> dict[str, Any]:
    """What came back, and what was made of it. whole: with the judge's words, and whatever else is known."""
    sample, checks = one.sample, () if one.verdict is None else one.verdict.checks
    answer: dict[str, Any] = {
        "outcome": one.outcome,
        "cause": one.cause,
        "note": sample.note,
        "checks": [[check.name, check.status, check.reason] for check in checks
                   if check.reason or check.status != "pass"],
        "thought": sample.thought,
        "text": sample.text,
        "image": shelf.place(sample.drawn[-1]) if shelf and sample.drawn else None,
        "left_out": len(pictures_of(one)) if shelf is None else None,
    }  # fmt: skip
    if whole:
        answer |= {
            "refined": sample.prompt if sample.prompt != sample.ask.case.prompt else "",
            "remarks": _plain(sample.facts),
            "by": one.by if one.verdict is not None or one.failure else "",
            "replies": list(one.replies),
        }
    return _filled(**answer) | ({"thought": ""} if sample.thought == "" else {})


def _filled(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value not in ("", [], {})}


def _plain(facts: Mapping[str, Any]) -> dict[str, str]:
    """For showing: a line a fact, without the parts that no person reads."""
    return {
        str(key): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in facts.items()
        if value not in (None, "", [], {})
    }


def pictures_of(answer: Scored) -> list[Image]:
    """What a card shows: the images of its case, and the last that was drawn."""
    case = answer.sample.ask.case
    return [*case.images, *case.references, *answer.sample.drawn[-1:]]


def data_url(image: bytes) -> str:
    """The image's `thumbnail` as a URL that holds it."""
    kind, data = thumbnail(image)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def thumbnail(image: bytes) -> tuple[str, bytes]:
    """Kind and bytes of what a page shows: small images as they are, large ones reduced."""
    from PIL import Image

    with open_image(image, "the image of a sample") as opened:
        if max(opened.size) <= _LARGEST_EDGE:
            return (opened.format or "png").lower(), image
        small = Image.fromarray(rgb(opened))
        small.thumbnail((_LARGEST_EDGE, _LARGEST_EDGE))
        buffer = io.BytesIO()
        small.save(buffer, format="WEBP", quality=80)
        return "webp", buffer.getvalue()
