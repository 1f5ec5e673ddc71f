"""Experiments: runs, or measurements of a model, and the tables of them as markdown.

    python bench/experiment.py table_2 table_3 table_5 figure_5 --seeds 0,1,2 --threads 1 --out research/data
    python bench/experiment.py table_5 --base shipped=shipped --base weak=runs/weak/model
    python bench/experiment.py --run stars_curriculum --run "stars_mapping level=3 name=long" --jobs 2
    python bench/experiment.py mazes --runs runs/plateau -o flat=1 -o seconds=1200 --only sft_same,stars
    python bench/experiment.py table_5 runs/stars_curriculum/*         # folders of finished runs: their table too

An experiment is a function of bench/experiments; its keywords are the options that `-o` sets. Runs that are missing are
made by `uni_train fit`, `--jobs` at a time. `fit` continues what it finds, so this does, too. What is finished is only
read. `name=` in a --run gets the seed behind it: give one where overrides change the recipe.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError, validate_call

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import as_csv
from uni_train.config.build import to_plain
from uni_train.config.compose import compose
from uni_train.config.schema import RunConfig
from uni_train.core.errors import UsageError, UserError
from uni_train.core.files import atomic_write_text
from uni_train.core.reading_limits import read_json
from uni_train.run_folder import decisive, stored_config

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = {
    **dict.fromkeys(("table_2", "table_3", "table_5", "figure_5", "seeds"), "unisandbox"),
    **dict.fromkeys(("distil_mapping", "distil_maths", "distil_speed", "sharpness"), "unisandbox"),
    **dict.fromkeys(("thought_or_judgement", "judge_noise"), "self_training"),
    "preferences": "preferences",
    **dict.fromkeys(("replay", "retention"), "retention"),
    **{name: name for name in ("cascade", "filters", "hacking", "interference", "knowledge")},
    **{name: name for name in ("judgements", "mazes", "maze_sizes", "redraw", "teachers", "unigrpo")},
}
"""Name -> its module in bench/experiments."""
SETS = tuple((task, level) for task in ("mapping", "maths") for level in (1, 2, 3))
"""Of measurements of a model: task and level."""
Fit = Callable[[Sequence[str]], tuple[int, str]]
"""From the arguments of `uni_train fit` to its exit code and output."""


def fit_apart(arguments: Sequence[str]) -> tuple[int, str]:
    """In a process of its own, whose output also goes to stderr: only tables go to stdout."""
    print(f"-- uni_train fit {shlex.join(arguments)}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "uni_train", "fit", *arguments]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            sys.stderr.write(line)
    return process.returncode, "".join(lines)


@dataclass(frozen=True, slots=True)
class Job:
    """A run: its folder, `fit`'s arguments, and what it is to be."""

    folder: Path
    arguments: tuple[str, ...]
    config: RunConfig

    @property
    def finished(self) -> bool:
        """Whether just this run is there, with its summary. Anything else is for `fit` to continue or refuse."""
        try:
            stored, asked = (decisive(to_plain(one)) for one in (stored_config(self.folder), self.config))
        except UserError:
            return False
        return stored == asked and (self.folder / "summary.json").is_file()


def plan(line: str, seeds: Sequence[int]) -> list[Job]:
    """The run of every seed of "RECIPE KEY=VALUE ...". Raises UsageError as `fit` would."""
    recipe, *overrides = shlex.split(line)
    jobs = []
    for seed in seeds:
        given = [f"{one}-seed{seed}" if one.startswith("name=") else one for one in overrides] + [f"seed={seed}"]
        config = compose(recipe, given)
        folder = Path(config.out) / config.recipe / config.run_name
        jobs.append(Job(folder, ("--recipe", recipe, *given), config))
    return jobs


