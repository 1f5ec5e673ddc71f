"""What a training run shows of its sets: numbers and tables of the base, and of the model after each round.

`build` counts the samples of its evaluations into the keys of summary.json; the others arrange what stands there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from uni_train.config.schema import LEVELS
from uni_train.core.errors import UserError
from uni_train.core.registry import ENVIRONMENT
from uni_train.data_gen.registry import TASKS, set_name, sources
from uni_train.data_gen.shortcuts import chances
from uni_train.eval.benchmark import Scored, generated_questions, worlds_of
from uni_train.eval.report import charts
from uni_train.eval.report.page import Section
from uni_train.eval.results import Cell, Results, Table, cell_from_json, changes, plain
from uni_train.eval.sets import counting
from uni_train.eval.sets.names import SAID, SETTINGS, all_sets
from uni_train.eval.shortcuts import Trivial, best, counted
from uni_train.eval.statistics import Estimate, proportion, signed
from uni_train.eval.summary import Round, estimate_of, round_table

_ROUND_LABEL = re.compile(r"round([1-9]\d*)")
SHOWN = (*SETTINGS, SAID)
"""Settings, in the order of pages."""
_PAPER = {"mapping": "Table 3", "maths": "Table 2"}
"""Tasks in the order in which pages show them: mapping is the paper's main table."""


