"""The data of the gallery: for each prompt and setting, the sample before and after training.

The shards are read twice, so that memory holds only what is shown: first the samples without images, then the images
of the cards that fit into the page.
"""

from __future__ import annotations

import base64
import io
import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import open_image, read_json, rgb
from uni_train.data_gen.seeds import derive_seed
from uni_train.errors import UserError
from uni_train.eval.benchmark import Scored
from uni_train.eval.benchmarks import unisandbox
from uni_train.eval.scored import read_folder

IMAGE_BUDGET = 7_000_000  # bytes of images in the page, as base64
_LARGEST_EDGE = 192  # larger images are shown as thumbnails
# Mapping first: it is the paper's main table.
SETS = ("mapping1", "mapping2", "mapping3", "math1", "math2", "math3")


def all_sets() -> tuple[str, ...]:
    """The sets in the order in which they are shown."""
    return tuple(dict.fromkeys([*SETS, *unisandbox.sources()]))


Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Gallery:
    """cards: JSON-able, for gallery.js; total: how many there were before the page was full."""

    cards: list[dict[str, Any]]
    total: int


def build(shards: Mapping[str, Path], budget: int = IMAGE_BUDGET) -> Gallery:
    """A card for every (item, setting, k) in `shards`, as `evaluations` gives them.

    Where the images would exceed `budget`, whole prompts or pairs are left out, the same number from every set and
    setting, chosen by a hash and not by how they turned out. Raises DamagedShard.
    """
    slots: dict[Key, dict[str, Scored]] = defaultdict(dict)
    for when, folder in shards.items():
        for one in read_folder(folder, images=False):
            slots[one.sample.identity][when] = one
    size = _typical_size(shards.values())
    kept = _fitting(slots, max(1, budget // (len(shards) * size)) if size else len(slots))

    cards = {key: card_of(next(iter(slots[key].values()))) for key in kept}
    for when, folder in shards.items():
        for one in read_folder(folder):
            if one.sample.identity in cards:
                cards[one.sample.identity][when] = shown(one)
    return Gallery([cards[key] for key in kept], len(slots))


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


def excerpt(run_dir: Path, n: int) -> dict[str, list[Scored]]:
    """The same at most `n` answers under "before" and "after", images included, spread over sets and settings.

    An answer without an image is left out.
    """
    shards = evaluations(run_dir)
    places: dict[Key, tuple[int, int, str, str]] = {}
    for folder in shards.values():
        for one in read_folder(folder, images=False):
            ask = one.sample.ask
            places[one.sample.identity] = _rank(ask.case.set, ask.setting)
    queues: dict[tuple[int, int, str, str], list[Key]] = defaultdict(list)
    for key in sorted(places, key=lambda key: derive_seed("gallery", *map(str, key))):
        queues[places[key]].append(key)
    chosen: list[Key] = []
    while len(chosen) < n and any(queues.values()):
        chosen += [queue.pop() for _, queue in sorted(queues.items()) if queue][: n - len(chosen)]
    order = {key: position for position, key in enumerate(sorted(chosen, key=lambda key: places[key]))}
    return {
        when: sorted(
            (one for one in read_folder(folder) if one.sample.identity in order and one.sample.image is not None),
            key=lambda one: order[one.sample.identity],
        )
        for when, folder in shards.items()
    }


_ANSWERS = ("answer", "criterion", "expected")  # what benchmarks call that which is right


def card_of(one: Scored) -> dict[str, Any]:
    """What was asked, for gallery.js; `shown` of each answer stands below "before" and "after"."""
    ask = one.sample.ask
    answer = next((ask.case.facts[name] for name in _ANSWERS if ask.case.facts.get(name)), "")
    return {
        "id": ask.case.id,
        "set": ask.case.set,
        "setting": ask.setting,
        "k": ask.k,
        "pair": ask.case.cluster,
        "prompt": ask.case.prompt,
        "answer": answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str),
    }


def shown(one: Scored, with_picture: bool = True) -> dict[str, Any]:
    """What came back: the outcome and why, the thought or the answer in words, the image."""
    card: dict[str, Any] = {"status": one.outcome}
    reason = one.verdict.reason if one.verdict is not None else one.sample.note
    if reason or one.cause:
        card["reason"] = "; ".join(dict.fromkeys(part for part in (reason, one.cause) if part))
    thought = one.sample.text if one.sample.thought is None else one.sample.thought
    if thought is not None:
        card["thought"] = thought
    if with_picture and one.sample.image is not None:
        card["image"] = data_url(one.sample.image)
    return card


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


def _typical_size(folders: Iterable[Path]) -> int:
    """Bytes of one embedded image as base64, from the first shard that has one; 0 when there is none."""
    for folder in folders:
        sizes = []
        for one in read_folder(folder):
            if one.sample.image is not None:
                sizes.append(len(thumbnail(one.sample.image)[1]))
            if len(sizes) == 16:
                break
        if sizes:
            return max(1, sum(sizes) * 4 // (3 * len(sizes)))
    return 0


def _fitting(slots: Mapping[Key, Mapping[str, Scored]], limit: int) -> list[Key]:
    """At most about `limit` keys, in reading order: settings and sets as published, the two of a pair side by side."""
    strata: dict[tuple[str, str], dict[str, list[Key]]] = defaultdict(lambda: defaultdict(list))
    for key, by_time in slots.items():
        ask = next(iter(by_time.values())).sample.ask
        strata[ask.case.set, ask.setting][ask.case.cluster_id].append(key)
    share = min(1.0, limit / max(1, len(slots)))
    kept: list[Key] = []
    for place in sorted(strata, key=lambda place: _rank(*place)):
        units = strata[place]
        chosen = set(sorted(units, key=lambda unit: derive_seed("gallery", unit))[: max(1, round(share * len(units)))])
        # The hash of the set alone decides, so that both settings show the same prompts.
        kept += [
            key for unit in units if unit in chosen for key in sorted(units[unit], key=lambda key: (key[2], key[0]))
        ]
    return kept


def _rank(name: str, setting: str) -> tuple[int, int, str, str]:
    known = unisandbox.SETTINGS
    return (all_sets().index(name), known.index(setting) if setting in known else len(known), name, setting)
