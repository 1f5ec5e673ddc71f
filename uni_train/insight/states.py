"""Where an answer first appears: hidden states read through the language head, layer by layer, and linear probes.

Niu et al. (2025, arXiv 2511.20561, section 4.4, Figure 4) decode the states of query tokens. They add up the
probabilities of an answer's words. Here the positions are those of BAGEL: the last word of the question, and where the
model chooses the words of its answer (understanding); the marker behind which the image begins, and the image's own
tokens (drawing). States of understanding go through its final norm, those of image tokens through theirs. The language
head never learned to read the latter, so a probe is the fairer reader of them.

A state *holds* the answer if its words are likelier than those of every other object (number) of the world. The control
is the answer of another item: a state that holds it as often knows nothing. Probes are ridge regressions in closed form
onto the classes, over five folds of whole pairs; their control has the labels shuffled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uni_train.core.errors import UserError
from uni_train.core.seeds import rng
from uni_train.data_gen.objects import get_world
from uni_train.eval.benchmark import Case, Table
from uni_train.eval.generation import asks_of
from uni_train.eval.report.charts import Chart, Series, chart, linear_axis
from uni_train.eval.report.page import Section
from uni_train.eval.statistics import Estimate, share
from uni_train.eval.task_benchmark import request_of
from uni_train.insight.knowledge import DIRECTIONS, WORDS
from uni_train.models.bagel.hooks import HiddenStates, states_of
from uni_train.models.bagel.unified import BagelUnified
from uni_train.models.base import UnifiedModel, expect_skill

COUNTS = ("one", "two", "three", "four", "five", "six")
TARGETS = ("object", "count", *WORDS)
FOLDS = 5
RIDGE = 1.0  # against a mean squared length of 1 of the standardised states
_HOLDS = 0.5  # from which share of the items on an answer counts as there


Vocabulary = Mapping[str, Mapping[str, tuple[int, ...]]]
"""The tokens that stand for each class of a target: {"object": {"cup": (17, 18), ...}, "count": {"1": ...}}."""


def vocabulary_of(model: BagelUnified, cases: Sequence[Case]) -> Vocabulary:
    """Singular and plural, digits and number words, with and without a blank before: the first token of each.

    Cases that bring words have a class each, under the label of `labels_of`.
    """

    def first(words: Sequence[str]) -> tuple[int, ...]:
        tokens = set()
        for form in (form for base in words for form in (base, f" {base}")):
            try:
                tokens.update(model.tokenizer.encode(form)[:1])
            except UserError:  # nano knows no number words
                continue
        return tuple(sorted(tokens))

    if "words" in cases[0].facts:
        vocabulary: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in WORDS}
        for case in cases:
            tokens = distinct_tokens({name: first(words) for name, words in case.facts["words"].items()})
            for name, label in labels_of(case).items():
                vocabulary[name][label] = tokens[name]
        return vocabulary
    nouns = {
        noun.singular: first((noun.singular, noun.plural)) for noun in get_world(str(cases[0].facts["world"])).nouns
    }
    counts = {str(i): first((str(i), word)) for i, word in enumerate(COUNTS, start=1)}
    return {"object": distinct_tokens(nouns), "count": distinct_tokens(counts)}


def distinct_tokens(tokens: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Without tokens that several classes share, unless a class has no other: Qwen's " 3" and " 4" begin alike."""
    times = Counter(token for of_class in tokens.values() for token in of_class)
    return {
        name: tuple(token for token in of_class if times[token] == 1) or of_class for name, of_class in tokens.items()
    }


def labels_of(case: Case) -> dict[str, str]:
    """{"object": "cup", "count": "3"}; of a case that brings words, one of WORDS -> "id: words".

    Raises UserError: the item asks for something else.
    """
    if "words" in case.facts:
        return {name: f"{case.id}: {', '.join(words)}" for name, words in case.facts["words"].items()}
    facts = case.facts["item"]["facts"]
    if "object" not in facts:
        raise UserError(
            f"{case.id}: states are read for so many of one object, and {case.facts['task']} asks for something else",
            "Choose --task mapping, --task maths or --task knowledge.",
        )
    return {"object": str(facts["object"]), "count": str(facts["count"])}


