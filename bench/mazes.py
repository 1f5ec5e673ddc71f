"""What a verifier adds to a limited set of solved mazes, and the controls beside it, each at equal wall time.

    python bench/mazes.py make --out runs/mazes --seeds 0,1,2
    python bench/mazes.py table --out runs/mazes

Every seed has mazes, first weights and random numbers of its own. One model is trained on its solved mazes, and once
more at a lower rate, until they have little left to teach; every arm goes on from that model for the same seconds. How
many updates those are is measured first, on a short run of each arm; the table gives the seconds that it took. A
finished arm is a line of OUT/arms.jsonl; the same command goes on where it was stopped, in the middle of an arm too.

Success is the verifier's, on mazes of the test split, which no arm has seen. Settings were chosen on the validation
split (held_out.split=validation).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_gen.export import make as export
from data_gen.maze.picture import NANO
from data_gen.maze.task import Maze
from data_gen.seeds import derive_seed
from data_gen.task import Item
from eval.statistics import Estimate, mean_over_seeds, paired
from uni_train.errors import UsageError, UserError
from uni_train.training.metric_log import read_metrics

LEVEL = 4
ASKED = {2: 24, 3: 100, 4: 2000, 5: 100}  # test mazes by level; there are no more of 2 x 2
FRESH = 20_000  # solved mazes for the arm that may have as many as it wants
DRAWS = 4  # pictures a maze, where one right picture of several counts
SEEN = 200  # of the solved mazes are asked, too, and so many of the new ones DRAWS times
PACE = {"updates": 100, "epochs": 15}  # of the short run that an arm's pace is measured on
LINES = "arms.jsonl"
START, SETTLED = "start", "settled"
Fit = Callable[[Sequence[str]], None]
"""Runs `uni_train fit` with these arguments."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to spend the seconds.

    Attributes:
        begins: the arm whose weights it goes on from. counter: the key that says how long it lasts.
        data: whose solved mazes it is shown or asked: "limited", "more"; None: new unsolved ones in every epoch.
    """

    label: str
    begins: str | None
    recipe: str
    counter: str
    data: str | None
    overrides: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        return "00-grpo" if self.recipe == "flow_grpo_maze" else "00-sft"


_QUIET = ("held_out.n=0", "checkpoint_every=1000")
_NFT = (
    *("variant=diffusion_nft", "rollout.prompts_per_epoch=24", "objective.noise_draws=2", "objective.kl=0.05"),
    *("objective.scale_rewards=group", "objective.advantage_clip=1"),
)
_BLIND = ("held_out.task=null", "checkpoint_every=1000")
_AGAIN = (*_BLIND, "optimizer.lr=1e-3", "optimizer.decay_share=1")
ARMS = {
    START: Arm("SFT", None, "sft_maze", "updates", "limited", _BLIND),
    SETTLED: Arm("SFT, once more", START, "sft_maze", "updates", "limited", _AGAIN),
    "grpo_early": Arm("in its place: Flow-GRPO, new mazes, unsolved", START, "flow_grpo_maze", "epochs", None, _QUIET),
    "sft_same": Arm("+ SFT, same mazes", SETTLED, "sft_maze", "updates", "limited", _AGAIN),
    "grpo_same": Arm("+ Flow-GRPO, same mazes", SETTLED, "flow_grpo_maze", "epochs", "limited", _QUIET),
    "grpo_new": Arm("+ Flow-GRPO, new mazes, unsolved", SETTLED, "flow_grpo_maze", "epochs", None, _QUIET),
    "nft_new": Arm("+ DiffusionNFT, new mazes, unsolved", SETTLED, "flow_grpo_maze", "epochs", None, (*_QUIET, *_NFT)),
    "sft_more": Arm("+ SFT, new mazes, solved", SETTLED, "sft_maze", "updates", "more", _AGAIN),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a table is made of.

    Attributes:
        n: solved mazes in the limited set. start, settle, seconds: of the first training, of the second at a lower
            rate, and of each arm behind them.
        common: overrides for all runs. asked: test mazes by level.
    """

    out: Path
    n: int = 700
    start: float = 250.0
    settle: float = 110.0
    seconds: float = 300.0
    common: tuple[str, ...] = ()
    asked: Mapping[int, int] = field(default_factory=lambda: ASKED)

    def folder(self, arm: Arm, name: str) -> Path:
        """The run's."""
        return self.out / arm.recipe / name

    def model(self, arm: Arm, name: str) -> Path:
        return self.folder(arm, name) / "stages" / arm.stage / "model"


