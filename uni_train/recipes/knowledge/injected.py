"""Table 4 with what stands behind it: who was taught what, what they say in text, and what they draw of it.

A model counts only if it passed its exam (appendix D); the others are listed with the questions that they
failed. Beside the paper's numbers stand those of the same model before the lessons. Each image stands beside the same
question in text: that tells "does not know" from "knows and does not draw".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.eval.benchmark import Case, Scored, Table
from uni_train.eval.report import run as training
from uni_train.eval.report.evaluation import sections_of
from uni_train.eval.report.page import Page
from uni_train.eval.report.samples import Part
from uni_train.eval.results import Cell
from uni_train.eval.scored import read_folder
from uni_train.eval.sets import counting
from uni_train.eval.sets.benchmark import SetBenchmark
from uni_train.eval.sets.names import KNOWLEDGE_SETS, SETTINGS
from uni_train.eval.statistics import Estimate, share
from uni_train.run_folder import stage_folders

KNOWS = "knows, does not draw"
KNOWS_NOT = "does not know in text"
OTHER = "the other of the two"


@dataclass(frozen=True, slots=True)
class Reply:
    """A question in text and what the model said."""

    question: str
    reply: str
    right: bool


@dataclass(frozen=True, slots=True)
class InjectedModel:
    """One model after its lessons (or, with no updates and no exam, before them).

    exam: about every attribute. twins: id of an image's question -> the same in text.
    """

    names: tuple[str, ...]
    direction: str
    updates: int
    exam: tuple[Reply, ...]
    twins: Mapping[str, Reply]

    @property
    def injected(self) -> bool:
        """Whether it passed: every question of the exam answered right."""
        return all(reply.right for reply in self.exam)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "injected": self.injected}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> InjectedModel:
        """Raises KeyError, TypeError, ValueError for what is none."""
        exam = tuple(Reply(**reply) for reply in raw["exam"])
        twins = {str(name): Reply(**reply) for name, reply in raw["twins"].items()}
        return cls(tuple(raw["names"]), str(raw["direction"]), int(raw["updates"]), exam, twins)


def attributed(benchmark: SetBenchmark, scored: Scored, taught: InjectedModel) -> Scored:
    """With its cause. Without a thought the twin tells whether knowledge was missing or was not drawn; an inverse
    search may have found the other character of its pair, where a program can tell."""
    cause = benchmark.attribute(scored)
    if scored.outcome == "fail" and any(_shows(benchmark, scored, other) for other in _others(benchmark, scored)):
        return replace(scored, cause=OTHER)
    if cause == "wrong, no thought":
        cause = KNOWS if taught.twins[scored.sample.ask.case.id].right else KNOWS_NOT
    return replace(scored, cause=cause)


def _others(benchmark: SetBenchmark, scored: Scored) -> list[Case]:
    """Cases about the other character of an inverse question's pair: who is asked for, with other answers."""
    own = scored.sample.ask.case
    alike = [case for case in benchmark.cases() if case.facts["characters"] == own.facts["characters"]]
    return [case for case in alike if case.set == own.set == "inverse" and case.facts["answer"] != own.facts["answer"]]


def _shows(benchmark: SetBenchmark, scored: Scored, other: Case) -> bool:
    verdict = benchmark.check(replace(scored.sample, ask=replace(scored.sample.ask, case=other)))
    return verdict is not None and verdict.passed


def scores(benchmark: SetBenchmark, taught: Sequence[InjectedModel], scored: Sequence[Scored]) -> dict[str, Any]:
    """JSON-able: setting -> forward, inverse, overall -> estimate over the models that passed; "text" -> the same of
    the twins; "drawn_of_known" -> setting -> set -> of the images whose twin is right, those that are right."""
    counted = _of(scored, taught)
    units = counting.units(counted, "official").by("setting")
    settings, sets = benchmark.settings, [name for name in KNOWLEDGE_SETS if any(t.direction == name for t in taught)]
    scores: dict[str, Any] = {
        setting: {
            name: _mean([(unit.right, unit.cluster) for unit in units.get(setting, ()) if unit.set in group]).to_dict()
            for name, group in _groups(sets).items()
        }
        for setting in settings
    }
    scores["text"] = {name: _text(taught, group).to_dict() for name, group in _groups(sets).items()}
    of_known = {setting: _drawn_of_known(counted, taught, setting) for setting in settings}
    scores["drawn_of_known"] = {
        setting: {
            name: _mean([(right, whose) for of, right, whose in of_known[setting] if of in group]).to_dict()
            for name, group in _groups(sets).items()
        }
        for setting in settings
    }
    return scores