def observe(
    model: UnifiedModel,
    cases: Sequence[Case],
    *,
    seed: int = 0,
    batch: int = 16,
    probes: bool = True,
    on_item: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """What each position holds at each layer, JSON-able ("model" and "asked" are not in it).

    Raises:
        SkillMissing: the model's layers cannot be watched. UserError: items that ask for something else.
    """
    inside = expect_skill(model, BagelUnified)
    labels = [labels_of(case) for case in cases]
    vocabulary = vocabulary_of(inside, cases)
    requests = [request_of(ask) for ask in asks_of(cases, ["normal"], seed=seed)]
    parts_of: dict[str, list[Tensor]] = {}
    for first in range(0, len(requests), batch):
        chunk = requests[first : first + batch]
        for name, states in positions_of(states_of(inside, chunk)).items():
            parts_of.setdefault(name, []).append(states)
        if on_item is not None:
            on_item(len(chunk))
    states_of_all = {name: torch.cat(parts, 1) for name, parts in parts_of.items()}  # [layers, items, width]
    clusters = [case.cluster_id for case in cases]
    result = {
        "clusters": clusters,
        "kinds": [f"{case.set}, {case.category}" for case in cases],
        "labels": labels,
        "lens": {name: _read(inside, name, states, vocabulary, labels) for name, states in states_of_all.items()},
    }
    if probes:
        result["probes"] = {name: _probed(states, labels, clusters, seed) for name, states in states_of_all.items()}
    return result


def joined(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One result of several models, item beside item, without probes.

    Positions are those that all have: a model may answer in fewer words.
    """

    def shared(parts: Sequence[Any]) -> Any:
        if isinstance(parts[0], Mapping):
            return {key: shared([part[key] for part in parts]) for key in parts[0] if all(key in p for p in parts)}
        return [[value for row in rows for value in row] for rows in zip(*parts, strict=True)]

    flat = {key: [value for result in results for value in result[key]] for key in ("clusters", "kinds", "labels")}
    return {**results[0], **flat, "lens": shared([result["lens"] for result in results])}


def positions_of(states: HiddenStates) -> dict[str, Tensor]:
    """Name -> states [N, B, D]: of understanding, then of drawing (the image's own tokens at every level kept)."""
    positions = {"last word": states.word}
    positions |= {f"answer, word {i}": state for i, state in enumerate(states.answer, start=1)}
    positions[f"image marker, t = {states.t[0]:.2f}"] = states.marker[0]
    for t, image in zip(states.t, states.image, strict=True):
        positions[f"image tokens, t = {t:.2f}"] = image
    return positions


@torch.inference_mode()
def _read(
    model: BagelUnified, position: str, states_NBD: Tensor, vocabulary: Vocabulary, labels: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """target -> "probability", "holds", "control": [layers, items] each; targets with one class are left out."""
    decoder = model.bagel.language_model.model
    norm = decoder.norm_moe_gen if position.startswith("image tokens") else decoder.norm
    targets = [target for target in TARGETS if len({label.get(target) for label in labels}) > 1]
    result: dict[str, Any] = {target: {"probability": [], "holds": [], "control": []} for target in targets}
    for layer_BD in states_NBD:
        hidden = norm(layer_BD.to(model.device, model.bagel.dtype))
        probability_BV = model.bagel.language_model.lm_head(hidden).float().softmax(-1).cpu()
        for target, columns in result.items():
            names = list(vocabulary[target])
            summed = torch.stack([probability_BV[:, list(vocabulary[target][label])].sum(-1) for label in names], -1)
            top = summed.argmax(-1).tolist()
            classes = [names.index(label[target]) for label in labels]
            control = _others(classes)
            columns["probability"].append([float(row[i]) for row, i in zip(summed, classes, strict=True)])
            columns["holds"].append([a == b for a, b in zip(top, classes, strict=True)])
            columns["control"].append([a == b for a, b in zip(top, control, strict=True)])
    return result


def _others(classes: Sequence[int]) -> list[int]:
    """For each item the class of the next item that has another one; its own where all are alike."""
    others = []
    for i, own_class in enumerate(classes):
        others.append(next((other for other in [*classes[i + 1 :], *classes[:i]] if other != own_class), own_class))
    return others


# --- probes ---------------------------------------------------------------------------------------------------------


def probe(states_BD: Tensor, labels: Sequence[str], clusters: Sequence[str], seed: int) -> list[bool]:
    """Whether each item's class is predicted by a ridge regression that never saw its cluster.

    With X the standardised states of the other folds divided by sqrt(D) and Y their classes as centred indicators:
    scores = x X^T (X X^T + RIDGE)^-1 Y.
    """
    names = sorted(set(labels))
    groups = sorted(set(clusters))
    rng("insight", "folds", seed).shuffle(groups)
    fold_of = {group: i % FOLDS for i, group in enumerate(groups)}
    folds = torch.tensor([fold_of[name] for name in clusters])
    classes = torch.tensor([names.index(name) for name in labels])
    x, y = states_BD.double(), torch.nn.functional.one_hot(classes, len(names)).double()
    right = torch.zeros(len(classes), dtype=torch.bool)
    for fold in range(min(FOLDS, len(groups))):
        test, train = folds == fold, folds != fold
        if not train.any():
            continue
        mean, spread = x[train].mean(0), x[train].std(0, unbiased=False).clamp_min(1e-6)
        a, b = ((part - mean) / spread / x.shape[1] ** 0.5 for part in (x[train], x[test]))
        base = y[train].mean(0)
        solved = torch.linalg.solve(a @ a.T + RIDGE * torch.eye(len(a), dtype=a.dtype), y[train] - base)
        right[test] = (b @ a.T @ solved + base).argmax(-1) == classes[test]
    return right.tolist()


def _probed(
    states_NBD: Tensor, labels: Sequence[Mapping[str, str]], clusters: Sequence[str], seed: int
) -> dict[str, dict[str, list[list[bool]]]]:
    """target -> "holds" and "control" (shuffled labels): [layers, items]; targets with one class are left out."""
    result = {}
    for target in labels[0]:
        classes = [label[target] for label in labels]
        if len(set(classes)) < 2:
            continue
        shuffled = list(classes)
        rng("insight", "labels", seed, target).shuffle(shuffled)
        result[target] = {
            name: [probe(layer, targets_of, clusters, seed) for layer in states_NBD]
            for name, targets_of in (("holds", classes), ("control", shuffled))
        }
    return result


# --- tables and charts ----------------------------------------------------------------------------------------------


def sections(result: Mapping[str, Any]) -> list[Section]:
    """The parts of the page about states, from states.json."""
    targets = [target for target in TARGETS if any(target in by_target for by_target in result["lens"].values())]
    if WORDS[0] in targets:
        return [_knowledge(result)]
    parts = [
        Section(
            "Hidden states: where the answer first appears",
            f"A state holds the answer if its words are likelier than those of every other object or number. It "
            f"appears at the first layer at which that is so for half of the {len(result['clusters'])} items.",
            tables=[appearance_table(result, "lens", target) for target in targets],
            charts=[_chart(result, "lens", target, what) for what in ("holds", "probability") for target in targets],
        )
    ]
    probed = [
        target for target in TARGETS if any(target in by_target for by_target in result.get("probes", {}).values())
    ]
    if probed:
        parts.append(
            Section(
                "Linear probes",
                "Ridge regressions from a state to the object or number, on items whose pair they never saw.",
                tables=[appearance_table(result, "probes", target) for target in probed],
                charts=[_chart(result, "probes", target, "holds") for target in probed],
            )
        )
    return parts


def _knowledge(result: Mapping[str, Any]) -> Section:
    """Tables of both directions, then of each kind of question; charts of the directions."""
    kinds = dict.fromkeys(result["kinds"])
    of_direction = {name: [kind for kind in kinds if kind.startswith(name)] for name in DIRECTIONS}
    directions = {name: _of_kinds(result, of_kinds) for name, of_kinds in of_direction.items() if of_kinds}
    alone = {kind: _of_kinds(result, [kind]) for kind in kinds if kind.startswith(DIRECTIONS[0])}
    return Section(
        "Hidden states: injected knowledge",
        "The language head reads each state; the probabilities of words are added up. The target knowledge is what is "
        "asked for. Related attributes are the character's others, which the question does not name. Controls are "
        "the same words of another character. Compare with the model before its lessons: words differ in likelihood.",
        tables=[knowledge_table(part, name) for name, part in (directions | alone).items()],
        charts=[_chart(part, "lens", word, "probability", name) for name, part in directions.items() for word in WORDS],
    )


def _of_kinds(result: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    kept = [i for i, kind in enumerate(result["kinds"]) if kind in kinds]
    lens = {
        position: {name: {"probability": np.array(by_word[name]["probability"])[:, kept].tolist()} for name in WORDS}
        for position, by_word in result["lens"].items()
    }
    return {"clusters": [result["clusters"][i] for i in kept], "lens": lens}


def knowledge_table(result: Mapping[str, Any], questions: str) -> Table:
    """Summed probabilities: target and related attribute at the layer where each is highest."""
    rows = []
    for position, by_word in result["lens"].items():
        target, related, *controls = (
            [_share(values, result) for values in by_word[name]["probability"]] for name in WORDS
        )
        row: list[str | Estimate] = [position]
        for layers, control in zip((target, related), controls, strict=True):
            best = max(range(len(layers)), key=lambda i: layers[i].value or 0)
            row += [str(best + 1), layers[best], control[best]]
        rows.append(tuple(row))
    columns = ("Position", "Target's layer", "Target", "Another's", "Related's layer", "Related", "Another's related")
    note = "Summed probability, 95 % intervals clustered by character or pair. The layers are chosen on the same items."
    return Table(f"Injected knowledge: {questions}", columns, tuple(rows), note)


def appearance_table(result: Mapping[str, Any], reader: str, target: str) -> Table:
    """Where the answer appears, at which layer most items have it, and the last layer beside its control."""
    rows = []
    for position, by_target in result[reader].items():
        if target not in by_target:
            continue
        layers = [_share(values, result) for values in by_target[target]["holds"]]
        first = next(
            (str(i) for i, estimate in enumerate(layers, start=1) if (estimate.value or 0) >= _HOLDS), "nowhere"
        )
        best = max(range(len(layers)), key=lambda i: layers[i].value or 0)
        control = _share(by_target[target]["control"][best], result)
        rows.append((position, first, str(best + 1), layers[best], control, layers[-1]))
    columns = ("Position", "Appears at layer", "Best layer", "There", "Control there", "At the last layer")
    title = {"lens": "Through the language head", "probes": "By a linear probe"}[reader]
    note = "Share of items, 95 % intervals clustered by item or pair. The best layer is chosen on the same items."
    return Table(f"{title}: the {target}", columns, tuple(rows), note)


def _share(values: Sequence[float], result: Mapping[str, Any]) -> Estimate:
    return share(list(values), range(len(values)), result["clusters"])


def _chart(result: Mapping[str, Any], reader: str, target: str, what: str, questions: str = "") -> Chart:
    meaning = {"holds": "holds the answer", "probability": "probability of its words"}[what]
    title = f"The {target}: {meaning}, by layer" if reader == "lens" else f"The {target}: probed right, by layer"
    title += f" ({questions})" if questions else ""
    lines: list[Series] = []
    for colour, position in enumerate(result["lens"], start=1):  # equal in all charts
        if target in (by_target := result[reader].get(position, {})):
            means = np.array(by_target[target][what], dtype=float).mean(1)
            lines.append(Series(position, list(enumerate(means.tolist(), start=1)), colour, markers=True))
    axis = linear_axis(1, max(2, *(len(line.points) for line in lines)), "layer")
    return chart(title, "", lines, axis, linear_axis(0, 1))
