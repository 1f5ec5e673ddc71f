"""From scored samples of sets to their numbers, and to tables in the layout of UniSandbox.

A unit is a prompt (maths, knowledge) or a pair (mapping). It is asked in one setting, for the k-th time, under a label.
A pair is right only if both of its images are (section 3.2); one whose other half was not asked cannot be right.
Nothing leaves the denominator but questions without a corrected label, which are counted by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from uni_train.data_gen.registry import TASKS, sources, task_of
from uni_train.data_gen.shortcuts import chances, known_shortcuts
from uni_train.data_gen.task import Question
from uni_train.eval import paper
from uni_train.eval.benchmark import OUTCOMES, Case, Scored, Table
from uni_train.eval.paper import Column, TableSpec
from uni_train.eval.results import Cell, Metric, Results, Unit, plain, unit_of
from uni_train.eval.sets.names import KNOWLEDGE_SETS, SAID, SETS, SETTINGS, all_sets, per_unit
from uni_train.eval.sets.thoughts import conclusion
from uni_train.eval.shortcuts import Trivial, best, counted, trivial
from uni_train.eval.statistics import Estimate, PairedComparison, detectable_difference, shares
from uni_train.eval.task_benchmark import item_of

PAPER = paper.printed(Path(__file__))  # table -> rows of paper.csv
SETTING_NAMES = {"normal": "Normal", "cot": "CoT", SAID: "Said"}
SET_NAMES = {
    **{f"math{level}": f"Math{level}" for level in (1, 2, 3)},
    **{f"mapping{level}": f"Mapping{level}" for level in (1, 2, 3)},
    **{f"math{level}_seen": f"Math{level}, seen" for level in (1, 2, 3)},
    **{f"mapping{level}_chain": f"Mapping{level}, in order" for level in (1, 2, 3)},
    "forward": "Forward Retrieval",
    "inverse": "Inverse Search",
}
_POOLED = {"average": "Reasoning, average", "overall": "Knowledge, overall"}
REASONING = Metric(SETS)
"""Table 1: the mean over sets, each alike."""
KNOWLEDGE = Metric(KNOWLEDGE_SETS, None)
"""Table 4's last row: all questions in one pot."""
_CELLS = Metric(over=lambda unit: (unit.setting, unit.set))
"""The last column of Tables 2 and 3: the mean over levels and both settings."""


def units(scored: Iterable[Scored], label: str) -> Results:
    """Prompts and pairs under one label, in the order of the samples.

    cluster: dependent units share it. These are the questions of one expression or set of rules. Where a model was
    taught knowledge of a character or pair, they are the questions of one model. Raises ValueError for a sample that
    appears twice.
    """
    members_by_question: dict[tuple[str, str, str, int], dict[str, Scored]] = defaultdict(dict)
    for answer in images(scored, label).scored:
        ask = answer.sample.ask
        case = ask.case
        pair = case.cluster if case.facts["task"] == "mapping" else None
        members = members_by_question[ask.setting, case.set, pair or str(case.facts["drawn_as"]), ask.k]
        if case.id in members:
            raise ValueError(f"{case.id} ({ask.setting}, k={ask.k}) appears twice")
        members[case.id] = answer
    made = []
    for (setting, name, unit, k), members in members_by_question.items():
        size = per_unit(name)
        if len(members) > size:
            raise ValueError(f"{setting} {name}: {unit} has {len(members)} images, at most {size} belong together")
        samples = tuple(members.values())
        right = len(samples) == size and all(sample.passed for sample in samples)
        cluster = _cluster_of(samples[-1].sample.ask.case)
        made.append(Unit(setting, name, unit, k, tuple(members), right, cluster, samples=samples))
    return Results(made)


def images(scored: Iterable[Scored], label: str) -> Results:
    """The samples under one label, each by itself."""
    under = (answer for answer in scored if label in answer.sample.ask.case.facts["labels"])
    return Results(replace(unit_of(answer), cluster=_cluster_of(answer.sample.ask.case)) for answer in under)


def _cluster_of(case: Case) -> str:
    if case.facts["task"] == "knowledge":
        return ", ".join(case.facts["characters"])
    question = question_of(case)
    return question.cluster if question is not None else str(item_of(case).facts["canonical"])


def question_of(case: Case) -> Question | None:
    """A case of a reasoning set as a trivial strategy sees it, with the label that it is scored by; None: none does."""
    if "item" in case.facts:
        item = item_of(case)
        return task_of(item).question(item)
    return TASKS.get(case.facts["task"]).published_question(case.cluster_id, case.prompt, str(case.facts["answer"]))


