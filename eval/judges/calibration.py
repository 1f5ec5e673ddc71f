"""The record of how far a judge can be believed, which evaluations cite. `eval.judges.calibrating` makes it.

It is found again by the judge, its dialect and the benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.reading_limits import read_json
from eval.benchmark import Benchmark
from eval.judges.config import JudgeConfig
from eval.statistics import Estimate
from uni_train.files import atomic_write_json


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found.

    Attributes:
        judge: `JudgeConfig.identity`. key: its hash. dialect, benchmark, benchmark_revision: what it was asked, how.
        counts: kind -> "right"|"wrong" -> "pass"|"fail"|"none" -> number of anchors.
        accuracy: share of anchors judged as they are. sensitivity, specificity: of the right and of the wrong ones.
        balanced_accuracy: the mean of these two. kappa: Cohen's, with no answer as a third word of the judge; its
            interval is that of statsmodels. Each has a 95 % interval.
        by_kind: accuracy of each kind.
        disagreements: the first of them: {"id", "setting", "kind", "right", "judged", "reply"}.
        made: when.
    """

    judge: Mapping[str, Any]
    key: str
    dialect: str
    benchmark: str
    benchmark_revision: str
    counts: Mapping[str, Mapping[str, Mapping[str, int]]]
    accuracy: Estimate
    sensitivity: Estimate
    specificity: Estimate
    balanced_accuracy: Estimate
    kappa: Estimate
    by_kind: Mapping[str, Estimate]
    disagreements: tuple[Mapping[str, Any], ...]
    made: str

    @property
    def n(self) -> int:
        return self.accuracy.n

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        numbers = {name: getattr(self, name).to_dict() for name in _NUMBERS}
        kinds = {kind: estimate.to_dict() for kind, estimate in self.by_kind.items()}
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {"format": FORMAT, "n": self.n, **plain, **numbers, "by_kind": kinds}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Calibration:
        numbers = {name: Estimate.from_dict(raw[name]) for name in _NUMBERS}
        kinds = {kind: Estimate.from_dict(one) for kind, one in raw["by_kind"].items()}
        plain = {name: raw[name] for name in _PLAIN}
        return cls(**{**plain, **numbers, "by_kind": kinds, "disagreements": tuple(raw["disagreements"])})


FORMAT = "uni_train.calibration/1"
_NUMBERS = ("accuracy", "sensitivity", "specificity", "balanced_accuracy", "kappa")
_PLAIN = ("judge", "key", "dialect", "benchmark", "benchmark_revision", "counts", "disagreements", "made")


def keep(store: Path, judge: JudgeConfig, found: Calibration) -> None:
    """Write the record; it replaces an earlier one."""
    path = _path(store, judge, found.benchmark)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, found.to_dict())


def cited(store: Path, judge: JudgeConfig, benchmark: Benchmark) -> dict[str, Any] | None:
    """What an evaluation says of its judge: the numbers, and whether of the same questions; None: not calibrated."""
    found = find(store, judge, benchmark.name)
    if found is None:
        return None
    numbers = {name: getattr(found, name).to_dict() for name in ("kappa", "accuracy", "balanced_accuracy")}
    same = found.benchmark_revision == benchmark.revision
    return {"n": found.n, **numbers, "made": found.made, "same_questions": same}


def find(store: Path, judge: JudgeConfig, benchmark: str) -> Calibration | None:
    """The calibration of this judge in this dialect for a benchmark; None if there is none that can be read."""
    try:
        return Calibration.from_dict(read_json(_path(store, judge, benchmark)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(store: Path, judge: JudgeConfig, benchmark: str) -> Path:
    way = "" if judge.way == "published" else f"{judge.way}{judge.votes}-"
    return Path(store) / "calibrations" / f"{benchmark}-{judge.dialect}-{way}{judge.key}.json"
