"""From scored samples to UEval's numbers: shares of satisfied rubrics, averaged over questions, then over tasks.

A question's image score is the share of its image rubrics that are satisfied, its text score that of its text rubrics
(Tables 3 and 4). Its score is their mean, which is what Table 1 prints; section 2.2 says satisfied rubrics over all of
them, which stands beside it. A rubric that could not be read is not satisfied, like all of a sample without an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from uni_train.data_gen.task import Check
from uni_train.eval.benchmark import Scored, Table
from uni_train.eval.benchmarks.ueval import own, paper
from uni_train.eval.statistics import Estimate, PairedComparison, graded_mean, paired_values

PARTS = ("image", "text")
SETS = (*paper.TASKS, *own.SETS)
KINDS = {"closed-ended": (*paper.CLOSED, *own.CLOSED), "open-ended": (*paper.OPEN, *own.OPEN)}
MEASURES = ("score", "image", "text", "all_rubrics")
TITLES = {
    "one_pass": "One pass", "two_passes": "Two passes", "think_first": "Think, then draw",
    "traced": "With another model's trace",
}  # fmt: skip


def rubrics(one: Scored, part: str) -> list[Check]:
    """The verdicts on a sample's rubrics for one part; [] where nobody has judged it."""
    checks = one.verdict.checks if one.sample.status == "ok" and one.verdict is not None else ()
    return [check for check in checks if check.name.startswith(part)]


def satisfied(one: Scored, measure: str) -> float | None:
    """In [0, 1]: one of MEASURES of a sample; None where the question has no such rubrics."""
    facts = one.sample.ask.case.facts
    if measure == "score":
        found = [share for part in PARTS if (share := satisfied(one, part)) is not None]
        return sum(found) / len(found)
    parts = PARTS if measure == "all_rubrics" else (measure,)
    n = sum(len(facts[f"{part}_rubrics"]) for part in parts)
    return sum(check.status == "pass" for part in parts for check in rubrics(one, part)) / n if n else None


def measured(scored: Sequence[Scored], measure: str) -> dict[str, Estimate]:
    """Task, "closed-ended", "open-ended" or "overall" -> mean over questions; of several tasks the mean over tasks."""
    known = [(one, value) for one in scored if (value := satisfied(one, measure)) is not None]

    def mean(names: Sequence[str]) -> Estimate | None:
        some = [(one, value) for one, value in known if one.sample.ask.case.set in names]
        cases = [one.sample.ask.case for one, _ in some]
        several = len({case.set for case in cases}) > 1
        units, cells = [case.id for case in cases], [case.set for case in cases] if several else None
        return (
            graded_mean([value for _, value in some], units, [case.cluster_id for case in cases], cells)
            if some
            else None
        )

    asked = {**{name: (name,) for name in SETS}, **KINDS, "overall": SETS}
    return {name: found for name, names in asked.items() if (found := mean(names)) is not None}


def scores(scored: Iterable[Scored], settings: Sequence[str], *, official: bool = False) -> dict[str, Any]:
    """setting -> task, "closed-ended", "open-ended" or "overall" -> Estimate of the mean of image and text score.

    Beside the settings, "image", "text" and "all_rubrics": the same of these measures; "rubrics": setting -> how many
    there are, are satisfied, and could not be read; "trace": what the traces of another model change, by measure.
    official: also "over_questions", as the released code averages.
    """
    by_setting = _by_setting(scored, settings)

    def all_of(measure: str) -> dict[str, Any]:
        return {
            setting: {name: one.to_dict() for name, one in measured(some, measure).items()}
            for setting, some in by_setting.items()
        }

    counted = {setting: _counted(some) for setting, some in by_setting.items()}
    found = {**all_of("score"), **{name: all_of(name) for name in MEASURES[1:]}, "rubrics": counted}
    if gains := _trace_gains(by_setting):
        found["trace"] = {name: one.to_dict() for name, (_, _, one) in gains.items()}
    if official:
        found["over_questions"] = {
            setting: {name: one.to_dict() for name, one in _over_questions(some).items()}
            for setting, some in by_setting.items()
        }
    return found


