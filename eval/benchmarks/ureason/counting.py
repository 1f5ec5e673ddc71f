"""The numbers and tables of UReason, from scored samples.

Visual verification accuracy is equation 4, the gains of equation 5 are paired. Where the published cases are asked, the
paper's own rows stand below ours: Table 2 for testmini, Table 7 for test.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uni_train.data_gen.ureason.taxonomy import SUBCATEGORIES, TASKS
from uni_train.eval import paper
from uni_train.eval.benchmark import OUTCOMES, Scored, Table
from uni_train.eval.benchmarks.ureason import errors, lengths
from uni_train.eval.benchmarks.ureason.extraction import EXTRACTIONS
from uni_train.eval.benchmarks.ureason.settings import (
    BARE,
    CHAIN,
    DIRECT,
    EIGHT_TIMES,
    EXTERNAL,
    FOUR_TIMES,
    GUIDED,
    HEADLINE,
    LENGTHS,
    SETTINGS,
    TITLES,
)
from uni_train.eval.statistics import Estimate, PairedComparison, clustered_mean, paired, proportion, shares

if TYPE_CHECKING:
    from uni_train.eval.benchmarks.ureason.benchmark import UReason

PAPER = paper.printed(Path(__file__))  # table -> rows of paper.csv
TESTMINI = 500  # cases; more are test (1,500) or both

# later - earlier, paired by case.
GAINS = {
    "reasoning": (DIRECT, GUIDED),
    "interference": (GUIDED, BARE),
    "length_4x": (BARE, FOUR_TIMES),
    "length_8x": (BARE, EIGHT_TIMES),
    "external": (BARE, EXTERNAL),
}


Row = tuple[str | Estimate | PairedComparison | None, ...]


class Count:
    """Samples by setting and task, and what is computed of them."""

    def __init__(self, scored: Iterable[Scored]) -> None:
        self.by_cell: dict[str, dict[str, list[Scored]]] = defaultdict(lambda: defaultdict(list))
        for one in scored:
            self.by_cell[one.sample.ask.setting][one.sample.ask.case.set].append(one)

    @property
    def settings(self) -> tuple[str, ...]:
        """Those that were asked, in the order of SETTINGS."""
        return tuple(setting for setting in SETTINGS if setting in self.by_cell)

    @property
    def drawn_by_thought(self) -> tuple[str, ...]:
        """The settings that draw by the model's own thought, if that was judged too."""
        return tuple(s for s in self.settings if s in (GUIDED, *LENGTHS)) if CHAIN in self.settings else ()

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(task for task in TASKS if any(task in by_task for by_task in self.by_cell.values()))

    def of(self, setting: str) -> list[Scored]:
        return [one for task in self.tasks for one in self.by_cell[setting].get(task, ())]

    def accuracies(self, setting: str) -> dict[str, Estimate]:
        """task -> accuracy (equation 4); "overall" is the mean over tasks."""
        found = {task: _rate(some) for task, some in _in_order(self.by_cell[setting])}
        found["overall"] = _mean(self.of(setting))
        return found

    def subcategories(self, setting: str) -> dict[str, dict[str, Estimate]]:
        found: dict[str, dict[str, Estimate]] = {}
        for task, some in _in_order(self.by_cell[setting]):
            for name in SUBCATEGORIES[task]:
                members = [one for one in some if one.sample.ask.case.category == name]
                if members:
                    found.setdefault(task, {})[name] = _rate(members)
        return found

    def gains(self, earlier: str, later: str) -> dict[str, PairedComparison]:
        """task or "overall" -> later minus earlier (equation 5), on the cases and draws that both were asked."""
        before = {_place(one): one for one in self.of(earlier)}
        after = {_place(one): one for one in self.of(later)}
        shared = [place for place in before if place in after]
        found = {}
        for name in (*self.tasks, "overall"):
            both = [(before[p], after[p]) for p in shared if name in ("overall", _task(before[p]))]
            if both:
                found[name] = paired(
                    [first.passed for first, _ in both],
                    [second.passed for _, second in both],
                    [_unit(first) for first, _ in both],
                    [_task(first) for first, _ in both] if name == "overall" and len(self.tasks) > 1 else None,
                )
        return found

    def of_right_thoughts(self, setting: str) -> dict[str, Estimate]:
        """task or "overall" -> accuracy among the cases whose own thought `reasoning_chain` found right.

        The rest, up to 1, are errors of drawing alone.
        """
        right = {_place(one) for one in self.of(CHAIN) if one.passed}
        some = [one for one in self.of(setting) if _place(one) in right]
        by_task = {task: [one for one in some if _task(one) == task] for task in self.tasks}
        return {**{task: _rate(members) for task, members in by_task.items() if members}, "overall": _mean(some)}

    def extraction(self) -> dict[str, Estimate]:
        """How the refined prompts of the model's own thoughts were found, each thought counted once."""
        thoughts: dict[Hashable, Scored] = {}
        for setting in self.settings:
            if setting != EXTERNAL:
                thoughts |= {_place(one): one for one in self.of(setting) if "extraction" in one.sample.facts}
        return _seen_shares(EXTRACTIONS, [(one.sample.facts["extraction"], one) for one in thoughts.values()])

    def outcomes(self, setting: str) -> dict[str, Estimate]:
        return _seen_shares(OUTCOMES, [(one.outcome, one) for one in self.of(setting)])


