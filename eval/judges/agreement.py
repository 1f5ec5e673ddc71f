"""How far a judge agrees with what is known: the numbers, their record, and scores corrected by them.

Numbers have 95 % intervals. Shares are clustered by item. Where every rating is of an item of its own, kappa has the
interval of statsmodels. Errors and correlations have percentiles of `RESAMPLES` bootstrap samples of whole items. So
has every number where ratings share items: a reference and a shuffled one of a case, several rubrics of an answer.

A `Calibration` is the record, which evaluations cite; `uni_train.eval.judges.calibrate` makes it. It is found again by
the judge, its dialect, the way it is asked, and the benchmark.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.config.schema import JudgeConfig
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json
from uni_train.core.seeds import derive_seed
from uni_train.eval.benchmark import Benchmark, Scored, Table
from uni_train.eval.results import plain
from uni_train.eval.sample import mostly_failed
from uni_train.eval.statistics import CONFIDENCE, Estimate, proportion, share

if TYPE_CHECKING:
    import numpy as np

FORMAT = "uni_train.calibration/2"
HARDLY = 0.55
"""A balanced accuracy whose interval reaches down to this is hardly better than chance."""
OUTCOMES = ("pass", "fail", "none")
RESAMPLES = 1000
BINS = (0.335, 0.675)
"""Upper ends of bad and moderate: 0-33, 34-67, 68-100 of a hundred (ViGoR-Bench, section 3.3)."""


@dataclass(frozen=True, slots=True)
class Rating:
    """What a judge, or a person, said of something of which the truth is known.

    item: ratings that share it are not independent. truth: in [0, 1], the mean of people where it is theirs; above one
    half it is right. outcome: one of OUTCOMES; "none" is no answer, and a disagreement. value: in [0, 1].
    """

    item: str
    truth: float
    outcome: str
    value: float

    @property
    def right(self) -> bool:
        return self.truth > 0.5

    @property
    def agrees(self) -> bool:
        return self.outcome == ("pass" if self.right else "fail")


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
    """All numbers of some ratings; none but `always_no` where none has an answer. Raises ValueError without any."""
    if not ratings:
        raise ValueError("no ratings")
    table = {
        side: Counter(rating.outcome for rating in ratings if rating.right == (side == "right"))
        for side in ("right", "wrong")
    }
    shares = {
        "accuracy": [(rating.item, rating.agrees) for rating in ratings],
        "sensitivity": [(rating.item, rating.outcome == "pass") for rating in ratings if rating.right],
        "specificity": [(rating.item, rating.outcome == "fail") for rating in ratings if not rating.right],
        "always_no": [(rating.item, not rating.right) for rating in ratings],
        "bins": [(rating.item, _bin(rating.value) == _bin(rating.truth)) for rating in ratings],
    }
    alone = {
        name: share([hit for _, hit in hits], range(len(hits)), [item for item, _ in hits])
        for name, hits in shares.items()
    }
    alone["kappa"] = kappa(table)
    alone["balanced_accuracy"] = mean_of_two(alone["sensitivity"], alone["specificity"])
    items = len({rating.item for rating in ratings})
    drawn = _resampled(ratings)
    estimates = {}
    for name, sampled in drawn.items():
        if name not in alone:  # the mean error and the correlations
            low, high = (0.0, 1.0) if name == "mae" else (-1.0, 1.0)
            estimates[name] = _estimate(sampled, len(ratings), items, Estimate(None, len(ratings), low, high))
        elif name in shares or items == len(ratings):
            estimates[name] = alone[name]
        else:
            estimates[name] = _estimate(sampled, alone[name].n, items, alone[name])
    if all(rating.outcome == "none" for rating in ratings):
        lows = dict.fromkeys(("kappa", "pearson", "spearman"), -1.0)
        empty = {name: Estimate(None, estimate.n, lows.get(name, 0.0), 1.0) for name, estimate in estimates.items()}
        estimates = {**empty, "always_no": estimates["always_no"]}
    return Agreement(**estimates)


def _estimate(sampled: tuple[float, np.ndarray], n: int, items: int, alone: Estimate) -> Estimate:
    """A number with the percentiles of its resamples; where they do not differ, at least the interval of `alone`."""
    import numpy as np

    value, others = sampled
    some = others[np.isfinite(others)]
    if not math.isfinite(value) or not len(some):
        return Estimate(None, n, alone.low, alone.high)
    low, high = (float(bound) for bound in np.percentile(some, (2.5, 97.5)))
    if high - low < 1e-12:
        low, high = alone.low, alone.high
    return Estimate(value, n, min(low, value), max(high, value), items if items < n else None)


def _resampled(ratings: Sequence[Rating]) -> dict[str, tuple[float, np.ndarray]]:
    """Name -> the number, and its values in bootstrap samples of items [RESAMPLES]."""
    import numpy as np

    places: dict[str, list[int]] = {}
    for place, rating in enumerate(ratings):
        places.setdefault(rating.item, []).append(place)
    groups = list(places.values())
    truth, value = (np.array([getattr(rating, name) for rating in ratings]) for name in ("truth", "value"))
    rows = np.array([_row(rating) for rating in ratings], dtype=float)
    sums = np.array([rows[group].sum(axis=0) for group in groups])
    generator = np.random.default_rng(derive_seed(0, "agreement"))
    weights = generator.multinomial(len(groups), [1 / len(groups)] * len(groups), size=RESAMPLES)
    whole, drawn = _numbers(sums.sum(axis=0, keepdims=True)), _numbers(weights @ sums)
    estimates = {name: (float(whole[name][0]), drawn[name]) for name in drawn}
    ranked = np.full(RESAMPLES, np.nan)
    if np.ptp(truth) and np.ptp(value):
        for number, weight in enumerate(weights):
            chosen = [i for group, times in zip(groups, weight, strict=True) for _ in range(times) for i in group]
            ranked[number] = _rank_correlation(truth[chosen], value[chosen])
    estimates["spearman"] = (_rank_correlation(truth, value), ranked)
    return estimates


def _row(rating: Rating) -> list[float]:
    """What is summed over items: the 2 x 3 table of truth and verdict, agreements of bins, errors, moments."""
    cells = [
        float(rating.right == right and rating.outcome == outcome) for right in (True, False) for outcome in OUTCOMES
    ]
    same = float(_bin(rating.value) == _bin(rating.truth))
    x, y = rating.truth, rating.value
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

    rows = [[table[side][outcome] for outcome in OUTCOMES] for side in ("right", "wrong")] + [[0, 0, 0]]
    n = sum(map(sum, rows))
    # With no answer on neither side, its empty row and column change nothing.
    by_chance = sum(sum(rows[i]) * sum(row[i] for row in rows) for i in range(3))
    if n == 0 or by_chance == n * n:
        return Estimate(None, n, -1.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # in its z value, which is not used
        kappa = cohens_kappa(rows)
    value, low, high = (float(bound) for bound in (kappa.kappa, kappa.kappa_low, kappa.kappa_upp))
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


# --- the record ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found.

    Attributes:
        judge: `JudgeConfig.protocol`. way: `JudgeConfig.label`. benchmark, benchmark_revision: what it was asked.
        anchors: a hash of the samples and their truths; only judges of the same can be compared.
        counts: kind -> "right"|"wrong" -> "pass"|"fail"|"none" -> number of ratings.
        overall: of all ratings. by_kind, by_setting: of each kind and setting.
        by_sample: where people labelled single checks, of the means of samples; else None.
        people: each person against the mean of the others, where there are several; None where there are not.
        split: ratings left out of all but `people`, because as many people say pass as fail.
        stability: shares of samples whose verdict another draw or a changed image flips; mean variances of values.
        cascade: of a judge with small ones, what `uni_train.eval.judges.calibrate` compares; else None.
        disagreements: the first of them: {"id", "setting", "check", "kind", "truth", "judged", "reply"}.
        made: when.
    """

    judge: Mapping[str, Any]
    way: str
    benchmark: str
    benchmark_revision: str
    anchors: str
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    overall: Agreement
    by_kind: Mapping[str, Agreement]
    by_setting: Mapping[str, Agreement]
    by_sample: Agreement | None
    people: Agreement | None
    split: int
    stability: Mapping[str, Estimate]
    cascade: Mapping[str, Any] | None
    disagreements: tuple[Mapping[str, Any], ...]
    made: str

    @property
    def n(self) -> int:
        return self.overall.n

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "format": FORMAT,
            "n": self.n,
            **plain({field.name: getattr(self, field.name) for field in fields(self)}),
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Calibration:
        """Raises KeyError, TypeError and ValueError for what `to_dict` did not make."""
        if raw["format"] != FORMAT:
            raise ValueError(f"of the format {raw['format']}")
        values = {field.name: raw[field.name] for field in fields(cls)}
        for name in ("by_kind", "by_setting"):
            values[name] = {key: Agreement.from_dict(entry) for key, entry in raw[name].items()}
        for name in ("overall", "by_sample", "people"):
            values[name] = None if raw[name] is None else Agreement.from_dict(raw[name])
        values["stability"] = {key: Estimate.from_dict(entry) for key, entry in raw["stability"].items()}
        return cls(**{**values, "disagreements": tuple(raw["disagreements"])})