def shown_sets() -> tuple[str, ...]:
    """Every set of reasoning, in the order in which pages of runs show them."""
    paper = [set_name(task, level) for task in _PAPER for level in LEVELS]
    return tuple(dict.fromkeys([*paper, *all_sets()]))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of Table 2 or 3: six accuracies, their average, and how far it lies above the base."""

    name: str
    normal: tuple[Estimate | None, ...]
    cot: tuple[Estimate | None, ...]
    average: Estimate | None
    delta: float | None


def build(
    *,
    recipe: str,
    model: str,
    seed: int,
    wall_seconds: float,
    peak_rss_bytes: int,
    evaluations: Mapping[str, Iterable[Scored]],
    rounds: Sequence[Round] = (),
) -> dict[str, Any]:
    """The summary of a run whose sets were asked before, during and after.

    evaluations: label -> its samples, labels "before", "round1", "round2", ..., "after". "after" may be left out:
    then the last round is taken for it. A run without training has "before" only; its `after` is empty. Raises
    ValueError for other labels or when "before" is missing.
    """
    results = {label: list(samples) for label, samples in evaluations.items()}
    unknown = [label for label in results if label not in ("before", "after") and not _ROUND_LABEL.fullmatch(label)]
    if unknown or "before" not in results:
        raise ValueError(f"evaluations must be before, round1, round2, ..., after; got {', '.join(results) or 'none'}")
    round_labels = sorted((label for label in results if label.startswith("round")), key=_round_number)
    if "after" not in results:
        results["after"] = results[round_labels[-1]] if round_labels else []

    asked = [result.sample.ask.case for result in results["before"]]
    units = {label: counting.units(scored, "official") for label, scored in results.items()}
    named = list(units["before"].by("set", all_sets()))

    def each(value: Any, labels: Sequence[str] = ("before", "after")) -> dict[str, Any]:
        return {label: plain(_asked(counting.by_cell(units[label], value))) for label in labels}

    return {
        "recipe": recipe,
        "model": model,
        "seed": seed,
        "wall_seconds": round(wall_seconds, 3),
        "peak_rss_bytes": int(peak_rss_bytes),
        "scores": each(counting.accuracy),
        "rounds": [entry.to_dict() for entry in rounds],
        "after_round": each(counting.accuracy, round_labels),
        "average": {
            label: {_key(*part): counting.average(units[label], *part).to_dict() for part in _parts(named)}
            for label in ("before", *round_labels, "after")
            if results[label]
        },
        "per_image": each(counting.per_image),
        "one_of_two": {
            label: plain(_asked(counting.by_cell(units[label], counting.one_of_two, sets=counting.pairs_of(named))))
            for label in ("before", "after")
        },
        "statuses": each(_statuses),
        "changes": plain(changes(units["before"], units["after"])),
        "chance": chances(),
        "strategies": {
            name: [strategy.to_dict() for strategy in trivials]
            for name, trivials in counting.strategies(results["before"], "official", named).items()
        },
        "questions": generated_questions(worlds_of(asked)),
        "split": "+".join(sorted({str(case.facts["item"]["split"]) for case in asked})),
    }


def _parts(sets: Iterable[str]) -> list[tuple[str, str]]:
    """(task, variant) of the tables: both tasks of the paper, then others. UserError: a set that is unknown."""
    known, sets = sources(), set(sets)
    if away := sorted(sets - known.keys()):
        raise UserError(
            f"the set {away[0]} is of a plug-in that is not here",
            f"Install the plug-in, or name its module: {ENVIRONMENT}=MODULE python -m uni_train ...",
        )
    asked = sorted({(known[name].variant, known[name].task) for name in sets})
    return list(dict.fromkeys([*((task, "") for task in _PAPER), *((task, variant) for variant, task in asked)]))


def _key(task: str, variant: str) -> str:
    return f"{task}_{variant}" if variant else task


def score_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Row]]]:
    """Task, variant and rows of what was evaluated: mapping, maths, then the sets beside the six."""
    asked = {name for scores in summary["scores"].values() for by_set in scores.values() for name in by_set}
    for task, variant in _parts(asked):
        if task_rows := rows(summary, task, variant):
            yield task, variant, task_rows


def rows(summary: Mapping[str, Any], task: str, variant: str = "") -> list[Row]:
    """The table of one task: the base, then the model after each round; empty when the task was not evaluated."""
    labelled = [("before", str(summary["model"]), summary["scores"].get("before") or {})]
    later = dict(summary.get("after_round") or {})
    names = {label: f"after round {_round_number(label)}" for label in sorted(later, key=_round_number)}
    after = summary["scores"].get("after") or {}
    # The last round is evaluated under the label "after" only; without its own number it is simply the end.
    number = len(summary["rounds"])
    if after and not (f"round{number}" in later or (not number and after in later.values())):
        later["after"] = after
        names["after"] = f"after round {number}" if number == len(names) + 1 else "after"
    labelled += [(label, name, later[label]) for label, name in names.items()]

    table: list[Row] = []
    sets = [set_name(task, level, variant) for level in TASKS.get(task).sets]
    for label, name, scores in labelled:
        cells = {
            setting: tuple(estimate_of(scores.get(setting, {}).get(name)) for name in sets) for setting in SETTINGS
        }
        mean = estimate_of((summary.get("average") or {}).get(label, {}).get(_key(task, variant)))
        delta = None
        if table and mean and mean.value is not None and table[0].average and table[0].average.value is not None:
            delta = mean.value - table[0].average.value
        table.append(Row(name, cells["normal"], cells["cot"], mean, delta))
    return table if any(cell for row in table for cell in row.normal + row.cot) else []


def trivial(summary: Mapping[str, Any], name: str) -> Trivial | None:
    """The best trivial strategy on a set, whose estimate also says how much was asked; None in an older summary."""
    return best([Trivial.from_dict(raw) for raw in (summary.get("strategies") or {}).get(name, ())])


def tables(summary: Mapping[str, Any], printed: bool = False) -> Iterator[Table]:
    """Transfer between tasks, the paper's layout (mapping: Table 3, maths: Table 2), answers in words, and the rounds.

    Tasks beside the paper's have tables of their own only without Transfer. Below the model's rows: the best trivial
    strategy, chance, and how much was asked. printed: also the paper's rows.
    """
    transfer = list(_transfer_tables(summary))
    yield from transfer
    for task, variant, task_rows in score_rows(summary):
        if task in _PAPER or not transfer:
            yield _score_table(summary, task, variant, task_rows, printed)
    if any(SAID in scores for scores in summary["scores"].values()):
        worded = {when: by_setting.get(SAID, {}) for when, by_setting in summary["scores"].items()}
        names = [name for name in all_sets() if any(name in by_set for by_set in worded.values())]
        cells = [
            (when, *(estimate_of(by_set.get(name)) for name in names)) for when, by_set in worded.items() if by_set
        ]
        title = "Said: the right answer in words at once, nothing drawn"
        yield Table(title, ("When", *names), tuple(cells), "95 % intervals.", str(summary.get("questions", "")))
    if summary["rounds"]:
        yield round_table(summary["rounds"], str(summary.get("questions", "")))


def sections(summary: Mapping[str, Any]) -> list[Section]:
    """Tables of accuracy, its course over rounds, and what lies behind each score."""
    shown = {*summary["scores"]["before"], *(task for task, *_ in score_rows(summary))}
    scores = " ".join(words for name, words in _SCORES.items() if name in shown)
    pairs = _PAIRS if _at(summary, "one_of_two", "before") else ""
    return [
        Section("Scores", scores, list(tables(summary, printed=True))),
        Section("Accuracy by round", charts=list(_accuracy_charts(summary)), note=_BY_ROUND),
        Section("Outcomes", pairs + _UNREADABLE, list(outcome_tables(summary)), note=_CHANGE),
    ]


def outcome_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Beside each score: single images and pairs half right, what could not be read, and the change by training."""
    rows: dict[bool, list[tuple[Cell, ...]]] = {True: [], False: []}
    for setting in SHOWN:
        for name in shown_sets():
            shares = {when: _at(summary, "statuses", when, setting, name) for when in ("before", "after")}
            shares = {when: row for when, row in shares.items() if row}
            changed, plain = _at(summary, "changes", setting, name), trivial(summary, name)
            for when, row in shares.items():
                score, image, one_of_two = (
                    cell_from_json(_at(summary, key, when, setting, name))
                    for key in ("scores", "per_image", "one_of_two")
                )
                leading = f"{plain.estimate.value:.2f}, {plain.chance:.2f}" if plain else None
                pairs = one_of_two is not None
                rows[pairs].append(
                    (
                        f"{name}, {setting}", when, score, leading, *((image, one_of_two) if pairs else ()),
                        f"{100 * row.get('unreadable', {}).get('value', 0.0):.0f} %",
                        cell_from_json(changed) if when == "after" else None,
                    )
                )  # fmt: skip
    titles = {True: "Pairs: both right, and one of two", False: "Single prompts"}
    for pairs, row in rows.items():
        if row:
            both = ("Single images", "Exactly one of two") if pairs else ()
            columns = ("Set", "When", "Score", "Best trivial, chance", *both, "Unreadable", "Change")
            yield Table(titles[pairs], columns, tuple(row), "", str(summary.get("questions", "")))


