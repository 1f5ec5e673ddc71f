"""From scored samples to UEval's numbers: shares of satisfied rubrics, averaged over questions, then over tasks.

A question's image score is the share of its image rubrics that are satisfied (Table 3). Its text score is that of its
text rubrics (Table 4). Its score is their mean, which is what Table 1 prints. Section 2.2 says satisfied rubrics over
all of them, which stands beside it. A rubric that could not be read is not satisfied, like all of a sample without an
answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from uni_train.data_gen.task import Check
from uni_train.eval import paper
from uni_train.eval.benchmark import Scored
from uni_train.eval.benchmarks.ueval.cases import KINDS, PARTS, SETS, TASKS, rubrics_of
from uni_train.eval.paper import Column, TableSpec
from uni_train.eval.results import Results
from uni_train.eval.statistics import Estimate, PairedComparison

GROUPS = {**{name: (name,) for name in SETS}, **KINDS, "overall": SETS}
COUNTS = ("rubrics", "satisfied", "by_program", "unreadable", "not_judged")
MEASURES = ("score", "image", "text", "all_rubrics")
TITLES = {
    "one_pass": "One pass", "two_passes": "Two passes", "think_first": "Think, then draw",
    "traced": "With another model's trace",
}  # fmt: skip


def rubrics(answer: Scored, part: str) -> list[Check]:
    """The verdicts on a sample's rubrics for one part; [] where nobody has judged it."""
    checks = answer.verdict.checks if answer.sample.status == "ok" and answer.verdict is not None else ()
    return [check for check in checks if check.name.startswith(part)]


def satisfied(answer: Scored, measure: str) -> float | None:
    """In [0, 1]: one of MEASURES of a sample; None where the question has no such rubrics."""
    facts = answer.sample.ask.case.facts
    if measure == "score":
        shares = [share for part in PARTS if (share := satisfied(answer, part)) is not None]
        return sum(shares) / len(shares)
    parts = PARTS if measure == "all_rubrics" else (measure,)
    n = sum(len(facts[f"{part}_rubrics"]) for part in parts)
    return sum(check.status == "pass" for part in parts for check in rubrics(answer, part)) / n if n else None


class Count:
    """Samples of a `UEval` by setting, under its measures."""

    def __init__(self, benchmark: Any, results: Results) -> None:
        self.by_setting = results.by("setting", benchmark.settings)
        asked = {sample.sample.ask.case.id: None for sample in results.scored}
        self.traces = _coverage(list(asked), benchmark.traces, benchmark.unknown_traces)
        self.official, self.overall = benchmark.official is not None, benchmark.overall
        self.means = {setting: {name: self.measured(some, name) for name in MEASURES}
                      for setting, some in self.by_setting.items()}  # fmt: skip

    def measured(self, some: Results, measure: str) -> dict[str, Estimate]:
        """Task, kind of task or "overall" -> mean over questions; of several tasks the mean over tasks."""
        known = some.measured(lambda answer: satisfied(answer, measure))
        return {name: self.overall(part) for name, part in known.groups(GROUPS).items()}

    def trace_gains(self) -> dict[str, tuple[Estimate, Estimate, PairedComparison]]:
        """Measure -> its mean over tasks without and with a trace, and the paired difference."""
        without = self.by_setting.get("two_passes") or self.by_setting.get("one_pass")
        if "traced" not in self.by_setting or without is None:
            return {}
        gains = {}
        for measure in MEASURES[:3]:
            after, before = (some.measured(lambda answer, measure=measure: satisfied(answer, measure))  # type: ignore[misc]
                             for some in (self.by_setting["traced"], without))  # fmt: skip
            shared = {unit.place for unit in before} & {unit.place for unit in after}
            before, after = (some.where(lambda unit: unit.place in shared) for some in (before, after))  # noqa: B023
            if gain := self.overall.gain(before, after):
                gains[measure] = (self.overall(before), self.overall(after), gain)
        return gains

    def over_questions(self, setting: str) -> dict[str, Estimate]:
        """Image and text score over all questions alike, whatever their task: the released code's two averages."""
        parts = {part: self.by_setting[setting].measured(lambda answer, part=part: satisfied(answer, part))  # type: ignore[misc]
                 for part in PARTS}  # fmt: skip
        return {part: some.mean() for part, some in parts.items() if some}


def details(count: Count) -> dict[str, Any]:
    """ "image", "text" and "all_rubrics": setting -> task, kind of task or "overall" -> Estimate of these measures.

    "rubrics": setting -> how many there are, are satisfied, and could not be read. "trace": what the traces of another
    model change, by measure. Where the judge is asked as by the released code also "over_questions", as it averages.
    """
    details: dict[str, Any] = {
        name: {setting: means[name] for setting, means in count.means.items()} for name in MEASURES[1:]
    }
    details["rubrics"] = {setting: _counted(some.scored) for setting, some in count.by_setting.items()}
    if gains := count.trace_gains():
        details["trace"] = {name: gain for name, (_, _, gain) in gains.items()}
    if count.official:
        details["over_questions"] = {setting: count.over_questions(setting) for setting in count.by_setting}
    return details


# --- tables ----------------------------------------------------------------------------------------------------------


