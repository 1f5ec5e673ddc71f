"""Know, plan, draw: which link between a question and its image breaks (Niu et al. 2025, arXiv 2511.20561).

Each item is asked five times, with one seed:

    said     answer(question)              does it know the answer at once?
    thought  think(question)               does it reach the answer in a thought?
    told     draw("Draw 3 apples .")       can it draw the answer when it is told plainly?
    normal   draw(question)                does it draw the answer when it is asked?
    cot      draw(question, thought)       does it draw by its thought?

A link holds for an item if both of its ends are right: *know -> draw* is the share of items drawn among those whose
answer is said. `BREAKS` names for each item the first link that fails on the way to its image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from uni_train.data_gen.task import Check, Verdict
from uni_train.eval.benchmark import Ask, Sample, Scored, Table
from uni_train.eval.report.flow_chart import Flow, flow
from uni_train.eval.report.page import Section
from uni_train.eval.statistics import Estimate, paired, share
from uni_train.eval.task_benchmark import TaskBenchmark, item_of
from uni_train.insight.questions import concludes, draw_of, plainly, says

if TYPE_CHECKING:
    from uni_train.eval.evaluation import Evaluation

SAID, THOUGHT, TOLD, NORMAL, COT = "said", "thought", "told", "normal", "cot"
TITLES = {
    SAID: "Says it at once",
    THOUGHT: "Reaches it in a thought",
    TOLD: "Draws it when told plainly",
    NORMAL: "Draws it when asked (Normal)",
    COT: "Draws it by its thought (CoT)",
}
SHORT = {
    TOLD: "Told plainly",
    SAID: "Says it",
    THOUGHT: "Thinks it out",
    COT: "Draws by thought",
    NORMAL: "Draws (Normal)",
}
"""Heads of the flow's columns, in its order."""
BREAKS = (
    "nothing: it draws what is asked",
    "render: not even drawn when told plainly",
    "know to draw: said at once, not drawn",
    "without a thought: drawn by its thought alone",
    "plan to draw: thought out, not drawn",
    "reason: neither said nor thought out",
)


class Link(NamedTuple):
    """P(`then` is right | all of `given` are right)."""

    name: str
    given: tuple[str, ...]
    then: str


LINKS = (
    Link("tell -> draw", (), TOLD),
    Link("know -> draw", (SAID,), NORMAL),
    Link("know and render -> draw", (SAID, TOLD), NORMAL),
    Link("plan -> draw", (THOUGHT,), COT),
    Link("plan and render -> draw", (THOUGHT, TOLD), COT),
)
PAIRS = ((NORMAL, SAID), (NORMAL, COT), (COT, THOUGHT), (COT, TOLD))


class Unit(NamedTuple):
    """One draw of an item: setting -> whether it is right, and the cluster that its item belongs to."""

    cluster: str
    set: str
    right: Mapping[str, bool]


class Links(TaskBenchmark):
    """The five questions about each case; see the head of this file."""

    name = "links"
    offered: ClassVar = (SAID, THOUGHT, TOLD, NORMAL, COT)
    titles: ClassVar = TITLES
    thoughtful: ClassVar = frozenset({THOUGHT, COT})
    answering: ClassVar = frozenset({SAID})
    fused: ClassVar = frozenset()
    undrawn: ClassVar = frozenset({THOUGHT})

    def prepared(self, ask: Ask, thought: str | None) -> Sample:
        if thought is not None and ask.setting == THOUGHT:
            return Sample(ask, prompt=ask.case.prompt, thought=thought, parts=(thought,))
        if ask.setting == TOLD:
            return Sample(ask, prompt=plainly(item_of(ask.case)))
        return super().prepared(ask, thought)

    def check(self, sample: Sample) -> Verdict | None:
        """Texts by their readers, images by the task."""
        if sample.text is None:
            return super().check(sample)
        read = says if sample.ask.setting in self.answering else concludes
        return Verdict((Check("words", read(item_of(sample.ask.case), sample.text), sample.text),))

    def tables(self, scored: Iterable[Scored]) -> list[Table]:
        """Right by setting, the links, where items break, and paired differences."""
        every = list(scored)
        units = units_of(every)
        links, breaks = tuple(links_of(units).items()), tuple(breaks_of(units).items())
        return [
            *super().tables(every),
            Table(
                "Links: right, of those that reach it",
                ("Link", "Holds"),
                links,
                "n: draws of items that reach the link.",
            ),
            Table("What breaks first, of all items", ("Link", "Share"), breaks),
            _pairs_table(units, self.settings),
        ]