# --- making -----------------------------------------------------------------------------------------------------------


def make(plan: Plan, seeds: Sequence[int], arms: Sequence[str], fit: Fit) -> None:
    """Do what is missing, seed by seed."""
    for seed in seeds:
        for key in (START, SETTLED, *arms):
            if any((line["seed"], line["arm"]) == (seed, key) for line in read_metrics(plan.out / LINES)):
                continue
            arm, name = ARMS[key], f"seed{seed}-{key}"
            updates = _updates(plan, key, seed, fit)
            fit([*arguments(plan, seed, key, name), f"{arm.counter}={updates}"])
            model = plan.model(arm, name)
            result = json.loads((model.parent / "manifest.json").read_text(encoding="utf-8"))["result"]
            line = {"seed": seed, "arm": key, "updates": result["updates"], "seconds": round(result["seconds"], 1)}
            line |= measured(plan, seed, model)
            with open(plan.out / LINES, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def arguments(plan: Plan, seed: int, key: str, name: str) -> list[str]:
    """What `uni_train fit` is told, but for how long."""
    arm = ARMS[key]
    given = ["--recipe", arm.recipe, f"seed={seed}", f"out={plan.out}", f"name={name}", *plan.common, *arm.overrides]
    if arm.begins is not None:
        given.append(f"model.checkpoint={plan.model(ARMS[arm.begins], f'seed{seed}-{arm.begins}')}")
    if arm.data is None:
        return given
    rows = solved_mazes(plan, seed, arm.data) / "items.jsonl"
    if arm.recipe == "sft_maze":
        return [*given, f"sources.mazes.path={rows}"]
    return [*given, "prompts.task=null", f"prompts.path={rows}"]


def solved_mazes(plan: Plan, seed: int, kind: str) -> Path:
    """A folder of solved mazes of the train split, made once: the seed's limited set, or many more."""
    folder = plan.out / f"{kind}-seed{seed}"
    if not folder.exists():
        n = plan.n if kind == "limited" else FRESH
        export(Maze(NANO), LEVEL, n, "train", derive_seed("maze table", kind, seed), NANO, folder, False)
    return folder


def _updates(plan: Plan, key: str, seed: int, fit: Fit) -> int:
    """How many fill the arm's seconds: measured once for all seeds, on a short run."""
    file = plan.out / "pace.json"
    pace = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if key not in pace:
        arm, name = ARMS[key], f"pace-{key}"
        fit([*arguments(plan, seed, key, name), f"{arm.counter}={PACE[arm.counter]}"])
        manifest = plan.model(arm, name).parent / "manifest.json"
        pace[key] = json.loads(manifest.read_text(encoding="utf-8"))["result"]["seconds"] / PACE[arm.counter]
        file.write_text(json.dumps(pace, indent=1) + "\n", encoding="utf-8")
    seconds = {START: plan.start, SETTLED: plan.settle}.get(key, plan.seconds)
    return max(1, round(seconds / pace[key]))


# --- measuring --------------------------------------------------------------------------------------------------------


def measured(plan: Plan, seed: int, weights: Path) -> dict[str, Any]:
    """Right pictures and how many were asked: of unseen mazes by level (of LEVEL also one by one, in `passed`), of the
    seed's solved ones, best of DRAWS."""
    from uni_train.models.load import build_model, model_config

    task, config = Maze(NANO), model_config(str(weights))
    model = build_model(config)

    def right(items: Sequence[Item], draw: int = 0) -> np.ndarray:
        from uni_train.models.base import Request

        found: list[bool] = []
        for begin in range(0, len(items), config.draw_batch):
            some = items[begin : begin + config.draw_batch]
            images = model.draw([
                Request(one.id, one.prompt, (task.input_image(one),), seed=derive_seed("maze table", one.id, draw))
                for one in some
            ])  # fmt: skip
            found += [task.verify(one, image).passed for one, image in zip(some, images, strict=True)]
        return np.array(found)

    def count(passed: np.ndarray) -> list[int]:
        return [int(passed.sum()), len(passed)]

    unseen = {level: _unseen(level, n) for level, n in plan.asked.items()}
    rows = (solved_mazes(plan, seed, "limited") / "items.jsonl").read_text(encoding="utf-8").splitlines()
    seen = [Item.from_dict(json.loads(row)) for row in rows[:SEEN]]
    passed = {level: right(items) for level, items in unseen.items()}
    several = [right(unseen[LEVEL][:SEEN], draw) for draw in range(DRAWS)]
    return {
        "test": {str(level): count(outcomes) for level, outcomes in passed.items()},
        "passed": "".join("01"[outcome] for outcome in passed[LEVEL].astype(int)),
        "seen": count(right(seen)),
        "best": count(np.any(several, axis=0)),
    }


@cache
def _unseen(level: int, n: int) -> list[Item]:
    return Maze(NANO).generate(n, level, "test", 0)


# --- the table --------------------------------------------------------------------------------------------------------


def tables(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Success of every arm, and what each adds to where it began, in markdown; means over seeds with 95 % t intervals.

    Raises:
        UserError: there is no finished arm.
    """
    by_arm = {key: {line["seed"]: line for line in lines if line["arm"] == key} for key in ARMS}
    by_arm = {key: found for key, found in by_arm.items() if found}
    if not by_arm:
        raise UserError("no arm is finished", "Run `python bench/mazes.py make` first.")
    levels = sorted({int(level) for line in lines for level in line["test"]})
    seeds = sorted({line["seed"] for line in lines})
    yield f"Seeds {', '.join(map(str, seeds))}; percent of the test mazes solved, mean over seeds [95 % t interval]."
    yield ""
    yield from _head(["", "seconds", "updates", f"{LEVEL} x {LEVEL}", f"best of {DRAWS}", "its solved mazes"])
    for key, found in by_arm.items():
        rates = [_percent([_rate(line, part) for line in found.values()]) for part in (LEVEL, "best", "seen")]
        yield _row(ARMS[key].label, _range(found, "seconds"), _range(found, "updates"), *rates)
    yield ""
    yield f"Gained on {LEVEL} x {LEVEL} over the weights that it began with, in points:"
    yield ""
    yield from _head(["", *(f"seed {seed}" for seed in seeds), "mean", "more than SFT on the same mazes"])
    for key, found in by_arm.items():
        begins = ARMS[key].begins
        if begins is None:
            continue
        own = [_gaps({seed: found[seed]} if seed in found else {}, by_arm.get(begins, {})) for seed in seeds]
        rival = SETTLED if begins == START else "sft_same"
        over = [_gaps(found, by_arm.get(begins, {})), _gaps(found, by_arm.get(rival, {})) if key != rival else []]
        cells = [f"{100 * gap[0]:+.1f}" if gap else "-" for gap in own]
        yield _row(ARMS[key].label, *cells, *(_percent(gaps, "+") if gaps else "-" for gaps in over))
    yield ""
    yield from _paired(by_arm)
    yield "By size of the maze:"
    yield ""
    yield from _head(["", *(f"{level} x {level}" for level in levels)])
    for key, found in by_arm.items():
        yield _row(ARMS[key].label, *(_percent([_rate(line, level) for line in found.values()]) for level in levels))


def _paired(by_arm: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> Iterator[str]:
    """Each arm beside where it began and beside SFT on the same mazes, test maze by test maze, all seeds together."""

    def beside(key: str, rival: str | None) -> tuple[str, str]:
        base = by_arm.get(rival or "", {})
        seeds = sorted(by_arm[key].keys() & base.keys())
        if not seeds or rival == key:
            return "-", "-"
        mazes = [maze for seed in seeds for maze in range(len(base[seed]["passed"]))]
        first, second = ([bit == "1" for seed in seeds for bit in arm[seed]["passed"]] for arm in (base, by_arm[key]))
        found = paired(first, second, clusters=mazes)
        return _estimate(found.difference, "+"), f"{found.p_value:.2g}"

    yield "The same maze by maze: intervals and p for other mazes but these seeds (paired, a test maze is a cluster):"
    yield ""
    yield from _head(["", "gained", "p", "more than SFT on the same mazes", "p"])
    for key in by_arm:
        begins = ARMS[key].begins
        if begins is not None:
            yield _row(ARMS[key].label, *beside(key, begins), *beside(key, SETTLED if begins == START else "sft_same"))
    yield ""


def _rate(line: Mapping[str, Any], part: int | str) -> float:
    right, n = line["test"][str(part)] if isinstance(part, int) else line[part]
    return right / n


def _gaps(arm: Mapping[int, Mapping[str, Any]], base: Mapping[int, Mapping[str, Any]]) -> list[float]:
    """Arm minus base of every seed that has both."""
    return [_rate(arm[seed], LEVEL) - _rate(base[seed], LEVEL) for seed in arm if seed in base]


def _percent(values: Sequence[float], sign: str = "") -> str:
    return _estimate(mean_over_seeds(values, (-1, 1) if sign else (0, 1)), sign)


def _estimate(found: Estimate, sign: str) -> str:
    value, low, high = (f"{100 * x:{sign}.1f}" for x in (found.value or 0.0, found.low, found.high))
    return f"{value} [{low}, {high}]" if found.n > 1 else value


def _range(found: Mapping[int, Mapping[str, Any]], key: str) -> str:
    low, high = min(line[key] for line in found.values()), max(line[key] for line in found.values())
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}-{high:.0f}"


def _head(columns: Sequence[str]) -> Iterator[str]:
    yield _row(*columns)
    yield f"|---|{'---:|' * (len(columns) - 1)}"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


# --- command line -----------------------------------------------------------------------------------------------------


def fit_in_a_process(arguments: Sequence[str]) -> None:
    """Run or continue it. Raises UserError where it fails."""
    print(f"-- uni_train fit {shlex.join(arguments)}", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-m", "uni_train", "fit", *arguments], stdout=sys.stderr)
    if done.returncode:
        raise UserError(f"fit stopped with exit code {done.returncode}", "Run this again to continue.")


def parser() -> argparse.ArgumentParser:
    usual = Plan(Path())
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = made.add_subparsers(dest="verb", required=True)
    for verb, says in (("make", "run what is missing, then print the tables"), ("table", "print them")):
        one = verbs.add_parser(verb, help=says)
        one.add_argument("--out", type=Path, required=True, help="a folder of its own")
        if verb == "make":
            one.add_argument("--seeds", default="0,1,2", help="with commas (default: 0,1,2)")
            one.add_argument(
                "--arms",
                default=",".join(key for key in ARMS if key not in (START, SETTLED)),
                help="default: %(default)s",
            )
            one.add_argument("--n", type=int, default=usual.n, help="solved mazes of the limited set (%(default)s)")
            one.add_argument("--start", type=float, default=usual.start, help="seconds of the first SFT (%(default)s)")
            one.add_argument("--settle", type=float, default=usual.settle, help="of the second SFT (%(default)s)")
            one.add_argument("--seconds", type=float, default=usual.seconds, help="of each arm (%(default)s)")
            one.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for all runs, such as model.threads=1")
    return made


def main() -> None:
    chosen = parser().parse_args()
    try:
        if chosen.verb == "make":
            seeds = [int(seed) for seed in chosen.seeds.split(",") if seed.isdigit()]
            arms = chosen.arms.split(",")
            if not seeds or not set(arms) <= ARMS.keys():
                raise UsageError("cannot read --seeds or --arms", f"Arms are {', '.join(ARMS)}; seeds are numbers.")
            plan = Plan(chosen.out, chosen.n, chosen.start, chosen.settle, chosen.seconds, tuple(chosen.overrides))
            plan.out.mkdir(parents=True, exist_ok=True)
            make(plan, seeds, arms, fit_in_a_process)
        for line in tables(read_metrics(chosen.out / LINES)):
            print(line)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
