"""From scored samples to UniSandbox's numbers and the paper's tables.

A trial is what counts once: a prompt (maths, knowledge) or a pair (mapping), asked in one setting for the k-th time,
under one label. A pair is right only if both of its images are (section 3.2); one whose other half was not asked
cannot be right. Nothing leaves the denominator but questions without a corrected label, which are counted by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uni_train.data_gen.audit.shortcuts import chances, known_shortcuts
from uni_train.data_gen.registry import TASKS, sources, task_of
from uni_train.eval.benchmark import OUTCOMES, Case, Scored, Table
from uni_train.eval.benchmarks.unisandbox.cases import KNOWLEDGE_SETS, REASONING_SETS, item_of, question_of
from uni_train.eval.benchmarks.unisandbox.paper import PAPER_TABLE_1, PAPER_TABLE_4
from uni_train.eval.benchmarks.unisandbox.sets import SAID, SETTINGS, all_sets, per_unit
from uni_train.eval.benchmarks.unisandbox.thoughts import conclusion
from uni_train.eval.shortcuts import Trivial, best, counted, trivial
from uni_train.eval.statistics import Estimate, PairedComparison, detectable_difference, paired, share, shares

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


@dataclass(frozen=True, slots=True)
class Trial:
    """What is counted once. unit: the prompt or the pair. ids: of its cases. outcomes: one an image, of OUTCOMES.
    cluster: what is not independent shares it: the questions of one expression or set of rules, and the questions of
    one model, where knowledge was taught to a model a character or pair."""

    setting: str
    set: str
    unit: str
    k: int
    ids: tuple[str, ...]
    outcomes: tuple[str, ...]
    cluster: str

    @property
    def right(self) -> bool:
        return all(outcome == "pass" for outcome in self.outcomes)


def trials(scored: Sequence[Scored], label: str) -> list[Trial]:
    """The trials under one label, in the order of the samples. Raises ValueError for a sample that appears twice."""
    found: dict[tuple[str, str, str, int], dict[str, str]] = defaultdict(dict)
    clusters: dict[str, str] = {}
    for one in scored:
        ask = one.sample.ask
        case = ask.case
        if label not in case.facts["labels"]:
            continue
        paired_up = case.facts["task"] == "mapping"
        unit = case.cluster if paired_up and case.cluster is not None else str(case.facts["drawn_as"])
        members = found[ask.setting, case.set, unit, ask.k]
        if case.id in members:
            raise ValueError(f"{case.id} ({ask.setting}, k={ask.k}) appears twice")
        members[case.id] = one.outcome
        clusters[unit] = _cluster_of(case)
    counted = []
    for (setting, name, unit, k), members in found.items():
        size = per_unit(name)
        if len(members) > size:
            raise ValueError(f"{setting} {name}: {unit} has {len(members)} images, at most {size} belong together")
        outcomes = (*members.values(), *["missing"] * (size - len(members)))
        counted.append(Trial(setting, name, unit, k, tuple(members), outcomes, clusters[unit]))
    return counted


def _cluster_of(case: Case) -> str:
    if case.facts["task"] == "knowledge":
        return ", ".join(case.facts["characters"])
    question = question_of(case)
    return question.cluster if question is not None else str(item_of(case).facts["canonical"])


def scores(
    scored: Sequence[Scored],
    settings: Sequence[str],
    sets: Sequence[str],
    labels: Sequence[str],
    excluded: Mapping[str, Mapping[str, str]],
    published: bool,
) -> dict[str, Any]:
    """JSON-able. setting -> set -> estimate under the first label; `labels` -> label -> the same for each.

    And: average (the mean of the sets of Table 1, per setting, and per task as in Tables 2 and 3), knowledge (Table 4's
    Overall), per_image, one_of_two, outcomes, cot_gain (the same questions, normal to cot), thoughts, causes, chance,
    excluded, detectable (the smallest difference between two checkpoints that would show), published (whether the
    questions are the paper's own), strategies (set -> what trivial strategies reach, the best first).
    """
    under = {label: trials(scored, label) for label in labels}
    first = under[labels[0]]
    named = {label: by_cell(counted, accuracy, settings, sets) for label, counted in under.items()}
    result: dict[str, Any] = {setting: _plain(by_set) for setting, by_set in named[labels[0]].items()}
    result |= {
        "label": labels[0],
        "labels": _plain(named),
        "average": _plain({label: _averages(counted, settings) for label, counted in under.items()}),
        "knowledge": _plain({label: _overall(counted, settings) for label, counted in under.items()}),
        "per_image": _plain(by_cell(first, per_image, settings, sets)),
        "one_of_two": _plain(by_cell(first, one_of_two, settings, pairs_of(sets))),
        "outcomes": _plain(by_cell(first, outcome_shares, settings, sets)),
        "cot_gain": _plain(cot_gain(first, sets)),
        "thoughts": _plain(_thoughts(scored, labels[0], sets)),
        "causes": _causes(scored, labels[0], settings, sets),
        "chance": chances(),
        "strategies": {
            name: [one.to_dict() for one in found] for name, found in strategies(scored, labels[0], sets).items()
        },
        "excluded": {name: dict(reasons) for name, reasons in excluded.items()},
        "detectable": _plain(by_cell(first, _detectable, settings, sets)),
        "published": published,
    }
    return result


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
    under = {label: trials(scored, label) for label in labels}
    first = under[labels[0]]
    reasoning = [name for name in sets if name in REASONING_SETS]
    knowledge = [name for name in sets if name in KNOWLEDGE_SETS]
    asked = [setting for setting in settings if any(one.setting == setting for one in first)]
    built: list[Table] = []
    if reasoning:
        plain = strategies(scored, labels[0], reasoning)
        built.append(_reasoning_table(under, asked, reasoning, excluded, published, plain))
    if knowledge:
        built.append(_knowledge_table(first, asked, knowledge, published))
    if {"normal", "cot"} <= set(asked):
        built.append(_gain_table(first, sets))
    if pairs_of(sets):
        built.append(_shortcut_table(first, asked, pairs_of(sets)))
    built.append(_outcome_table(first, asked, sets))
    if "cot" in asked:
        built.append(_thought_table(scored, labels[0], sets))
    return built


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


def accuracy(trials: Sequence[Trial]) -> Estimate:
    """The headline: the share of prompts and pairs that are right."""
    return _share([one.right for one in trials], trials)


def _share(outcomes: Sequence[bool], trials: Sequence[Trial]) -> Estimate:
    """n counts prompts and pairs; of knowledge the models that were taught."""
    units = [one.cluster if one.set in KNOWLEDGE_SETS else one.unit for one in trials]
    return share(outcomes, units, [one.cluster for one in trials])


def per_image(trials: Sequence[Trial]) -> Estimate:
    """The share of single images that are right."""
    images = [(outcome == "pass", one) for one in trials for outcome in one.outcomes]
    return _share([right for right, _ in images], [one for _, one in images])


def one_of_two(trials: Sequence[Trial]) -> Estimate:
    """The share of pairs of which exactly one image is right: .5 is what the shortcut gives."""
    return _share([one.outcomes.count("pass") == 1 for one in trials], trials)


def outcome_shares(counted: Sequence[Trial]) -> dict[str, Estimate]:
    """Each of OUTCOMES: its share of the images that were asked for, n; intervals are clustered as `accuracy`'s."""
    images = [(outcome, one.cluster) for one in counted for outcome in one.outcomes]
    return shares(OUTCOMES, [outcome for outcome, _ in images], [cluster for _, cluster in images])


def _detectable(counted: Sequence[Trial]) -> float:
    return detectable_difference(len({one.cluster for one in counted}), sum(t.right for t in counted) / len(counted))


def _cells(counted: Sequence[Trial]) -> dict[tuple[str, str], list[Trial]]:
    cells: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for one in counted:
        cells[one.setting, one.set].append(one)
    return dict(cells)


def by_cell(
    counted: Sequence[Trial], value: Any, settings: Sequence[str] = (*SETTINGS, SAID), sets: Sequence[str] = ()
) -> dict[str, Any]:
    """setting -> set -> `value` of its trials, where there are any. sets: in this order; empty: all of reasoning."""
    sets = sets or all_sets()
    cells = _cells(counted)
    return {
        setting: {name: value(cells[setting, name]) for name in sets if (setting, name) in cells}
        for setting in settings
    }


def pairs_of(sets: Sequence[str]) -> list[str]:
    """Those of `sets` that count pairs."""
    return [name for name in sets if per_unit(name) == 2]


def average(counted: Sequence[Trial], task: str, variant: str = "") -> Estimate:
    """The last column of the paper's Tables 2 and 3: the mean over levels and both settings of one task.

    variant: of the sets, "" for the task's own. Answers in words are no part of it.
    """
    known = sources()
    asked = [one for one in counted if one.set in known and one.setting in SETTINGS]
    return _cell_mean([one for one in asked if (known[one.set].task, known[one.set].variant) == (task, variant)])


def _averages(counted: Sequence[Trial], settings: Sequence[str]) -> dict[str, Estimate]:
    """A setting: over the reasoning sets (Table 1); "maths" and "mapping": over levels and settings (Tables 2, 3)."""
    reasoning = [one for one in counted if one.set in REASONING_SETS]
    groups = {setting: [one for one in reasoning if one.setting == setting] for setting in settings}
    means = {name: _cell_mean(group) for name, group in groups.items() if group}
    tasks = {task: average(reasoning, task) for task in dict.fromkeys(sources()[name].task for name in REASONING_SETS)}
    return means | {task: mean for task, mean in tasks.items() if mean.n}


def _cell_mean(trials: Sequence[Trial]) -> Estimate:
    return share(
        [one.right for one in trials],
        [(one.set, one.unit) for one in trials],
        [(one.set, one.cluster) for one in trials],
        [(one.setting, one.set) for one in trials],
    )


def _overall(counted: Sequence[Trial], settings: Sequence[str]) -> dict[str, Estimate]:
    """Table 4's last row: all knowledge questions in one pot."""
    groups = {s: [one for one in counted if one.set in KNOWLEDGE_SETS and one.setting == s] for s in settings}
    return {setting: accuracy(group) for setting, group in groups.items() if group}


def cot_gain(counted: Sequence[Trial], sets: Sequence[str]) -> dict[str, PairedComparison]:
    """set -> the same questions without and with a thought; "average": the mean over the reasoning sets; "overall": all
    knowledge questions in one pot."""
    answers = {(one.setting, one.set, one.unit, one.k): one for one in counted}
    both = [
        (one, answers["cot", name, unit, k])
        for (setting, name, unit, k), one in answers.items()
        if setting == "normal" and ("cot", name, unit, k) in answers
    ]

    def gain(names: Sequence[str], mean_over_sets: bool) -> PairedComparison | None:
        rows = [(normal, cot) for normal, cot in both if normal.set in names]
        if not rows:
            return None
        cells = [normal.set for normal, _ in rows] if mean_over_sets else None
        right = [(normal.right, cot.right) for normal, cot in rows]
        clusters = [(normal.set, normal.cluster) for normal, _ in rows]
        return paired([one for one, _ in right], [other for _, other in right], clusters, cells)

    groups: dict[str, tuple[Sequence[str], bool]] = {name: ((name,), False) for name in sets}
    groups |= {"average": (REASONING_SETS, True), "overall": (KNOWLEDGE_SETS, False)}
    gains = {name: gain(*asked) for name, asked in groups.items()}
    return {name: found for name, found in gains.items() if found is not None}


def compare(before: Sequence[Trial], after: Sequence[Trial]) -> dict[str, dict[str, PairedComparison]]:
    """setting -> set -> the same prompts and pairs before and after.

    By McNemar's exact test; where expressions or rules repeat, by sign flips of these. Raises ValueError when a set
    has different items in the two.
    """
    first, second = by_cell(before, list), by_cell(after, list)
    found: dict[str, dict[str, PairedComparison]] = {}
    for setting, by_set in first.items():
        for name, trials_ in by_set.items():
            if name not in second[setting]:
                continue
            later = {(one.unit, one.k): one for one in second[setting][name]}
            if later.keys() != {(one.unit, one.k) for one in trials_}:
                raise ValueError(f"{setting} {name}: before and after were not measured on the same items")
            found.setdefault(setting, {})[name] = paired(
                [one.right for one in trials_],
                [later[one.unit, one.k].right for one in trials_],
                [one.cluster for one in trials_],
            )
    return found


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


def _thoughts(scored: Sequence[Scored], label: str, sets: Sequence[str]) -> dict[str, dict[str, Estimate]]:
    """set -> share of the thoughts whose conclusion a program finds right, wrong or cannot find; and, of the images
    drawn from a right conclusion, the share that is right ("drawn_right")."""
    found: dict[str, dict[str, Estimate]] = {}
    for name in sets:
        rows = [
            (conclusion(one.sample.thought, one.sample.ask.case), one.passed, _cluster_of(one.sample.ask.case))
            for one in scored
            if one.sample.ask.case.set == name
            and label in one.sample.ask.case.facts["labels"]
            and one.sample.thought is not None
        ]
        if not rows:
            continue
        endings, clusters = [seen for seen, _, _ in rows], [cluster for _, _, cluster in rows]
        found[name] = shares(("right", "wrong", "unclear"), endings, clusters)
        right = [(ok, cluster) for seen, ok, cluster in rows if seen == "right"]
        found[name]["drawn_right"] = share([ok for ok, _ in right], range(len(right)), [c for _, c in right])
    return found


def _causes(scored: Sequence[Scored], label: str, settings: Sequence[str], sets: Sequence[str]) -> dict[str, Any]:
    """setting -> set -> cause -> number of images, of those that are not right."""
    counts: dict[str, dict[str, Counter[str]]] = {setting: {} for setting in settings}
    for one in scored:
        case = one.sample.ask.case
        if label in case.facts["labels"] and one.cause:
            counts[one.sample.ask.setting].setdefault(case.set, Counter())[one.cause] += 1
    return {
        setting: {name: dict(sorted(by_set[name].items())) for name in sets if name in by_set}
        for setting, by_set in counts.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return value.to_dict() if isinstance(value, Estimate | PairedComparison) else value


# ----------------------------------------------------------------------------------------------------------- tables

Cell = str | Estimate | PairedComparison | None


def _row_name(setting: str, label: str, labels: Sequence[str]) -> str:
    return SETTING_NAMES[setting] + (f", {label} labels" if len(labels) > 1 or label != "official" else "")


def _reasoning_table(
    under: Mapping[str, Sequence[Trial]],
    settings: Sequence[str],
    sets: Sequence[str],
    excluded: Mapping[str, Mapping[str, str]],
    published: bool,
    plain: Mapping[str, Sequence[Trivial]],
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for label, trials_ in under.items():
        cells = by_cell(trials_, accuracy, settings, sets)
        means = _averages(trials_, settings)
        for setting in settings:
            row = [cells[setting].get(name) for name in sets]
            rows.append((_row_name(setting, label, list(under)), *row, means.get(setting)))
    chances_of = chances()
    leading = {name: best(plain.get(name, ())) for name in sets}
    guessed = [chances_of[sources()[name].task] for name in sets]
    if any(cell is not None for row in rows for cell in row[1:]):  # beside a score, not without one
        rows.append(("Best trivial strategy", *(one.estimate if one else None for one in leading.values()), None))
        rows.append(("Chance", *(f"{chance:.2f}" for chance in guessed), f"{sum(guessed) / len(guessed):.2f}"))
        rows.append(("n / distinct", *(counted(one.estimate) if one else None for one in leading.values()), None))
    for model in PAPER_TABLE_1 if published else ():
        by_set = dict(zip(REASONING_SETS, model.accuracies, strict=True))
        average = f"{model.average:.2f}" if len(sets) == len(REASONING_SETS) else None
        rows.append((f"paper: {model.name}", *(f"{by_set[name]:.2f}" for name in sets), average))
    note = (
        "Maths counts prompts, mapping counts pairs of which both are right. Guessing gives "
        f"{chances_of['maths']:.2f} and {chances_of['mapping']:.2f}."
    )
    named = ", ".join(f"{SET_NAMES.get(name, name)} {one.name}" for name, one in leading.items() if one)
    note += f" Trivial strategies: {named}. Distinct: expressions of maths, sets of rules of mapping."
    gaps = [_detectable(cell) for cell in _cells(next(iter(under.values()))).values() if cell[0].set in sets]
    if gaps:
        note += f" Two checkpoints are told apart (80 % power) if they differ by {min(gaps):.2f} to {max(gaps):.2f}."
    if excluded:
        without = ", ".join(f"{SET_NAMES.get(name, name)} {len(reasons)}" for name, reasons in excluded.items())
        note += f" Left out of the corrected labels, because no single right answer can be drawn: {without}."
    columns = ("Setting", *(SET_NAMES.get(name, name) for name in sets), "Average")
    return Table("Reasoning generation (paper, Tables 1 to 3)", columns, tuple(rows), note)


def _knowledge_table(counted: Sequence[Trial], settings: Sequence[str], sets: Sequence[str], published: bool) -> Table:
    cells = by_cell(counted, accuracy, settings, sets)
    overall = _overall(counted, settings)
    gains = cot_gain(counted, sets)
    reference = PAPER_TABLE_4 if published else {}
    rows: list[tuple[Cell, ...]] = []
    for name in (*sets, "Overall"):
        ours = [overall.get(s) if name == "Overall" else cells[s].get(name) for s in settings]
        place = [*KNOWLEDGE_SETS, "Overall"].index(name)
        theirs = [f"{model[place]:.2f}" for model in reference.values()]
        rows.append((SET_NAMES.get(name, name), *ours, gains.get(name.lower()), *theirs))
    columns = ("Task", *(SETTING_NAMES[setting] for setting in settings), "CoT - Normal")
    columns += tuple(f"paper: {name}" for name in reference)
    return Table("Knowledge transfer (paper, Table 4)", columns, tuple(rows))


def _gain_table(counted: Sequence[Trial], sets: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, gain in cot_gain(counted, sets).items():
        n = gain.both + gain.only_first + gain.only_second + gain.neither
        flips = (str(gain.only_second), str(gain.only_first))
        rows.append((SET_NAMES.get(name, _POOLED.get(name)), gain, *flips, f"{gain.p_value:.2g}", str(n)))
    return Table(
        "What a thought changes, on the same questions",
        ("Set", "CoT - Normal", "only CoT right", "only Normal right", "p", "n"),
        tuple(rows),
        "McNemar's exact test; several draws of a question and the average: a sign-flip test.",
    )


def _shortcut_table(counted: Sequence[Trial], settings: Sequence[str], sets: Sequence[str]) -> Table:
    single, half = (by_cell(counted, value, settings, sets) for value in (per_image, one_of_two))
    rows: list[tuple[Cell, ...]] = []
    for setting in settings:
        rows.append((f"{SETTING_NAMES[setting]}, single images", *(single[setting].get(name) for name in sets)))
        rows.append((f"{SETTING_NAMES[setting]}, one of a pair", *(half[setting].get(name) for name in sets)))
    return Table(
        "Mapping below the rule for pairs",
        ("Counted", *(SET_NAMES.get(name, name) for name in sets)),
        tuple(rows),
        "A model that always draws the same object of a pair has 0.50 of the images and one of every pair.",
    )


def _outcome_table(counted: Sequence[Trial], settings: Sequence[str], sets: Sequence[str]) -> Table:
    cells = by_cell(counted, outcome_shares, settings, sets)
    seen = [
        outcome
        for outcome in OUTCOMES
        if outcome in ("pass", "fail", "unreadable")
        or any(shares[outcome].value for by_set in cells.values() for shares in by_set.values())
    ]
    rows: list[tuple[Cell, ...]] = [
        (SETTING_NAMES[setting], SET_NAMES.get(name, name), *(shares[outcome] for outcome in seen))
        for setting in settings
        for name, shares in cells[setting].items()
    ]
    columns = ("Setting", "Set", *(outcome.replace("_", " ") for outcome in seen))
    return Table("Outcomes of the images", columns, tuple(rows), "Shares of all requested images.")


def _thought_table(scored: Sequence[Scored], label: str, sets: Sequence[str]) -> Table:
    found = _thoughts(scored, label, sets)
    rows: list[tuple[Cell, ...]] = [
        (SET_NAMES.get(name, name), *(found[name][key] for key in ("right", "wrong", "unclear", "drawn_right")))
        for name in sets
        if name in found
    ]
    return Table(
        "Thoughts: is the conclusion right, and is it drawn?",
        ("Set", "conclusion right", "wrong", "not found", "drawn right, of the right ones"),
        tuple(rows),
        "A program reads what each thought concludes. Wrong images of right conclusions are drawn wrong.",
    )
