"""Samples of which the truth is known, by which a judge is measured.

Four kinds of anchors. *human*: what people have labelled (`eval.judges.labels`). *program*: what a model drew, where a
verifier has read the image. *reference*: an image that is right by construction, drawn by a renderer or given in a
folder; the judge must pass it. *shuffled*: the reference of another case, with another answer; it must fail. A judge
that passes everything does well on references alone, and one that guesses by how common right images are does well on
programs alone; kappa and balanced accuracy show both.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uni_train.data_gen.reading_limits import IMAGE_BYTES, read_bytes
from uni_train.data_gen.seeds import derive_seed
from uni_train.data_gen.verifying import find_image
from uni_train.errors import UserError
from uni_train.eval.benchmark import Ask, Benchmark, Case, Sample, Scored
from uni_train.eval.judges.labels import Label, Labelled

KINDS = ("human", "program", "reference", "shuffled")


@dataclass(frozen=True, slots=True)
class Anchor:
    """A sample of which it is known whether it is right, and from what (one of KINDS).

    labels: of people; empty where a program or a construction knows, which makes no mistakes.
    """

    sample: Sample
    right: bool
    kind: str
    labels: tuple[Label, ...] = ()

    @property
    def item(self) -> str:
        """Anchors that share it are not independent."""
        return self.sample.ask.case.cluster_id

    @property
    def truths(self) -> dict[str, float | None]:
        """Check -> the mean of people, "" for the whole answer; None where as many say pass as fail."""
        if not self.labels:
            return {"": float(self.right)}
        said: dict[str, list[float]] = {}
        for label in self.labels:
            said.setdefault(label.check, []).append(label.value)
        return {check: mean_of(values) for check, values in said.items()}


def mean_of(values: Sequence[float]) -> float | None:
    """The truth that people agree on; None where verdicts are split evenly."""
    mean = sum(values) / len(values)
    return None if mean == 0.5 and set(values) == {0.0, 1.0} else mean


def anchors_from_labels(
    labelled: Iterable[Labelled], benchmark: Benchmark, scored: Iterable[Scored] = ()
) -> list[Anchor]:
    """What people have labelled; samples that the file does not give are looked for among those `scored`.

    Raises UserError, which names the line: a sample that is nowhere, or that has nothing to judge.
    """
    listed = list(labelled)
    wanted = {one.identity for one in listed if not one.parts}
    stored = {one.sample.identity: one.sample for one in scored if one.sample.identity in wanted}
    found = []
    for one in listed:
        sample, where = one.sample(stored), one.labels[0].where
        if sample.status != "ok":
            raise UserError(f"{where}: the model made no answer ({sample.status}: {sample.note})", "Take out the line.")
        try:
            asyncio.run(benchmark.judge(sample, _nobody))
        except AssertionError as error:
            raise UserError(f"{where}: nothing to judge ({error})", "Give its image in the column images.") from error
        except _Asked:
            pass
        mean = sum(label.value for label in one.labels) / len(one.labels)
        found.append(Anchor(sample, mean > 0.5, "human", one.labels))
    return found


class _Asked(Exception):
    """The judge would be asked now."""


async def _nobody(prompt: str, images: Sequence[bytes] = (), **how: Any) -> Any:
    raise _Asked


def anchors_from_programs(scored: Iterable[Scored], n: int | None = None, seed: int = 0) -> list[Anchor]:
    """Samples that a program has read as right or wrong; `n`: so many at most, as even between the two as can be.

    Samples must hold their images (`Evaluation.scored(name, images=True)`).
    """
    anchors = [
        Anchor(anchor.sample, anchor.passed, "program")
        for anchor in scored
        if anchor.by == "program" and anchor.outcome in ("pass", "fail") and anchor.sample.image
    ]
    if n is None or len(anchors) <= n:
        return anchors
    sides = [[anchor for anchor in anchors if anchor.right is right] for right in (True, False)]
    for right, side in zip((True, False), sides, strict=True):
        random.Random(derive_seed(seed, "anchors", right)).shuffle(side)
    fewer = min(len(side) for side in sides)
    share = [min(len(side), max(n // 2, n - fewer)) for side in sides]
    kept = {id(anchor) for side, size in zip(sides, share, strict=True) for anchor in side[:size]}
    return [anchor for anchor in anchors if id(anchor) in kept][:n]


def anchors_from_references(
    benchmark: Benchmark,
    cases: Sequence[Case],
    picture: Callable[[Case], bytes | None],
    seed: int = 0,
) -> list[Anchor]:
    """Two anchors a case: its own reference, and that of another case whose answer is another one.

    picture: the encoded reference of a case, or None where there is none (`Benchmark.reference`, `from_folder`). Where
    a program can check images, a shuffled one is taken only if it fails the check. Raises UserError for a reference
    that fails it.
    """
    setting = benchmark.settings[0]
    pictures = {case.id: image for case in cases if (image := picture(case)) is not None}
    shown = [case for case in cases if case.id in pictures]
    anchors = []
    for place, case in enumerate(shown):
        own = _sample(case, setting, pictures[case.id])
        verdict = benchmark.check(own)
        if verdict is not None and not verdict.passed:
            raise UserError(
                f"the reference image of {case.id} is not right: {verdict.reason}", "Remove it, or give another one."
            )
        anchors.append(Anchor(own, True, "reference"))
        others = [other for other in shown if _answer(other) != _answer(case)]
        random.Random(derive_seed(seed, "shuffled", place)).shuffle(others)
        for other in others[:20]:
            sample = _sample(case, setting, pictures[other.id])
            verdict = benchmark.check(sample)
            if verdict is None or verdict.status == "fail":  # answers in other words may mean the same
                anchors.append(Anchor(sample, False, "shuffled"))
                break
    return anchors


def from_folder(folder: Path) -> Callable[[Case], bytes | None]:
    """References as files named after their cases (math1-3.png, or as `data verify` takes them).

    Raises UserError if there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder", "Name the folder that holds the reference images.")

    def picture(case: Case) -> bytes | None:
        found = find_image(case.id, folder)
        return read_bytes(found, IMAGE_BYTES) if found is not None else None

    return picture


def _sample(case: Case, setting: str, image: bytes) -> Sample:
    return Sample(Ask(case, setting, 0, 0), prompt=case.prompt, parts=(image,))


def _answer(case: Case) -> str:
    """What makes two cases ask for the same image, as far as their facts say."""
    facts = case.facts
    said = facts.get("outcome") or facts.get("answer") or facts.get("criterion") or case.id
    return json.dumps(said, sort_keys=True, ensure_ascii=False).lower()
