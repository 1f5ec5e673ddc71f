"""How far verdicts agree with what is known: numbers and their 95 % intervals.

Shares are clustered by item. Where every rating is of an item of its own, kappa has the interval of statsmodels. Where
ratings share items (a reference and a shuffled one of a case, several rubrics of an answer), and for errors and
correlations, intervals are percentiles of `RESAMPLES` bootstrap samples of whole items.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from uni_train.data_gen.seeds import derive_seed
from uni_train.eval.statistics import Estimate, proportion, share

if TYPE_CHECKING:
    import numpy as np

SAID = ("pass", "fail", "none")
RESAMPLES = 1000
BINS = (0.335, 0.675)
"""Upper ends of bad and moderate: 0-33, 34-67, 68-100 of a hundred (ViGoR-Bench, section 3.3)."""


@dataclass(frozen=True, slots=True)
class Rating:
    """What a judge, or a person, said of something of which the truth is known.

    item: ratings that share it are not independent. truth: in [0, 1], the mean of people where it is theirs; above one
    half it is right. said: one of SAID; "none" is no answer, and a disagreement. value: in [0, 1].
    """

    item: str
    truth: float
    said: str
    value: float

    @property
    def right(self) -> bool:
        return self.truth > 0.5

    @property
    def agrees(self) -> bool:
        return self.said == ("pass" if self.right else "fail")


@dataclass(frozen=True, slots=True)
class Agreement:
    """accuracy: the share of ratings that agree. sensitivity, specificity: of the right and of the wrong ones.
    balanced_accuracy: their mean. kappa: Cohen's, with no answer as a third word. always_no: the accuracy of failing
    everything. mae: of values against the truth. pearson, spearman: of the same, None where one of them is constant.
    bins: the share of values in the truth's bin of BINS.
    """

    accuracy: Estimate
    sensitivity: Estimate
    specificity: Estimate
    balanced_accuracy: Estimate
    kappa: Estimate
    always_no: Estimate
    mae: Estimate
    pearson: Estimate
    spearman: Estimate
    bins: Estimate

    @property
    def n(self) -> int:
        return self.accuracy.n

    def to_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name).to_dict() for field in fields(self)}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Agreement:
        return cls(**{field.name: Estimate.from_dict(raw[field.name]) for field in fields(cls)})


def agreement(ratings: Sequence[Rating]) -> Agreement:
    """All numbers of some ratings. Raises ValueError without any."""
    if not ratings:
        raise ValueError("no ratings")
    table = {
        side: Counter(one.said for one in ratings if one.right == (side == "right")) for side in ("right", "wrong")
    }
    shares = {
        "accuracy": [(one.item, one.agrees) for one in ratings],
        "sensitivity": [(one.item, one.said == "pass") for one in ratings if one.right],
        "specificity": [(one.item, one.said == "fail") for one in ratings if not one.right],
        "always_no": [(one.item, not one.right) for one in ratings],
        "bins": [(one.item, _bin(one.value) == _bin(one.truth)) for one in ratings],
    }
    alone = {
        name: share([hit for _, hit in hits], range(len(hits)), [item for item, _ in hits])
        for name, hits in shares.items()
    }
    alone["kappa"] = kappa(table)
    alone["balanced_accuracy"] = mean_of_two(alone["sensitivity"], alone["specificity"])
    items = len({one.item for one in ratings})
    drawn = _resampled(ratings)
    found = {}
    for name, sampled in drawn.items():
        if name not in alone:  # the mean error and the correlations
            low, high = (0.0, 1.0) if name == "mae" else (-1.0, 1.0)
            found[name] = _estimate(sampled, len(ratings), items, Estimate(None, len(ratings), low, high))
        elif name in shares or items == len(ratings):
            found[name] = alone[name]
        else:
            found[name] = _estimate(sampled, alone[name].n, items, alone[name])
    return Agreement(**found)


def _estimate(sampled: tuple[float, np.ndarray], n: int, items: int, alone: Estimate) -> Estimate:
    """A number with the percentiles of its resamples; where they do not differ, at least the interval of `alone`."""
    import numpy as np

    value, others = sampled
    some = others[np.isfinite(others)]
    if not math.isfinite(value) or not len(some):
        return Estimate(None, n, alone.low, alone.high)
    low, high = (float(one) for one in np.percentile(some, (2.5, 97.5)))
    if high - low < 1e-12:
        low, high = alone.low, alone.high
    return Estimate(value, n, min(low, value), max(high, value), items if items < n else None)


def _resampled(ratings: Sequence[Rating]) -> dict[str, tuple[float, np.ndarray]]:
    """Name -> the number, and its values in bootstrap samples of items [RESAMPLES]."""
    import numpy as np

    places: dict[str, list[int]] = {}
    for place, one in enumerate(ratings):
        places.setdefault(one.item, []).append(place)
    groups = list(places.values())
    truth, value = (np.array([getattr(one, name) for one in ratings]) for name in ("truth", "value"))
    rows = np.array([_row(one) for one in ratings], dtype=float)
    sums = np.array([rows[group].sum(axis=0) for group in groups])
    generator = np.random.default_rng(derive_seed(0, "agreement"))
    weights = generator.multinomial(len(groups), [1 / len(groups)] * len(groups), size=RESAMPLES)
    whole, drawn = _numbers(sums.sum(axis=0, keepdims=True)), _numbers(weights @ sums)
    found = {name: (float(whole[name][0]), drawn[name]) for name in drawn}
    ranked = np.full(RESAMPLES, np.nan)
    if np.ptp(truth) and np.ptp(value):
        for number, weight in enumerate(weights):
            chosen = [i for group, times in zip(groups, weight, strict=True) for _ in range(times) for i in group]
            ranked[number] = _rank_correlation(truth[chosen], value[chosen])
    found["spearman"] = (_rank_correlation(truth, value), ranked)
    return found


def _row(one: Rating) -> list[float]:
    """What is summed over items: the 2 x 3 table of truth and verdict, agreements of bins, errors, moments."""
    cells = [float(one.right == right and one.said == said) for right in (True, False) for said in SAID]
    same = float(_bin(one.value) == _bin(one.truth))
    x, y = one.truth, one.value
    return [*cells, same, abs(x - y), x, y, x * x, y * y, x * y]


def _numbers(sums: np.ndarray) -> dict[str, np.ndarray]:
    """All but Spearman's, of each row of sums [B, 13]; NaN where there is none."""
    import numpy as np

    cells, (same, error, x, y, xx, yy, xy) = sums[:, :6].reshape(-1, 2, 3), sums[:, 6:].T
    n, sides, words = cells.sum(axis=(1, 2)), cells.sum(axis=2), cells.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        agreed = (cells[:, 0, 0] + cells[:, 1, 1]) / n
        sensitivity, specificity = cells[:, 0, 0] / sides[:, 0], cells[:, 1, 1] / sides[:, 1]
        chance = (sides[:, 0] * words[:, 0] + sides[:, 1] * words[:, 1]) / n**2
        spread = (xx / n - (x / n) ** 2) * (yy / n - (y / n) ** 2)
        pearson = np.where(spread > 1e-12, (xy / n - x * y / n**2) / np.sqrt(np.abs(spread)), np.nan)
        return {
            "accuracy": agreed,
            "sensitivity": sensitivity,
            "specificity": specificity,
            "balanced_accuracy": (sensitivity + specificity) / 2,
            "kappa": (agreed - chance) / (1 - chance),
            "always_no": sides[:, 1] / n,
            "mae": error / n,
            "pearson": np.clip(pearson, -1, 1),
            "bins": same / n,
        }