def units_of(scored: Iterable[Scored]) -> list[Unit]:
    """Each draw of an item, in the order of asking."""
    right: dict[tuple[str, int], dict[str, bool]] = {}
    about: dict[tuple[str, int], tuple[str, str]] = {}
    for row in scored:
        right.setdefault(draw_of(row), {})[row.sample.ask.setting] = row.passed
        about[draw_of(row)] = row.sample.ask.case.cluster_id, row.sample.ask.case.set
    return [Unit(*about[key], settings) for key, settings in right.items()]


def break_of(right: Mapping[str, bool]) -> str | None:
    """The first link that fails for an item, one of BREAKS; None where not all five questions were asked."""
    if not set(right) >= set(TITLES):
        return None
    draws, render, knows, alone, plan, reason = BREAKS
    if right[NORMAL]:
        return draws
    if not right[TOLD]:
        return render
    if right[SAID]:
        return knows
    if right[THOUGHT]:
        return alone if right[COT] else plan
    return reason


def links_of(units: Sequence[Unit]) -> dict[str, Estimate]:
    """Link -> the share of items that it holds for, among those that reach it; clustered by item."""
    links = {}
    for name, given, then in LINKS:
        complete = [(i, unit) for i, unit in enumerate(units) if {*given, then} <= set(unit.right)]
        reached = [(i, unit) for i, unit in complete if all(unit.right[setting] for setting in given)]
        if complete:
            right, clusters = [unit.right[then] for _, unit in reached], [unit.cluster for _, unit in reached]
            links[name] = share(right, [i for i, _ in reached], clusters)
    return links


def breaks_of(units: Sequence[Unit]) -> dict[str, Estimate]:
    """Break -> its share of the items; empty where not all five questions were asked."""
    breaks = [(break_of(unit.right), unit.cluster) for unit in units]
    if any(name is None for name, _ in breaks):
        return {}
    clusters = [cluster for _, cluster in breaks]
    return {name: share([unit == name for unit, _ in breaks], range(len(breaks)), clusters) for name in BREAKS}


def flow_of(units: Sequence[Unit]) -> Flow:
    """The items from question to question, and last which link breaks."""
    settings = [setting for setting in SHORT if all(setting in unit.right for unit in units)]
    columns: list[tuple[str, tuple[str, ...]]] = [(SHORT[setting], ("right", "not right")) for setting in settings]
    rows = [["right" if unit.right[setting] else "not right" for setting in settings] for unit in units]
    if breaks_of(units):
        short = {name: name.partition(":")[0] for name in BREAKS}
        columns.append(("What breaks", tuple(short.values())))
        rows = [[*row, short[str(break_of(unit.right))]] for row, unit in zip(rows, units, strict=True)]
    return flow("From knowing to drawing", columns, rows)


def found_of(evaluation: Evaluation) -> dict[str, Any]:
    """links.json of a finished evaluation of `Links`."""
    request, result = evaluation.asked, evaluation.results[Links.name]
    scored = [row for row in evaluation.scored(Links.name) if row.outcome != "no_skill"]
    return {
        "model": request["model"]["name"],
        "asked": {"sets": ", ".join(result.sets), "draws of each": request["k"], "seed": request["seed"]},
        "settings": list(result.settings),
        "units": [list(row) for row in units_of(scored)],
        "tables": [table.to_dict() for table in result.tables],
    }


def sections(result: Mapping[str, Any]) -> list[Section]:
    """The part of the page about the links, from links.json."""
    units = [Unit(*unit) for unit in result["units"]]
    tables = [Table.from_dict(table) for table in result["tables"]]
    text = (
        f"{len(units)} draws of {len({unit.cluster for unit in units})} items, each asked "
        f"{len(result['settings'])} times with one seed. A link is judged on the items that reach it."
    )
    return [Section("Know, plan, draw: which link breaks", text, tables=tables, flows=[flow_of(units)])]


def _pairs_table(units: Sequence[Unit], settings: Sequence[str]) -> Table:
    """Later minus earlier on the same items."""
    rows = []
    for first, second in PAIRS:
        if first in settings and second in settings:
            shared = [unit for unit in units if first in unit.right and second in unit.right]
            compared = paired(
                [unit.right[first] for unit in shared],
                [unit.right[second] for unit in shared],
                [unit.cluster for unit in shared],
            )
            rows.append((f"{TITLES[second]}, minus {TITLES[first]}", compared))
    return Table("Differences, paired by item", ("Difference", "Value"), tuple(rows))