def keep(store: Path, judge: JudgeConfig, calibration: Calibration) -> None:
    """Write the record; it replaces an earlier one."""
    path = _path(store, judge, calibration.benchmark)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, calibration.to_dict())


def citation(store: Path, judge: JudgeConfig, benchmark: Benchmark) -> dict[str, Any] | None:
    """What an evaluation says of its judge: the numbers, and whether of the same questions; None: not calibrated."""
    calibration = find(store, judge, benchmark.name)
    if calibration is None:
        return None
    names = ("kappa", "accuracy", "balanced_accuracy", "sensitivity", "specificity")
    numbers: dict[str, Any] = {name: getattr(calibration.overall, name).to_dict() for name in names}
    same = calibration.benchmark_revision == benchmark.revision
    truths = {kind: agreement.n for kind, agreement in calibration.by_kind.items()}
    numbers |= {"cascade": calibration.cascade} if calibration.cascade else {}
    return {"n": calibration.n, "truths": truths, **numbers, "made": calibration.made, "same_questions": same}


def sentence_of(cited: Mapping[str, Any] | None) -> str:
    """The same as a sentence, for tables and reports."""
    if cited is None:
        return "It is uncalibrated: nobody has checked how far it agrees with what is known (uni_train eval calibrate)."
    kappa, balanced = (Estimate.from_dict(cited[key]) for key in ("kappa", "balanced_accuracy"))
    truths = ", ".join(f"{kind} {n}" for kind, n in cited.get("truths", {}).items()) or "program, references"
    where = "" if cited["same_questions"] else ", on other questions of this benchmark"
    text = f"It is calibrated on {cited['n']} verdicts of known truth ({truths}){where}: kappa {kappa}, balanced "
    text += f"accuracy {balanced}."
    if "cascade" in cited:
        asked, bias = (Estimate.from_dict(cited["cascade"][key]) for key in ("asked", "bias"))
        text += f" There the large judge was asked about {asked}, with a bias of {bias}."
    return text


