"""The numbers and tables of UReason, from scored samples.

Visual verification accuracy is equation 4, the gains of equation 5 are paired. Where the published cases are asked, the
paper's own rows stand below ours: Table 2 for testmini, Table 7 for test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from uni_train.data_gen.ureason.taxonomy import SUBCATEGORIES, TASKS
from uni_train.eval import paper
from uni_train.eval.benchmark import OUTCOMES
from uni_train.eval.benchmarks.ureason import errors, lengths
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
from uni_train.eval.extraction import EXTRACTIONS
from uni_train.eval.paper import Column, TableSpec
from uni_train.eval.results import Results
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


class Count:
    """Samples of a `UReason` by setting, and what is computed of them: each once, for scores as for tables."""

    def __init__(self, benchmark: Any, results: Results) -> None:
        self.benchmark = benchmark
        self.tasks = tuple(results.by("set", TASKS))
        self.by_setting = results.by("setting", SETTINGS)
        # Cells of a row ask for the same numbers.
        self.accuracies, self.gains = cache(self._accuracies), cache(self._gains)
        self.extraction, self.errors = cache(self._extraction), cache(self._errors)
        self.subcategories = cache(self._subcategories)
        self.drawn_by_thought: Mapping[str, Results] = {}
        if CHAIN in self.by_setting:
            drawn = {name: some for name, some in self.by_setting.items() if name in (GUIDED, *LENGTHS)}
            concluded = {unit.place for unit in self.by_setting[CHAIN] if unit.right}
            self.drawn_by_thought = {n: some.where(lambda unit: unit.place in concluded) for n, some in drawn.items()}

    def _accuracies(self, some: Results) -> dict[str, Estimate]:
        """task -> accuracy (equation 4); "overall" is the mean over tasks."""
        return self.benchmark.overall.by_set(some, {task: (task,) for task in self.tasks})  # type: ignore[no-any-return]

    def _gains(self, earlier: str, later: str) -> dict[str, PairedComparison]:
        """task or "overall" -> later minus earlier (equation 5), on the cases and draws that both were asked."""
        before, after, overall = self.by_setting[earlier], self.by_setting[later], self.benchmark.overall
        metrics = {**{task: replace(overall, sets=(task,)) for task in self.tasks}, "overall": overall}
        gains = {name: metric.gain(before, after) for name, metric in metrics.items()}
        return {name: gain for name, gain in gains.items() if gain is not None}

    def _extraction(self) -> dict[str, Estimate]:
        """How the refined prompts of the model's own thoughts were found, each thought counted once."""
        thoughts = {unit.place: unit for setting, some in self.by_setting.items() if setting != EXTERNAL
                    for unit in some if "extraction" in unit.samples[0].sample.facts}  # fmt: skip
        return _seen(EXTRACTIONS, Results(thoughts.values()), lambda answer: answer.sample.facts["extraction"])

    def _errors(self, task: str | None = None) -> dict[str, Estimate]:
        """Type -> its share of the wrong images of setting 2, of one task or all."""
        some = self.by_setting.get(GUIDED, Results(())).where(lambda unit: task in (None, unit.set))
        kinds = {id(answer): errors.type_of(answer, self.benchmark.right(answer)) for answer in some.scored}
        wrong = some.where(lambda unit: kinds[id(unit.samples[0])] is not None)
        named = (*errors.TYPES, *((errors.UNKNOWN,) if errors.UNKNOWN in kinds.values() else ()))
        return wrong.shares(named, lambda answer: str(kinds[id(answer)])) if wrong else {}

    def _subcategories(self, setting: str) -> dict[str, dict[str, Estimate]]:
        tables = {task: some.by(lambda unit: unit.case.category, SUBCATEGORIES[task])
                 for task, some in self.by_setting[setting].by("set", TASKS).items()}  # fmt: skip
        return {task: {name: some.mean() for name, some in by.items()} for task, by in tables.items() if by}


def _seen(names: Sequence[str], some: Results, of: Any) -> dict[str, Estimate]:
    """Those of `names` that a sample has -> their shares of the samples, clustered by case."""
    seen = {of(answer) for answer in some.scored}
    return some.shares([name for name in names if name in seen], of)