def _rank_correlation(truth: np.ndarray, value: np.ndarray) -> float:
    """Spearman's: Pearson's of mean ranks; NaN where one of the two is constant."""
    import numpy as np
    from scipy.stats import rankdata

    if not np.ptp(truth) or not np.ptp(value):
        return math.nan
    return float(np.corrcoef(rankdata(truth), rankdata(value))[0, 1])


def _bin(value: float) -> int:
    return sum(value > end for end in BINS)


def kappa(table: Mapping[str, Mapping[str, int]]) -> Estimate:
    """Cohen's kappa of "right"/"wrong" against "pass"/"fail"/"none" (Cohen 1960; interval of statsmodels).

    Where all agree that interval has no width; it then begins where accuracy's does, on the scale of kappa. Where
    chance alone explains all (everything is right and everything passes) kappa has no value.
    """
    import numpy as np
    from statsmodels.stats.inter_rater import cohens_kappa

    rows = [[table[side][said] for said in SAID] for side in ("right", "wrong")] + [[0, 0, 0]]
    n = sum(map(sum, rows))
    # With no answer on neither side, its empty row and column change nothing.
    by_chance = sum(sum(rows[i]) * sum(row[i] for row in rows) for i in range(3))
    if n == 0 or by_chance == n * n:
        return Estimate(None, n, -1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # in its z value, which is not used
        found = cohens_kappa(rows)
    value, low, high = (float(one) for one in (found.kappa, found.kappa_low, found.kappa_upp))
    if value == 1.0:
        low, high = 1 - (1 - proportion(n, n).low) / (1 - by_chance / (n * n)), 1.0
    return Estimate(value, n, max(-1.0, low), min(1.0, high))


def mean_of_two(first: Estimate, second: Estimate) -> Estimate:
    """The mean of two independent estimates; its interval squares and adds theirs (Zou and Donner 2008, MOVER)."""
    if first.value is None or second.value is None:
        return Estimate(None, first.n + second.n, 0.0, 1.0)
    value = (first.value + second.value) / 2
    below = math.hypot(first.value - first.low, second.value - second.low) / 2
    above = math.hypot(first.high - first.value, second.high - second.value) / 2
    return Estimate(value, first.n + second.n, value - below, value + above)