def _over_questions(scored: Sequence[Scored]) -> dict[str, Estimate]:
    """Image and text score over all questions alike, whatever their task: the released code's two averages."""
    found = {}
    for part in PARTS:
        known = [(one.sample.ask.case, value) for one in scored if (value := satisfied(one, part)) is not None]
        if known:
            cases = [case for case, _ in known]
            found[part] = graded_mean(
                [value for _, value in known], [c.id for c in cases], [c.cluster_id for c in cases]
            )
    return found


def tables(
    scored: Iterable[Scored], settings: Sequence[str], published: bool, *, official: bool = False
) -> list[Table]:
    """The layouts of Tables 1, 3 and 4, the paper's own rows below ours where its questions are asked.

    official: the judge was asked as by the released code, whose averages have a table too.
    """
    by_setting = _by_setting(scored, settings)
    found = {setting: {name: measured(some, name) for name in MEASURES} for setting, some in by_setting.items()}
    asked = [name for name in SETS if any(name in one["score"] for one in found.values())]
    if not asked:
        return []
    groups = [*(kind for kind in KINDS if any(kind in one["score"] for one in found.values())), "overall"]
    rows: list[Any] = [
        (TITLES[s], *(one["score"].get(name) for name in (*asked, *groups)), one["all_rubrics"].get("overall"))
        for s, one in found.items()
    ]
    for model, row in paper.TABLE_1.items() if published else ():
        by_name = dict(zip((*paper.TASKS, "overall"), row, strict=True))
        means = {kind: sum(by_name[name] for name in KINDS[kind][:4]) / 4 for kind in KINDS}
        whole = len(asked) == len(paper.TASKS)
        shown = [_printed({**by_name, **means}[name]) if name in asked or whole else None for name in (*asked, *groups)]
        rows.append((f"{model} in the paper", *shown, None))
    heads = [name.replace("_", " ").capitalize() for name in (*asked, *groups)]
    made = [
        Table(
            "Mean of image and text score (Table 1)", ("", *heads, "All rubrics"), tuple(rows),
            "Averages are over tasks. All rubrics: satisfied over all rubrics of a question (section 2.2), overall.",
        )
    ]  # fmt: skip
    for (kind, names), printed, number in zip(KINDS.items(), (paper.TABLE_3, paper.TABLE_4), (3, 4), strict=True):
        inside = [name for name in asked if name in names]
        if inside:
            made.append(_parts(found, kind, inside, printed if published else {}, number))
    made += _judges(found, by_setting, asked, published)
    if gains := _trace_gains(by_setting):
        changed = tuple((name.capitalize(), *cells) for name, cells in gains.items())
        note = "On the same questions, asked alike. The paper shows one question (Figure 5) and prints no scores."
        made.append(Table("Effect of another model's trace", ("", "Without", "With", "Difference"), changed, note))
    if official:
        made.append(_official({setting: _over_questions(some) for setting, some in by_setting.items()}))
    made.append(_rubrics({setting: _counted(some) for setting, some in by_setting.items()}))
    return made


def _parts(
    found: Mapping[str, Mapping[str, Mapping[str, Estimate]]],
    kind: str,
    asked: Sequence[str],
    printed: Mapping[str, tuple[float, ...]],
    number: int,
) -> Table:
    """Table 3 or 4."""
    columns = [(name, part) for name in (*asked, kind) for part in PARTS]
    rows: list[Any] = [(TITLES[s], *(one[part].get(name) for name, part in columns)) for s, one in found.items()]
    for model, row in printed.items():
        by_column = dict(zip([(name, part) for name in (*KINDS[kind][:4], kind) for part in PARTS], row, strict=True))
        whole = len(asked) == 4
        cells = [_printed(by_column[one]) if one[0] != kind or whole else None for one in columns]
        rows.append((f"{model} in the paper", *cells))
    heads = [f"{'average' if name == kind else name.replace('_', ' ')}, {part}".capitalize() for name, part in columns]
    return Table(f"Image and text scores, {kind} tasks (Table {number})", ("", *heads), tuple(rows))


