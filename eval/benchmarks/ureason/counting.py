"""The numbers and tables of UReason, from scored samples.

Visual verification accuracy is equation 4, the gains of equation 5 are paired. Where the published cases are asked, the
paper's own rows stand below ours: Table 2 for testmini, Table 7 for test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from uni_train.eval.results import Cell, Results, plain, tabulate, unit_of
from uni_train.eval.statistics import Estimate, PairedComparison

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
Row = tuple[Cell, ...]


class Count:
    """Samples by setting, and what is computed of them.

    right: whether the thought behind a sample concludes rightly, as far as a program can tell. cases: of the benchmark.
    writer: who writes external prompts. Others: as of `UReason`.
    """

    def __init__(
        self,
        scored: Iterable[Scored],
        right: Callable[[Scored], bool | None],
        *,
        published: bool,
        cases: int,
        compat: str,
        tokenizer: str,
        writer: str,
    ) -> None:
        self.right, self.published, self.cases = right, published, cases
        self.compat, self.tokenizer, self.writer = compat, tokenizer, writer
        every = Results(map(unit_of, scored))
        self.tasks = tuple(every.by("set", TASKS))
        self.by_setting = every.where(lambda unit: unit.set in TASKS).by("setting", SETTINGS)
        self.groups = {**{task: (task,) for task in self.tasks}, "overall": self.tasks}
        self.drawn_by_thought: Mapping[str, Results] = {}
        if CHAIN in self.by_setting:
            drawn = {name: some for name, some in self.by_setting.items() if name in (GUIDED, *LENGTHS)}
            concluded = {unit.place for unit in self.by_setting[CHAIN] if unit.right}
            self.drawn_by_thought = {n: some.where(lambda unit: unit.place in concluded) for n, some in drawn.items()}

    def accuracies(self, some: Results) -> dict[str, Estimate]:
        """task -> accuracy (equation 4); "overall" is the mean over tasks."""
        means = {name: part.mean("set") for name, part in some.groups(self.groups).items()}
        return means if some else {"overall": some.mean()}

    def gains(self, earlier: str, later: str) -> dict[str, PairedComparison]:
        """task or "overall" -> later minus earlier (equation 5), on the cases and draws that both were asked."""
        before = self.by_setting[earlier]
        found = {name: some.minus(before, "set") for name, some in self.by_setting[later].groups(self.groups).items()}
        return {name: gain for name, gain in found.items() if gain is not None}

    def extraction(self) -> dict[str, Estimate]:
        """How the refined prompts of the model's own thoughts were found, each thought counted once."""
        thoughts = {unit.place: unit for setting, some in self.by_setting.items() if setting != EXTERNAL
                    for unit in some if "extraction" in unit.samples[0].sample.facts}  # fmt: skip
        return _seen(EXTRACTIONS, Results(thoughts.values()), lambda one: one.sample.facts["extraction"])

    def errors(self, task: str | None = None) -> dict[str, Estimate]:
        """Type -> its share of the wrong images of setting 2, of one task or all."""
        some = self.by_setting.get(GUIDED, Results(())).where(lambda unit: task in (None, unit.set))
        kinds = {id(one): errors.type_of(one, self.right(one)) for one in some.scored}
        wrong = some.where(lambda unit: kinds[id(unit.samples[0])] is not None)
        named = (*errors.TYPES, *((errors.UNKNOWN,) if errors.UNKNOWN in kinds.values() else ()))
        return wrong.shares(named, lambda one: str(kinds[id(one)])) if wrong else {}

    def subcategories(self, setting: str) -> dict[str, dict[str, Estimate]]:
        found = {task: some.by(lambda unit: unit.case.category, SUBCATEGORIES[task])
                 for task, some in self.by_setting[setting].by("set", TASKS).items()}  # fmt: skip
        return {task: {name: some.mean() for name, some in by.items()} for task, by in found.items() if by}


def _seen(names: Sequence[str], some: Results, of: Any) -> dict[str, Estimate]:
    """Those of `names` that a sample has -> their shares of the samples, clustered by case."""
    seen = {of(one) for one in some.scored}
    return some.shares([name for name in names if name in seen], of)


