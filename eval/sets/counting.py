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
from uni_train.eval.results import Cell, Results, Unit, plain, unit_of
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


def units(scored: Iterable[Scored], label: str) -> Results:
    """Prompts and pairs under one label, in the order of the samples.

    cluster: dependent units share it. These are the questions of one expression or set of rules. Where a model was
    taught knowledge of a character or pair, they are the questions of one model. Raises ValueError for a sample that
    appears twice.
    """
    found: dict[tuple[str, str, str, int], dict[str, Scored]] = defaultdict(dict)
    for one in images(scored, label).scored:
        ask = one.sample.ask
        case = ask.case
        pair = case.cluster if case.facts["task"] == "mapping" else None
        members = found[ask.setting, case.set, pair or str(case.facts["drawn_as"]), ask.k]
        if case.id in members:
            raise ValueError(f"{case.id} ({ask.setting}, k={ask.k}) appears twice")
        members[case.id] = one
    made = []
    for (setting, name, unit, k), members in found.items():
        size = per_unit(name)
        if len(members) > size:
            raise ValueError(f"{setting} {name}: {unit} has {len(members)} images, at most {size} belong together")
        samples = tuple(members.values())
        right = len(samples) == size and all(one.passed for one in samples)
        cluster = _cluster_of(samples[-1].sample.ask.case)
        made.append(Unit(setting, name, unit, k, tuple(members), right, cluster, samples=samples))
    return Results(made)


def images(scored: Iterable[Scored], label: str) -> Results:
    """The samples under one label, each by itself."""
    under = (one for one in scored if label in one.sample.ask.case.facts["labels"])
    return Results(replace(unit_of(one), cluster=_cluster_of(one.sample.ask.case)) for one in under)


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
    return [one.outcome for one in unit.samples] + ["missing"] * (per_unit(unit.set) - len(unit.samples))


# ---------------------------------------------------------------------------------------------------------- numbers


def strategies(scored: Sequence[Scored], label: str, sets: Sequence[str]) -> dict[str, list[Trivial]]:
    """What trivial strategies reach on the reasoning sets under one label, the best first."""
    cases: dict[str, dict[str, Case]] = defaultdict(dict)
    for one in scored:
        case = one.sample.ask.case
        if case.set not in KNOWLEDGE_SETS and label in case.facts["labels"]:
            cases[case.set][case.id] = case
    found = {}
    for name in sets:
        if name in cases:
            asked = list(cases[name].values())
            own = "item" in asked[0].facts
            known = known_shortcuts(task_of(item_of(asked[0])), sources()[name].level) if own else {}
            questions = [question for case in asked if (question := question_of(case)) is not None]
            if questions:
                found[name] = trivial(questions, known)
    return found


def accuracy(some: Results) -> Estimate:
    """The headline: the share of prompts and pairs that are right; n counts them, of knowledge the taught models."""
    return some.mean(unit=lambda unit: unit.cluster if unit.set in KNOWLEDGE_SETS else (unit.set, unit.name))


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
    return _mean_of_cells(some.where(lambda unit: unit.set in wanted and unit.setting in SETTINGS))


def _mean_of_cells(some: Results) -> Estimate:
    return some.mean(over=lambda unit: (unit.setting, unit.set))


def _averages(some: Results, settings: Sequence[str]) -> dict[str, Estimate]:
    """A setting: over the reasoning sets (Table 1); "maths" and "mapping": over levels and settings (Tables 2, 3)."""
    reasoning = some.where(lambda unit: unit.set in SETS)
    means = {setting: _mean_of_cells(part) for setting, part in reasoning.by("setting", settings).items()}
    tasks = {task: average(reasoning, task) for task in dict.fromkeys(sources()[name].task for name in SETS)}
    return means | {task: mean for task, mean in tasks.items() if mean.n}


def _overall(some: Results, settings: Sequence[str]) -> dict[str, Estimate]:
    """Table 4's last row: all knowledge questions in one pot."""
    knowledge = some.where(lambda unit: unit.set in KNOWLEDGE_SETS)
    return {setting: accuracy(part) for setting, part in knowledge.by("setting", settings).items()}