def _in_order(by_task: Mapping[str, list[Scored]]) -> list[tuple[str, list[Scored]]]:
    """In the paper's order of tasks."""
    return [(task, by_task[task]) for task in TASKS if by_task.get(task)]


def tables(count: Count, benchmark: UReason) -> Iterable[Table]:
    """In the order of the paper, then ours."""
    heads = tuple(task.capitalize() for task in count.tasks)
    yield _main(count, benchmark, heads)
    if CHAIN in count.settings:
        chain = count.accuracies(CHAIN)
        chains: list[Row] = [("Reasoning chain", *(chain.get(name) for name in (*count.tasks, "overall")))]
        if benchmark.published:
            chains += [(f"{row['model']} in the paper", *_paper(row, count)) for row in PAPER["Table 3"]]
        yield Table("Quality of the reasoning chain (Table 3)", ("", *heads, "Overall"), tuple(chains))
    if count.drawn_by_thought:
        given = {setting: count.of_right_thoughts(setting) for setting in count.drawn_by_thought}
        lines = [(TITLES[s], *(given[s].get(name) for name in (*count.tasks, "overall"))) for s in given]
        note = "Only cases whose reasoning chain is right: their wrong images are errors of drawing."
        yield Table("Accuracy where the reasoning is right", ("", *heads, "Overall"), tuple(lines), note)
    yield from _lengths(count, benchmark, heads)
    yield _errors(count, benchmark)
    yield _evaluators(count, benchmark, heads)
    if EXTERNAL in count.settings:
        who = getattr(benchmark.external, "name", "external model")
        own = [setting for setting in (BARE, EXTERNAL) if setting in count.settings]
        names = {BARE: "the model itself", EXTERNAL: who}
        yield _plain("Who writes the refined prompt (Figure 3)", count, heads, own, [names[s] for s in own])
    by_sub = {setting: count.subcategories(setting) for setting in count.settings}
    shown = [(task, name) for task in count.tasks for name in SUBCATEGORIES[task]
             if any(name in by_sub[setting].get(task, {}) for setting in by_sub)]  # fmt: skip
    yield Table(
        "Subcategories",
        ("Task", "Subcategory", *(TITLES[setting] for setting in by_sub)),
        tuple((task, name, *(by_sub[s].get(task, {}).get(name) for s in by_sub)) for task, name in shown),
    )
    found = count.extraction()
    yield Table(
        f"How the refined prompt was found (compat={benchmark.compat})",
        tuple(found),
        (tuple(found.values()),) if found else (),
        "Shares of the model's own thoughts. none: not_extracted in setting 3.",
    )
    ends = {setting: count.outcomes(setting) for setting in count.settings}
    known = [name for name in OUTCOMES if any(name in by_name for by_name in ends.values())]
    yield Table(
        "Outcomes of the samples",
        ("Setting", *(name.replace("_", " ") for name in known)),
        tuple((TITLES[s], *(ends[s].get(name) for name in known)) for s in ends),
        "All samples are in the denominators above.",
    )


