"""UniSandbox's reasoning score (paper 004, sections 3.1 to 3.4): six sets, two settings, one rule for pairs.

math1..3 count prompts; mapping1..3 count *pairs*, and a pair counts only if both of its prompts are drawn right
(section 3.2). Beside that headline, which follows the paper: the accuracy per image, the share of pairs with exactly
one right image (the shortcut of section 3.4.2, "always one of the two objects", lives there), what a guesser would
reach, the best trivial strategy (`data_gen.audit.shortcuts`), and how many images nobody could read. A failure is a
status and stays in the denominator. Prompts of one expression, and pairs under the same rules, are one cluster.

Left out on purpose: the paper's captioning judge. Here the verdicts come from data_gen's exact verifiers; its prompts
are in `eval.prompts.unisandbox` for models whose images only another model can read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from data_gen.audit.shortcuts import known_shortcuts, questions_of
from data_gen.registry import TASKS, get_task, set_name, sources, task_of
from data_gen.task import Item
from eval.sample import STATUSES, ScoredSample
from eval.shortcuts import Trivial, best, counted, trivial
from eval.statistics import Estimate, PairedComparison, paired, proportion, share

SETTINGS = ("normal", "cot")
LEVELS = (1, 2, 3)
SETS = ("math1", "math2", "math3", "mapping1", "mapping2", "mapping3")

# The sizes of the published sets (section 3.1).
PAPER_PROMPTS = PAPER_PAIRS = 100


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of the paper's tables: accuracies of levels 1 to 3 asked both ways, and the average as printed there."""

    name: str
    normal: tuple[float, float, float]
    cot: tuple[float, float, float]
    average: float


@dataclass(frozen=True, slots=True)
class PaperModel:
    """A row of Table 1: Math1 to Math3, Mapping1 to Mapping3, and the average as printed there."""

    name: str
    accuracies: tuple[float, float, float, float, float, float]
    average: float


PAPER_TABLE_1 = (
    PaperModel("Janus-Pro-7B", (0.04, 0.03, 0.03, 0.0, 0.0, 0.0), 0.0167),
    PaperModel("Blip3o", (0.03, 0.02, 0.02, 0.03, 0.0, 0.0), 0.0167),
    PaperModel("Qwen-Image", (0.13, 0.07, 0.10, 0.0, 0.0, 0.0), 0.05),
    PaperModel("BAGEL", (0.07, 0.06, 0.04, 0.0, 0.0, 0.0), 0.0283),
    PaperModel("BAGEL + CoT", (0.60, 0.44, 0.23, 0.74, 0.60, 0.45), 0.51),
    PaperModel("gpt-image-1", (0.66, 0.36, 0.19, 0.75, 0.53, 0.36), 0.475),
    PaperModel("nano-banana", (0.66, 0.64, 0.42, 0.44, 0.44, 0.50), 0.5167),
)
PAPER_TABLE_2 = (
    PaperRow("BAGEL", (0.07, 0.06, 0.04), (0.60, 0.44, 0.23), 0.24),
    PaperRow("BAGEL + STARS on Math1", (0.29, 0.27, 0.16), (0.60, 0.42, 0.27), 0.34),
    PaperRow("BAGEL + STARS on Math2", (0.17, 0.26, 0.12), (0.57, 0.41, 0.25), 0.30),
    PaperRow("BAGEL + STARS on Math3", (0.26, 0.26, 0.16), (0.55, 0.43, 0.29), 0.33),
)
# Tables 3 and 5. The rows "on M2" and "on M3" are left out: cells are missing in the copy of the paper that we have.
PAPER_TABLE_3 = (
    PaperRow("BAGEL", (0.0, 0.0, 0.0), (0.75, 0.57, 0.46), 0.30),
    PaperRow("BAGEL + STARS with CL, round 1", (0.69, 0.10, 0.10), (0.66, 0.39, 0.38), 0.39),
    PaperRow("BAGEL + STARS with CL, round 2", (0.61, 0.47, 0.22), (0.68, 0.62, 0.40), 0.50),
    PaperRow("BAGEL + STARS with CL, round 3", (0.64, 0.46, 0.27), (0.75, 0.65, 0.50), 0.55),
    PaperRow("BAGEL + STARS with Mix", (0.63, 0.37, 0.25), (0.70, 0.45, 0.35), 0.46),
)