@dataclass(frozen=True, slots=True)
class Lab:
    """How experiments are run.

    Attributes:
        bases: name -> overrides that choose the checkpoint to begin with. only: names of arms; () for all.
        lines: "RECIPE KEY=VALUE ..." of --run. folders: of finished runs.
    """

    seeds: Sequence[int] = (0,)
    runs: Path = Path("runs/papers")
    overrides: Sequence[str] = ()
    bases: Mapping[str, Sequence[str]] | None = None
    only: Sequence[str] = ()
    jobs: int = 1
    lines: Sequence[str] = ()
    folders: Sequence[Path] = ()
    command: str = ""
    fit: Fit = fit_apart

    def arms(self, known: Iterable[str], default: Sequence[str] = ()) -> list[str]:
        """Those of --only; without it `default`, or all that are known. Raises UsageError for others."""
        known = list(known)
        arms = list(self.only or default or known)
        if lost := [arm for arm in arms if arm not in known]:
            raise UsageError(f"cannot read --only {lost[0]}", f"Arms are {', '.join(known)}.")
        return arms

    def train(self, arguments: Sequence[str]) -> None:
        """Run or continue one. Raises UserError where it fails."""
        code, _ = self.fit(arguments)
        if code:
            raise UserError(f"uni_train fit {shlex.join(arguments)} ended with {code}", "Run this again to continue.")

    def make(self, jobs: Iterable[Job]) -> None:
        """Do what is not finished, some at a time. Raises UserError when one fails, once the others have ended."""
        missing = {job.folder: job for job in jobs if not job.finished}
        self.each([lambda job=job: self.train(job.arguments) for job in missing.values()])  # type: ignore[misc]

    def each(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Call all, `jobs` at a time, in threads; after an error no new one is started."""
        if self.jobs == 1:
            for task in tasks:
                task()
            return
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(task) for task in tasks]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def seconds_each(file: Path, arm: str, measure: Callable[[], float]) -> float:
    """Seconds of an update, an epoch or a round of an arm: `measure`d once and kept in `file`, for all seeds."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if arm not in known:
        known[arm] = measure()
        atomic_write_text(file, json.dumps(known, indent=1) + "\n")
    return float(known[arm])


def stage_seconds(run: Path) -> dict[str, float]:
    """Stage -> what it took, without evaluations."""
    stages = {file.parent.name: read_json(file)["seconds"] for file in sorted(run.glob("stages/*/manifest.json"))}
    return {name: float(spent) for name, spent in stages.items() if "-evaluate-" not in name}


def bases_of(given: Sequence[str]) -> dict[str, list[str]]:
    """Name -> overrides; the recipe's own checkpoint without any. Raises UserError for a folder that is not there."""
    bases: dict[str, list[str]] = {} if given else {"shipped": []}
    for base in given:
        name, _, folder = base.partition("=")
        if not re.fullmatch(r"\w[\w.-]*", name) or not folder or name in bases:
            raise UsageError(f"cannot read --base {base}", "Write NAME=FOLDER, each name once; FOLDER may be shipped.")
        if folder != "shipped" and not Path(folder).is_dir():
            raise UserError(f"--base {name}: there is no folder {folder}", "Name a checkpoint's folder, or shipped.")
        bases[name] = [f"model.checkpoint={folder}"]
    return bases


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", metavar="EXPERIMENT|RUN", help=f"{', '.join(EXPERIMENTS)}; or runs' folders")
    made.add_argument("--seeds", default="0,1,2", help="with commas (%(default)s)")
    made.add_argument("--run", action="append", default=[], metavar='"RECIPE KEY=VALUE ..."', help="compare these")
    made.add_argument("--base", action="append", default=[], metavar="NAME=FOLDER", help="checkpoint to begin with")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of every run")
    made.add_argument("--threads", type=int, help="of every run")
    made.add_argument("--jobs", type=int, default=1, help="runs at a time (%(default)s)")
    made.add_argument("--only", default="", help="these arms, with commas")
    made.add_argument("--runs", type=Path, default=Path("runs/papers"), help="where runs are (%(default)s)")
    made.add_argument("--out", type=Path, help="a folder: the tables of each experiment as CSV")
    made.add_argument("-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="of the experiment")
    return made


def lab_of(chosen: argparse.Namespace, fit: Fit = fit_apart) -> Lab:
    """Raises UserError for what cannot be read."""
    if not re.fullmatch(r"\d+(,\d+)*", chosen.seeds):
        raise UsageError(f"cannot read --seeds {chosen.seeds}", "Write them as 0,1,2.")
    overrides = [*([f"model.threads={chosen.threads}"] if chosen.threads else []), *chosen.set]
    folders = [Path(name) for name in chosen.names if name not in EXPERIMENTS]
    lost = [folder for folder in folders if not folder.is_dir()]
    if lost:
        raise UsageError(f"{lost[0]} is no experiment and no folder", f"Experiments: {', '.join(EXPERIMENTS)}.")
    return Lab(
        [int(seed) for seed in chosen.seeds.split(",")], chosen.runs, overrides, bases_of(chosen.base),
        [name for name in chosen.only.split(",") if name], chosen.jobs, chosen.run, folders,
        f"python bench/experiment.py {shlex.join(sys.argv[1:])}", fit,
    )  # fmt: skip


def pages(chosen: argparse.Namespace, fit: Fit = fit_apart) -> list[tuple[str, Iterator[str]]]:
    """Name and lines of each experiment. All runs are composed now and made when the lines are read, so that a slip
    shows before hours pass."""
    lab = lab_of(chosen, fit)
    names = [name for name in chosen.names if name in EXPERIMENTS]
    if (lab.lines or lab.folders) and not set(names) & {"seeds", "knowledge"}:
        names.append("seeds")
    if not names:
        raise UsageError("nothing was asked for", f"Name experiments ({', '.join(EXPERIMENTS)}), runs, or give --run.")
    options = dict(option.partition("=")[::2] for option in chosen.option)
    found = []
    for name in names:
        experiment = getattr(importlib.import_module(f"bench.experiments.{EXPERIMENTS[name]}"), name)
        try:
            found.append((name, validate_call(experiment, config={"arbitrary_types_allowed": True})(lab, **options)))
        except ValidationError as error:
            raise UsageError(f"{name}: {error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}") from None
    return found


def main() -> None:
    chosen = parser().parse_args()
    try:
        for name, lines in pages(chosen):
            text = []
            for line in lines:
                print(line, flush=True)
                text.append(line)
            if chosen.out is not None:
                chosen.out.mkdir(parents=True, exist_ok=True)
                atomic_write_text(chosen.out / f"{name}.csv", as_csv("\n".join(text)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    importlib.import_module("bench.experiment").main()  # not twice: experiments import this module, too
