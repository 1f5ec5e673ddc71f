"""The record of how far a judge can be believed, which evaluations cite. `uni_train.eval.judges.calibrating` makes it.

It is found again by the judge, its dialect, the way it is asked, and the benchmark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from uni_train.config.schema import JudgeConfig
from uni_train.data_gen.reading_limits import read_json
from uni_train.eval.benchmark import Benchmark
from uni_train.eval.judges.agreement import Agreement
from uni_train.eval.statistics import Estimate
from uni_train.files import atomic_write_json

FORMAT = "uni_train.calibration/2"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found.

    Attributes:
        judge: `JudgeConfig.manner`. way: `JudgeConfig.label`. benchmark, benchmark_revision: what it was asked.
        anchors: a hash of the samples and their truths; only judges of the same can be compared.
        counts: kind -> "right"|"wrong" -> "pass"|"fail"|"none" -> number of ratings.
        overall: of all ratings. by_kind, by_setting: of each kind and setting.
        by_sample: where people labelled single checks, of the means of samples; else None.
        people: each person against the mean of the others, where there are several; None where there are not.
        split: ratings left out of all but `people`, because as many people say pass as fail.
        stability: shares of samples whose verdict another draw or a changed image flips; mean variances of values.
        cascade: of a judge with small ones, what `uni_train.eval.judges.cascade.compared` says; else None.
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
        plain = {one.name: _plain(getattr(self, one.name)) for one in fields(self)}
        return {"format": FORMAT, "n": self.n, **plain}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Calibration:
        """Raises KeyError, TypeError and ValueError for what `to_dict` did not make."""
        if raw["format"] != FORMAT:
            raise ValueError(f"of the format {raw['format']}")
        found = {one.name: raw[one.name] for one in fields(cls)}
        for name in ("by_kind", "by_setting"):
            found[name] = {key: Agreement.from_dict(one) for key, one in raw[name].items()}
        for name in ("overall", "by_sample", "people"):
            found[name] = None if raw[name] is None else Agreement.from_dict(raw[name])
        found["stability"] = {key: Estimate.from_dict(one) for key, one in raw["stability"].items()}
        return cls(**{**found, "disagreements": tuple(raw["disagreements"])})


def keep(store: Path, judge: JudgeConfig, calibration: Calibration) -> None:
    """Write the record; it replaces an earlier one."""
    path = _path(store, judge, calibration.benchmark)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(path, calibration.to_dict())


def cited(store: Path, judge: JudgeConfig, benchmark: Benchmark) -> dict[str, Any] | None:
    """What an evaluation says of its judge: the numbers, and whether of the same questions; None: not calibrated."""
    found = find(store, judge, benchmark.name)
    if found is None:
        return None
    names = ("kappa", "accuracy", "balanced_accuracy", "sensitivity", "specificity")
    numbers: dict[str, Any] = {name: getattr(found.overall, name).to_dict() for name in names}
    same = found.benchmark_revision == benchmark.revision
    truths = {kind: one.n for kind, one in found.by_kind.items()}
    numbers |= {"cascade": found.cascade} if found.cascade else {}
    return {"n": found.n, "truths": truths, **numbers, "made": found.made, "same_questions": same}


def said(cited: Mapping[str, Any] | None) -> str:
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
    return sorted(others, key=lambda one: (str(one.judge["model"]), one.way))


def _read(path: Path) -> Calibration | None:
    try:
        return Calibration.from_dict(read_json(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _path(store: Path, judge: JudgeConfig, benchmark: str) -> Path:
    way = "" if judge.way == "published" else f"{judge.way}{judge.votes}-"
    if judge.small:
        said = json.dumps(judge.manner, sort_keys=True, default=str)
        way += f"cascade-{hashlib.blake2b(said.encode(), digest_size=8).hexdigest()}-"
    return Path(store) / "calibrations" / f"{benchmark}-{judge.dialect}-{way}{judge.key}.json"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return value.to_dict() if isinstance(value, Agreement | Estimate) else value
