"""UniSandbox's reasoning score (paper 004, sections 3.1 to 3.4): six sets, two settings, one rule for pairs.

math1..3 count prompts; mapping1..3 count *pairs*, and a pair counts only if both of its prompts are drawn right
(section 3.2). Beside that headline, which follows the paper: the accuracy per image, the share of pairs with exactly
one right image (the shortcut of section 3.4.2, "always one of the two objects", lives there), what a guesser would
reach, and how many images nobody could read. A failure is a status and stays in the denominator.

Left out on purpose: the paper's captioning judge. Here the verdicts come from data_gen's exact verifiers; its prompts
are in `eval.prompts.unisandbox` for models whose images only another model can read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from data_gen.task import Item, get_task
from eval.sample import STATUSES, ScoredSample
from eval.statistics import Estimate, PairedComparison, clustered_mean, mcnemar_exact, proportion

SETTINGS = ("normal", "cot")
TASKS = ("maths", "mapping")
LEVELS = (1, 2, 3)
SETS = ("math1", "math2", "math3", "mapping1", "mapping2", "mapping3")
_PREFIX = {"maths": "math", "mapping": "mapping"}

# What a model reaches that knows which objects are at stake but not which one, or how many, is asked for: a pair
# needs two lucky picks of one in two, a maths prompt one lucky count of one in six (results run from 1 to 6).
CHANCE = {"maths": 1 / 6, "mapping": 1 / 4}

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


def set_name(task: str, level: int) -> str:
    """("maths", 2) -> "math2"."""
    return f"{_PREFIX[task]}{level}"


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

    With one draw per item the interval is Wilson's over prompts or pairs; with several (k > 1) a pair's draws of
    equal k belong together and the interval is clustered by prompt or pair. Give `sets` to have every item that was
    asked in the denominator even if no record of it exists. Raises ValueError for a sample that appears twice or was
    never verified.
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
            name: _mean(
                [ok for trial in trials for ok in trial.images], [trial.unit for trial in trials for _ in trial.images]
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
            name: _mean([sum(trial.images) == 1 for trial in trials], [trial.unit for trial in trials])
            for name, trials in by_set.items()
            if trials[0].task == "mapping"
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


def average(results: Iterable[ScoredSample], task: str, sets: Mapping[str, Sequence[Item]] | None = None) -> Estimate:
    """The last column of the paper's Tables 2 and 3: the unweighted mean over levels and settings of one task.

    Normal and CoT are asked on the same prompts, so the interval is clustered by prompt or pair. Answers in words are
    no part of it.
    """
    outcomes, units, cells = [], [], []
    for setting, by_set in _trials(results, sets).items():
        for name, trials in by_set.items():
            for trial in trials:
                if trial.task == task and setting in SETTINGS:
                    outcomes.append(float(trial.right))
                    units.append(trial.unit)
                    cells.append((setting, name))
    return clustered_mean(outcomes, units, cells)


def compare(before: Iterable[ScoredSample], after: Iterable[ScoredSample]) -> dict[str, dict[str, PairedComparison]]:
    """The same prompts and pairs before and after, by McNemar's exact test, for each setting and set.

    Raises ValueError when a set has different items in the two.
    """
    first, second = _trials(before, None), _trials(after, None)
    comparisons: dict[str, dict[str, PairedComparison]] = {}
    for setting in first:
        for name in first[setting]:
            if name not in second.get(setting, {}):
                continue
            left = {(trial.unit, trial.k): trial.right for trial in first[setting][name]}
            right = {(trial.unit, trial.k): trial.right for trial in second[setting][name]}
            if left.keys() != right.keys():
                raise ValueError(f"{setting} {name}: before and after were not measured on the same items")
            pairs = [(left[key], right[key]) for key in left]
            comparisons.setdefault(setting, {})[name] = mcnemar_exact([a for a, _ in pairs], [b for _, b in pairs])
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
    """What is counted once: a prompt (maths) or a pair (mapping), drawn for the k-th time."""

    task: str
    unit: str
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
    task_of: dict[str, str] = {}
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
        task_of[name] = sample.item.task
        draws[sample.setting].add(sample.k)
    for item in (item for items in (sets or {}).values() for item in items):
        name, unit = _place(item)
        task_of[name] = item.task
        for setting, ks in draws.items():
            for k in ks:
                found[setting, name, unit, k].setdefault(item.id, "missing")

    trials: dict[str, dict[str, list[_Trial]]] = defaultdict(lambda: defaultdict(list))
    for setting, name, unit, k in sorted(found, key=_published_order):
        members = found[setting, name, unit, k]
        size = 2 if task_of[name] == "mapping" else 1
        if len(members) > size:
            raise ValueError(f"{setting} {name}: {unit} has {len(members)} prompts, at most {size} belong together")
        # A prompt whose partner left no record cannot make a pair: the pair is wrong, and the gap shows as `missing`.
        marks = [*members.values(), *["missing"] * (size - len(members))]
        trials[setting][name].append(_Trial(task_of[name], unit, k, tuple(marks)))
    return {setting: dict(by_set) for setting, by_set in trials.items()}


def _place(item: Item) -> tuple[str, str]:
    """The set and the unit in which an item is counted."""
    if item.task not in _PREFIX:
        raise ValueError(f"{item.id}: task {item.task} is no part of UniSandbox's reasoning sets (maths, mapping)")
    if item.task == "mapping" and item.pair is None:
        raise ValueError(f"{item.id}: a mapping item needs the id of its pair")
    return set_name(item.task, item.level), item.pair if item.task == "mapping" and item.pair is not None else item.id


def _published_order(key: tuple[str, str, str, int]) -> tuple[int, str, int, str, str, int]:
    setting, name, unit, k = key
    rank = SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS)
    return (rank, setting, SETS.index(name) if name in SETS else len(SETS), name, unit, k)


def _estimate(trials: Sequence[_Trial]) -> Estimate:
    return _mean([trial.right for trial in trials], [trial.unit for trial in trials])


def _mean(outcomes: Sequence[bool], units: Sequence[str]) -> Estimate:
    if len(set(units)) == len(units):
        return proportion(sum(outcomes), len(outcomes))
    return clustered_mean([float(ok) for ok in outcomes], units)