def details(count: Count) -> dict[str, Any]:
    """As `UReason.details`."""
    by_setting = count.by_setting
    return {
        "gains": {gain: count.gains(*pair) for gain, pair in GAINS.items() if set(pair) <= set(by_setting)},
        "of_right_thoughts": {s: count.accuracies(some) for s, some in count.drawn_by_thought.items()},
        "subcategories": {setting: count.subcategories(setting) for setting in by_setting},
        "extraction": count.extraction(),
        "errors": count.errors(),
        "outcomes": {s: _seen(OUTCOMES, some, lambda answer: answer.outcome) for s, some in by_setting.items()},
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def specs(count: Count) -> Iterable[TableSpec]:
    """In the order of the paper, then ours."""
    yield from _of_paper(count)
    by_sub = {setting: count.subcategories(setting) for setting in count.by_setting}
    shown = [(task, name) for task in count.tasks for name in SUBCATEGORIES[task]
             if any(name in by_sub[setting].get(task, {}) for setting in by_sub)]  # fmt: skip
    yield TableSpec(
        "Subcategories",
        [Column("Subcategory", lambda place: place[1]),
         *(Column(TITLES[setting], lambda place, of=of: of.get(place[0], {}).get(place[1]))  # type: ignore[misc]
           for setting, of in by_sub.items())],
        {place: place for place in shown}, names={place: place[0] for place in shown}, first="Task",
    )  # fmt: skip
    yield from _samples(count)


def _of_paper(count: Count) -> Iterable[TableSpec]:
    """Tables 2 (or 7), 3, 4 and 8, error types, Table 11 and Figure 3."""
    by_setting = count.by_setting
    headline = {setting: by_setting[setting] for setting in HEADLINE if setting in by_setting}
    number, split = (7, "test") if (count.benchmark.total_cases or 0) > TESTMINI else (2, None)
    yield TableSpec(
        f"Visual verification accuracy (Table {number})", _with_gains(count), headline, names=TITLES,
        paper=[row for row in PAPER[f"Table {number}"] if row.get("split") == split],
        label="{model} in the paper, {setting}",
        note="Δ: the gain over the setting above, on the same cases. Overall: the mean over tasks.",
    )  # fmt: skip
    accuracies = _accuracies(count)
    chains = {CHAIN: by_setting[CHAIN]} if CHAIN in by_setting else {}
    yield TableSpec("Quality of the reasoning chain (Table 3)", accuracies, chains, names=TITLES, paper="Table 3")
    yield TableSpec(
        "Accuracy where the reasoning is right", accuracies, count.drawn_by_thought, names=TITLES,
        note="Only cases whose reasoning chain is right: their wrong images are errors of drawing.",
    )  # fmt: skip
    lengths_asked = {setting: by_setting[setting] for setting in LENGTHS if setting in by_setting}
    if len(lengths_asked) > 1:
        yield TableSpec(
            "Length-controlled ablation (Table 4)", accuracies, lengths_asked, paper="Table 4",
            names={setting: f"{n} x refined prompt" for setting, n in LENGTHS.items()},
            label="{model} in the paper, {setting}",
        )  # fmt: skip
    yield from _contexts(count)
    yield _errors(count)
    judges = Counter(
        answer.by for some in headline.values() for answer in some.scored if answer.by not in ("", "program")
    )
    for judge, _ in judges.most_common(1):
        title = Column("Setting", lambda some: TITLES[some.setting], lambda row: TITLES[row["setting"]])
        yield TableSpec(
            "Evaluators (Table 11)", [title, *_with_gains(count)], headline, names=dict.fromkeys(headline, judge),
            paper="Table 11", label="{model} in the paper, UniCoT", first="Evaluator", note="Δ as in Table 2.",
        )  # fmt: skip
    if EXTERNAL in by_setting:
        writers = {BARE: "the model itself", EXTERNAL: getattr(count.benchmark.external, "name", "external model")}
        lines = {setting: by_setting[setting] for setting in writers if setting in by_setting}
        yield TableSpec("Who writes the refined prompt (Figure 3)", accuracies, lines, names=writers)


def _samples(count: Count) -> Iterable[TableSpec]:
    extraction = count.extraction()
    yield TableSpec(
        f"How the refined prompt was found (compat={count.benchmark.compat})",
        [Column(how, lambda _, share=share: share) for how, share in extraction.items()],  # type: ignore[misc]
        {"the model's own": None} if extraction else {},
        first="Thoughts",
        note="Shares of the model's own thoughts. none: not_extracted in setting 3.",
    )
    ends = {s: _seen(OUTCOMES, some, lambda answer: answer.outcome) for s, some in count.by_setting.items()}
    yield TableSpec(
        "Outcomes of the samples",
        [Column(name.replace("_", " "), lambda some, name=name: ends[some.setting].get(name))  # type: ignore[misc]
         for name in OUTCOMES if any(name in by_name for by_name in ends.values())],
        count.by_setting, names=TITLES, note="All samples are in the denominators above.",
    )  # fmt: skip


def _accuracies(count: Count) -> list[Column]:
    return [Column(name.capitalize(), lambda some, name=name: count.accuracies(some).get(name),  # type: ignore[misc]
                   partial(_paper, count, name, "")) for name in (*count.tasks, "overall")]  # fmt: skip


def _with_gains(count: Count) -> list[Column]:
    """The same, each with its gain over the headline setting before."""
    asked = [setting for setting in HEADLINE if setting in count.by_setting]
    gains = {later: count.gains(earlier, later) for earlier, later in pairwise(asked)}
    return [column for name, accuracy in zip((*count.tasks, "overall"), _accuracies(count), strict=True) for column in (
        accuracy,
        Column("Δ", lambda some, name=name: gains.get(some.setting, {}).get(name),  # type: ignore[misc]
               partial(_paper, count, name, " gain")),
    )]  # fmt: skip


def _contexts(count: Count) -> Iterable[TableSpec]:
    """Table 8, and accuracy by the length of the context that an image was drawn in."""
    everything = count.by_setting.get(GUIDED, Results(()))
    guided = everything.where(lambda unit: unit.samples[0].sample.thought is not None)
    if not guided:
        return
    size, unit = lengths.measure(count.benchmark.tokenizer)
    rows = [{**row, "of": name, "mean": f"{float(row[of]):.1f} ({float(row[f'{of} std']):.1f})"}
            for of, name in (("evaluation", ""), ("training", ", training data"))
            for row in PAPER["Table 8"]]  # fmt: skip
    mean = Column(
        f"{unit}, mean (std.)", lambda some: lengths.mean_and_spread([size(answer.sample) for answer in some.scored]),
        lambda row: row["mean"],
    )  # fmt: skip
    yield TableSpec(
        "Length of the context (Table 8)", [mean], {GUIDED: guided}, names=TITLES, paper=rows,
        label="{model} in the paper{of}",
        note="Prompt and thought of setting 2. The paper counts with Qwen3-8B's tokenizer (options.ureason.tokenizer).",
    )  # fmt: skip
    thirds = {name: {(answer.sample.ask.case.set, answer.sample.ask.case.id, answer.sample.ask.k) for answer in some}
              for name, some in lengths.thirds(guided.scored, size)}  # fmt: skip
    parts = {s: {name: count.by_setting[s].where(lambda u, third=third: u.place in third)  # type: ignore[misc]
                 for name, third in thirds.items()}
             for s in (GUIDED, BARE) if s in count.by_setting and thirds}  # fmt: skip
    yield TableSpec(
        "Accuracy by length of the context",
        [Column(f"{name} {unit}", lambda some, name=name: count.benchmark.overall(parts[some.setting][name]))  # type: ignore[misc]
         for name in thirds],
        {s: count.by_setting[s] for s, some in parts.items() if all(some.values())}, names=TITLES,
        note="Thirds of the cases by prompt and thought in setting 2; the overall accuracy of the same cases (ours).",
    )  # fmt: skip


def _errors(count: Count) -> TableSpec:
    by_task = {**{task: count.errors(task) for task in count.tasks}, "overall": count.errors()}
    kinds = {kind.capitalize(): kind for kind in by_task["overall"]}
    return TableSpec(
        "Error types of setting 2 (section 5)",
        [Column(name.capitalize(), shares.get, "share" if name == "overall" else "")
         for name, shares in by_task.items()],
        kinds, paper=[{**row, "type": row["type"].capitalize()} for row in PAPER["Section 5"]],
        label="{type} in the paper, Bagel", first="Error",
        note="Shares of its wrong images. The paper's were sorted by people and are of all 500 images; "
        "options.ureason.errors=judge asks the judge.",
    )  # fmt: skip


def _paper(count: Count, name: str, of: str, row: paper.Row) -> str | None:
    """The paper's per cent as a share; overall where all of its tasks were asked. of: " gain" for the gain."""
    overall = name == "overall"
    cell = paper.per_cent(row[f"{name}{of}"], 3 if overall else 2, bool(of))
    return cell if not overall or cell is None or len(count.tasks) == len(TASKS) else "–"
