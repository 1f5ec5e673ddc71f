"""Galleries: samples as cards, whole cases or pairs at a time, with as many of their images as a page can hold.

Samples are read twice, so that memory holds only what is shown: first without images, then with those of one sample.
"""

from __future__ import annotations

import base64
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import open_image, read_json, rgb
from uni_train.data_gen.seeds import derive_seed
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored
from uni_train.eval.images import Image, bytes_of, digest_of

IMAGE_BUDGET = 12_000_000  # bytes of images in a page, as base64: some 2,500 of a large model
MOST_CARDS = 6_000
_BLOCK = 48  # images that the script reads at once
_LARGEST_EDGE = 192  # larger images are shown as thumbnails

Read = Callable[[bool], Iterable[Scored]]
"""The samples of an evaluation in the order of asking; True: with their images, else these may be b""."""
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


Show = Callable[[str, str, Scored, Shelf | None], dict[str, Any]]
"""(benchmark, moment, sample, shelf) -> what its card says of it; without a shelf its images are left out."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """cards: JSON-able, for the page's script. blocks: data URLs of their images. total: samples in all."""

    cards: list[dict[str, Any]]
    blocks: list[list[str]]
    total: int


def build(
    parts: Mapping[str, Mapping[str, Read]],
    show: Show,
    cards: int = MOST_CARDS,
    budget: int = IMAGE_BUDGET,
    together: Callable[[Scored], Hashable] = lambda one: one.sample.ask.case.cluster_id,
    first: Callable[[Slot], bool] | None = None,
) -> Gallery:
    """A card for every case, setting and draw of `parts`, benchmark -> moment -> its samples, in the order of asking.

    Beyond `cards` samples, or images of `budget` bytes, what belongs `together` is left out, and of every set the same
    number. A hash chooses, not how samples turned out; those that are `first` come before, and lack nothing that fits.
    Raises DamagedShard.
    """
    slots: dict[tuple[Hashable, ...], Slot] = defaultdict(dict)
    for benchmark, moments in parts.items():
        for moment, read in moments.items():
            for one in read(False):
                slots[benchmark, *one.sample.identity][moment] = one
    if first is not None:
        slots = {key: slot for key, slot in slots.items() if len(slot) == len(parts[str(key[0])])}
    unit_of = {key: (key[0], together(next(iter(slot.values())))) for key, slot in slots.items()}
    late = set(unit_of.values()) if first is not None else set()
    late -= {unit_of[key] for key, slot in slots.items() if first is not None and first(slot)}
    ranked = _ranked(slots, unit_of, late)
    chosen = _within(ranked, Counter(unit_of.values()), cards)
    pictures = Counter({unit: 0 for unit in chosen})
    for key, slot in slots.items():
        pictures[unit_of[key]] += sum(len(pictures_of(one)) for one in slot.values())
    pictured = _within([unit for unit in ranked if unit in chosen], pictures, _room(parts, budget))
    shelf = Shelf()
    shown: dict[tuple[Hashable, ...], dict[str, Any]] = {key: {} for key in slots if unit_of[key] in chosen}
    for benchmark, moments in parts.items():
        for moment, read in moments.items():
            for one in read(True):
                if (key := (benchmark, *one.sample.identity)) in shown:
                    said = show(benchmark, moment, one, shelf if unit_of[key] in pictured else None)
                    shown[key] = said | shown[key]
    order = sorted(shown, key=lambda key: first is not None and not first(slots[key]))
    return Gallery([shown[key] for key in order], shelf.blocks, len(slots))


def _ranked(slots: Mapping[Any, Slot], unit_of: Mapping[Any, Any], late: Iterable[Any]) -> list[Any]:
    """Units by turns of their sets, by a hash within each; the late ones last."""
    sets: dict[Any, dict[Any, int]] = defaultdict(dict)
    for key, slot in slots.items():
        unit = unit_of[key]
        sets[key[0], next(iter(slot.values())).sample.ask.case.set][unit] = derive_seed("gallery", *map(str, unit))
    turns = {unit: (turn, seed) for some in sets.values()
             for turn, (unit, seed) in enumerate(sorted(some.items(), key=lambda one: one[1]))}  # fmt: skip
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


def _room(parts: Mapping[str, Mapping[str, Read]], budget: int) -> int:
    """How many images fit, by the size of the first ones."""
    every: Iterator[Image] = (
        image for moments in parts.values() for read in moments.values() for one in read(True)
        for image in pictures_of(one)
    )  # fmt: skip
    sizes = [len(thumbnail(bytes_of(image))[1]) * 4 / 3 for image, _ in zip(every, range(_BLOCK), strict=False)]
    return round(budget / (sum(sizes) / len(sizes))) if sizes else 0


