"""UniSandbox's results of STARS (Niu et al. 2025, arXiv 2511.20561), ours beside the paper's own rows, as markdown.

    python bench/papers.py --table 2 --table 3 --table 5 --figure 5 --out docs/results/data
    python bench/papers.py --table 3 --base shipped=shipped --base weak=runs/weak/model --set model.threads=1
    python bench/papers.py --method distil

Table 2: STARS on each maths level. Table 3: on each mapping level, levels 2 and 3 for three rounds, and the curriculum
after each round. Table 5: curriculum, mixed, and level 3 alone for as many updates. Figure 5: the filter (own
understanding, none, verifier) at equal numbers of samples kept, on three-step maths. --method distil: the pages of
bench/distillation.py, beside these or alone.

Runs that are missing are made with `fit`, one after the other, in RUNS/BASE/RECIPE/NAME; as `fit` continues what it
finds, so does this. Finished runs are only read: scores and rounds from summary.json, answers from the shards, from
which come the intervals over prompts, the numbers of distinct questions and the unreadable images.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import distillation
from bench.markdown import as_csv, row, table
from bench.stars import SETTINGS, Fit, Summary, column, fit_apart, listed, make, plan, seeds_of
from uni_train.config.compose import compose
from uni_train.data_gen.registry import TASKS
from uni_train.errors import UsageError, UserError
from uni_train.eval import summary as run_summary
from uni_train.eval.benchmarks.unisandbox import PAPER, SAID, set_name
from uni_train.eval.scored import read_folder
from uni_train.eval.statistics import Estimate, mean_over_seeds, share
from uni_train.files import atomic_write_text

CURRICULUM = "stars_curriculum evaluation.every_round=true name=rounds"
FILTERS = {"none": "no filter", "self": "its own understanding", "verifier": "the exact verifier"}
BESIDE = {task: next(iter(TASKS.get(task).variants.items())) for task in ("maths", "mapping")}

# --- what is compared -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Paper:
    """A row as printed: levels 1 to 3 asked both ways, and the average. None: not printed, or lost in our copy."""

    name: str
    normal: tuple[float | None, ...]
    cot: tuple[float | None, ...]
    average: float | None


@dataclass(frozen=True, slots=True)
class Page:
    """One table: which runs ("RECIPE KEY=VALUE ...", by label) stand beside which rows of the paper.

    averaged: the settings of the last column, as the paper averages. levels, modes: what every run is asked.
    """

    file: str
    title: str
    task: str
    arms: Mapping[str, str]
    paper: tuple[Paper, ...]
    averaged: tuple[str, ...] = ("normal", "cot")
    remarks: tuple[str, ...] = ()
    levels: tuple[int, ...] = (1, 2, 3)
    modes: tuple[str, ...] = (*SETTINGS, SAID)

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(set_name(self.task, level) for level in self.levels)

    @property
    def beside(self) -> tuple[str, ...]:
        """Sets that are asked beside its own."""
        return tuple(set_name(self.task, level, BESIDE[self.task][0]) for level in self.levels)


def printed(table: str, *names: str) -> tuple[Paper, ...]:
    """The rows of a table of the paper that have these names; all without names."""
    found = {}
    for one in PAPER[table]:
        normal, cot = (tuple(float(one[f"{setting} {level}"]) for level in (1, 2, 3)) for setting in SETTINGS)
        found[one["model"]] = Paper(one["model"], normal, cot, float(one["average"]))
    return tuple(found[name] for name in names or found)


# Our copy of Table 3 has lost one of seven numbers in each row "on M2" and "on M3": where six accuracies are left, the
# average; where the average is left, CoT M2 or M3, so neither can be told.
LOST = (
    "Table 3 of our copy of the paper lacks a cell in each row on M2 and M3. CoT M2 or M3 was 0.18 (M2, round 1), "
    "0.00 (M2, round 3), 0.23 (M3, round 1); the other one is lost. The averages of rounds 2 are lost too; the text "
    "gives 0.18 for the last row."
)
ON_M2_AND_M3 = (
    Paper("BAGEL + STARS on M2, round 1", (0.04, 0.05, 0.04), (0.70, None, None), 0.19),
    Paper("BAGEL + STARS on M2, round 2", (0.02, 0.09, 0.05), (0.39, 0.18, 0.09), None),
    Paper("BAGEL + STARS on M2, round 3", (0.04, 0.00, 0.00), (0.63, None, None), 0.11),
    Paper("BAGEL + STARS on M3, round 1", (0.11, 0.06, 0.01), (0.72, None, None), 0.24),
    Paper("BAGEL + STARS on M3, round 2", (0.01, 0.05, 0.02), (0.63, 0.25, 0.17), None),
    Paper("BAGEL + STARS on M3, round 3", (0.02, 0.05, 0.02), (0.59, 0.23, 0.16), 0.18),
)
# "BAGEL + STARS on M1" and round 1 of the curriculum are the same training and have the same numbers.
ON_M1 = (Paper("BAGEL + STARS on M1", (0.69, 0.10, 0.10), (0.66, 0.39, 0.38), 0.39),)
NOTHING = (None, None, None)
FIGURE_5 = (
    Paper("BAGEL + STARS on Math3, unfiltered (section B.1)", NOTHING, NOTHING, 0.16),
    Paper("BAGEL + STARS on Math3, filtered (section B.1)", NOTHING, NOTHING, 0.23),
)


def pages(tables: Sequence[int], figures: Sequence[int], overrides: Sequence[str]) -> list[Page]:
    """What was asked for. Raises UsageError for overrides that do not compose."""
    found = []
    if 2 in tables:
        arms = {f"STARS on Math{level}": f"stars_math level={level}" for level in (1, 2, 3)}
        found.append(Page("table_2", "Table 2: STARS on maths", "maths", arms, printed("Table 2")))
    if 3 in tables:
        arms = {
            "STARS on M1": "stars_mapping level=1",
            "STARS on M2": "stars_mapping_rounds level=2",
            "STARS on M3": "stars_mapping_rounds level=3",
            "STARS with CL": CURRICULUM,
        }
        curriculum = printed("Table 3", *(f"BAGEL + STARS with CL, round {number}" for number in (1, 2, 3)))
        rows = (*printed("Table 3", "BAGEL"), *ON_M1, *ON_M2_AND_M3, *curriculum)
        title = "Table 3: STARS on symbolic mapping, level by level and as a curriculum"
        found.append(Page("table_3", title, "mapping", arms, rows, remarks=(LOST,)))
    if 5 in tables:
        rounds = compose("stars_curriculum", overrides).rounds
        if None in [one.updates for one in rounds]:
            keys = ", ".join(f"budget.{one.set_name}.updates=N" for one in rounds)
            raise UsageError(
                "Table 5 compares equal numbers of updates, and this model counts epochs", f"--set {keys}."
            )
        updates = sum(one.updates for one in rounds)
        arms = {
            "STARS with CL": CURRICULUM,
            "STARS with Mix": "stars_mixed",
            "STARS on M3 alone, as many updates": f"stars_mapping level=3 budget.mapping3.updates={updates} name=long",
        }
        rows = printed("Table 3", "BAGEL", "BAGEL + STARS with CL, round 3", "BAGEL + STARS with Mix")
        title = "Table 5: curriculum, all levels mixed, and level 3 alone for as many updates"
        found.append(Page("table_5", title, "mapping", arms, rows))
    if 5 in figures:
        prompts = compose("stars_math", ["level=3", *overrides]).rounds[0].prompts
        line = f"stars_math level=3 budget.math3.kept={prompts // 3}"
        arms = {
            f"STARS on Math3, filter: {label}": f"{line} filter={key} name=level3-{key}"
            for key, label in FILTERS.items()
        }
        title = "Figure 5: rejection sampling on three-step maths, at equal numbers of samples kept"
        found.append(Page("figure_5", title, "maths", arms, FIGURE_5, averaged=("normal",)))
    return found


def distilled_pages(overrides: Sequence[str]) -> list[Page]:
    """Think-distillation beside STARS. Raises UsageError for overrides that do not compose."""
    rounds = compose("distil_curriculum", overrides).rounds
    # a pair is two prompts
    arms = distillation.arms(CURRICULUM, {one.set_name: one.prompts // 6 * 2 for one in rounds})
    title = "Think-distillation beside STARS"
    return [
        Page("distil_mapping", f"{title}: the curriculum on mapping", "mapping", arms["distil_mapping"], ()),
        Page("distil_maths", f"{title}: maths, each level alone", "maths", arms["distil_maths"], ()),
        Page(
            *("distil_speed", f"{title}: one link, after few updates", "mapping", arms["distil_speed"], ()),
            levels=(1,),
            modes=("normal",),
        ),
    ]


# --- what was answered ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path
    summary: Summary

    @property
    def labels(self) -> list[str]:
        """Of its evaluations after training, in order: round1, round2, after."""
        between = sorted(self.summary.get("after_round") or {}, key=lambda label: int(label.removeprefix("round")))
        return [*between, "after"]

    @property
    def used(self) -> int:
        """Kept samples that were trained on, over all rounds."""
        manifests = [json.loads(path.read_text()) for path in self.folder.glob("stages/*/manifest.json")]
        return sum(one["result"].get("used", 0) for one in manifests)

    def updates(self, label: str) -> int:
        """Up to this evaluation."""
        rounds = self.summary["rounds"]
        done = rounds if label == "after" else rounds[: 0 if label == "before" else int(label.removeprefix("round"))]
        return sum(int(one["updates"]) for one in done)


@dataclass(frozen=True, slots=True)
class Answers:
    """A setting of a set, asked once. clusters: what questions share (an expression, a set of rules), one a question.

    right: whether it counts, one a question (a prompt or a pair). unreadable: share of the images."""

    clusters: tuple[str, ...]
    right: tuple[bool, ...]
    unreadable: float


@functools.cache
def answers(folder: Path, label: str) -> dict[tuple[str, str], Answers]:
    """(setting, set) -> what this run answered at this evaluation. Raises UserError where its shards are gone."""
    found: dict[tuple[str, str], dict[str, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for scored in folder.glob(f"stages/*-evaluate-{label}/scored"):
        for one in read_folder(scored, images=False):
            case, facts = one.sample.ask.case, one.sample.ask.case.facts["item"]["facts"]
            cluster = str(facts.get("canonical", case.id))
            found[one.sample.ask.setting, case.set][case.cluster_id].append((cluster, one.outcome))
    if not found:
        raise UserError(f"{folder} has no answers of its evaluation {label}", "Delete the folder to run it again.")
    return {key: _answers(list(units.values())) for key, units in found.items()}


def _answers(units: Sequence[Sequence[tuple[str, str]]]) -> Answers:
    statuses = [status for unit in units for _, status in unit]
    return Answers(
        tuple(unit[0][0] for unit in units),
        tuple(all(status == "pass" for _, status in unit) for unit in units),
        statuses.count("unreadable") / len(statuses),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """Runs of one kind, a seed each, at one of their evaluations."""

    label: str
    runs: tuple[Run, ...]
    when: str

    def asked(self, setting: str, name: str) -> list[Answers]:
        found = [answers(run.folder, self.when).get((setting, name)) for run in self.runs]
        return [one for one in found if one is not None]

    def score(self, cells: Sequence[tuple[str, str]]) -> tuple[Estimate | None, Estimate | None]:
        """The mean over cells (setting, set): with its interval over seeds, and with that over questions, where all
        seeds' answers to what questions share are one cluster. (None, None) where a cell was not asked."""
        asked = [(setting, name, self.asked(setting, name)) for setting, name in cells]
        if any(len(found) < len(self.runs) for *_, found in asked):
            return None, None
        seeds = [
            math.fsum(sum(found[i].right) / len(found[i].right) for *_, found in asked) / len(asked)
            for i in range(len(self.runs))
        ]
        each = [
            (right, (name, cluster), (setting, name))
            for setting, name, found in asked
            for one in found
            for right, cluster in zip(one.right, one.clusters, strict=True)
        ]
        rights, clusters, places = zip(*each, strict=True)
        return mean_over_seeds(seeds), share(rights, clusters, cells=places)

    def unreadable(self, setting: str, name: str) -> float | None:
        found = [one.unreadable for one in self.asked(setting, name)]
        return sum(found) / len(found) if found else None