def cot_gain(some: Results, sets: Sequence[str]) -> dict[str, PairedComparison]:
    """set -> the same questions without and with a thought; "average": the mean over the reasoning sets; "overall": all
    knowledge questions in one pot."""
    by_setting = some.by("setting")
    if not {"normal", "cot"} <= set(by_setting):
        return {}
    groups = {**{name: (name,) for name in sets}, "average": SETS, "overall": KNOWLEDGE_SETS}
    found = {name: part.minus(by_setting["normal"], "set" if name == "average" else None)
             for name, part in by_setting["cot"].groups(groups).items()}  # fmt: skip
    return {name: gain for name, gain in found.items() if gain is not None}


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
    found: dict[str, dict[str, Estimate]] = {}
    for name, part in thoughtful.by("set", sets).items():
        found[name] = part.shares(("right", "wrong", "unclear"), _conclusion)
        found[name]["drawn_right"] = part.where(lambda unit: _conclusion(unit.samples[0]) == "right").mean(unit="key")
    return found


def _conclusion(one: Scored) -> str:
    return conclusion(one.sample.thought, one.sample.ask.case)


def _causes(some: Results, settings: Sequence[str], sets: Sequence[str]) -> dict[str, Any]:
    """setting -> set -> cause -> number of images, of those that are not right. some: as `images`."""
    blamed = some.where(lambda unit: bool(unit.samples[0].cause))
    return by_cell(blamed, lambda part: dict(sorted(Counter(one.cause for one in part.scored).items())), settings, sets)


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
    found = strategies(scored, labels[0], sets)
    return result | {"strategies": {name: [one.to_dict() for one in some] for name, some in found.items()}}


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
    first = under[labels[0]]
    reasoning = [name for name in sets if name in SETS]
    knowledge = [name for name in sets if name in KNOWLEDGE_SETS]
    asked = list(first.by("setting", settings))
    built: list[Table] = []
    if reasoning:
        leading = strategies(scored, labels[0], reasoning)
        built.append(_reasoning_table(under, asked, reasoning, excluded, published, leading))
    if knowledge:
        built.append(_knowledge_table(first, asked, knowledge, published))
    beside = [name for name in sets if name not in (*SETS, *KNOWLEDGE_SETS)]
    if beside and asked:
        built.append(_beside_table(first, asked, beside, strategies(scored, labels[0], beside)))
    if {"normal", "cot"} <= set(asked):
        built.append(_gain_table(first, sets))
    if pairs_of(sets):
        built.append(_shortcut_table(first, asked, pairs_of(sets)))
    built.append(_outcome_table(first, asked, sets))
    if "cot" in asked:
        built.append(_thought_table(_thoughts(images(scored, labels[0]), sets)))
    return built


def _named(name: str) -> str:
    return SET_NAMES.get(name, name)


def _row_name(setting: str, label: str, labels: Iterable[str]) -> str:
    return SETTING_NAMES[setting] + (f", {label} labels" if len(list(labels)) > 1 or label != "official" else "")


