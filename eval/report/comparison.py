"""Two evaluations side by side: paired tables, and both answers to the same questions, those that flipped first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uni_train.data_gen.seeds import derive_seed
from uni_train.eval.compare import Comparison, Pair, names, side_by_side
from uni_train.eval.report import evaluation, page
from uni_train.eval.report.gallery import card_of, shown
from uni_train.eval.report.tables import shown_table

MOST_CARDS = 1_000


def write_comparison(path: Path, comparison: Comparison) -> Path:
    """Write the page to `path` and return it.

    All samples that flipped are shown, and of the others so many as fit, chosen by a hash. Raises UserError where the
    page cannot be written, DamagedShard where a sample cannot be read.
    """
    cards, total = build(comparison)
    first, second = names(comparison.first, comparison.second)
    context = {
        "first": first,
        "second": second,
        "folders": [str(comparison.first.folder), str(comparison.second.folder)],
        "tables": [shown_table(table) for table in comparison.tables()],
        "notes": comparison.notes,
        "flips": {
            kind: sum(flip.direction == kind for flip in comparison.flips)
            for kind in ("wrong to right", "right to wrong")
        },
        "cards": cards,
        "total": total,
        "sets": list(dict.fromkeys(card["set"] for card in cards)),
        "settings": list(dict.fromkeys(card["setting"] for card in cards)),
        "outcome_names": evaluation.OUTCOME_NAMES,
    }
    return page.write_page(path, "comparison.html", context, ("style.css", "evaluation.css"), "gallery.js")


def build(comparison: Comparison) -> tuple[list[dict[str, Any]], int]:
    """The cards for gallery.js, and how many pairs of samples there are in all."""
    light = list(side_by_side(comparison, flips_only=False, images=False))
    ranked = sorted(range(len(light)), key=lambda i: (not light[i].flipped, derive_seed("comparison", *_key(light[i]))))
    chosen = {_key(light[i]) for i in ranked[:MOST_CARDS]}
    room = evaluation.IMAGE_BUDGET
    cards = []
    for pair in side_by_side(comparison, flips_only=False, images=True):
        if _key(pair) in chosen:
            card = card_of(pair.first)
            card |= {"before": shown(pair.first, room > 0), "after": shown(pair.second, room > 0)}
            room -= sum(len(card[when].get("image", "")) for when in ("before", "after"))
            cards.append((not pair.flipped, card))
    return [card for _, card in sorted(cards, key=lambda one: one[0])], len(light)


def _key(pair: Pair) -> tuple[str, str, str, int]:
    ask = pair.first.sample.ask
    return pair.benchmark, ask.case.id, ask.setting, ask.k
