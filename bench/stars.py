"""UniSandbox 3.4's comparisons over seeds, as markdown tables: curriculum against its rivals, filter on against off.

    python bench/stars.py runs/stars_curriculum/* runs/stars_mixed/*
    python bench/stars.py --seeds 0,1,2 --run stars_curriculum --run stars_mixed --run stars_no_filter
    python bench/stars.py --run stars_curriculum --run "stars_mapping level=3 budget.mapping3.updates=260 name=long"

Runs of one recipe whose names differ in the seed alone are one row. Differences are between the first row and each
other one, paired by seed. `--run` first does what is missing, one run after the other; as `fit` continues what it
finds, so does this, and a finished run is only read. `name=` in a --run gets the seed behind it; give one where
overrides change the recipe, so that its runs do not meet those of the plain recipe.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.config.schema import RunConfig
from uni_train.data_gen.registry import sources
from uni_train.errors import UsageError, UserError
from uni_train.eval import summary as run_summary
from uni_train.eval.benchmarks.unisandbox import SAID
from uni_train.eval.statistics import Estimate, mean_over_seeds, proportion
from uni_train.run_folder import decisive

ROOT = Path(__file__).resolve().parents[1]
SETS = {
    "Symbolic mapping (pairs, both right)": ("mapping1", "mapping2", "mapping3"),
    "Mathematical operations": ("math1", "math2", "math3"),
}
SETTINGS = {"normal": "Normal", "cot": "CoT"}
Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """The runs of one recipe, by seed."""

    label: str
    runs: Mapping[int, Summary]

    @property
    def updates(self) -> tuple[int, ...]:
        """Updates of each run; one number if all agree."""
        return tuple(sorted({sum(int(one["updates"]) for one in run["rounds"]) for run in self.runs.values()}))

    def score(self, when: str, setting: str, name: str) -> Estimate | None:
        """The mean accuracy of a cell over seeds; None if a run did not measure it."""
        entries = [run["scores"].get(when, {}).get(setting, {}).get(name) for run in self.runs.values()]
        return None if None in entries else over_seeds_and_questions([Estimate.from_dict(entry) for entry in entries])

    def over_seeds(self, value: Callable[[Summary], float | None], bounds: tuple[float, float]) -> Estimate | None:
        found = [value(run) for run in self.runs.values()]
        return mean_over_seeds([x for x in found if x is not None], bounds) if None not in found else None


def over_seeds_and_questions(runs: Sequence[Estimate]) -> Estimate:
    """The mean of runs that were asked the same questions, with an interval for other seeds and other questions.

    Its limits are those of the t interval over seeds and of the runs' mean interval over questions, combined in
    quadrature (MOVER, Zou and Donner 2008). Questions do not average out over seeds, so this is conservative. n: seeds.
    """
    values = [run.value for run in runs if run.value is not None]
    seeds = mean_over_seeds(values)
    mean = math.fsum(values) / len(values)
    below, above = ([getattr(run, end) - run.value for run in runs] for end in ("low", "high"))
    low = mean - math.hypot(mean - seeds.low, math.fsum(below) / len(runs))
    high = mean + math.hypot(seeds.high - mean, math.fsum(above) / len(runs))
    return Estimate(mean, len(runs), max(low, 0.0), min(high, 1.0))


def read_groups(folders: Iterable[Path]) -> list[Group]:
    """The runs of these folders, in the order in which their recipes first appear.

    Raises:
        UserError: a folder without a readable summary.json; two runs of one recipe and seed.
    """
    found: dict[str, dict[int, Summary]] = {}
    for folder in folders:
        summary = run_summary.read(folder)
        variant = re.sub(r"-?seed\d+", "", folder.resolve().name).strip("-")
        label = f"{summary['recipe']} {variant}".strip()
        runs = found.setdefault(label, {})
        if summary["seed"] in runs:
            raise UserError(f"{folder} is a second run of {label} with seed {summary['seed']}", "Give one of them.")
        runs[summary["seed"]] = summary
    return [Group(label, dict(sorted(runs.items()))) for label, runs in found.items()]


def tables(groups: Sequence[Group]) -> Iterator[str]:
    """All lines of the comparison."""
    for title, sets in SETS.items():
        if any(
            score(run, "after", "normal", name) is not None for g in groups for run in g.runs.values() for name in sets
        ):
            yield from _scores(title, sets, groups)
            if len(groups) > 1:
                yield from _differences(sets, groups)
    yield from _costs(groups)


def score(run: Summary, when: str, setting: str, name: str) -> float | None:
    """One accuracy of a run, None if it was not measured."""
    found = run["scores"].get(when, {}).get(setting, {}).get(name)
    return None if found is None else found["value"]


def _scores(title: str, sets: Sequence[str], groups: Sequence[Group]) -> Iterator[str]:
    sizes = sorted({
        entry["n"]
        for group in groups
        for run in group.runs.values()
        for by_set in run["scores"]["after"].values()
        for name, entry in by_set.items()
        if name in sets
    })  # fmt: skip
    yield f"### {title}"
    yield ""
    yield f"Means over seeds; 95 % intervals over seeds and questions; each run asked {listed(sizes)} times a cell."
    yield ""
    yield from table("recipe", "seeds", "updates", *map(column, _cells(sets)))
    yield from _bases(groups, sets)
    for group in groups:
        cells = [group.score("after", setting, name) for setting, name in _cells(sets)]
        yield row(group.label, len(group.runs), listed(group.updates), *map(_cell, cells))
    summary = next(iter(groups[0].runs.values()))
    chance = (summary.get("chance") or {}).get(sources()[sets[0]].task)
    plain = [run_summary.trivial(summary, name) for name in sets]
    if any(plain):
        best = ["-" if one is None else f"{_cell(one.estimate)}, {one.name}" for one in plain]
        yield row("best trivial strategy", "", "", *best * len(SETTINGS))
        yield row("chance", "", "", *[f"{chance:.2f}"] * len(_cells(sets)))
    yield ""
    yield from _said(sets, groups)


def _said(sets: Sequence[str], groups: Sequence[Group]) -> Iterator[str]:
    """What the models answer in words at once."""
    runs = [run for group in groups for run in group.runs.values()]
    if not all(score(run, "after", SAID, name) is not None for run in runs for name in sets):
        return
    yield from table("recipe", *(column((SAID, name)) for name in sets))
    for when in ("before", "after"):
        for group in groups if when == "after" else groups[:1]:
            cells = [_cell(group.score(when, SAID, name)) for name in sets]
            yield row("before" if when == "before" else group.label, *cells)
    yield ""


def _bases(groups: Sequence[Group], sets: Sequence[str]) -> Iterator[str]:
    """What the runs began with: the interval is over prompts here, because all runs of one base measure the same."""
    seen: list[Any] = []
    for group in groups:
        for run in group.runs.values():
            before = run["scores"]["before"]
            entries = [before.get(setting, {}).get(name) for setting, name in _cells(sets)]
            if entries not in seen and any(entries):
                seen.append(entries)
                cells = [None if entry is None else Estimate.from_dict(entry) for entry in entries]
                label = "before (interval over prompts)" if len(seen) == 1 else f"before {group.label}"
                yield row(label, "", "", *map(_cell, cells))


def _differences(sets: Sequence[str], groups: Sequence[Group]) -> Iterator[str]:
    first = groups[0]
    yield f"{first.label} minus each other, paired by seed (95 % t intervals):"
    yield ""
    yield from table("minus", "seeds", *map(column, _cells(sets)))
    for other in groups[1:]:
        seeds = [seed for seed in first.runs if seed in other.runs]
        unequal = "" if first.updates == other.updates else " (unequal updates)"
        cells = []
        for setting, name in _cells(sets):
            pairs = [(score(first.runs[s], "after", setting, name), score(other.runs[s], "after", setting, name))
                     for s in seeds]  # fmt: skip
            gaps = [a - b for a, b in pairs if a is not None and b is not None]
            cells.append(_cell(mean_over_seeds(gaps, (-1, 1)), sign="+") if gaps else "-")
        yield row(other.label + unequal, len(seeds), *cells)
    yield ""


def _costs(groups: Sequence[Group]) -> Iterator[str]:
    yield "### Costs and filters"
    yield ""
    yield from table("recipe", "seeds", "kept of sampled", "precision of the kept", "minutes", "peak GB, largest")
    for group in groups:
        kept = group.over_seeds(_kept_share, (0, 1))
        precise = group.over_seeds(_precision, (0, 1))
        minutes = group.over_seeds(lambda run: run["wall_seconds"] / 60, (0, math.inf))
        peak = max(run["peak_rss_bytes"] for run in group.runs.values()) / 1e9
        yield row(group.label, len(group.runs), _cell(kept), _cell(precise, 3), _cell(minutes, 1), f"{peak:.2f}")


def _kept_share(run: Summary) -> float | None:
    sampled = sum(one["sampled"] for one in run["rounds"])
    return sum(one["kept"] for one in run["rounds"]) / sampled if sampled else None


def _precision(run: Summary) -> float | None:
    """Right of the kept samples, over all rounds."""
    rounds = [one for one in run["rounds"] if one["precision"] is not None]
    kept = sum(one["kept"] for one in rounds)
    return sum(one["precision"] * one["kept"] for one in rounds) / kept if kept else None


# --- markdown -------------------------------------------------------------------------------------------------------


def _cells(sets: Sequence[str]) -> list[tuple[str, str]]:
    return [(setting, name) for setting in SETTINGS for name in sets]


def column(cell: tuple[str, str]) -> str:
    """("normal", "mapping2") -> "Normal M2"."""
    setting, name = cell
    name, _, beside = name.replace("mapping", "M").replace("math", "Math").partition("_")
    return f"{SETTINGS.get(setting, setting.capitalize())} {name}{f' {beside}' if beside else ''}"


def _cell(estimate: Estimate | None, digits: int = 2, sign: str = "") -> str:
    if estimate is None or estimate.value is None:
        return "-"
    low, high = (f"{end:{sign}.{digits}f}" for end in (estimate.low, estimate.high))
    return f"{estimate.value:{sign}.{digits}f} [{low}, {high}]"


def listed(numbers: Iterable[int]) -> str:
    return " or ".join(str(number) for number in numbers) or "-"


# --- making the runs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """A run: its folder, `fit`'s arguments, and what it is to be."""

    folder: Path
    arguments: tuple[str, ...]
    config: RunConfig

    @property
    def finished(self) -> bool:
        """Whether just this run is there, with its summary. Anything else is for `fit` to continue or refuse."""
        try:
            stored = yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf-8"))
            same = decisive(stored) == decisive(to_plain(self.config))
        except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError):
            return False
        return same and (self.folder / "summary.json").is_file()