def _at(tree: Mapping[str, Any], *keys: str) -> Any:
    for key in keys:
        tree = (tree or {}).get(key)  # type: ignore[assignment]
    return tree


def _transfer_tables(summary: Mapping[str, Any]) -> Iterator[Table]:
    """Accuracy on every set after each round, a table a setting; none unless tasks are several.

    Those are the trained ones, and what is measured beside the paper's.
    """
    rounds = summary["rounds"]
    beside = {task for task, *_ in score_rows(summary) if task not in _PAPER}
    if not rounds or len({round_["task"] for round_ in rounds} | beside) < 2:
        return
    scores = {"before": summary["scores"]["before"]}
    after = {**(summary.get("after_round") or {}), f"round{len(rounds)}": summary["scores"]["after"]}
    for number, round_ in enumerate(rounds, 1):
        if f"round{number}" in after:
            scores[f"{number}: {round_['task']} {round_['level']}"] = after[f"round{number}"]
    for setting, asked in scores["before"].items():
        trained = [set_name(round_["task"], round_["level"]) for round_ in rounds]
        sets = dict.fromkeys([*(name for name in trained if name in asked), *asked])
        body = [(name, *(estimate_of(_at(at, setting, set_name)) for set_name in sets)) for name, at in scores.items()]
        leading = [trivial(summary, name) for name in sets]
        body.append(("trivial", *(strategy.estimate if strategy else None for strategy in leading)))
        note = "95 % intervals. Rows: after the round that trains this task and level. Trivial: the best such strategy."
        yield Table(f"Transfer, {setting}", ("After", *sets), tuple(body), note, str(summary.get("questions", "")))


def _score_table(summary: Mapping[str, Any], task: str, variant: str, task_rows: Sequence[Row], printed: bool) -> Table:
    about, pairs = TASKS.get(task), TASKS.get(task).items_per_draw == 2
    names = [f"{about.short}{level}" for level in about.sets]
    leading = [trivial(summary, set_name(task, level, variant)) for level in about.sets]
    body: list[tuple[Cell, ...]] = [
        (row.name.removeprefix("after "), *row.normal, *row.cot, row.average, _change(row.delta)) for row in task_rows
    ]
    body += [("chance", *[f"{about.chance:.2f}"] * (2 * len(names) + 1), "")]
    named = ", ".join(f"{name} {strategy.name}" for name, strategy in zip(names, leading, strict=True) if strategy)
    if named:
        body.append(("trivial", *[top.estimate if top else None for top in leading] * 2, "", ""))
        body.append(("n / distinct", *[counted(top.estimate) if top else None for top in leading] * 2, "", ""))
    n = " or ".join(str(n) for n in sorted({cell.n for row in task_rows for cell in row.normal + row.cot if cell}))
    note = f"95 % intervals. n = {n} {'pairs, both right' if pairs else 'prompts'}; {about.guess} gives "
    note += f"{about.chance:.2f}. Averages and repeats are clustered by {'rules' if pairs else 'expression'}."
    note += f" Trivial strategies: {named}." if named else ""
    if printed and not variant and task in _PAPER:
        body += _paper_rows(counting.PAPER[_PAPER[task]])
        note += " The paper's model is BAGEL-7B, on other questions; its intervals are computed here from n = 100."
    title = f"{about.title} (paper, {_PAPER[task]})" if task in _PAPER else about.title
    title = f"{about.title}: {about.variants[variant].said}" if variant else title
    columns = ("Model", *(f"{setting} {name}" for setting in ("Normal", "CoT") for name in names), "Average", "Change")
    asked = [task in _PAPER or any(cells) for cells in zip(*(row.normal + row.cot for row in task_rows), strict=True)]
    shown = [True, *asked, True, True]
    rows = (tuple(compress(row, shown)) for row in body)
    return Table(title, tuple(compress(columns, shown)), tuple(rows), note, str(summary.get("questions", "")))