def _accuracies(count: Count) -> list[Row]:
    """Each headline setting with its gain over the one before."""
    rows: list[Row] = []
    before = ""
    for setting in (one for one in HEADLINE if one in count.settings):
        accuracies = count.accuracies(setting)
        gains = count.gains(before, setting) if before else {}
        cells = [cell for name in (*count.tasks, "overall") for cell in (accuracies.get(name), gains.get(name))]
        rows.append((TITLES[setting], *cells))
        before = setting
    return rows


def _main(count: Count, benchmark: UReason, heads: tuple[str, ...]) -> Table:
    """Table 2, or 7 of test."""
    whole = len(benchmark.cases()) > TESTMINI
    number, split = (7, "test") if whole else (2, None)
    theirs = _printed(f"Table {number}", count, split) if benchmark.published else []
    below = [(f"{model} in the paper, {title}", *cells) for model, title, *cells in theirs]
    columns = ("Setting", *(cell for head in (*heads, "Overall") for cell in (head, "Δ")))
    return Table(
        f"Visual verification accuracy (Table {number})", columns, (*_accuracies(count), *below),
        "Δ: the gain over the setting above, on the same cases. Overall: the mean over tasks.",
    )  # fmt: skip


def _evaluators(count: Count, benchmark: UReason, heads: tuple[str, ...]) -> Table:
    """Table 11: who judged beside the settings; `eval --judge ONE,TWO` puts several below each other."""
    judges = Counter(one.by for setting in HEADLINE for one in count.of(setting) if one.by not in ("", "program"))
    mine = [(judge, *row) for judge, _ in judges.most_common(1) for row in _accuracies(count)]
    others = _printed("Table 11", count) if benchmark.published and mine else []
    below = [(f"{one} in the paper, UniCoT", *rest) for one, *rest in others]
    columns = ("Evaluator", "Setting", *(cell for head in (*heads, "Overall") for cell in (head, "Δ")))
    return Table("Evaluators (Table 11)", columns, (*mine, *below), "Δ as in Table 2.")


def _printed(table: str, count: Count, split: str | None = None) -> list[list[str | None]]:
    """[model, setting, accuracy, its gain, ...]."""
    return [
        [row["model"], TITLES[row["setting"]],
         *(cell for pair in zip(_paper(row, count), _paper(row, count, " gain"), strict=True) for cell in pair)]
        for row in PAPER[table]
        if row["setting"] in count.settings and row.get("split") == split
    ]  # fmt: skip


def _lengths(count: Count, benchmark: UReason, heads: tuple[str, ...]) -> Iterable[Table]:
    """Table 4, Table 8, and accuracy by the length of the context that an image was drawn in."""
    asked = [setting for setting in LENGTHS if setting in count.settings]
    if len(asked) > 1:
        named = [f"{LENGTHS[setting]} x refined prompt" for setting in asked]
        rows = list(_plain("", count, heads, asked, named).rows)
        titles = dict(zip(asked, named, strict=True))
        rows += [(f"{row['model']} in the paper, {titles[row['setting']]}", *_paper(row, count))
                 for row in PAPER["Table 4"] if benchmark.published and row["setting"] in titles]  # fmt: skip
        yield Table("Length-controlled ablation (Table 4)", ("", *heads, "Overall"), tuple(rows))
    guided = [one for one in count.of(GUIDED) if one.sample.thought is not None]
    if not guided:
        return
    size, unit = lengths.measure(benchmark.tokenizer)
    rows = [(TITLES[GUIDED], *lengths.told([size(one.sample) for one in guided]))]
    if benchmark.published:
        rows += [(f"{row['model']} in the paper{name}", f"{float(row[of]):.1f} ({float(row[f'{of} std']):.1f})")
                 for of, name in (("evaluation", ""), ("training", ", training data"))
                 for row in PAPER["Table 8"]]  # fmt: skip
    yield Table(
        "Length of the context (Table 8)", ("", f"{unit}, mean (std.)"), tuple(rows),
        "Prompt and thought of setting 2. The paper counts with Qwen3-8B's tokenizer (--option ureason.tokenizer).",
    )  # fmt: skip
    thirds = lengths.thirds(guided, size)
    rows = []
    for setting in (GUIDED, BARE) if thirds else ():
        by_place = {_place(one): one for one in count.of(setting)}
        same = [[by_place[_place(one)] for one in some if _place(one) in by_place] for _, some in thirds]
        if all(same):
            rows.append((TITLES[setting], *map(_mean, same)))
    yield Table(
        "Accuracy by length of the context", ("", *(f"{name} {unit}" for name, _ in thirds)), tuple(rows),
        "Thirds of the cases by prompt and thought in setting 2; the overall accuracy of the same cases (ours).",
    )  # fmt: skip