def outcomes(unit: Unit) -> list[str]:
    """One an image, of OUTCOMES; "missing" where the other half of a pair was not asked."""
    return [sample.outcome for sample in unit.samples] + ["missing"] * (per_unit(unit.set) - len(unit.samples))


# ---------------------------------------------------------------------------------------------------------- numbers


def strategies(scored: Sequence[Scored], label: str, sets: Sequence[str]) -> dict[str, list[Trivial]]:
    """What trivial strategies reach on the reasoning sets under one label, the best first."""
    cases: dict[str, dict[str, Case]] = defaultdict(dict)
    for answer in scored:
        case = answer.sample.ask.case
        if case.set not in KNOWLEDGE_SETS and label in case.facts["labels"]:
            cases[case.set][case.id] = case
    trivials = {}
    for name in sets:
        if name in cases:
            asked = list(cases[name].values())
            own = "item" in asked[0].facts
            known = known_shortcuts(task_of(item_of(asked[0])), sources()[name].level) if own else {}
            questions = [question for case in asked if (question := question_of(case)) is not None]
            if questions:
                trivials[name] = trivial(questions, known)
    return trivials


accuracy = Metric(over=None, unit=lambda unit: unit.cluster if unit.set in KNOWLEDGE_SETS else (unit.set, unit.name))
"""The share of prompts and pairs that are right; n counts them, of knowledge the taught models."""


def per_image(some: Results) -> Estimate:
    """The share of single images that are right."""
    return accuracy(Results(replace(unit, right=outcome == "pass") for unit in some for outcome in outcomes(unit)))


def one_of_two(some: Results) -> Estimate:
    """The share of pairs of which exactly one image is right: .5 is what the shortcut gives."""
    return accuracy(Results(replace(unit, right=outcomes(unit).count("pass") == 1) for unit in some))


def outcome_shares(some: Results) -> dict[str, Estimate]:
    """Each of OUTCOMES: its share of the images that were asked for, n; intervals are clustered as `accuracy`'s."""
    each = [(outcome, unit.cluster) for unit in some for outcome in outcomes(unit)]
    return shares(OUTCOMES, [outcome for outcome, _ in each], [cluster for _, cluster in each])


def _detectable(some: Results) -> float:
    return detectable_difference(len(some.by("cluster")), sum(unit.right for unit in some) / len(some))


