"""What a verifier adds to a limited set of solved mazes or puzzles, and the controls beside it, at equal wall time.

    python bench/experiment.py mazes --runs runs/mazes --seeds 0,1,2
    python bench/experiment.py mazes --runs runs/plateau -o n=1000 -o flat=1 -o seconds=1200 --only sft_same,stars
    python bench/experiment.py mazes --runs runs/tuned -o tune=7 -o n=1000 --only grpo_kl --set objective.kl=0.1
    python bench/experiment.py mazes --runs runs/sudoku -o task=sudoku -o level=1 -o n=400 --only sft_same,stars

Every seed has mazes, first weights and random numbers of its own. One model is trained on symmetric views of its solved
mazes, and once more at a lower rate, until they have little left to teach; with `flat` again and again, until success
on the validation split gains less than so many points: the plateau. Every arm goes on from that model for the same
seconds. How many updates those are is measured first, on a short run of each arm; the table gives the seconds that it
took. So arms are run one after the other. A finished arm is a line of RUNS/arms.jsonl.

Success is the verifier's, on mazes of the test split, which no arm has seen. `tune` is a seed that settings are chosen
on: its arms are measured on the validation split, in a file of their own; a folder a setting. Puzzles are a family with
`lazy` strategies: the best one on the same test puzzles is a row of the table. Puzzles that are turned, mirrored or
renamed into one another are one cluster.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiment import Lab, seconds_each, stage_seconds
from bench.markdown import interval, row, table
from uni_train.config.compose import compose
from uni_train.config.kinds import run_task
from uni_train.core.errors import UsageError
from uni_train.core.seeds import derive_seed
from uni_train.data_gen.export import make as export
from uni_train.data_gen.jsonl import read_items
from uni_train.data_gen.maze.picture import NANO
from uni_train.data_gen.puzzle import Puzzle
from uni_train.data_gen.registry import TASKS, get_task, task_of
from uni_train.data_gen.shortcuts import questions_of
from uni_train.data_gen.task import Item, Task, Verdict, collect
from uni_train.eval.shortcuts import Trivial, best, trivial
from uni_train.eval.statistics import Estimate, mean_over_seeds, paired
from uni_train.training.metric_log import read_metrics

TASK, LEVEL = "maze", 4
ASKED = {2: 24, 3: 100, 4: 2000, 5: 100}  # test mazes by level; there are no more of 2 x 2
TESTED = 500  # test puzzles, or all that there are
FRESH = 20_000  # solved mazes for the arm that may have as many as it wants
DRAWS = 8  # images a maze, where one right image of several counts
VALIDATED = 500  # validation mazes, that tell whether SFT still gains
SETTLES = 8  # times that SFT goes on at most
PACE = {"updates": 100, "epochs": 15, "rounds": 1}  # of the short run that an arm's pace is measured on
LINES = {"test": "arms.jsonl", "validation": "tuned.jsonl"}
START, SETTLED, PLAIN = "start", "settled", "plain"
Line = Mapping[str, Any]
"""What is known of a finished arm of one seed."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to spend the seconds.

    Attributes:
        begins: the arm whose weights it goes on from. counter: what says how long it lasts: a key, or "rounds".
        data: whose solved mazes it is shown, asked or replays: "limited", "more"; None: new unsolved ones; "beside":
            new ones, and the limited set in every update.
    """

    label: str
    begins: str | None
    recipe: str
    counter: str
    data: str | None
    overrides: tuple[str, ...] = ()


_QUIET = ("held_out.n=0", "checkpoint_every=1000")
_NFT = (
    *("variant=diffusion_nft", "rollout.prompts_per_epoch=24", "objective.noise_draws=2", "objective.kl=0.05"),
    *("objective.scale_rewards=group", "objective.advantage_clip=1"),
)
_KL = ("optimizer.lr=1e-4", "objective.kl=0.04")  # at the recipe's rate long runs collapse
_CPS = ("variant=cps", "rollout.noise_level=0.7", "rewards.solved.function=verifier_dense")
ROUND = {"prompts": 1000, "updates": 300, "replay": {"solved": 0.3}}
_BLIND = ("held_out.task=null", "checkpoint_every=1000")
_AGAIN = (*_BLIND, "optimizer.lr=1e-3", "optimizer.decay_share=1")
_AS_THEY_ARE = {
    "sft_maze": "sources.mazes.augment=null", "nft_maze": "sft.augment=null",
    **dict.fromkeys(("stars_maze", "dpo_maze"), "augment=null"),
}  # fmt: skip
_PLAIN = (*_BLIND, _AS_THEY_ARE["sft_maze"])
ARMS = {
    PLAIN: Arm("SFT without symmetries, as long as both", None, "sft_maze", "updates", "limited", _PLAIN),
    START: Arm("SFT", None, "sft_maze", "updates", "limited", _BLIND),
    SETTLED: Arm("SFT, once more", START, "sft_maze", "updates", "limited", _AGAIN),
    "grpo_early": Arm("in its place: Flow-GRPO, new mazes, unsolved", START, "flow_grpo_maze", "epochs", None, _QUIET),
    "sft_same": Arm("+ SFT, same mazes", SETTLED, "sft_maze", "updates", "limited", _AGAIN),
    "grpo_same": Arm(
        "+ Flow-GRPO with KL, same mazes", SETTLED, "flow_grpo_maze", "epochs", "limited", (*_QUIET, *_KL)
    ),
    "grpo_new": Arm("+ Flow-GRPO, new mazes, unsolved", SETTLED, "flow_grpo_maze", "epochs", None, _QUIET),
    "grpo_kl": Arm("+ Flow-GRPO with KL, new mazes", SETTLED, "flow_grpo_maze", "epochs", None, (*_QUIET, *_KL)),
    "stars": Arm("+ STARS by the verifier, new mazes", SETTLED, "stars_maze", "rounds", "limited", ("evaluation.n=1",)),
    "dpo": Arm("+ Flow-DPO by the verifier, new mazes", SETTLED, "dpo_maze", "rounds", "limited", ("evaluation.n=1",)),
    "cps_dense": Arm("+ CPS, dense reward, new mazes", SETTLED, "flow_grpo_maze", "epochs", None, (*_QUIET, *_CPS)),
    "nft_new": Arm("+ DiffusionNFT, new mazes, unsolved", SETTLED, "flow_grpo_maze", "epochs", None, (*_QUIET, *_NFT)),
    "nft_sft": Arm("+ DiffusionNFT beside the solved mazes", SETTLED, "nft_maze", "epochs", "beside", _QUIET),
    "sft_more": Arm("+ SFT, new mazes, solved", SETTLED, "sft_maze", "updates", "more", _AGAIN),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a table is made of.

    Attributes:
        n: solved mazes in the limited set. start, settle, seconds: of the first training, of the second at a lower
            rate, and of each arm behind them.
        common: overrides for all runs. asked: test mazes by level. flat: go on with the second training until it gains
            less than so many points on the validation split; None: once. prompts: of a round of STARS, its updates in
            proportion; None: ROUND's. rows: of an update of SFT and STARS; None: the recipes'. seen: of the solved
            mazes are asked, too, and so many of the new ones DRAWS times. split: that is asked.
    """

    out: Path
    n: int = 700
    start: float = 250.0
    settle: float = 110.0
    seconds: float = 300.0
    common: tuple[str, ...] = ()
    asked: Mapping[int, int] = field(default_factory=lambda: ASKED)
    flat: float | None = None
    task: str = TASK
    level: int = LEVEL
    prompts: int | None = None
    rows: int | None = None
    seen: int = 200
    split: str = "test"

    @property
    def lines(self) -> Path:
        """A line for each finished arm."""
        return self.out / LINES[self.split]

    def lasting(self, arm: Arm, n: int) -> str:
        """So many updates, epochs or rounds of an arm, as an override."""
        if arm.counter != "rounds":
            return f"{arm.counter}={n}"
        asked: dict[str, Any] = {"task": self.task, "level": self.level, **ROUND}
        if self.prompts is not None:
            asked |= {"prompts": self.prompts, "updates": asked["updates"] * self.prompts // asked["prompts"]}
        return f"rounds={json.dumps([{**asked, 'draw': draw} for draw in range(1, n + 1)])}".replace('"', "")

    def overrides(self, arm: Arm) -> list[str]:
        """By which a recipe of mazes is one of puzzles, and has so many rows."""
        sft, stars = arm.recipe == "sft_maze", arm.counter == "rounds"
        rows = [f"batch.{'rows' if sft else 'prompts'}={self.rows}"] if self.rows and (sft or stars) else []
        if self.task == TASK:
            return rows
        model = [f"model.puzzles=[{self.task}]", "model.architecture.image_size=48", *rows]
        model += [_AS_THEY_ARE[arm.recipe]] if arm.recipe in _AS_THEY_ARE else []
        if stars:
            return [*model, f"evaluation.sets=[{self.task}{self.level}]"]
        return model if sft else [*model, f"prompts.task={self.task}", f"prompts.levels=[{self.level}]"]

    def folder(self, arm: Arm, name: str) -> Path:
        """The run's."""
        return self.out / arm.recipe / name

    def model(self, arm: Arm, name: str) -> Path:
        """The last one of a run."""
        stages = self.folder(arm, name) / "stages"
        if arm.counter == "rounds":
            trained = (*stages.glob("*-finetune-*"), *stages.glob("*-dpo-*"))
            return max(trained, default=stages) / "model"
        return stages / ("00-sft" if arm.recipe == "sft_maze" else "00-grpo") / "model"

    def seconds_of(self, arm: Arm, name: str) -> float:
        """Spent on sampling, judging and training, not on evaluations and starting."""
        if arm.counter != "rounds":
            return float(_manifest(self.model(arm, name).parent)["result"]["seconds"])
        return sum(stage_seconds(self.folder(arm, name)).values())


# --- making -----------------------------------------------------------------------------------------------------------


def mazes(
    lab: Lab, n: int = 700, start: float = 250, settle: float = 110, seconds: float = 300, flat: float | None = None,
    task: str = TASK, level: int = LEVEL, prompts: int | None = None, rows: int | None = None, seen: int = 200,
    tune: int | None = None,
) -> Iterator[str]:  # fmt: skip
    """n: solved mazes of the limited set. start, settle, seconds: of the two SFTs, of each arm. task, level: mazes, or
    puzzles. prompts: of a round. rows: of an update. seen: mazes asked DRAWS times. tune: a seed to choose settings on,
    none of --seeds. Raises UsageError."""
    puzzles = {name: TASKS.get(name).levels for name in TASKS.names() if issubclass(TASKS.get(name), Puzzle)}
    if level not in {TASK: (LEVEL,), **puzzles}.get(task, ()):
        raise UsageError(
            f"cannot read -o task={task} -o level={level}", f"Tasks are {TASK} of level {LEVEL}, {', '.join(puzzles)}."
        )
    if tune in lab.seeds:
        raise UsageError(f"cannot read -o tune={tune}: --seeds are tested", "Take a seed that is none of --seeds.")
    left_out = {START, SETTLED} if task == TASK else {START, SETTLED, PLAIN}
    arms = lab.arms(ARMS, [key for key in ARMS if key not in left_out])
    asked = ASKED if task == TASK else {level: TESTED}
    split = "test" if tune is None else "validation"
    if tune is not None:
        lab, asked = replace(lab, seeds=(tune,)), {level: VALIDATED}
    plan = Plan(
        lab.runs, n, start, settle, seconds, tuple(lab.overrides), asked, flat, task, level, prompts, rows, seen, split
    )

    def made() -> Iterator[str]:
        plan.out.mkdir(parents=True, exist_ok=True)
        make(plan, lab, arms)
        yield from tables(read_metrics(plan.lines))

    return made()


def make(plan: Plan, lab: Lab, arms: Sequence[str]) -> None:
    """Do what is missing, seed by seed."""
    for seed in lab.seeds:
        for key in (START, SETTLED, *arms):
            if any((line["seed"], line["arm"]) == (seed, key) for line in read_metrics(plan.lines)):
                continue
            arm, name = ARMS[key], f"seed{seed}-{key}"
            updates, before = _updates(plan, key, seed, lab), _processor_seconds()
            lab.train([*arguments(plan, seed, key, name), plan.lasting(arm, updates)])
            line = {"seed": seed, "arm": key, "task": plan.task, "level": plan.level, "split": plan.split}
            line |= {"updates": updates, "mazes": mazes_seen(plan, seed, key, updates)}
            if key == SETTLED and plan.flat is not None:
                name, line["validation"] = _until_flat(plan, seed, updates, lab)
            line |= {"name": name, "seconds": round(plan.seconds_of(arm, name), 1)}
            line["processor_seconds"] = round(_processor_seconds() - before, 1)
            line |= measured(plan, seed, plan.model(arm, name))
            with open(plan.lines, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _until_flat(plan: Plan, seed: int, updates: int, lab: Lab) -> tuple[str, list[float]]:
    """Repeat the second training, which has been made once: the name of the last one, and success on the validation
    split before it and after each."""
    assert plan.flat is not None
    arm, name = ARMS[SETTLED], f"seed{seed}-{SETTLED}"
    asked = held_out_items(plan.level, VALIDATED, "validation", plan.task)
    began = plan.model(ARMS[START], f"seed{seed}-{START}")
    rates = [float(right(weights, asked).mean()) for weights in (began, plan.model(arm, name))]
    while len(rates) <= SETTLES and 100 * (rates[-1] - rates[-2]) >= plan.flat:
        before, name = plan.model(arm, name), f"seed{seed}-{SETTLED}-{len(rates)}"
        lab.train([*arguments(plan, seed, SETTLED, name), f"model.checkpoint={before}", plan.lasting(arm, updates)])
        rates.append(float(right(plan.model(arm, name), asked).mean()))
    return name, [round(rate, 4) for rate in rates]


def arguments(plan: Plan, seed: int, key: str, name: str) -> list[str]:
    """What `uni_train fit` is told, but for how long."""
    arm = ARMS[key]
    given = ["--recipe", arm.recipe, f"seed={seed}", f"out={plan.out}", f"name={name}", *plan.overrides(arm)]
    given += [*plan.common, *arm.overrides]
    if arm.begins is not None:
        made = {(one["seed"], one["arm"]): one.get("name") for one in read_metrics(plan.lines)}
        begins = made.get((seed, arm.begins)) or f"seed{seed}-{arm.begins}"
        given.append(f"model.checkpoint={plan.model(ARMS[arm.begins], begins)}")
    if arm.data is None:
        return given
    rows = solved_mazes(plan, seed, "limited" if arm.data == "beside" else arm.data) / "items.jsonl"
    if arm.data == "beside":
        return [*given, f"sft.path={rows}"]
    if arm.recipe == "sft_maze":
        return [*given, f"sources.mazes.path={rows}"]
    if arm.counter == "rounds":
        return [*given, f"solved={rows}"]
    return [*given, "prompts.task=null", f"prompts.path={rows}"]


def solved_mazes(plan: Plan, seed: int, kind: str) -> Path:
    """A folder of solved mazes of the train split, made once: the seed's limited set, or many more."""
    folder = plan.out / f"{kind}-seed{seed}"
    if not folder.exists():
        n = plan.n if kind == "limited" else FRESH
        export(plan.task, plan.level, n, "train", derive_seed("maze table", kind, seed), NANO, folder, False)
    return folder


def mazes_seen(plan: Plan, seed: int, key: str, n: int) -> int:
    """Different mazes that an arm of `n` updates, epochs or rounds and those before it were shown, views as one.

    Of many solved ones as many as so many updates draw on average.
    """
    from uni_train.recipes.flow_grpo.training import task_prompts
    from uni_train.recipes.stars.sampling import round_items

    arm, limited = ARMS[key], _items(solved_mazes(plan, seed, "limited"))
    recipe, *overrides = arguments(plan, seed, key, key)[1:]
    config: Any = compose(recipe, [*overrides, plan.lasting(arm, n)])
    drawn: list[Item] = []
    if arm.data == "more":
        more = _items(solved_mazes(plan, seed, "more"))
        drawn = more[: round(len(more) * (1 - (1 - config.batch.rows / len(more)) ** n))]
    elif arm.counter == "rounds":
        drawn = [item for one in config.rounds for item in round_items(config, one)]
    elif arm.counter == "epochs" and config.prompts.task is not None:
        task, count = run_task(config, config.prompts.task), config.rollout.prompts_per_epoch
        asked = (task_prompts(task, config.prompts.levels, seed, epoch, count) for epoch in range(n))
        drawn = [prompt.columns["item"] for prompts in asked for prompt in prompts]
    return len({item.facts["canonical"] for item in (*limited, *drawn)})


def _items(folder: Path) -> list[Item]:
    return read_items(folder / "items.jsonl")


def _updates(plan: Plan, key: str, seed: int, lab: Lab) -> int:
    """How many fill the arm's seconds: measured once for all seeds, on a short run."""
    arm, name = ARMS[key], f"pace-{key}"

    def measure() -> float:
        lab.train([*arguments(plan, seed, key, name), plan.lasting(arm, PACE[arm.counter])])
        return plan.seconds_of(arm, name) / PACE[arm.counter]

    own = {START: plan.start, SETTLED: plan.settle, PLAIN: plan.start + plan.settle}
    seconds = own.get(key, plan.seconds)
    return max(1, round(seconds / seconds_each(plan.out / "pace.json", key, measure)))


def _processor_seconds() -> float:
    """Of the runs that have ended, starting and evaluations included."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _manifest(stage: Path) -> Any:
    return json.loads((stage / "manifest.json").read_text(encoding="utf-8"))


# --- measuring --------------------------------------------------------------------------------------------------------


def drawings(weights: Path, items: Sequence[Item], draw: int = 0) -> list[np.ndarray]:
    """One image a maze, uint8 [H, W, 3]."""
    from uni_train.models.base import Request
    from uni_train.models.load import build_model, model_config

    task, config = task_of(items[0]), model_config(str(weights))
    model, images = build_model(config), []
    for begin in range(0, len(items), config.draw_batch):
        images += model.draw([
            Request(one.id, one.prompt, (task.input_image(one),), seed=derive_seed("maze table", one.id, draw))
            for one in items[begin : begin + config.draw_batch]
        ])  # fmt: skip
    return images


def verdicts(weights: Path, items: Sequence[Item], draw: int = 0) -> list[Verdict]:
    """Of one image a maze."""
    task = task_of(items[0])
    return [task.verify(one, image) for one, image in zip(items, drawings(weights, items, draw), strict=True)]


def right(weights: Path, items: Sequence[Item], draw: int = 0) -> np.ndarray:
    return np.array([one.passed for one in verdicts(weights, items, draw)])


def measured(plan: Plan, seed: int, weights: Path) -> dict[str, Any]:
    """Right images and how many were asked: of unseen mazes by level (of the plan's also one by one, `passed`), of the
    seed's solved ones, best of DRAWS; which checks failed."""

    def count(passed: np.ndarray) -> list[int]:
        return [int(passed.sum()), len(passed)]

    unseen = {level: held_out_items(level, n, plan.split, plan.task) for level, n in plan.asked.items()}
    seen = _items(solved_mazes(plan, seed, "limited"))[: plan.seen]
    found = {level: verdicts(weights, items) for level, items in unseen.items()}
    passed = {level: np.array([one.passed for one in judged]) for level, judged in found.items()}
    failed = Counter(check.name for one in found[plan.level] for check in one.checks if check.status != "pass")
    several = [right(weights, unseen[plan.level][: plan.seen], draw) for draw in range(DRAWS)]
    return {
        "test": {str(level): count(outcomes) for level, outcomes in passed.items()},
        "passed": "".join("01"[outcome] for outcome in passed[plan.level].astype(int)),
        "failed": dict(sorted(failed.items())),
        "seen": count(right(weights, seen)),
        "best": count(np.any(several, axis=0)),
    }


@cache
def held_out_items(level: int, n: int, split: str = "test", task: str | Task = TASK) -> list[Item]:
    """As many as there are, `n` at most; a task by its name is nano's."""
    family = get_task(task, NANO) if isinstance(task, str) else task
    draws = collect(lambda index: family.sample(derive_seed(0, index), level, split), n, family.distinct)
    return [item for items in draws for item in items]


def puzzles_of(line: Line) -> list[Item]:
    """The puzzles that an arm was asked, in the order of `passed`; [] for mazes."""
    if line.get("task", TASK) == TASK:
        return []
    return held_out_items(line["level"], len(line["passed"]), line.get("split", "test"), line["task"])


def lazy(items: Sequence[Item]) -> Trivial | None:
    """The best of the family's lazy strategies on puzzles."""
    if not items:
        return None
    names = {strategy.name for strategy in task_of(items[0]).strategies}
    return best([one for one in trivial(questions_of(items)) if one.name in names])


def walls_ignored(items: Sequence[Item]) -> float:
    """Share of mazes that a path with at most one turn solves; rows first or columns first, the better of the two."""
    ways = ("[LR]*[UD]*", "[UD]*[LR]*")
    return max(float(np.mean([bool(re.fullmatch(way, item.answer)) for item in items])) for way in ways)


# --- the table --------------------------------------------------------------------------------------------------------


def tables(lines: Sequence[Line]) -> Iterator[str]:
    """Success of every arm, and what each adds to where it began; means over seeds with 95 % t intervals."""
    task, split = lines[0].get("task", TASK), lines[0].get("split", "test")
    shown = (text.replace("test maze", f"{split} maze") for text in _tables(lines))
    return (text if task == TASK else text.replace("maze", "puzzle") for text in shown)


def _tables(lines: Sequence[Line]) -> Iterator[str]:
    by_arm = {key: {line["seed"]: line for line in lines if line["arm"] == key} for key in ARMS}
    by_arm = {key: found for key, found in by_arm.items() if found}
    levels = sorted({int(level) for line in lines for level in line["test"]})
    seeds = sorted({line["seed"] for line in lines})
    items = puzzles_of(lines[0])
    forms = [item.facts["canonical"] for item in items]
    kind = f"level {items[0].level}" if items else f"{LEVEL} x {LEVEL}"
    yield f"Seeds {', '.join(map(str, seeds))}; percent of the test mazes solved, mean over seeds [95 % t interval]."
    yield ""
    yield from table("", "seconds", "updates", "mazes seen", kind, f"best of {DRAWS}", "its solved mazes")
    for key, found in by_arm.items():
        rates = [percent([_rate(line, part) for line in found.values()]) for part in ("test", "best", "seen")]
        yield row(ARMS[key].label, *(_range(found, part) for part in ("seconds", "updates", "mazes")), *rates)
    if guess := lazy(items):
        yield row(f"lazy: {guess.name}", "-", "-", "-", f"{100 * (guess.estimate.value or 0):.1f}", "-", "-")
        yield ""
        yield f"{len(items)} different test mazes, {len(set(forms))} but for views and names."
    if not items:
        asked = held_out_items(LEVEL, len(lines[0]["passed"]), lines[0].get("split", "test"))
        yield row("walls ignored: one turn at most", "-", "-", "-", f"{100 * walls_ignored(asked):.1f}", "-", "-")
    yield ""
    yield f"Gained on {kind} over the weights that it began with, in points:"
    yield ""
    yield from table("", *(f"seed {seed}" for seed in seeds), "mean", "more than SFT on the same mazes")
    for key, found in by_arm.items():
        begins = ARMS[key].begins
        if begins is None:
            continue
        own = [_gaps({seed: found[seed]} if seed in found else {}, by_arm.get(begins, {})) for seed in seeds]
        rival = SETTLED if begins == START else "sft_same"
        over = [_gaps(found, by_arm.get(begins, {})), _gaps(found, by_arm.get(rival, {})) if key != rival else []]
        cells = [f"{100 * gap[0]:+.1f}" if gap else "-" for gap in own]
        yield row(ARMS[key].label, *cells, *(percent(gaps, "+") if gaps else "-" for gaps in over))
    yield ""
    yield from _paired(by_arm, forms)
    yield from _plateau(by_arm)
    yield from _failures(by_arm, kind)
    if len(levels) == 1:
        return
    yield "By size of the maze:"
    yield ""
    yield from table("", *(f"{level} x {level}" for level in levels))
    for key, found in by_arm.items():
        yield row(ARMS[key].label, *(percent([_rate(line, level) for line in found.values()]) for level in levels))


def _plateau(by_arm: Mapping[str, Mapping[int, Line]]) -> Iterator[str]:
    """How success on the validation split came to rest, where it was waited for."""
    found = {seed: line["validation"] for seed, line in by_arm.get(SETTLED, {}).items() if "validation" in line}
    for seed, rates in found.items():
        shown = ", ".join(f"{100 * rate:.1f}" for rate in rates)
        yield f"Seed {seed}: percent of {VALIDATED} validation mazes after SFT, each time that it went on: {shown}."
    if found:
        yield ""


def _failures(by_arm: Mapping[str, Mapping[int, Line]], kind: str) -> Iterator[str]:
    """Share of the test mazes that fail each check."""
    lines = {key: [line for line in found.values() if "failed" in line] for key, found in by_arm.items()}
    checks = sorted({check for some in lines.values() for line in some for check in line["failed"]})
    if not checks:
        return
    yield f"By failed check, percent of the {kind} test mazes (one may fail several):"
    yield ""
    yield from table("", *checks)
    for key, some in lines.items():
        if some:
            rates = ([line["failed"].get(check, 0) / len(line["passed"]) for line in some] for check in checks)
            yield row(ARMS[key].label, *map(percent, rates))
    yield ""


def _paired(by_arm: Mapping[str, Mapping[int, Line]], forms: Sequence[str] = ()) -> Iterator[str]:
    """Each arm beside where it began and beside SFT on the same mazes, test maze by test maze, all seeds together.
    forms: of the test puzzles, equal for those of one cluster."""

    def beside(key: str, rival: str | None) -> tuple[str, str]:
        base = by_arm.get(rival or "", {})
        seeds = sorted(by_arm[key].keys() & base.keys())
        if not seeds or rival == key:
            return "-", "-"
        mazes = [maze for seed in seeds for maze in (forms or range(len(base[seed]["passed"])))]
        first, second = ([bit == "1" for seed in seeds for bit in arm[seed]["passed"]] for arm in (base, by_arm[key]))
        found = paired(first, second, clusters=mazes)
        return _estimate(found.difference, "+"), f"{found.p_value:.2g}"

    cluster = "mazes of one form are" if forms else "a test maze is"
    yield f"The same maze by maze: intervals and p for other mazes but these seeds (paired, {cluster} a cluster):"
    yield ""
    yield from table("", "gained", "p", "more than SFT on the same mazes", "p")
    for key in by_arm:
        begins = ARMS[key].begins
        if begins is not None:
            yield row(ARMS[key].label, *beside(key, begins), *beside(key, SETTLED if begins == START else "sft_same"))
    yield ""


def _rate(line: Line, part: int | str) -> float:
    """Right of those asked: a level's, "best", "seen", or "test" for the level that was learned."""
    level = line.get("level", LEVEL) if part == "test" else part
    right, n = line["test"][str(level)] if isinstance(level, int) else line[level]
    return right / n


def _gaps(arm: Mapping[int, Line], base: Mapping[int, Line]) -> list[float]:
    """Arm minus base of every seed that has both."""
    return [_rate(arm[seed], "test") - _rate(base[seed], "test") for seed in arm if seed in base]


def percent(values: Sequence[float], sign: str = "") -> str:
    """The mean over seeds of shares in [0, 1], in percent, with its interval where there are several."""
    return _estimate(mean_over_seeds(values, (-1, 1) if sign else (0, 1)), sign)


def _estimate(found: Estimate, sign: str) -> str:
    return interval(found, f"{sign}.1f", scale=100) if found.n > 1 else f"{100 * (found.value or 0):{sign}.1f}"


def _range(found: Mapping[int, Line], key: str) -> str:
    values = [line[key] for line in found.values() if key in line]
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f}-{high:.0f}"
