"""Attention of image tokens while a model draws by a thought (Yang et al. 2026, arXiv 2602.08336, section 5).

*Shares* sum to 1 over what there is to look at. *Weights* are equation 6: the share of a group divided by its number of
tokens. So a long trace has no advantage by its length. Both are means over heads, image tokens, the layers of a group
and steps; values of an item are averaged first, and intervals are over items.

Influence maps average the weights of a word over layers and steps at each place of the image. Sources: Tang et al.
2023, arXiv 2210.04885; UReason Figures 5 to 10.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Case, Table
from uni_train.eval.generation import asks_of
from uni_train.eval.report.charts import Axis, Chart, Series, chart, linear_axis
from uni_train.eval.report.page import Section
from uni_train.eval.statistics import Estimate, share
from uni_train.eval.task_benchmark import request_of
from uni_train.insight.interventions import refined_start
from uni_train.insight.questions import world_of
from uni_train.models.bagel.hooks import GROUPS, Attention, draw_with_attention
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import Request, UnifiedModel, expect_skill
from uni_train.models.pictures import data_url, encode_png

SHOWN = {"instruction": "P", "thought": "R_t", "refined": "R_p"}
"""The groups of the paper's Tables 5, 9 and 10."""
LAYER_GROUPS = 4
NOISE_LEVELS = 3
_MOST_WORDS = 3  # overlays of an image
_TOP = 10  # words of a table
_EDGE = 168  # pixels of an overlay