def find(store: Path, judge: JudgeConfig, benchmark: str) -> Calibration | None:
    """The calibration of this judge, asked this way, for a benchmark; None if there is none that can be read."""
    return _read(_path(store, judge, benchmark))


def comparable(store: Path, calibration: Calibration) -> list[Calibration]:
    """All records of judges and ways that were measured on the same anchors, `found` among them, by name."""
    paths = (Path(store) / "calibrations").glob(f"{calibration.benchmark}-*.json")
    others = [one for path in paths if (one := _read(path)) is not None and one.anchors == calibration.anchors]
    return sorted(others, key=lambda calibration: (str(calibration.judge["model"]), calibration.way))


def _read(path: Path) -> Calibration | None:
    try:
        return Calibration.from_dict(read_json(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _path(store: Path, judge: JudgeConfig, benchmark: str) -> Path:
    way = "" if judge.way == "published" else f"{judge.way}{judge.votes}-"
    if judge.small:
        protocol = json.dumps(judge.protocol, sort_keys=True, default=str)
        way += f"cascade-{hashlib.blake2b(protocol.encode(), digest_size=8).hexdigest()}-"
    return Path(store) / "calibrations" / f"{benchmark}-{judge.dialect}-{way}{judge.key}.json"


# --- corrected scores ------------------------------------------------------------------------------------------------


def corrected(raw: Estimate, sensitivity: Estimate, specificity: Estimate) -> Estimate:
    """The prevalence behind a share of positives (Rogan and Gladen 1978), cut to [0, 1].

    (raw + specificity - 1) / (sensitivity + specificity - 1). The interval is that of Lang and Reiczigel (Preventive
    Veterinary Medicine 113, 2014), which knows that all three are estimates; where units repeat each other, as many
    count as differ. specificity: of not passing what is wrong, whether failed or left without an answer. Raises
    ValueError where one of the three has no value, or the judge is no better than chance.
    """
    if raw.value is None or sensitivity.value is None or specificity.value is None:
        raise ValueError("a share without a value cannot be corrected")
    if sensitivity.value + specificity.value <= 1:
        raise ValueError("a judge that is no better than chance cannot be corrected")
    from scipy.stats import norm

    z = float(norm.ppf((1 + CONFIDENCE) / 2))
    value = (raw.value + specificity.value - 1) / (sensitivity.value + specificity.value - 1)
    n, right, wrong = (float(entry.distinct or entry.n) for entry in (raw, sensitivity, specificity))
    passed = (n * raw.value + z * z / 2) / (n + z * z)
    sens, spec = ((of * estimate.value + 1) / (of + 2) for of, estimate in ((right, sensitivity), (wrong, specificity)))  # type: ignore[operator]
    slope = sens + spec - 1
    middle = (passed + spec - 1) / slope
    of_right, of_wrong = sens * (1 - sens) / (right + 2), spec * (1 - spec) / (wrong + 2)
    shift = 2 * z * z * (middle * of_right - (1 - middle) * of_wrong)
    spread = passed * (1 - passed) / (n + z * z) + middle**2 * of_right + (1 - middle) ** 2 * of_wrong
    half = z * math.sqrt(spread) / slope
    value, low, high = (min(max(part, 0.0), 1.0) for part in (value, middle + shift - half, middle + shift + half))
    return Estimate(value, raw.n, min(low, value), max(high, value), raw.distinct)


def judged_scores(scored: Sequence[Scored], judge: JudgeConfig, calibration: Calibration | None) -> dict[str, Any]:
    """What an evaluation says of the samples that a judge judged; JSON-able.

    {"judge", "way", "refused": why nothing is corrected or "", "scores": [{"setting", "set", "raw", "corrected",
    "failed": why there is no score or ""}]}
    """
    cells: dict[tuple[str, str], list[Scored]] = {}
    for answer in scored:
        if answer.by not in ("", "program"):
            cells.setdefault((answer.sample.ask.setting, answer.sample.ask.case.set), []).append(answer)
    why = "uncalibrated" if calibration is None else _refused(calibration)
    scores = []
    for (setting, name), some in cells.items():
        raw, failed = _passed(some), mostly_failed(some)
        if failed:
            raw = Estimate(None, raw.n, 0.0, 1.0)
        fixed = (
            None
            if calibration is None or why or failed
            else corrected(raw, calibration.overall.sensitivity, _not_passed(calibration))
        )
        cell = {"setting": setting, "set": name, "raw": raw.to_dict(), "corrected": fixed and fixed.to_dict()}
        scores.append(cell | {"failed": failed})
    return {"judge": judge.name, "way": judge.label, "refused": why, "scores": scores}


def table_of(judged: Mapping[str, Any], about: str) -> Table:
    """The judge's scores, raw and corrected; about: how well the judge is known."""
    rows = tuple(
        (
            answer["setting"],
            answer["set"],
            answer.get("failed") or Estimate.from_dict(answer["raw"]),
            judged["refused"] if answer["corrected"] is None else Estimate.from_dict(answer["corrected"]),
        )
        for answer in judged["scores"]
    )
    title = f"Passed by the judge {judged['judge']}, {judged['way']}"
    note = (
        f"Of the samples that it judged. {about} Corrected: Rogan and Gladen 1978, interval of Lang and Reiczigel 2014."
    )
    return Table(title, ("setting", "set", "raw", "corrected"), rows, note)


def _refused(calibration: Calibration) -> str:
    """Why the judge's scores cannot be corrected; "" where they can."""
    if calibration.by_sample is not None:  # how often single checks are mistaken says not how often whole answers are
        return "refused: people labelled single checks, not whole answers"
    balanced = calibration.overall.balanced_accuracy
    if balanced.value is not None and balanced.low > HARDLY:
        return ""
    return f"refused: hardly better than chance (balanced accuracy {balanced})"


def _passed(scored: Sequence[Scored]) -> Estimate:
    cases = [answer.sample.ask.case for answer in scored]
    units = [answer.sample.identity for answer in scored]
    return share([answer.passed for answer in scored], units, [case.cluster_id for case in cases])


def _not_passed(calibration: Calibration) -> Estimate:
    """Of what is wrong, the share that the judge does not pass."""
    wrong = [kind["wrong"] for kind in calibration.counts.values()]
    n = sum(sum(side.values()) for side in wrong)
    failed = calibration.overall.specificity
    return Estimate(1 - sum(side["pass"] for side in wrong) / n, n, failed.low, failed.high, failed.distinct)