def excerpt(moments: Mapping[str, Read], n: int) -> dict[str, list[Scored]]:
    """At most `n` samples with an image, the same in every moment: sets, settings and outcomes in turn, by a hash."""
    strata: dict[Hashable, tuple[str, str, str]] = {}
    for read in moments.values():
        for one in read(False):
            if one.sample.drawn:
                ask = one.sample.ask
                strata[one.sample.identity] = ask.case.set, ask.setting, one.outcome
    queues: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for key in sorted(strata, key=lambda key: derive_seed("gallery", *map(str, key))):  # type: ignore[call-overload]
        queues[strata[key]].append(key)
    chosen: set[Any] = set()
    while len(chosen) < n and any(queues.values()):
        chosen.update([queue.pop() for _, queue in sorted(queues.items()) if queue][: n - len(chosen)])
    return {
        moment: [one for one in read(True) if one.sample.identity in chosen and one.sample.image is not None]
        for moment, read in moments.items()
    }


# --- what a card says -----------------------------------------------------------------------------------------------

_ANSWERS = ("answer", "criterion", "expected")  # what benchmarks call that which is right


def beside(benchmark: str, moment: str, one: Scored, shelf: Shelf | None) -> dict[str, Any]:
    """A card for gallery.js: what was asked, and below `moment` what came back."""
    ask, sample = one.sample.ask, one.sample
    answer = next((ask.case.facts[name] for name in _ANSWERS if ask.case.facts.get(name)), "")
    reason = one.verdict.reason if one.verdict is not None else sample.note
    thought = sample.text if sample.thought is None else sample.thought
    came = {
        "status": one.outcome,
        "reason": "; ".join(dict.fromkeys(part for part in (reason, one.cause) if part)) or None,
        "thought": thought,
        "image": shelf.place(sample.drawn[-1]) if shelf and sample.drawn else None,
        "left_out": True if shelf is None and sample.drawn else None,
    }
    return {
        "id": ask.case.id,
        "set": ask.case.set,
        "setting": ask.setting,
        "k": ask.k,
        "pair": ask.case.cluster,
        "prompt": ask.case.prompt,
        "answer": answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str),
        moment: {key: value for key, value in came.items() if value is not None},
    }


def alone(benchmark: str, moment: str, one: Scored, shelf: Shelf | None) -> dict[str, Any]:
    """A card for evaluation.js: all that is known of one sample; what is empty is left out."""
    sample, case = one.sample, one.sample.ask.case
    checks = [] if one.verdict is None else one.verdict.checks
    card: dict[str, Any] = {
        "benchmark": benchmark,
        "id": case.id,
        "set": case.set,
        "category": case.category,
        "setting": sample.ask.setting,
        "k": sample.ask.k,
        "prompt": case.prompt,
        "refined": sample.prompt if sample.prompt != case.prompt else "",
        "facts": _plain(case.facts),
        "remarks": _plain(sample.facts),
        "thought": sample.thought,
        "text": sample.text,
        "given": [shelf.place(image) for image in case.images] if shelf else [],
        "references": [shelf.place(image) for image in case.references] if shelf else [],
        "image": shelf.place(sample.drawn[-1]) if shelf and sample.drawn else None,
        "outcome": one.outcome,
        "cause": one.cause,
        "note": sample.note,
        "checks": [[check.name, check.status, check.reason] for check in checks],
        "by": one.by if one.verdict is not None or one.failure else "",
        "replies": list(one.replies),
        "left_out": len(pictures_of(one)) if shelf is None else None,
    }
    return {key: value for key, value in card.items() if value is not None and value not in ("", [], {})}


def _plain(facts: Mapping[str, Any]) -> dict[str, str]:
    """For showing: a line a fact, without the parts that no person reads."""
    return {
        str(key): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in facts.items()
        if value not in (None, "", [], {})
    }


def pictures_of(one: Scored) -> list[Image]:
    """What a card shows: the images of its case, and the last that was drawn."""
    case = one.sample.ask.case
    return [*case.images, *case.references, *one.sample.drawn[-1:]]


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


# --- of a run ---------------------------------------------------------------------------------------------------------


def evaluations(run_dir: Path) -> dict[str, Path]:
    """What a run has evaluated: "before" and, where it can be compared, "after" -> folder of scored samples.

    "after" is the stage so labelled, or else the highest round; if it is all there is (pretraining), it is "before".
    Raises UserError for a manifest that cannot be read.
    """
    found: dict[str, Path] = {}
    for path in sorted((Path(run_dir) / "stages").glob("*/manifest.json")):
        try:
            manifest = read_json(path)
            label = manifest["result"].get("label") if manifest["stage"].startswith("evaluate") else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: not a manifest ({error!r})", "Delete its folder to redo this stage.") from error
        if isinstance(label, str):
            found[label] = path.parent / "scored"
    rounds = [int(label.removeprefix("round")) for label in found if label.removeprefix("round").isdigit()]
    if "after" not in found and rounds:
        found["after"] = found[f"round{max(rounds)}"]
    if "before" not in found and "after" in found:
        return {"before": found["after"]}
    return {label: found[label] for label in ("before", "after") if label in found}


def without_samples(run_dir: Path) -> list[Path]:
    """The folders of `evaluations` whose shards are gone: the gallery lacks what they held."""
    return [folder for folder in evaluations(run_dir).values() if not any(folder.glob("[!.]*.parquet"))]