def plan(line: str, seeds: Sequence[int]) -> list[Planned]:
    """The run of every seed of "RECIPE KEY=VALUE ...". Raises UsageError as `fit` would."""
    recipe, *overrides = shlex.split(line)
    planned = []
    for seed in seeds:
        own = [f"{one}-seed{seed}" if one.startswith("name=") else one for one in overrides] + [f"seed={seed}"]
        config = compose(recipe, own)
        folder = Path(config.out) / config.recipe / config.run_name
        planned.append(Planned(folder, ("fit", "--recipe", recipe, *own), config))
    return planned


Fit = Callable[[Sequence[str]], int]
"""From the arguments of `uni_train` to its exit code."""


def fit_apart(arguments: Sequence[str]) -> int:
    """In a process of its own, whose output goes to stderr: only the tables go to stdout."""
    return subprocess.run([sys.executable, "-m", "uni_train", *arguments], stdout=sys.stderr).returncode


def make(planned: Iterable[Planned], fit: Fit = fit_apart) -> list[Path]:
    """Run or continue what is not finished, one after the other. Raises UserError when one fails."""
    folders = []
    for one in planned:
        if not one.finished:
            print(f"-- {one.folder}: uni_train {shlex.join(one.arguments)}", file=sys.stderr, flush=True)
            code = fit(one.arguments)
            if code:
                raise UserError(f"{one.folder} stopped with exit code {code}", "Run this again to continue it.")
        folders.append(one.folder)
    return folders