def scores(count: Count) -> dict[str, Any]:
    """As `UReason.scores`."""
    by_setting = count.by_setting
    return {  # type: ignore[no-any-return]
        **plain({setting: count.accuracies(some) for setting, some in by_setting.items()}),
        "gains": plain({gain: count.gains(*pair) for gain, pair in GAINS.items() if set(pair) <= set(by_setting)}),
        "of_right_thoughts": plain({s: count.accuracies(some) for s, some in count.drawn_by_thought.items()}),
        "subcategories": plain({setting: count.subcategories(setting) for setting in by_setting}),
        "extraction": plain(count.extraction()),
        "errors": plain(count.errors()),
        "outcomes": plain({s: _seen(OUTCOMES, some, lambda one: one.outcome) for s, some in by_setting.items()}),
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def tables(count: Count) -> Iterable[Table]:
    """In the order of the paper, then ours."""
    yield _main(count)
    if CHAIN in count.by_setting:
        chains = [(f"{row['model']} in the paper", *_paper(row, count)) for row in _rows("Table 3", count)]
        yield _by_task(count, "Quality of the reasoning chain (Table 3)",
                       {TITLES[CHAIN]: count.by_setting[CHAIN]}, chains)  # fmt: skip
    if count.drawn_by_thought:
        note = "Only cases whose reasoning chain is right: their wrong images are errors of drawing."
        lines = {TITLES[setting]: some for setting, some in count.drawn_by_thought.items()}
        yield _by_task(count, "Accuracy where the reasoning is right", lines, note=note)
    yield from _lengths(count)
    yield _errors(count)
    yield _evaluators(count)
    if EXTERNAL in count.by_setting:
        writers = {BARE: "the model itself", EXTERNAL: count.writer}
        lines = {name: count.by_setting[s] for s, name in writers.items() if s in count.by_setting}
        yield _by_task(count, "Who writes the refined prompt (Figure 3)", lines)
    by_sub = {setting: count.subcategories(setting) for setting in count.by_setting}
    shown = [(task, name) for task in count.tasks for name in SUBCATEGORIES[task]
             if any(name in by_sub[setting].get(task, {}) for setting in by_sub)]  # fmt: skip
    yield Table(
        "Subcategories",
        ("Task", "Subcategory", *(TITLES[setting] for setting in by_sub)),
        tuple((task, name, *(by_sub[s].get(task, {}).get(name) for s in by_sub)) for task, name in shown),
    )
    found = count.extraction()
    yield Table(
        f"How the refined prompt was found (compat={count.compat})",
        ("Thoughts", *found),
        (("the model's own", *found.values()),) if found else (),
        "Shares of the model's own thoughts. none: not_extracted in setting 3.",
    )
    ends = {s: _seen(OUTCOMES, some, lambda one: one.outcome) for s, some in count.by_setting.items()}
    known = [name for name in OUTCOMES if any(name in by_name for by_name in ends.values())]
    yield Table(
        "Outcomes of the samples",
        ("Setting", *(name.replace("_", " ") for name in known)),
        tuple((TITLES[s], *(ends[s].get(name) for name in known)) for s in ends),
        "All samples are in the denominators above.",
    )


def _heads(count: Count) -> list[str]:
    return [name.capitalize() for name in count.groups]


def _by_task(
    count: Count, title: str, lines: Mapping[str, Results], below: Iterable[Row] = (), note: str = ""
) -> Table:
    """Accuracy by task and overall."""
    return tabulate(title, [(name.capitalize(), lambda some, name=name: count.accuracies(some).get(name))  # type: ignore[misc]
                            for name in count.groups], lines, below, note)  # fmt: skip


def _accuracies(count: Count) -> list[Row]:
    """Each headline setting with its gain over the one before."""
    rows: list[Row] = []
    before = ""
    for setting in (one for one in HEADLINE if one in count.by_setting):
        accuracies = count.accuracies(count.by_setting[setting])
        gains = count.gains(before, setting) if before else {}
        rows.append((TITLES[setting], *(cell for n in count.groups for cell in (accuracies.get(n), gains.get(n)))))
        before = setting
    return rows


def _main(count: Count) -> Table:
    """Table 2, or 7 of test."""
    number, split = (7, "test") if count.cases > TESTMINI else (2, None)
    below = [(f"{row['model']} in the paper, {TITLES[row['setting']]}", *_with_gains(row, count))
             for row in _rows(f"Table {number}", count, asked=True) if row.get("split") == split]  # fmt: skip
    columns = ("Setting", *(cell for head in _heads(count) for cell in (head, "Δ")))
    return Table(
        f"Visual verification accuracy (Table {number})", columns, (*_accuracies(count), *below),
        "Δ: the gain over the setting above, on the same cases. Overall: the mean over tasks.",
    )  # fmt: skip


def _evaluators(count: Count) -> Table:
    """Table 11: who judged beside the settings; `eval --judges ONE,TWO` puts several below each other."""
    judges = Counter(one.by for setting in HEADLINE if setting in count.by_setting
                     for one in count.by_setting[setting].scored if one.by not in ("", "program"))  # fmt: skip
    mine = [(judge, *row) for judge, _ in judges.most_common(1) for row in _accuracies(count)]
    below = [(f"{row['model']} in the paper, UniCoT", TITLES[row["setting"]], *_with_gains(row, count))
             for row in _rows("Table 11", count, asked=True) if mine]  # fmt: skip
    columns = ("Evaluator", "Setting", *(cell for head in _heads(count) for cell in (head, "Δ")))
    return Table("Evaluators (Table 11)", columns, (*mine, *below), "Δ as in Table 2.")


def _lengths(count: Count) -> Iterable[Table]:
    """Table 4, Table 8, and accuracy by the length of the context that an image was drawn in."""
    names = {s: f"{n} x refined prompt" for s, n in LENGTHS.items() if s in count.by_setting}
    if len(names) > 1:
        below = [(f"{row['model']} in the paper, {names[row['setting']]}", *_paper(row, count))
                 for row in _rows("Table 4", count, asked=True)]  # fmt: skip
        lines = {name: count.by_setting[setting] for setting, name in names.items()}
        yield _by_task(count, "Length-controlled ablation (Table 4)", lines, below)
    everything = count.by_setting.get(GUIDED, Results(()))
    guided = everything.where(lambda unit: unit.samples[0].sample.thought is not None)
    if not guided:
        return
    size, unit = lengths.measure(count.tokenizer)
    rows = [(TITLES[GUIDED], *lengths.told([size(one.sample) for one in guided.scored]))]
    rows += [(f"{row['model']} in the paper{name}", f"{float(row[of]):.1f} ({float(row[f'{of} std']):.1f})")
             for of, name in (("evaluation", ""), ("training", ", training data"))
             for row in _rows("Table 8", count)]  # fmt: skip
    yield Table(
        "Length of the context (Table 8)", ("Setting", f"{unit}, mean (std.)"), tuple(rows),
        "Prompt and thought of setting 2. The paper counts with Qwen3-8B's tokenizer (options.ureason.tokenizer).",
    )  # fmt: skip
    thirds = {name: {(one.sample.ask.case.set, one.sample.ask.case.id, one.sample.ask.k) for one in some}
              for name, some in lengths.thirds(guided.scored, size)}  # fmt: skip
    parts = {s: [count.by_setting[s].where(lambda u, third=third: u.place in third) for third in thirds.values()]  # type: ignore[misc]
             for s in (GUIDED, BARE) if s in count.by_setting and thirds}  # fmt: skip
    yield Table(
        "Accuracy by length of the context", ("Setting", *(f"{name} {unit}" for name in thirds)),
        tuple((TITLES[s], *(part.mean("set") for part in some)) for s, some in parts.items() if all(some)),
        "Thirds of the cases by prompt and thought in setting 2; the overall accuracy of the same cases (ours).",
    )  # fmt: skip


def _errors(count: Count) -> Table:
    """The four error types of setting 2, by task."""
    by_task = [count.errors(task) for task in (*count.tasks, None)]
    rows: list[Row] = [(kind.capitalize(), *(shares.get(kind) for shares in by_task)) for kind in by_task[-1]]
    blank = (None,) * len(count.tasks)
    rows += [(f"{row['type'].capitalize()} in the paper, Bagel", *blank, paper.per_cent(row["share"]))
             for row in _rows("Section 5", count) if rows]  # fmt: skip
    return Table(
        "Error types of setting 2 (section 5)", ("Error", *_heads(count)), tuple(rows),
        "Shares of its wrong images. The paper's were sorted by people and are of all 500 images; "
        "options.ureason.errors=judge asks the judge.",
    )  # fmt: skip


def _rows(table: str, count: Count, asked: bool = False) -> list[paper.Row]:
    """The paper's rows where its cases are asked; `asked`: those of the settings that were asked."""
    rows = PAPER[table] if count.published else ()
    return [row for row in rows if not asked or row["setting"] in count.by_setting]


def _with_gains(row: paper.Row, count: Count) -> list[str | None]:
    return [cell for pair in zip(_paper(row, count), _paper(row, count, " gain"), strict=True) for cell in pair]


def _paper(row: paper.Row, count: Count, column: str = "") -> list[str | None]:
    """The paper's per cents as shares, for the tasks that were asked, and its overall where those are all.

    column: " gain" for the gain over the setting above.
    """
    shown = [paper.per_cent(row[f"{task}{column}"], 2, bool(column)) for task in count.tasks]
    whole = paper.per_cent(row[f"overall{column}"], 3, bool(column))
    return [*shown, whole if len(shown) == len(TASKS) or whole is None else "–"]