def _paper_rows(printed: Sequence[Mapping[str, str]]) -> Iterator[tuple[Cell, ...]]:
    """What the paper prints, which are shares of 100 pairs, and how far each average lies above the first."""
    for row in printed:
        scores = [float(row[f"{setting} {level}"]) for setting in SETTINGS for level in LEVELS]
        average = float(row["average"])
        change = None if row is printed[0] else average - float(printed[0]["average"])
        cells = (proportion(round(score * 100), 100) for score in scores)
        yield (f"{row['model']} in the paper", *cells, f"{average:.2f}", _change(change))


def _change(delta: float | None) -> str:
    return "" if delta is None else signed(delta)


def _round_number(label: str) -> int:
    match = _ROUND_LABEL.fullmatch(label)
    if match is None:
        raise ValueError(f"{label} is no label of a round (round1, round2, ...)")
    return int(match[1])


def _asked(by_setting: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Without the settings that were not asked."""
    return {setting: dict(by_set) for setting, by_set in by_setting.items() if by_set}


def _statuses(some: Results) -> dict[str, Estimate]:
    """Shares of what became of the images; of the rarer outcomes those that occurred."""
    shares = counting.outcome_shares(some)
    return {name: share for name, share in shares.items() if share.value or name in ("pass", "fail", "unreadable")}


_SCORES = {
    "normal": "Normal: prompt → image.",
    "cot": "CoT: the model writes a thought first.",
    "mapping": "M1 to M3 are chains of one, two and three links. A pair counts only if both of its images are right.",
    "maths": "Math1 to Math3 take one, two and three operations.",
}
"""What stands above the scores, by setting and task."""
_BY_ROUND = "Whiskers: 95 % intervals. A round trains one level and is evaluated on all."
_PAIRS = (
    "One of two right is where the shortcut shows: a model that ignores the rules and always draws the same object of "
    "a pair gets exactly one right every time. "
)
_UNREADABLE = "An unreadable image is one in which the reader finds no clear answer."
_CHANGE = (
    "Change: difference of the score with Newcombe's interval, and McNemar's exact test on the same prompts or pairs; "
    "where expressions repeat, clustered by them. Best trivial: of strategies that take the prompt's words and do none "
    "of its work."
)


def tiles(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Normal accuracy per set, before and after."""
    before, after = (summary["scores"].get(when, {}).get("normal", {}) for when in ("before", "after"))
    best = counting.PAPER["Table 3"][3]  # the last round of the curriculum
    paper = {f"mapping{level}": float(best[f"normal {level}"]) for level in LEVELS}
    return [
        {
            "name": name,
            "value": after.get(name) or before[name],
            "lines": [
                *([("before", before[name])] if after else []),
                *([("BAGEL-7B, other questions", paper[name])] if name in paper else []),
            ],
        }
        for name in shown_sets()[:6]
        if name in before
    ]


def _accuracy_charts(summary: Mapping[str, Any]) -> Iterator[charts.Chart]:
    """Accuracy after each round, one chart per task and setting, with the chance line."""
    for task, variant, rows in score_rows(summary):
        about = TASKS.get(task)
        if variant or len(rows) < 2:
            continue
        columns = [f"{about.short}{level}" for level in about.sets]
        names = ["base", *(row.name.removeprefix("after ") for row in rows[1:])]
        x = charts.Axis(-0.25, len(rows) - 0.75, list(enumerate(names)))
        for setting in SETTINGS:
            cells = [getattr(row, setting) for row in rows]
            lines = {name: [(i, row[level]) for i, row in enumerate(cells)] for level, name in enumerate(columns)}
            if any(at is not None and at.value is not None for line in lines.values() for _, at in line):
                title = f"{about.title}, {setting}"
                guess = (about.chance, about.guess)
                yield charts.scores(title, lines, x, 0.06, "Accuracy by round: {}.", guess)