def _reasoning_table(
    under: Mapping[str, Results],
    settings: Sequence[str],
    sets: Sequence[str],
    excluded: Mapping[str, Mapping[str, str]],
    published: bool,
    found: Mapping[str, Sequence[Trivial]],
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for label, some in under.items():
        cells, means = by_cell(some, accuracy, settings, sets), _averages(some, settings)
        rows += [(_row_name(s, label, under), *map(cells[s].get, sets), means.get(s)) for s in settings]
    chances_of = chances()
    leading = {name: best(found.get(name, ())) for name in sets}
    guessed = [chances_of[sources()[name].task] for name in sets]
    if any(cell is not None for row in rows for cell in row[1:]):  # beside a score, not without one
        rows.append(("Best trivial strategy", *(one.estimate if one else None for one in leading.values()), None))
        rows.append(("Chance", *(f"{chance:.2f}" for chance in guessed), f"{sum(guessed) / len(guessed):.2f}"))
        rows.append(("n / distinct", *(counted(one.estimate) if one else None for one in leading.values()), None))
    names = [*sets, "average"] if len(sets) == len(SETS) else sets
    for row in PAPER["Table 1"] if published else ():
        cells_of = [f"{float(row[name]):.2f}" if name in names else None for name in (*sets, "average")]
        rows.append((f"{row['model']} in the paper", *cells_of))
    note = (
        "Maths counts prompts, mapping counts pairs of which both are right. Guessing gives "
        f"{chances_of['maths']:.2f} and {chances_of['mapping']:.2f}."
    )
    named = ", ".join(f"{_named(name)} {one.name}" for name, one in leading.items() if one)
    note += f" Trivial strategies: {named}. Distinct: expressions of maths, sets of rules of mapping."
    first = next(iter(under.values())).where(lambda unit: unit.set in sets)
    gaps = [_detectable(cell) for cell in first.by(lambda unit: (unit.setting, unit.set)).values()]
    if gaps:
        note += f" Two checkpoints are told apart (80 % power) if they differ by {min(gaps):.2f} to {max(gaps):.2f}."
    if excluded:
        without = ", ".join(f"{_named(name)} {len(reasons)}" for name, reasons in excluded.items())
        note += f" Left out of the corrected labels, because no single right answer can be drawn: {without}."
    columns = ("Setting", *map(_named, sets), "Average")
    return Table("Reasoning generation (paper, Tables 1 to 3)", columns, tuple(rows), note)


def _knowledge_table(some: Results, settings: Sequence[str], sets: Sequence[str], published: bool) -> Table:
    cells, overall = by_cell(some, accuracy, settings, sets), _overall(some, settings)
    gains = cot_gain(some, sets)
    theirs = PAPER["Table 4"] if published else ()
    rows: list[tuple[Cell, ...]] = []
    for name in (*sets, "overall"):
        ours = [overall.get(setting) if name == "overall" else cells[setting].get(name) for setting in settings]
        title = "Overall" if name == "overall" else _named(name)
        rows.append((title, *ours, gains.get(name), *(f"{float(row[name]):.2f}" for row in theirs)))
    columns = ("Task", *(SETTING_NAMES[setting] for setting in settings), "CoT - Normal")
    columns += tuple(f"{row['model']} in the paper" for row in theirs)
    return Table("Knowledge transfer (paper, Table 4)", columns, tuple(rows))


def _beside_table(
    some: Results, settings: Sequence[str], sets: Sequence[str], found: Mapping[str, Sequence[Trivial]]
) -> Table:
    cells, leading = by_cell(some, accuracy, settings, sets), [best(found.get(name, ())) for name in sets]
    rows: list[tuple[Cell, ...]] = [(SETTING_NAMES[one], *map(cells[one].get, sets)) for one in settings]
    rows.append(("Best trivial strategy", *(one.estimate if one else None for one in leading)))
    rows.append(("Chance", *(f"{chances()[sources()[name].task]:.2f}" for name in sets)))
    return Table("Sets beside the paper's", ("Setting", *map(_named, sets)), tuple(rows))


def _gain_table(some: Results, sets: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, gain in cot_gain(some, sets).items():
        n = gain.both + gain.only_first + gain.only_second + gain.neither
        flips = (str(gain.only_second), str(gain.only_first))
        rows.append((_POOLED.get(name, _named(name)), gain, *flips, f"{gain.p_value:.2g}", str(n)))
    return Table(
        "What a thought changes, on the same questions",
        ("Set", "CoT - Normal", "only CoT right", "only Normal right", "p", "n"),
        tuple(rows),
        "McNemar's exact test; several draws of a question and the average: a sign-flip test.",
    )


def _shortcut_table(some: Results, settings: Sequence[str], sets: Sequence[str]) -> Table:
    single, half = (by_cell(some, value, settings, sets) for value in (per_image, one_of_two))
    rows: list[tuple[Cell, ...]] = []
    for setting in settings:
        rows.append((f"{SETTING_NAMES[setting]}, single images", *map(single[setting].get, sets)))
        rows.append((f"{SETTING_NAMES[setting]}, one of a pair", *map(half[setting].get, sets)))
    return Table(
        "Mapping below the rule for pairs",
        ("Counted", *map(_named, sets)),
        tuple(rows),
        "A model that always draws the same object of a pair has 0.50 of the images and one of every pair.",
    )


def _outcome_table(some: Results, settings: Sequence[str], sets: Sequence[str]) -> Table:
    cells = by_cell(some, outcome_shares, settings, sets)
    named = [(setting, name, found) for setting in settings for name, found in cells[setting].items()]
    always = ("pass", "fail", "unreadable")
    seen = [one for one in OUTCOMES if one in always or any(found[one].value for *_, found in named)]
    rows = tuple((SETTING_NAMES[setting], _named(name), *map(found.get, seen)) for setting, name, found in named)
    columns = ("Setting", "Set", *(outcome.replace("_", " ") for outcome in seen))
    return Table("Outcomes of the images", columns, rows, "Shares of all requested images.")


def _thought_table(found: Mapping[str, Mapping[str, Estimate]]) -> Table:
    keys = ("right", "wrong", "unclear", "drawn_right")
    return Table(
        "Thoughts: is the conclusion right, and is it drawn?",
        ("Set", "conclusion right", "wrong", "not found", "drawn right, of the right ones"),
        tuple((_named(name), *(of[key] for key in keys)) for name, of in found.items()),
        "A program reads what each thought concludes. Wrong images of right conclusions are drawn wrong.",
    )