def rows_of(base: str, arms: Mapping[str, Sequence[Run]]) -> list[Row]:
    """What the base began with, then every arm after each of its evaluations."""
    first = next(iter(arms.values()))[0]
    found = [Row(f"{first.summary['model']}, {base}", (first,), "before")]
    for label, runs in arms.items():
        labels = runs[0].labels
        for number, when in enumerate(labels, 1):
            after = f"{label}, round {number}" if len(labels) > 1 else label
            found.append(Row(f"{base} + {after}", tuple(runs), when))
    return found


# --- the page -------------------------------------------------------------------------------------------------------


def lines(page: Page, found: Mapping[str, Mapping[str, Sequence[Run]]], command: str) -> Iterator[str]:
    """One page. found: base -> label of an arm -> its runs."""
    rows = {base: rows_of(base, arms) for base, arms in found.items()}
    every = [one for some in rows.values() for one in some]
    yield f"# {page.title}"
    yield ""
    yield f"    {command}"
    yield ""
    yield from _asked(page, every)
    yield ""
    yield from _scores(page, rows)
    yield ""
    yield f"The same models on other items: {BESIDE[page.task][1].said}."
    yield ""
    yield from _others(page, every)
    yield ""
    yield "Answers in words at once (nothing drawn), and images that cannot be read:"
    yield ""
    yield from _said(page, every)
    yield ""
    yield "Sampling and filter (samples are images; right: by the exact verifier):"
    yield ""
    yield from _rounds(found)
    for remark in (*page.remarks, *_findings(page, found)):
        yield ""
        yield remark