def _trace_gains(
    by_setting: Mapping[str, Sequence[Scored]],
) -> dict[str, tuple[Estimate, Estimate, PairedComparison]]:
    """Measure -> its mean over tasks without and with a trace, and the paired difference."""
    without = by_setting.get("two_passes") or by_setting.get("one_pass")
    if "traced" not in by_setting or without is None:
        return {}
    before = {(one.sample.ask.case.id, one.sample.ask.k): one for one in without}
    both = [(before[place], one) for one in by_setting["traced"]
            if (place := (one.sample.ask.case.id, one.sample.ask.k)) in before]  # fmt: skip
    found = {}
    for measure in MEASURES[:3]:
        known = [(first, second) for first, second in both if satisfied(first, measure) is not None]
        if known:
            cases = [second.sample.ask.case for _, second in known]
            cells = [case.set for case in cases] if len({case.set for case in cases}) > 1 else None
            values = [[satisfied(pair[side], measure) or 0.0 for pair in known] for side in (0, 1)]
            units, clusters = [case.id for case in cases], [case.cluster_id for case in cases]
            means = [graded_mean(some, units, clusters, cells) for some in values]
            found[measure] = (means[0], means[1], paired_values(values[0], values[1], clusters, cells))
    return found


def _judges(
    found: Mapping[str, Mapping[str, Mapping[str, Estimate]]],
    by_setting: Mapping[str, Sequence[Scored]],
    asked: Sequence[str],
    published: bool,
) -> list[Table]:
    """Table 2: who judged beside the settings."""
    judges = Counter(one.by for some in by_setting.values() for one in some if one.by not in ("", "program"))
    if not judges:
        return []
    ((judge, _),) = judges.most_common(1)
    rows: list[Any] = [(f"{judge}, {TITLES[s].lower()}", *(one["score"].get(name) for name in asked))
                       for s, one in found.items()]  # fmt: skip
    for name, row in paper.TABLE_2.items() if published else ():
        by_task = dict(zip(paper.TASKS, row, strict=True))
        rows.append((f"{name} in the paper, GPT-5-Thinking", *(_printed(by_task[task]) for task in asked)))
    heads = [name.replace("_", " ").capitalize() for name in asked]
    note = "`eval --judge ONE,TWO` has the same answers judged by several, and a leaderboard of them."
    return [Table("Judges (Table 2)", ("", *heads), tuple(rows), note)]


def _official(found: Mapping[str, Mapping[str, Estimate]]) -> Table:
    rows = tuple((TITLES[s], *(one.get(part) for part in PARTS)) for s, one in found.items())
    note = "The judge was asked as by the released code; rows of the paper are of Figure 9."
    return Table("Over questions, as the released code averages", ("", "Image", "Text"), rows, note)


def _rubrics(counted: Mapping[str, Mapping[str, int]]) -> Table:
    columns = ("rubrics", "satisfied", "by_program", "unreadable", "not_judged")
    heads = ("", *(name.replace("_", " ").capitalize() for name in columns))
    rows = tuple((TITLES[s], *(f"{one[name]:,}" for name in columns)) for s, one in counted.items())
    note = (
        "Unreadable: an image that no program can read, or a judge's reply. Not judged: of samples without a verdict."
    )
    return Table("Rubrics", heads, rows, f"{note} Both count as not satisfied.")


def _counted(scored: Sequence[Scored]) -> dict[str, int]:
    def count(of: Callable[[Check], bool], some: Sequence[Scored]) -> int:
        return sum(of(check) for one in some for part in PARTS for check in rubrics(one, part))

    n = sum(len(one.sample.ask.case.facts[f"{part}_rubrics"]) for one in scored for part in PARTS)
    by_program = [one for one in scored if one.by == "program"]
    return {
        "rubrics": n,
        "satisfied": count(lambda check: check.status == "pass", scored),
        "by_program": count(lambda check: True, by_program),
        "unreadable": count(lambda check: check.status == "unreadable", scored),
        "not_judged": n - count(lambda check: True, scored),
    }


def _by_setting(scored: Iterable[Scored], settings: Sequence[str]) -> dict[str, list[Scored]]:
    all_of = list(scored)
    found = {setting: [one for one in all_of if one.sample.ask.setting == setting] for setting in settings}
    return {setting: some for setting, some in found.items() if some}


def _printed(percent: float) -> str:
    """The paper's per cent as a share."""
    return f"{percent / 100:.3f}"