def seeds_of(text: str) -> list[int]:
    """ "0,1,2" -> [0, 1, 2]. Raises UsageError."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise UsageError(f"cannot read --seeds {text}", "Write them as 0,1,2.")
    return [int(seed) for seed in text.split(",")]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="a finished run's folder")
    made.add_argument("--run", action="append", default=[], metavar='"RECIPE KEY=VALUE ..."', help="make these runs")
    made.add_argument("--counts", type=Path, metavar="CSV", help="cell,questions,right of each seed: print intervals")
    made.add_argument("--seeds", default="0,1,2", help="of --run, with commas (default: 0,1,2)")
    return made


def counted(path: Path) -> Iterator[str]:
    """The row of cells whose numbers of right answers, a seed each, are in a CSV file."""
    with path.open(encoding="utf-8", newline="") as lines:
        header, *cells = csv.reader(lines)
    yield from table("", *(cell for cell, *_ in cells))
    runs = [[proportion(int(right), int(questions)) for right in seeds] for _, questions, *seeds in cells]
    yield row(f"{len(header) - 2} seeds", *(_cell(over_seeds_and_questions(each)) for each in runs))


def main() -> None:
    chosen = parser().parse_args()
    try:
        if chosen.counts:
            print("\n".join(counted(chosen.counts)))
            return
        seeds = seeds_of(chosen.seeds)
        planned = [
            one for line in chosen.run for one in plan(line, seeds)
        ]  # all, so that a slip shows before hours pass
        folders = [*chosen.runs, *make(planned)]
        if not folders:
            raise UsageError("no runs were named", "Give run folders (runs/stars_curriculum/*) or --run RECIPE.")
        for line in tables(read_groups(folders)):
            print(line)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