def _asked(page: Page, rows: Sequence[Row]) -> Iterator[str]:
    unit = "pairs (both right)" if page.task == "mapping" else "prompts"
    counts = []
    for name in page.sets:
        seen = {(len(one.right), len(set(one.clusters))) for some in rows for one in some.asked("normal", name)}
        counts += [f"{name} {' or '.join(f'{n} {unit}, {distinct} distinct' for n, distinct in sorted(seen))}"]
    yield f"Ours: {'; '.join(counts)}, asked in every cell of every run. The paper: 100 in a cell, BAGEL-7B-MoT."
    yield "[a, b]: 95 % t interval over seeds. (a, b): over questions, the answers of all seeds to what questions share"
    yield "(an expression, a set of rules) being one cluster. Average: mean of " + (
        "all six cells." if len(page.averaged) > 1 else "the Normal cells."
    )


def _cells(page: Page, settings: Sequence[str] = tuple(SETTINGS)) -> list[tuple[str, str]]:
    return [(setting, name) for setting in settings for name in page.sets]


def _scores(page: Page, rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    yield from table("model", "seeds", "updates", *map(column, _cells(page)), "Average", "change")
    base = page.paper[0].average if page.paper[0].name == "BAGEL" else None
    for paper in page.paper:
        change = "" if None in (base, paper.average) or paper is page.paper[0] else f"{paper.average - base:+.2f}"
        yield row(f"paper: {paper.name}", "", "", *map(_bare, (*paper.normal, *paper.cot, paper.average)), change)
    for some in rows.values():
        first = None
        for one in some:
            average = one.score(_cells(page, page.averaged))
            value = average[0].value if average[0] else None
            first = value if first is None else first
            change = "" if one.when == "before" or value is None or first is None else f"{value - first:+.2f}"
            updates = listed(sorted({run.updates(one.when) for run in one.runs}))
            cells = [_cell(*one.score([cell]), one.when == "before") for cell in _cells(page)]
            seeds = "" if one.when == "before" else len(one.runs)
            yield row(one.label, seeds, updates, *cells, _cell(*average, one.when == "before"), change)
    summary = next(iter(rows.values()))[0].runs[0].summary
    chance = (summary.get("chance") or {}).get(page.task)
    if chance is not None:
        yield row("chance", "", "", *[_bare(chance)] * len(_cells(page)), _bare(chance), "")
    trivial = [_trivial(summary, name) for name in page.sets]
    if any(trivial):
        yield row("best trivial strategy", "", "", *trivial * len(SETTINGS), "", "")


def _trivial(summary: Summary, name: str) -> str:
    """The best strategy on a set that is not the task itself; "" in an older summary."""
    best = run_summary.trivial(summary, name)
    return "" if best is None else f"{_bare(best.estimate.value)} ({best.name})"


def _others(page: Page, rows: Sequence[Row]) -> Iterator[str]:
    cells = [(setting, name) for setting in SETTINGS for name in page.beside]
    yield from table("model", *map(column, cells))
    for one in rows:
        yield row(one.label, *(_cell(*one.score([cell]), one.when == "before") for cell in cells))
    summary = rows[0].runs[0].summary
    yield row("best trivial strategy", *[_trivial(summary, name) for name in page.beside] * len(SETTINGS))


def _said(page: Page, rows: Sequence[Row]) -> Iterator[str]:
    columns = [(setting, name) for setting in SETTINGS for name in page.sets]
    yield from table("model", *(column((SAID, n)) for n in page.sets), *(f"unreadable, {column(c)}" for c in columns))
    for one in rows:
        said = [_cell(*one.score([(SAID, name)]), one.when == "before") for name in page.sets]
        yield row(one.label, *said, *(_bare(one.unreadable(*cell)) for cell in columns))


def _rounds(found: Mapping[str, Mapping[str, Sequence[Run]]]) -> Iterator[str]:
    yield from table("runs", "seeds", "sampled", "of them right", "kept", "of the kept right", "minutes")
    for base, arms in found.items():
        for label, runs in arms.items():
            each = [(run, totals(run.summary)) for run in runs]
            sampled, kept = (listed(sorted({getattr(one, key) for _, one in each})) for key in ("sampled", "kept"))
            right = _mean([one.right / one.sampled if one.sampled else None for _, one in each])
            precise = _mean([one.hits / one.kept if one.kept else None for _, one in each])
            minutes = sum(run.summary["wall_seconds"] for run in runs) / len(runs) / 60
            yield row(f"{base} + {label}", len(runs), sampled, _bare(right), kept, _bare(precise), f"{minutes:.1f}")


@dataclass(frozen=True, slots=True)
class Totals:
    """Of a run's rounds: images sampled, right ones among them, kept, right ones among those."""

    sampled: int
    right: int
    kept: int
    hits: float


def totals(summary: Summary) -> Totals:
    rounds = summary["rounds"]
    return Totals(
        sum(one["sampled"] for one in rounds),
        sum((one.get("recall_estimate") or {"n": 0})["n"] for one in rounds),
        sum(one["kept"] for one in rounds),
        math.fsum((one["precision"] or 0.0) * one["kept"] for one in rounds),
    )


def _findings(page: Page, found: Mapping[str, Mapping[str, Sequence[Run]]]) -> Iterator[str]:
    if page.file != "figure_5":
        return
    for base, arms in found.items():
        everything = [totals(run.summary) for runs in arms.values() for run in runs]
        used = sorted({run.used for runs in arms.values() for run in runs})
        unequal = "" if len(used) == 1 else ", so numbers are not equal here"
        yield f"{base}: each run trained on {listed(used)} samples{unequal}."
        right = _mean([one.right / one.sampled for one in everything if one.sampled])
        if right is not None and not 0.45 <= right <= 0.7:
            yield f"{base}: the teacher is right {right:.2f} of the time, not half to two thirds as meant."


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return math.fsum(known) / len(known) if known else None


def _bare(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _cell(seeds: Estimate | None, questions: Estimate | None, one_run: bool) -> str:
    """0.62 [0.55, 0.69] (0.58, 0.66); what one run measured has no interval over seeds."""
    if seeds is None or questions is None or seeds.value is None:
        return "-"
    spread = "" if one_run or seeds.n < 2 else f" [{seeds.low:.2f}, {seeds.high:.2f}]"
    return f"{seeds.value:.2f}{spread} ({questions.low:.2f}, {questions.high:.2f})"


# --- making it ------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--table", type=int, choices=(2, 3, 5), action="append", default=[])
    made.add_argument("--figure", type=int, choices=(5,), action="append", default=[])
    made.add_argument("--method", choices=("stars", "distil"), default="stars", help="distil: pages beside STARS, too")
    made.add_argument("--seeds", default="0,1,2", help="with commas (default: 0,1,2)")
    made.add_argument("--base", action="append", default=[], metavar="NAME=FOLDER", help="checkpoint to begin with")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="of every run")
    made.add_argument("--runs", type=Path, default=Path("runs/papers"), help="where runs are (default: %(default)s)")
    made.add_argument("--out", type=Path, help="a folder: the tables of each page as CSV")
    return made


def bases_of(given: Sequence[str]) -> dict[str, list[str]]:
    """Name -> overrides; the recipe's own checkpoint without any. Raises UserError for a folder that is not there."""
    found: dict[str, list[str]] = {} if given else {"shipped": []}
    for one in given:
        name, _, folder = one.partition("=")
        if not re.fullmatch(r"\w[\w.-]*", name) or not folder or name in found:
            raise UsageError(f"cannot read --base {one}", "Write NAME=FOLDER, each name once; FOLDER may be shipped.")
        if folder != "shipped" and not Path(folder).is_dir():
            raise UserError(f"--base {name}: there is no folder {folder}", "Name a checkpoint's folder, or shipped.")
        found[name] = [f"model.checkpoint={folder}"]
    return found


def run(chosen: argparse.Namespace, command: str, fit: Fit = fit_apart) -> Iterator[tuple[Page, str]]:
    """Page by page: make what is missing, then its text. Everything is composed first, so that slips show at once."""
    seeds, bases = seeds_of(chosen.seeds), bases_of(chosen.base)
    wanted = pages(chosen.table, chosen.figure, chosen.overrides)
    distilled = distilled_pages(chosen.overrides) if chosen.method == "distil" else []
    if not wanted and not distilled:
        raise UsageError("nothing was asked for", "Give --table 2, 3 or 5, --figure 5, or --method distil.")
    planned = {}
    for page in (*wanted, *distilled):
        for base, checkpoint in bases.items():
            for label, line in page.arms.items():
                asked = (
                    f"evaluation.modes=[{','.join(page.modes)}]",
                    f"evaluation.sets=[{','.join((*page.sets, *page.beside))}]",
                )
                common = shlex.join([f"out={chosen.runs / base}", *asked, *checkpoint, *chosen.overrides])
                recipe, _, own = line.partition(" ")  # what makes the comparison comes last: --set does not undo it
                planned[page.file, base, label] = plan(f"{recipe} {common} {own}", seeds)
    for page in (*wanted, *distilled):
        make((one for (file, *_), some in planned.items() if file == page.file for one in some), fit)
        found = {
            base: {
                label: [Run(one.folder, run_summary.read(one.folder)) for one in planned[page.file, base, label]]
                for label in page.arms
            }
            for base in bases
        }
        written = distillation.lines if page in distilled else lines
        yield page, "\n".join(written(page, found, command)) + "\n"


def main() -> None:
    chosen = parser().parse_args()
    try:
        for page, text in run(chosen, f"python bench/papers.py {shlex.join(sys.argv[1:])}"):
            print(text)
            if chosen.out is not None:
                chosen.out.mkdir(parents=True, exist_ok=True)
                atomic_write_text(chosen.out / f"{page.file}.csv", as_csv(text))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