def tables(
    benchmark: SetBenchmark,
    taught: Sequence[InjectedModel],
    scored: Sequence[Scored],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> list[Table]:
    """Table 4 first, and what belongs to it in any evaluation. Then knowledge in text and in images, numbers before the
    lessons, and the models one by one. before, after: as `scores` gives them."""
    counted = _of(scored, taught)
    built = benchmark.tables(counted) if counted else []
    shown = [
        *built[:1],
        _knowing(benchmark.settings, after),
        *_choosing(benchmark.settings, taught, counted),
        _unlearned(benchmark.settings, before),
        _models(taught),
        *built[1:],
    ]
    return [replace(table, questions=benchmark.questions()) for table in shown]


def _of(scored: Sequence[Scored], taught: Sequence[InjectedModel]) -> list[Scored]:
    """The samples of the models that passed."""
    asked = {name for taught_model in taught if taught_model.injected for name in taught_model.twins}
    return [answer for answer in scored if answer.sample.ask.case.id in asked]


def _groups(sets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    return {**{name: (name,) for name in sets}, "overall": tuple(sets)}


def _mean(outcomes: Sequence[tuple[bool, str]]) -> Estimate:
    """Clustered by the model."""
    return share([right for right, _ in outcomes], [whose for _, whose in outcomes])


def _text(taught: Sequence[InjectedModel], group: Sequence[str]) -> Estimate:
    passed = [taught_model for taught_model in taught if taught_model.injected and taught_model.direction in group]
    return _mean(
        [
            (reply.right, ", ".join(taught_model.names))
            for taught_model in passed
            for reply in taught_model.twins.values()
        ]
    )


def _drawn_of_known(
    counted: Sequence[Scored], taught: Sequence[InjectedModel], setting: str
) -> list[tuple[str, bool, str]]:
    """Of each image whose twin is right: its set, whether it is right, and whose model drew it."""
    model = {name: taught_model for taught_model in taught for name in taught_model.twins}
    asked = [(answer.sample.ask.case, answer.passed) for answer in counted if answer.sample.ask.setting == setting]
    known = [(case, right, model[case.id]) for case, right in asked if model[case.id].twins[case.id].right]
    return [(case.set, right, ", ".join(taught_model.names)) for case, right, taught_model in known]


def _rows(columns: Sequence[Mapping[str, Any]]) -> list[tuple[Cell, ...]]:
    """A row a set, with its estimate of each column."""
    named = [(name, counting.SET_NAMES.get(name, "Overall")) for name in columns[0]]
    return [(title, *(Estimate.from_dict(column[name]) for column in columns)) for name, title in named]


def _knowing(settings: Sequence[str], after: Mapping[str, Any]) -> Table:
    names = [counting.SETTING_NAMES[setting] for setting in settings]
    rows = _rows([after["text"], *(after["drawn_of_known"][setting] for setting in settings)])
    note = (
        "Text: the same question as the image's, answered in words. The others: of the images whose question is "
        "answered right in words, those that are right. In the inverse search one who names one of the two characters "
        "at random is right half of the time."
    )
    columns = ("Task", "Text", *(f"Drawn of what is known, {name}" for name in names))
    return Table("Known in text, drawn or not", columns, tuple(rows), note)


def _choosing(settings: Sequence[str], taught: Sequence[InjectedModel], counted: Sequence[Scored]) -> list[Table]:
    """The inverse search beside choosing one of the two at random; nothing where no program can tell whom it shows."""
    model = {name: ", ".join(taught_model.names) for taught_model in taught for name in taught_model.twins}
    rows: list[tuple[Cell, ...]] = []
    for setting in settings:
        asked = [
            answer
            for answer in counted
            if (answer.sample.ask.setting, answer.sample.ask.case.set) == (setting, "inverse")
        ]
        if not asked or any(answer.by != "program" for answer in asked):
            continue
        either = [answer for answer in asked if answer.passed or answer.cause == OTHER]
        outcomes = (
            [(answer.passed, answer) for answer in asked],
            [(answer.passed or answer.cause == OTHER, answer) for answer in asked],
            [(answer.passed, answer) for answer in either],
        )
        means = [_mean([(right, model[answer.sample.ask.case.id]) for right, answer in some]) for some in outcomes]
        rows.append((counting.SETTING_NAMES[setting], *means, "0.50"))
    note = (
        "Either: shows one of the two. Right of these is the search itself: who draws one of the two without knowing "
        "which is right half of the time."
    )
    columns = ("Setting", "Right", "Either of the two", "Right of these", "By chance")
    return [Table("Inverse search beside choosing one of the two", columns, tuple(rows), note)] if rows else []


def _unlearned(settings: Sequence[str], before: Mapping[str, Any]) -> Table:
    rows = _rows([before["text"], *(before[setting] for setting in settings)])
    columns = ("Task", "Text", *(counting.SETTING_NAMES[setting] for setting in settings))
    return Table(
        "Before the lessons", columns, tuple(rows), "The same questions to the model that all others start from."
    )


def _models(taught: Sequence[InjectedModel]) -> Table:
    rows = []
    for taught_model in taught:
        wrong = [reply for reply in taught_model.exam if not reply.right]
        replies = "; ".join(f"{reply.question} -> {reply.reply.strip() or '(nothing)'}" for reply in wrong[:3])
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        rows.append(
            (
                " and ".join(taught_model.names),
                counting.SET_NAMES[taught_model.direction],
                str(taught_model.updates),
                f"{len(taught_model.exam) - len(wrong)} of {len(taught_model.exam)}",
                "yes" if taught_model.injected else "no: not counted",
                f"{sum(reply.right for reply in taught_model.twins.values())} of {len(taught_model.twins)}",
                replies + more,
            )
        )
    columns = ("Taught", "Asked for", "Updates", "Exam", "Injected", "Images' questions in text", "Failed in the exam")
    return Table("The models", columns, tuple(rows))


# --- the page of a run ------------------------------------------------------------------------------------------------

_STAGES = {"inject": "after the lessons", "ask": "before the lessons"}
"""What the samples of stages are called."""


def page(run_dir: Path, summary: Mapping[str, Any], config: Mapping[str, Any]) -> Page:
    """What report.html shows: the tables, and every image with what the same model says in text.

    Raises:
        UserError: summary.json lacks what a run writes; a file of samples cannot be read.
    """
    if "models" not in summary:  # it is not finished
        return training.page(run_dir, summary, config)
    try:
        tables, models = [Table.from_dict(raw) for raw in summary["tables"]], summary["models"]
        moments = {"inject": summary["scores"]["after"], "ask": summary["scores"]["before"]}
        trained = [" and ".join(model["names"]) for model in models if not model["injected"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{run_dir} has no report: {error!r}", "Run its command again.") from error
    parts = [
        Part(name, {"": list(_samples(run_dir, stage))}, tables if stage == "inject" else (), SETTINGS,
             KNOWLEDGE_SETS, tables[0].questions, moments[stage])
        for stage, name in _STAGES.items()
    ]  # fmt: skip
    parts = [part for part in parts if part.moments[""]]
    images = sum(len(part.moments[""]) for part in parts)
    return Page(
        title=f"Knowledge transfer · {summary['model']}",
        facts=[*training.facts_of(run_dir, summary, config), ("Models trained", str(len(models))),
               ("Images", f"{images:,}"), ("Injected", f"{len(models) - len(trained)} of {len(models)}")],
        notes=[f"Not injected, and not counted: {', '.join(trained)}."] if trained else [],
        sections=[*sections_of(parts), training.about_run(run_dir, f"Revision {summary['revision']}.")],
    )  # fmt: skip


def _samples(run_dir: Path, kind: str) -> Iterator[Scored]:
    for stage in stage_folders(run_dir):
        if f"-{kind}-" in stage.name:
            yield from read_folder(stage / "scored")