def specs(count: Count) -> Iterable[TableSpec]:
    """Tables 1, 3 and 4; who judged; rubrics."""
    there = {name for means in count.means.values() for name in means["score"]}
    asked = [name for name in SETS if name in there]
    if not asked:
        return
    groups = (*asked, *(name for name in (*KINDS, "overall") if name in there))
    columns = [*((name, name, "score") for name in groups), ("all rubrics", "overall", "all_rubrics")]
    note = "Averages are over tasks. All rubrics: satisfied over all rubrics of a question (section 2.2), overall."
    note = " ".join(filter(None, (note, count.traces)))
    yield _means(count, "Mean of image and text score", "Table 1", columns, asked, len(asked) == len(TASKS), note)
    for number, (kind, names) in zip(("Table 3", "Table 4"), KINDS.items(), strict=True):
        inside = [name for name in asked if name in names]
        if inside:
            columns = [(f"{'average' if name == kind else name}, {part}", name, part)
                       for name in (*inside, kind) for part in PARTS]  # fmt: skip
            yield _means(count, f"Image and text scores, {kind} tasks", number, columns, inside, len(inside) == 4)
    yield from _judges(count, asked)
    if gains := count.trace_gains():
        yield TableSpec(
            "Effect of another model's trace",
            [Column(head, itemgetter(i)) for i, head in enumerate(("Without", "With", "Difference"))],
            gains, names={name: name.capitalize() for name in gains}, first="Measure",
            note="On the same questions, asked alike. The paper shows one question (Figure 5) and prints no scores.",
        )  # fmt: skip
    if count.official:
        yield TableSpec(
            "Over questions, as the released code averages",
            [Column(_head(part), lambda some, part=part: count.over_questions(some.setting).get(part))  # type: ignore[misc]
             for part in PARTS],
            count.by_setting, names=TITLES,
            note="The judge was asked as by the released code; rows of the paper are of Figure 9.",
        )  # fmt: skip
    yield TableSpec(
        "Rubrics",
        [Column(_head(name), lambda some, name=name: f"{_counted(some.scored)[name]:,}") for name in COUNTS],  # type: ignore[misc]
        count.by_setting, names=TITLES,
        note="Unreadable: an image that no program can read, or a judge's reply. Not judged: of samples without a "
        "verdict. Both count as not satisfied.",
    )  # fmt: skip


def _coverage(ids: Sequence[str], traces: Mapping[str, str], unknown: Sequence[str]) -> str:
    """Which questions a file has no trace of, and which of its ids no question has; "" without a file."""
    without = [name for name in ids if name not in traces]
    groups = {"Questions without a trace, not counted": without, "Traces of no question": unknown} if traces else {}
    listed = {what: ", ".join(names[:5]) + ", ..." * (len(names) > 5) for what, names in groups.items() if names}
    return " ".join(f"{what}: {len(groups[what])} ({names})." for what, names in listed.items())


def _head(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _means(
    count: Count,
    title: str,
    number: str,
    columns: Sequence[tuple[str, str, str]],
    asked: Sequence[str],
    whole: bool,
    note: str = "",
) -> TableSpec:
    """columns: head, group of sets, measure. asked: tasks whose cells of the paper's table stand there; whole: also
    its averages, for all of its tasks are asked."""

    def column(head: str, name: str, measure: str) -> Column:
        def of_paper(row: paper.Row) -> str | None:
            return _printed(row, name, measure) if name in asked or whole else None

        return Column(_head(head), lambda some: count.means[some.setting][measure].get(name), of_paper)

    made = [column(*parts) for parts in columns]
    return TableSpec(f"{title} ({number})", made, count.by_setting, names=TITLES, paper=number, note=note)


def _printed(row: paper.Row, name: str, measure: str) -> str | None:
    """What the paper prints, and of Table 1 the means over its kinds of tasks."""
    if measure == "score" and name in KINDS:
        return f"{sum(float(row[task]) for task in KINDS[name][:4]) / 400:.3f}"
    return paper.per_cent(row.get(name if measure == "score" else f"{name} {measure}", ""))


def _judges(count: Count, asked: Sequence[str]) -> list[TableSpec]:
    """Table 2: who judged beside the settings."""
    judges = Counter(
        answer.by for some in count.by_setting.values() for answer in some.scored if answer.by not in ("", "program")
    )
    if not judges:
        return []
    ((judge, _),) = judges.most_common(1)
    columns = [Column(_head(name), lambda some, name=name: count.means[some.setting]["score"].get(name), name)  # type: ignore[misc]
               for name in asked]  # fmt: skip
    names = {setting: f"{judge}, {TITLES[setting].lower()}" for setting in count.by_setting}
    note = "`eval leaderboard` compares evaluations of the same answers by several judges."
    return [TableSpec("Judges (Table 2)", columns, count.by_setting, names=names, paper="Table 2", first="Judge",
                      label="{model} in the paper, GPT-5-Thinking", note=note)]  # fmt: skip


def _counted(scored: Sequence[Scored]) -> dict[str, int]:
    def statuses(some: Iterable[Scored]) -> list[str]:
        return [check.status for answer in some for part in PARTS for check in rubrics(answer, part)]

    n, judged = sum(len(rubrics_of(answer.sample.ask.case)) for answer in scored), statuses(scored)
    by_program = statuses(answer for answer in scored if answer.by == "program")
    counts = (n, judged.count("pass"), len(by_program), judged.count("unreadable"), n - len(judged))
    return dict(zip(COUNTS, counts, strict=True))