def layer_groups(count: int, groups: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """First and last layer, from 1, of each group: those that are wanted, or four contiguous ones of like size.

    Raises:
        UserError: a layer that the model lacks.
    """
    for first, last in groups:
        if not 1 <= first <= last <= count:
            raise UserError(f"there are no layers {first}-{last}", f"The model has the layers 1-{count}.")
    if groups:
        return list(groups)
    edges = [round(i * count / min(LAYER_GROUPS, count)) for i in range(min(LAYER_GROUPS, count) + 1)]
    return [(first + 1, last) for first, last in pairwise(edges)]


def observe(
    model: UnifiedModel,
    cases: Sequence[Case],
    *,
    seed: int = 0,
    batch: int = 16,
    maps: int = 4,
    layers: Sequence[tuple[int, int]] = (),
    tokens: tuple[int, int] | None = None,
    on_item: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Shares, weights and maps of the model's own thoughtful images, JSON-able ("model" and "asked" are not in it).

    Args:
        maps: of so many items influence maps are kept.
        layers: first and last layer of each group, from 1; empty: four of like size.
        tokens: first and last text token, from 1, of instruction and thought together, whose influence is laid over
            the images; None: the words with the most of it.
        on_item: called with the number of items done, after each batch.

    Raises:
        SkillMissing: the model's layers cannot be watched. UserError: layers or tokens that there are not.
    """
    inside = expect_skill(model, BagelUnified)
    groups = layer_groups(inside.bagel.config.llm.num_hidden_layers, layers)
    questions = [request_of(ask) for ask in asks_of(cases, ["cot"], seed=seed)]  # with the seeds of an evaluation
    pairs = zip(questions, inside.think(questions), strict=True)
    requests = [replace(question, thought=thought) for question, thought in pairs]
    worlds = [world_of(case) for case in cases]
    starts = [refined_start(request.thought or "", world) for request, world in zip(requests, worlds, strict=True)]
    shares, weights, by_level, overlays, ranks = [], [], [], [], []
    times: list[float] = []
    # First, because tokens that there are not show here.
    for request, start in zip(requests[:maps], starts[:maps], strict=True):
        images, seen = draw_with_attention(inside, [request], [start], maps=True)
        overlays += list(_overlays(inside, request, images[0], seen, tokens))
        ranks.append({"id": request.id, "prompt": request.prompt, "words": _ranked(inside, seen)})
    for first in range(0, len(requests), batch):
        chunk = requests[first : first + batch]
        _, seen = draw_with_attention(inside, chunk, starts[first : first + batch])
        share, weight = seen.shares.mean(0), seen.weights.mean(0)  # [N, B, groups]
        shares += [share[:, row].tolist() for row in range(len(chunk))]
        weights += [weight[:, row].tolist() for row in range(len(chunk))]
        by_level += [seen.shares[:, :, row].mean(1).tolist() for row in range(len(chunk))]
        times = seen.t.tolist()
        if on_item is not None:
            on_item(len(chunk))
    return {
        "groups": groups,
        "clusters": [case.cluster_id for case in cases],
        "t": times,
        "shares": shares,  # item -> layer -> group
        "weights": weights,
        "by_level": by_level,  # item -> step -> group
        "overlays": overlays,
        "ranks": ranks,
    }


def sections(result: Mapping[str, Any]) -> list[Section]:
    """The parts of the page about attention, from attention.json."""
    by_level = np.array(result["by_level"]).mean(0)
    levels = _groups_chart("Share, by noise level", result["t"], by_level, linear_axis(0, 1, "noise level t"))
    parts = [
        Section(
            "Attention of image tokens",
            "P is the instruction, R_t the trace of the thought, R_p the refined prompt that it ends in. Shares sum to "
            "1 over all that an image token can look at. Weights are those of one token of a group (equation 6).",
            tables=[weights_table(result), shares_table(result), levels_table(result)],
            charts=[_layers_chart(result, "weights"), _layers_chart(result, "shares"), levels],
        )
    ]
    if result["overlays"]:
        parts.append(
            Section(
                "Influence: which words an image follows",
                "Brighter places look more at the word, over all layers and steps. The tables rank the words of "
                "instruction and thought by what the whole image pays each; markers are left out.",
                tables=[_rank_table(row) for row in result["ranks"]],
                images=[(row["url"], row["caption"]) for row in result["overlays"]],
            )
        )
    if "tables" in result:
        parts.append(
            Section(
                "Interventions on the thought",
                "The same items and noise, drawn with changed thoughts.",
                tables=[Table.from_dict(table) for table in result["tables"]],
            )
        )
    return parts


# --- tables and charts ----------------------------------------------------------------------------------------------


def mean_weights(result: Mapping[str, Any]) -> np.ndarray:
    """[layers, groups]: means over the items that have tokens of the group; 0 where none has."""
    array = np.array(result["weights"])
    return array.sum(0) / array.any(1).sum(0).clip(1)


def weights_table(result: Mapping[str, Any]) -> Table:
    """The layout of UReason's Tables 5, 9 and 10: mean weights of equation 6, times 10^4."""
    means, columns = mean_weights(result), [GROUPS.index(name) for name in SHOWN]
    rows = []
    for first, last in [*result["groups"], (1, len(means))]:
        of_layers = means[first - 1 : last].mean(0)
        rows.append((f"{first}-{last}", *(f"{of_layers[column] * 1e4:.2f}" for column in columns)))
    n, refined = len(result["weights"]), np.array(result["weights"])[..., columns[-1]].any(1).sum()
    note = f"R_p is over the {refined} of {n} items whose thought has a refined prompt." if refined < n else ""
    return Table("Average attention weights, times 10^4", ("Layers", *SHOWN.values()), tuple(rows), note)


def shares_table(result: Mapping[str, Any]) -> Table:
    """The share of each group that has keys, by layers; intervals over items."""
    array = np.array(result["shares"])
    layers = [*result["groups"], (1, array.shape[1])]
    parts = [(f"{first}-{last}", array[:, first - 1 : last]) for first, last in layers]
    note = "95 % intervals, clustered by item or pair."
    return _shares("Share of attention, by layers", "Layers", parts, result["clusters"], note)


def levels_table(result: Mapping[str, Any]) -> Table:
    """The same by noise level: thirds of the steps, the noisiest first."""
    array, t = np.array(result["by_level"]), result["t"]
    thirds = np.array_split(np.arange(len(t)), min(NOISE_LEVELS, len(t)))
    parts = [(f"{t[steps[0]]:.2f} to {t[steps[-1]]:.2f}", array[:, steps]) for steps in thirds]
    return _shares("Share of attention, by noise level", "Noise level t", parts, result["clusters"])


def _shares(
    title: str, first: str, parts: Sequence[tuple[str, np.ndarray]], clusters: Sequence[str], note: str = ""
) -> Table:
    """A row a part, [items, layers or steps, groups]; a column a group that has keys."""
    used = [i for i in range(len(GROUPS)) if any(array[..., i].any() for _, array in parts)]
    rows: list[tuple[str | Estimate, ...]] = []
    for name, array in parts:
        means = array.mean(1).clip(0, 1)
        rows.append((name, *(share(means[:, i].tolist(), clusters) for i in used)))
    return Table(title, (first, *(_name(GROUPS[i]) for i in used)), tuple(rows), note)


def _name(group: str) -> str:
    return f"{SHOWN[group]} ({group})" if group in SHOWN else group


def _layers_chart(result: Mapping[str, Any], what: str) -> Chart:
    array = mean_weights(result) if what == "weights" else np.array(result[what]).mean(0)
    scale, title = (1e4, "Weight of a token (10^-4), by layer") if what == "weights" else (1.0, "Share, by layer")
    layers = list(range(1, len(array) + 1))
    return _groups_chart(title, layers, array * scale, linear_axis(1, max(2, len(array)), "layer"))


def _groups_chart(title: str, x: Sequence[float], array: np.ndarray, axis: Axis) -> Chart:
    """A line for each group of SHOWN; array: [x, groups]."""
    lines = [
        Series(name, list(zip(x, array[:, GROUPS.index(group)].tolist(), strict=True)), colour, markers=True)
        for colour, (group, name) in enumerate(SHOWN.items(), start=1)
    ]
    most = max((y for line in lines for _, y in line.points), default=1.0)
    return chart(title, "", lines, axis, linear_axis(0, most or 1.0))


# --- influence ------------------------------------------------------------------------------------------------------


def _words(model: BagelUnified, seen: Attention) -> list[tuple[str, str]]:
    """(group, text) of each text column that `maps` has."""
    columns = seen.columns[0]
    return [(GROUPS[columns[i].group], model.tokenizer.decode([columns[i].token])) for i in seen.places[0]]


def _ranked(model: BagelUnified, seen: Attention) -> list[list[Any]]:
    """The words that the image looks at most: [word, group, weight times 10^4]; the system prompt left out."""
    assert seen.maps is not None
    mean = seen.maps[0].mean((0, 1)).tolist()
    every = [(weight, *word) for weight, word in zip(mean, _words(model, seen), strict=True) if word[0] != "system"]
    return [[text, group, weight * 1e4] for weight, group, text in sorted(every, reverse=True)[:_TOP]]


def _overlays(
    model: BagelUnified, request: Request, image: np.ndarray, seen: Attention, tokens: tuple[int, int] | None
) -> Iterator[dict[str, str]]:
    """The image, then the image under the map of each word; or of the given tokens together."""
    assert seen.maps is not None
    words = _words(model, seen)
    columns = [i for i, (group, _) in enumerate(words) if group != "system"]
    thought = [i for i in columns if words[i][0] in ("thought", "refined")]
    yield {"url": data_url(encode_png(image)), "caption": request.prompt[:160]}
    if tokens is not None:
        first, last = tokens
        if not 1 <= first <= last <= len(columns):
            raise UserError(
                f"there are no tokens {first}-{last} in {request.id}",
                f"Its question and thought have 1-{len(columns)}.",
            )
        chosen = [columns[first - 1 : last]]
    else:
        mean = seen.maps[0].mean((0, 1))
        chosen = [[i] for i in sorted(thought, key=lambda i: -float(mean[i]))[:_MOST_WORDS]]
    for places in chosen:
        heat = seen.maps[0][..., places].mean(-1).numpy()
        text = model.tokenizer.decode([seen.columns[0][seen.places[0][i]].token for i in places])
        caption = (
            f"{text} ({words[places[0]][0]}, tokens {columns.index(places[0]) + 1}-{columns.index(places[-1]) + 1})"
        )
        yield {"url": data_url(_laid_over(image, heat)), "caption": caption}


def _laid_over(image: np.ndarray, heat: np.ndarray) -> bytes:
    """The image dimmed where `heat` [h, w] is low, as PNG."""
    from PIL import Image

    spread = float(heat.max() - heat.min())
    scaled = (heat - heat.min()) / (spread or 1.0)
    side = (round(_EDGE * image.shape[1] / image.shape[0]), _EDGE)
    over = Image.fromarray((scaled * 255).astype(np.uint8)).resize(side, Image.Resampling.BICUBIC)
    base = Image.fromarray(image).resize(side, Image.Resampling.NEAREST)
    glow = Image.new("RGB", side, (255, 120, 0))
    mixed = Image.composite(glow, base, over.point(lambda value: value * 0.65))
    buffer = io.BytesIO()
    mixed.save(buffer, format="PNG")
    return buffer.getvalue()


def _rank_table(ranking: Mapping[str, Any]) -> Table:
    rows = tuple((f"{text!r}", _name(group), f"{weight:.1f}") for text, group, weight in ranking["words"])
    return Table(f"Highest attention: {ranking['prompt'][:120]}", ("Word", "Group", "Weight, times 10^4"), rows)