def error_shares(count: Count, benchmark: UReason, task: str | None = None) -> dict[str, Estimate]:
    """Type -> its share of the wrong images of setting 2, of one task or all."""
    some = [one for one in count.of(GUIDED) if task in (None, _task(one))]
    wrong = [(kind, one) for one in some if (kind := errors.type_of(one, benchmark.right(one))) is not None]
    kinds = [kind for kind, _ in wrong]
    named = (*errors.TYPES, *((errors.UNKNOWN,) if errors.UNKNOWN in kinds else ()))
    return shares(named, kinds, [_unit(one) for _, one in wrong]) if wrong else {}


def _errors(count: Count, benchmark: UReason) -> Table:
    """The four error types of setting 2, by task."""
    by_task = [error_shares(count, benchmark, task) for task in (*count.tasks, None)]
    rows: list[Row] = [(kind.capitalize(), *(shares.get(kind) for shares in by_task)) for kind in by_task[-1]]
    if benchmark.published and rows:
        blank = (None,) * len(count.tasks)
        rows += [(f"{row['type'].capitalize()} in the paper, Bagel", *blank, paper.per_cent(row["share"]))
                 for row in PAPER["Section 5"]]  # fmt: skip
    heads = (*(task.capitalize() for task in count.tasks), "Overall")
    return Table(
        "Error types of setting 2 (section 5)", ("", *heads), tuple(rows),
        "Shares of its wrong images. The paper's were sorted by people and are of all 500 images; "
        "--option ureason.errors=judge asks the judge.",
    )  # fmt: skip


def _paper(row: paper.Row, count: Count, column: str = "") -> list[str | None]:
    """The paper's per cents as shares, for the tasks that were asked, and its overall where those are all.

    column: " gain" for the gain over the setting above.
    """
    sign = "+" if column else ""
    shown = [paper.per_cent(row[f"{task}{column}"], f"{sign}.2f") for task in count.tasks]
    whole = paper.per_cent(row[f"overall{column}"], f"{sign}.3f")
    return [*shown, whole if len(shown) == len(TASKS) or whole is None else "–"]


def _plain(title: str, count: Count, heads: tuple[str, ...], settings: Sequence[str], names: Sequence[str]) -> Table:
    rows = []
    for setting, name in zip(settings, names, strict=True):
        accuracies = count.accuracies(setting)
        rows.append((name, *(accuracies.get(task) for task in (*count.tasks, "overall"))))
    return Table(title, ("", *heads, "Overall"), tuple(rows))


def _place(one: Scored) -> tuple[str, int]:
    return one.sample.ask.case.id, one.sample.ask.k


def _unit(one: Scored) -> str:
    return one.sample.ask.case.cluster_id


def _task(one: Scored) -> str:
    return one.sample.ask.case.set


def _rate(some: Sequence[Scored]) -> Estimate:
    """The share that is right; Wilson's interval for one draw a case, else clustered by case."""
    units = [_unit(one) for one in some]
    if len(set(units)) == len(units):
        return proportion(sum(one.passed for one in some), len(some))
    return clustered_mean([float(one.passed) for one in some], units)


def _seen_shares(names: Sequence[str], named: Sequence[tuple[str, Scored]]) -> dict[str, Estimate]:
    """Those of `names` that a sample has -> their shares of the samples, clustered by case."""
    seen = [name for name, _ in named]
    return shares([name for name in names if name in seen], seen, [_unit(one) for _, one in named])


def _mean(some: Sequence[Scored]) -> Estimate:
    """The unweighted mean over tasks of the share that is right."""
    return clustered_mean(
        [float(one.passed) for one in some], [_unit(one) for one in some], [_task(one) for one in some]
    )