def by_cell(
    some: Results,
    value: Callable[[Results], Any],
    settings: Sequence[str] = (*SETTINGS, SAID),
    sets: Sequence[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """setting -> set -> `value` of its units, where there are any. sets: in this order; None: all of reasoning."""
    order = all_sets() if sets is None else sets
    parts = {setting: part.by("set", order) for setting, part in some.by("setting").items()}
    return {s: {name: value(part) for name, part in parts.get(s, {}).items()} for s in settings}


def pairs_of(sets: Sequence[str]) -> list[str]:
    """Those of `sets` that count pairs."""
    return [name for name in sets if per_unit(name) == 2]


def average(some: Results, task: str, variant: str = "") -> Estimate:
    """The last column of the paper's Tables 2 and 3: the mean over levels and both settings of one task.

    variant: of the sets, "" for the task's own. Answers in words are no part of it.
    """
    wanted = {name for name, source in sources().items() if (source.task, source.variant) == (task, variant)}
    return _CELLS(some.where(lambda unit: unit.set in wanted and unit.setting in SETTINGS))


def _averages(some: Results, settings: Sequence[str]) -> dict[str, Estimate]:
    """A setting: over the reasoning sets (Table 1); "maths" and "mapping": over levels and settings (Tables 2, 3)."""
    reasoning = REASONING.among(some)
    means = {setting: REASONING(part) for setting, part in reasoning.by("setting", settings).items()}
    tasks = {task: average(reasoning, task) for task in dict.fromkeys(sources()[name].task for name in SETS)}
    return means | {task: mean for task, mean in tasks.items() if mean.n}


def _overall(some: Results, settings: Sequence[str]) -> dict[str, Estimate]:
    return {setting: accuracy(part) for setting, part in KNOWLEDGE.among(some).by("setting", settings).items()}


def cot_gain(some: Results, sets: Sequence[str]) -> dict[str, PairedComparison]:
    """set -> the same questions without and with a thought; "average": the mean over the reasoning sets; "overall": all
    knowledge questions in one pot."""
    by_setting = some.by("setting")
    if not {"normal", "cot"} <= set(by_setting):
        return {}
    metrics = {**{name: Metric((name,)) for name in sets}, "average": REASONING, "overall": KNOWLEDGE}
    gains = {name: metric.gain(by_setting["normal"], by_setting["cot"]) for name, metric in metrics.items()}
    return {name: gain for name, gain in gains.items() if gain is not None}


def accuracy_rows(
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]], plain: Mapping[str, Sequence[Trivial]]
) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a short table: each set in each setting, the best trivial strategy, chance, how much was
    asked. scores: setting -> set -> estimate, JSON-able. plain: as `strategies` gives them; a task may have none."""
    rows = []
    for name in next(iter(scores.values()), {}):
        cells = [Estimate.from_dict(by_set[name]) for by_set in scores.values()]
        leading = best(plain.get(name, ()))
        rows.append(
            [
                name,
                *("-" if cell.value is None else f"{cell.value:.2f}" for cell in cells),
                "-" if leading is None else f"{leading.estimate.value:.2f} {leading.name}",
                f"{TASKS.get(sources()[name].task).chance:.2f}",
                counted(cells[0]),
            ]
        )
    return ["set", *scores, "best trivial strategy", "chance", "n / distinct"], rows


def _thoughts(some: Results, sets: Sequence[str]) -> dict[str, dict[str, Estimate]]:
    """set -> share of the thoughts whose conclusion a program finds right, wrong or cannot find; and, of the images
    drawn from a right conclusion, the share that is right ("drawn_right"). some: as `images`."""
    thoughtful = some.where(lambda unit: unit.samples[0].sample.thought is not None)
    conclusions: dict[str, dict[str, Estimate]] = {}
    for name, part in thoughtful.by("set", sets).items():
        right = part.where(lambda unit: _conclusion(unit.samples[0]) == "right")
        shares = part.shares(("right", "wrong", "unclear"), _conclusion)
        conclusions[name] = shares | {"drawn_right": right.mean(unit="key")}
    return conclusions


def _conclusion(answer: Scored) -> str:
    return conclusion(answer.sample.thought, answer.sample.ask.case)


def _causes(some: Results, settings: Sequence[str], sets: Sequence[str]) -> dict[str, Any]:
    """setting -> set -> cause -> number of images, of those that are not right. some: as `images`."""
    blamed = some.where(lambda unit: bool(unit.samples[0].cause))
    return by_cell(
        blamed, lambda part: dict(sorted(Counter(answer.cause for answer in part.scored).items())), settings, sets
    )


def scores(
    scored: Sequence[Scored],
    settings: Sequence[str],
    sets: Sequence[str],
    labels: Sequence[str],
    excluded: Mapping[str, Mapping[str, str]],
    published: bool,
) -> dict[str, Any]:
    """JSON-able. setting -> set -> estimate under the first label; `labels` -> label -> the same for each.

    Further keys:

    average      the mean of the sets of Table 1, per setting, and per task as in Tables 2 and 3
    knowledge    Table 4's Overall
    cot_gain     the same questions, normal to cot
    detectable   the smallest difference between two checkpoints that would show
    published    whether the questions are the paper's own
    strategies   set -> what trivial strategies reach, the best first
    per_image, one_of_two, outcomes, thoughts, causes, chance, excluded
    """
    under = {label: units(scored, label) for label in labels}
    first, single = under[labels[0]], images(scored, labels[0])
    each = partial(by_cell, first, settings=settings, sets=sets)
    named = {label: by_cell(some, accuracy, settings, sets) for label, some in under.items()}
    result: dict[str, Any] = plain({
        **named[labels[0]],
        "label": labels[0],
        "labels": named,
        "average": {label: _averages(some, settings) for label, some in under.items()},
        "knowledge": {label: _overall(some, settings) for label, some in under.items()},
        "per_image": each(per_image),
        "one_of_two": each(one_of_two, sets=pairs_of(sets)),
        "outcomes": each(outcome_shares),
        "cot_gain": cot_gain(first, sets),
        "thoughts": _thoughts(single, sets),
        "causes": _causes(single, settings, sets),
        "chance": chances(),
        "excluded": {name: dict(reasons) for name, reasons in excluded.items()},
        "detectable": each(_detectable),
        "published": published,
    })  # fmt: skip
    by_set = strategies(scored, labels[0], sets)
    return result | {"strategies": {name: [answer.to_dict() for answer in some] for name, some in by_set.items()}}


# ----------------------------------------------------------------------------------------------------------- tables


def tables(
    scored: Sequence[Scored],
    settings: Sequence[str],
    sets: Sequence[str],
    labels: Sequence[str],
    excluded: Mapping[str, Mapping[str, str]],
    published: bool,
) -> list[Table]:
    """Tables 1 to 3 as one (settings and labels in rows), Table 4, then what the paper leaves out.

    published: the questions are the paper's own, so its numbers stand below ours.
    """
    under = {label: units(scored, label) for label in labels}
    first, printed = under[labels[0]], PAPER if published else None
    reasoning = [name for name in sets if name in SETS]
    knowledge = [name for name in sets if name in KNOWLEDGE_SETS]
    beside = [name for name in sets if name not in (*SETS, *KNOWLEDGE_SETS)]
    asked = list(first.by("setting", settings))
    specs: list[TableSpec] = []
    if reasoning:
        specs.append(_reasoning(under, asked, reasoning, excluded, strategies(scored, labels[0], reasoning)))
    if knowledge:
        specs.append(_knowledge(first, asked, knowledge, printed))
    if beside and asked:
        specs.append(_beside(first, asked, beside, strategies(scored, labels[0], beside)))
    if {"normal", "cot"} <= set(asked):
        specs.append(_gains(first, sets))
    if pairs_of(sets):
        specs.append(_shortcuts(first, asked, pairs_of(sets)))
    specs.append(_outcomes(first, asked, sets))
    if "cot" in asked:
        specs.append(_conclusions(_thoughts(images(scored, labels[0]), sets)))
    return [table for spec in specs if (table := spec.table(first, printed)).rows]


def _named(name: str) -> str:
    return SET_NAMES.get(name, name)


def _row_name(setting: str, label: str, labels: Iterable[str]) -> str:
    return SETTING_NAMES[setting] + (f", {label} labels" if len(list(labels)) > 1 or label != "official" else "")


def _of_sets(sets: Sequence[str]) -> list[Column]:
    """Accuracy of each set, which the paper prints as a share."""

    def score(name: str, some: Results) -> Cell:
        part = some.where(lambda unit: unit.set == name)
        return accuracy(part) if part else None

    return [Column(_named(name), partial(score, name), partial(_share, name)) for name in sets]


def _share(name: str, row: paper.Row) -> str:
    return f"{float(row[name]):.2f}"


def _looked_up(heads: Mapping[str, str]) -> list[Column]:
    """Columns of rows that are mappings: key -> head."""
    return [Column(head, lambda row, key=key: row.get(key)) for key, head in heads.items()]  # type: ignore[misc]


def _reasoning(
    under: Mapping[str, Results],
    settings: Sequence[str],
    sets: Sequence[str],
    excluded: Mapping[str, Mapping[str, str]],
    trivials: Mapping[str, Sequence[Trivial]],
) -> TableSpec:
    asked = {label: some.where(lambda unit: unit.set in sets).by("setting") for label, some in under.items()}
    rows = {
        _row_name(setting, label, under): by_setting.get(setting, Results(()))
        for label, by_setting in asked.items()
        for setting in settings
    }
    chances_of, leading = chances(), {name: best(trivials.get(name, ())) for name in sets}
    guessed = [chances_of[sources()[name].task] for name in sets]
    below: list[tuple[Cell, ...]] = []
    if any(rows.values()):  # beside a score, not without one
        below.append(("Best trivial strategy", *(top.estimate if top else None for top in leading.values()), None))
        below.append(("Chance", *(f"{chance:.2f}" for chance in guessed), f"{sum(guessed) / len(guessed):.2f}"))
        below.append(("n / distinct", *(counted(top.estimate) if top else None for top in leading.values()), None))
    note = (
        "Maths counts prompts, mapping counts pairs of which both are right. Guessing gives "
        f"{chances_of['maths']:.2f} and {chances_of['mapping']:.2f}."
    )
    named = ", ".join(f"{_named(name)} {strategy.name}" for name, strategy in leading.items() if strategy)
    note += f" Trivial strategies: {named}. Distinct: expressions of maths, sets of rules of mapping."
    first = next(iter(under.values())).where(lambda unit: unit.set in sets)
    gaps = [_detectable(cell) for cell in first.by(lambda unit: (unit.setting, unit.set)).values()]
    if gaps:
        note += f" Two checkpoints are told apart (80 % power) if they differ by {min(gaps):.2f} to {max(gaps):.2f}."
    if excluded:
        without = ", ".join(f"{_named(name)} {len(reasons)}" for name, reasons in excluded.items())
        note += f" Left out of the corrected labels, because no single right answer can be drawn: {without}."
    of_paper = partial(_share, "average") if len(sets) == len(SETS) else ""
    columns = [*_of_sets(sets), Column("Average", lambda some: REASONING(some) if some else None, of_paper)]
    title = "Reasoning generation (paper, Tables 1 to 3)"
    return TableSpec(title, columns, rows, paper="Table 1", below=below, note=note)


def _knowledge(some: Results, settings: Sequence[str], sets: Sequence[str], printed: paper.Paper | None) -> TableSpec:
    cells, overall, gains = by_cell(some, accuracy, settings, sets), _overall(some, settings), cot_gain(some, sets)
    theirs = {f"{row['model']} in the paper": row for row in (printed or {}).get("Table 4", ())}
    names = {**{name: _named(name) for name in sets}, "overall": "Overall"}
    rows = {
        title: {**{setting: cells[setting].get(name) for setting in settings}, "gain": gains.get(name),
                **{model: _share(name, row) for model, row in theirs.items()}}
        for name, title in names.items()
    }  # fmt: skip
    for setting in settings:
        rows["Overall"][setting] = overall.get(setting)
    heads = {**{setting: SETTING_NAMES[setting] for setting in settings}, "gain": "CoT - Normal"}
    heads |= {model: model for model in theirs}
    return TableSpec("Knowledge transfer (paper, Table 4)", _looked_up(heads), rows, first="Task")


def _beside(
    some: Results, settings: Sequence[str], sets: Sequence[str], trivials: Mapping[str, Sequence[Trivial]]
) -> TableSpec:
    leading = [best(trivials.get(name, ())) for name in sets]
    below: list[tuple[Cell, ...]] = [
        ("Best trivial strategy", *(strategy.estimate if strategy else None for strategy in leading)),
        ("Chance", *(f"{chances()[sources()[name].task]:.2f}" for name in sets)),
    ]
    return TableSpec(
        "Sets beside the paper's", _of_sets(sets), some.by("setting", settings), names=SETTING_NAMES, below=below
    )


def _gains(some: Results, sets: Sequence[str]) -> TableSpec:
    gains = cot_gain(some, sets)
    columns = [
        Column("CoT - Normal", lambda gain: gain),
        Column("only CoT right", lambda gain: str(gain.only_second)),
        Column("only Normal right", lambda gain: str(gain.only_first)),
        Column("p", lambda gain: f"{gain.p_value:.2g}"),
        Column("n", lambda gain: str(gain.both + gain.only_first + gain.only_second + gain.neither)),
    ]
    names = {name: _POOLED.get(name, _named(name)) for name in gains}
    note = "McNemar's exact test; several draws of a question and the average: a sign-flip test."
    return TableSpec(
        "What a thought changes, on the same questions", columns, gains, names=names, first="Set", note=note
    )


def _shortcuts(some: Results, settings: Sequence[str], sets: Sequence[str]) -> TableSpec:
    counts = (("single images", per_image), ("one of a pair", one_of_two))
    cells = {name: by_cell(some, value, settings, sets) for name, value in counts}
    rows = {f"{SETTING_NAMES[s]}, {name}": cells[name][s] for s in settings for name, _ in counts}
    note = "A model that always draws the same object of a pair has 0.50 of the images and one of every pair."
    heads = {name: _named(name) for name in sets}
    return TableSpec("Mapping below the rule for pairs", _looked_up(heads), rows, first="Counted", note=note)


def _outcomes(some: Results, settings: Sequence[str], sets: Sequence[str]) -> TableSpec:
    cells = by_cell(some, outcome_shares, settings, sets)
    rows: dict[Any, dict[str, Any]] = {
        (setting, name): {"set": _named(name), **shares}
        for setting in settings
        for name, shares in cells[setting].items()
    }
    always = ("pass", "fail", "unreadable")
    seen = [key for key in OUTCOMES if key in always or any(row[key].value for row in rows.values())]
    heads = {"set": "Set", **{outcome: outcome.replace("_", " ") for outcome in seen}}
    names = {place: SETTING_NAMES[place[0]] for place in rows}
    return TableSpec(
        "Outcomes of the images", _looked_up(heads), rows, names=names, note="Shares of all requested images."
    )


def _conclusions(conclusions: Mapping[str, Mapping[str, Estimate]]) -> TableSpec:
    heads = {
        "right": "conclusion right",
        "wrong": "wrong",
        "unclear": "not found",
        "drawn_right": "drawn right, of the right ones",
    }
    return TableSpec(
        "Thoughts: is the conclusion right, and is it drawn?", _looked_up(heads), conclusions,
        names={name: _named(name) for name in conclusions}, first="Set",
        note="A program reads what each thought concludes. Wrong images of right conclusions are drawn wrong.",
    )  # fmt: skip