# Table 4: Forward Retrieval, Inverse Search, Overall.
PAPER_TABLE_4: dict[str, tuple[float, float, float]] = {
    "Blip3o": (0.20, 0.10, 0.16),
    "QwenImage": (0.13, 0.00, 0.08),
    "JanusPro": (0.03, 0.05, 0.04),
    "BAGEL": (0.10, 0.00, 0.06),
    "BAGEL + CoT": (0.63, 0.15, 0.44),
}


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far a filter can be trusted, measured against the exact verifier.

    precision: of the `kept` samples, the share that is right. recall: of the `correct` samples, the share that was
    kept.
    """

    precision: Estimate
    recall: Estimate
    n: int
    kept: int
    correct: int


def set_of(item: Item) -> str:
    """The set in which an item is counted: of its task and level, unless `named` says otherwise."""
    return str(item.facts.get("set") or set_name(item.task, item.level))


def named(items: Sequence[Item], name: str) -> list[Item]:
    """Items as those of the set `name`. One beside the six is written into facts and ids, which no other set shares."""
    if not sources()[name].variant:
        return list(items)

    def renamed(identity: str) -> str:
        return f"{name}/{identity.partition('/')[2]}"

    return [
        replace(
            item,
            id=renamed(item.id),
            pair=None if item.pair is None else renamed(item.pair),
            facts={**item.facts, "set": name},
        )
        for item in items
    ]


def build_sets(
    n_prompts: int, n_pairs: int, seed: int, split: str = "test", world: str = "nano", levels: Sequence[int] = LEVELS
) -> dict[str, list[Item]]:
    """The six sets: `n_prompts` items for each math set, `n_pairs` pairs (2 n_pairs items) for each mapping set.

    Equal arguments give equal items. Raises data_gen's DataError when the world has not that many in the split.
    """
    sets = {}
    for task_name, n in (("maths", n_prompts), ("mapping", n_pairs)):
        task = get_task(task_name, world)
        for level in levels:
            sets[set_name(task_name, level)] = task.generate(n, level, split, seed)
    return sets


def score(
    results: Iterable[ScoredSample], sets: Mapping[str, Sequence[Item]] | None = None
) -> dict[str, dict[str, Estimate]]:
    """The headline: setting -> set -> accuracy, per prompt for maths, per pair for mapping.

    With one draw per item the interval is Wilson's over prompts or pairs; where expressions or rules repeat, and with
    several draws (k > 1, a pair's draws of equal k belong together), it is clustered by them. Give `sets` to have every
    item that was asked in the denominator even if no record of it exists. Raises ValueError for a sample that appears
    twice or was never verified.
    """
    return {
        setting: {name: _estimate(trials) for name, trials in by_set.items()}
        for setting, by_set in _trials(results, sets).items()
    }


def per_image(
    results: Iterable[ScoredSample], sets: Mapping[str, Sequence[Item]] | None = None
) -> dict[str, dict[str, Estimate]]:
    """The accuracy of single images; in mapping the two images of a pair are one cluster."""
    return {
        setting: {
            name: share(
                [ok for trial in trials for ok in trial.images],
                [trial.unit for trial in trials for _ in trial.images],
                [trial.cluster for trial in trials for _ in trial.images],
            )
            for name, trials in by_set.items()
        }
        for setting, by_set in _trials(results, sets).items()
    }


def one_of_two(
    results: Iterable[ScoredSample], sets: Mapping[str, Sequence[Item]] | None = None
) -> dict[str, dict[str, Estimate]]:
    """The share of pairs of which exactly one image is right, for the mapping sets: .5 is what the shortcut gives."""
    return {
        setting: {
            name: _share([sum(trial.images) == 1 for trial in trials], trials)
            for name, trials in by_set.items()
            if len(trials[0].statuses) == 2
        }
        for setting, by_set in _trials(results, sets).items()
    }


def statuses(
    results: Iterable[ScoredSample], sets: Mapping[str, Sequence[Item]] | None = None
) -> dict[str, dict[str, dict[str, Estimate]]]:
    """setting -> set -> status -> share of the images asked for: pass, fail, unreadable, generation_failed, missing."""
    shares: dict[str, dict[str, dict[str, Estimate]]] = {}
    for setting, by_set in _trials(results, sets).items():
        for name, trials in by_set.items():
            seen = [status for trial in trials for status in trial.statuses]
            shares.setdefault(setting, {})[name] = {
                status: proportion(seen.count(status), len(seen))
                for status in STATUSES
                if status != "unscored" and (status in seen or status in ("pass", "fail", "unreadable"))
            }
    return shares


def average(
    results: Iterable[ScoredSample],
    task: str,
    sets: Mapping[str, Sequence[Item]] | None = None,
    variant: str = "",
) -> Estimate:
    """The last column of the paper's Tables 2 and 3: the unweighted mean over levels and settings of one task.

    Normal and CoT are asked on the same prompts, so the interval is clustered by expression or rules. variant: of the
    sets, "" for the task's own. Answers in words are no part of it.
    """
    known = sources()
    found = [
        (trial, (setting, name))
        for setting, by_set in _trials(results, sets).items()
        for name, trials in by_set.items()
        for trial in trials
        if trial.task == task and known[name].variant == variant and setting in SETTINGS
    ]
    trials, cells = [trial for trial, _ in found], [cell for _, cell in found]
    return share(
        [trial.right for trial in trials], [trial.unit for trial in trials], [trial.cluster for trial in trials], cells
    )


def strategies(sets: Mapping[str, Sequence[Item]]) -> dict[str, list[Trivial]]:
    """What trivial strategies reach on each set, the best first; beside every score."""
    return {
        name: trivial(questions_of(items), known_shortcuts(task_of(items[0]), items[0].level))
        for name, items in sets.items()
        if items
    }


def accuracy_rows(
    scores: Mapping[str, Mapping[str, Estimate]], sets: Mapping[str, Sequence[Item]]
) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a short table: each set in each setting, the best trivial strategy, chance, how much was
    asked."""
    rows = []
    for name, found in strategies(sets).items():
        estimates = [by_set[name] for by_set in scores.values()]
        cells = [estimate.value for estimate in estimates]
        plain = best(found)
        rows.append(
            [
                name,
                *("-" if value is None else f"{value:.2f}" for value in cells),
                "-" if plain is None else f"{plain.estimate.value:.2f} {plain.name}",
                f"{TASKS.get(sources()[name].task).chance:.2f}",
                counted(found[0].estimate if found else estimates[0]),
            ]
        )
    return ["set", *scores, "best trivial strategy", "chance", "n / distinct"], rows


def items_of(results: Iterable[ScoredSample]) -> dict[str, list[Item]]:
    """The items that were asked, by set, each once, in the published order of sets."""
    found: dict[str, dict[str, Item]] = defaultdict(dict)
    for sample in results:
        found[_place(sample.item)[0]][sample.item.id] = sample.item
    return {name: list(found[name].values()) for name in sorted(found, key=_set_rank)}


def compare(before: Iterable[ScoredSample], after: Iterable[ScoredSample]) -> dict[str, dict[str, PairedComparison]]:
    """The same prompts and pairs before and after, for each setting and set.

    By McNemar's exact test; where expressions or rules repeat, by a cluster-robust t test. Raises ValueError when a set
    has different items in the two.
    """
    first, second = _trials(before, None), _trials(after, None)
    comparisons: dict[str, dict[str, PairedComparison]] = {}
    for setting in first:
        for name in first[setting]:
            if name not in second.get(setting, {}):
                continue
            left = {(trial.unit, trial.k): trial for trial in first[setting][name]}
            right = {(trial.unit, trial.k): trial for trial in second[setting][name]}
            if left.keys() != right.keys():
                raise ValueError(f"{setting} {name}: before and after were not measured on the same items")
            comparisons.setdefault(setting, {})[name] = paired(
                [trial.right for trial in left.values()],
                [right[key].right for key in left],
                [trial.cluster for trial in left.values()],
            )
    return comparisons


def filter_reliability(accepted: Sequence[bool], correct: Sequence[bool]) -> Reliability:
    """Precision and recall of `accepted[i]` (the model's own judgement) against `correct[i]` (the verifier).

    With Wilson intervals. Nothing kept, or nothing right, gives an estimate without a value. Raises ValueError when the
    lengths differ.
    """
    if len(accepted) != len(correct):
        raise ValueError(f"accepted and correct must have the same length, got {len(accepted)} and {len(correct)}")
    hits = sum(bool(a) and bool(c) for a, c in zip(accepted, correct, strict=True))
    kept, right = sum(map(bool, accepted)), sum(map(bool, correct))
    return Reliability(proportion(hits, kept), proportion(hits, right), len(accepted), kept, right)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What is counted once: a prompt (maths) or a pair (mapping), drawn for the k-th time. cluster: its expression, or
    its rules."""

    task: str
    unit: str
    cluster: str
    k: int
    statuses: tuple[str, ...]  # one an image

    @property
    def images(self) -> tuple[bool, ...]:
        return tuple(status == "pass" for status in self.statuses)

    @property
    def right(self) -> bool:
        return all(self.images)


def _trials(
    results: Iterable[ScoredSample], sets: Mapping[str, Sequence[Item]] | None
) -> dict[str, dict[str, list[_Trial]]]:
    """Group samples into trials: setting -> set -> trials, in the published order of settings and sets."""
    found: dict[tuple[str, str, str, int], dict[str, str]] = defaultdict(dict)
    task_in: dict[str, str] = {}
    cluster_of: dict[str, str] = {}
    draws: dict[str, set[int]] = defaultdict(set)
    for sample in results:
        name, unit = _place(sample.item)
        if sample.status == "unscored":
            raise ValueError(
                f"{sample.item.id} ({sample.setting}, k={sample.k}) has an image but no verdict: verify it first"
            )
        members = found[sample.setting, name, unit, sample.k]
        if sample.item.id in members:
            raise ValueError(f"{sample.item.id} ({sample.setting}, k={sample.k}) appears twice")
        members[sample.item.id] = sample.status
        task_in[name] = sample.item.task
        cluster_of[unit] = _cluster(sample.item)
        draws[sample.setting].add(sample.k)
    for item in (item for items in (sets or {}).values() for item in items):
        name, unit = _place(item)
        task_in[name] = item.task
        cluster_of[unit] = _cluster(item)
        for setting, ks in draws.items():
            for k in ks:
                found[setting, name, unit, k].setdefault(item.id, "missing")

    trials: dict[str, dict[str, list[_Trial]]] = defaultdict(lambda: defaultdict(list))
    for setting, name, unit, k in sorted(found, key=_published_order):
        members = found[setting, name, unit, k]
        size = TASKS.get(task_in[name]).items_per_draw
        if len(members) > size:
            raise ValueError(f"{setting} {name}: {unit} has {len(members)} prompts, at most {size} belong together")
        # A prompt whose partner left no record cannot make a pair: the pair is wrong, and the gap shows as `missing`.
        marks = [*members.values(), *["missing"] * (size - len(members))]
        trials[setting][name].append(_Trial(task_in[name], unit, cluster_of[unit], k, tuple(marks)))
    return {setting: dict(by_set) for setting, by_set in trials.items()}


def _place(item: Item) -> tuple[str, str]:
    """The set and the unit in which an item is counted."""
    task = TASKS.get(item.task)
    if not task.sets:
        raise ValueError(f"{item.id}: task {item.task} has no sets, so it is no part of UniSandbox's tables")
    if item.pair is None and task.items_per_draw == 2:
        raise ValueError(f"{item.id}: a {item.task} item needs the id of its pair")
    return set_of(item), item.id if item.pair is None else item.pair


def _published_order(key: tuple[str, str, str, int]) -> tuple[int, str, int, str, int]:
    setting, name, unit, k = key
    rank = SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS)
    return (rank, setting, _set_rank(name), unit, k)


def _set_rank(name: str) -> int:
    return [*SETS, *sources()].index(name)


def _cluster(item: Item) -> str:
    return str(item.facts["canonical"])


def _estimate(trials: Sequence[_Trial]) -> Estimate:
    return _share([trial.right for trial in trials], trials)


def _share(outcomes: Sequence[bool], trials: Sequence[_Trial]) -> Estimate:
    return share(outcomes, [trial.unit for trial in trials], [trial.cluster for trial in trials])
