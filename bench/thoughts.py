"""Thoughts of think-distillation on nano: how well filters choose among them, and whether they blur what is learned.

    python bench/thoughts.py filters --temperature 1 --n 64
    python bench/thoughts.py sharpness --out runs/sharpness --task maths --level 3 --temperatures 0,1 --seeds 0
    python bench/thoughts.py table --out runs/sharpness

`filters` draws nothing and trains nothing: it samples thoughts of train prompts once, and asks every filter about them.
Precision and recall are against the exact conclusion.

`sharpness` distils one round for each temperature, filter and source of states. The spread of thoughts is the share of
prompts whose thoughts do not all conclude the same; a blur is an image that the verifier cannot read. A finished run
stays; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from uni_train.data_gen.registry import get_task
from uni_train.data_gen.seeds import derive_seed
from uni_train.errors import UserError
from uni_train.eval.statistics import Estimate
from uni_train.eval.summary import filter_reliability

FILTERS = ("none", "agreement", "self", "verifier")
SETS = (("maths", 1), ("maths", 2), ("maths", 3), ("mapping", 1), ("mapping", 2), ("mapping", 3))
CANDIDATES = 4


# --- filters ----------------------------------------------------------------------------------------------------------


def filters(sets: Sequence[tuple[str, int]], n: int, temperature: float, seed: int) -> Iterator[str]:
    """Precision and recall of every filter on the same thoughts, CANDIDATES of each of n prompts."""
    from uni_train.config.compose import compose
    from uni_train.eval.sampler import Sampler
    from uni_train.models.load import build_model
    from uni_train.recipes.distil import thinking

    sampled = [f"candidates={CANDIDATES}", f"temperature={temperature}", "model.threads=1"]
    model = build_model(compose("distil_math", ["level=1", *sampled]).model)
    beside = [f"{x} of {y}" for y in FILTERS[1:3] for x in ("precision", "recall")]
    yield from table("set", "spread", *(f"{name}: kept" for name in FILTERS), *beside)
    for name, level in sets:
        task = get_task(name, "nano")
        items = task.generate(n // task.items_per_draw, level, "train", derive_seed("filters", seed))
        asks = Sampler(items, "cot").asks(seed, CANDIDATES)
        thoughts = thinking.thoughts(model, asks, temperature)
        prompts = [ask.case.cluster_id for ask in asks]
        found = {}
        for one in FILTERS:
            config: Any = compose("distil_math", ["level=1", *sampled, f"filter={one}"])
            judged = [s.filter_verdict for s in thinking.decided(config, model, thoughts)]
            kept, right = [v is not None and v.passed for v in judged], [t.passed for t in thoughts]
            found[one] = filter_reliability(kept, right, prompts)
        shares = [f"{one.kept / one.n:.2f}" for one in found.values()]
        cells = [_cell(part) for y in FILTERS[1:3] for part in (found[y].precision, found[y].recall)]
        yield row(f"{name}{level}", f"{thinking.spread(thoughts):.2f}", *shares, *cells)
    yield ""
    yield f"{n} prompts a set, {CANDIDATES} thoughts each at temperature {temperature:g}."
    yield "95 % intervals, clustered by prompt, of mapping by pair."
    yield "The verifier keeps what is right: precision 1, recall 1. With none precision is what the verifier keeps."


# --- sharpness --------------------------------------------------------------------------------------------------------


def sharpness(
    out: Path,
    task: str,
    level: int,
    arms: Sequence[tuple[float, str, str]],
    seeds: Sequence[int],
    overrides: Sequence[str],
) -> None:
    """Distil once for each (temperature, filter, states) and seed."""
    for seed in seeds:
        for temperature, chosen, states in arms:
            candidates = [] if temperature == 0 else [f"candidates={CANDIDATES}", f"temperature={temperature}"]
            arguments = [
                *("fit", "--recipe", "distil_math", f"level={level}", f"out={out}", f"seed={seed}", "model.threads=1"),
                f"name=t{temperature:g}-{chosen}-{states}-seed{seed}",
                f"rounds=[{{task: {task}, level: {level}, replay: {{pretrain: '${{pretrain_replay}}'}}}}]",
                f"evaluation.sets=[{'math' if task == 'maths' else task}{level}]",
                *(f"filter={chosen}", f"states={states}", *candidates, *overrides),
            ]
            subprocess.run([sys.executable, "-m", "uni_train", *arguments], check=True)


def outcomes(out: Path) -> Iterator[str]:
    """What became of each run. Raises UserError: there is none."""
    runs = sorted(out.glob("distil_math/*/summary.json"))
    if not runs:
        raise UserError(f"{out} has no finished run", "Run `python bench/thoughts.py sharpness` first.")
    yield from table("run", "spread", "thoughts right", "Normal", "unreadable", "Normal before", "unreadable before")
    for file in runs:
        run = json.loads(file.read_text(encoding="utf-8"))
        (entry,) = run["rounds"]
        (stage,) = file.parent.glob("stages/*-think-*/manifest.json")
        result = json.loads(stage.read_text(encoding="utf-8"))["result"]
        (name,) = run["scores"]["after"]["normal"]
        cells = []
        for when in ("after", "before"):
            cells += [_cell(Estimate.from_dict(run["scores"][when]["normal"][name]))]
            cells += [_cell(Estimate.from_dict(run["statuses"][when]["normal"][name]["unreadable"]))]
        right = Estimate.from_dict(entry["precision_estimate"])
        yield row(file.parent.name, f"{result.get('spread', 0):.2f}", _cell(right), *cells)


def _cell(one: Estimate) -> str:
    return "-" if one.value is None else f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("filters")
    one.add_argument("--n", type=int, default=64, help="prompts a set")
    one.add_argument("--temperature", type=float, default=1.0)
    one.add_argument("--seed", type=int, default=0)
    two = commands.add_parser("sharpness")
    two.add_argument("--task", choices=("maths", "mapping"), default="maths")
    two.add_argument("--level", type=int, choices=(1, 2, 3), default=3)
    two.add_argument("--temperatures", default="0,1")
    two.add_argument("--filters", default="none,agreement")
    two.add_argument("--states", default="teacher,student")
    two.add_argument("--seeds", default="0")
    two.add_argument("overrides", nargs="*", help="of the recipe: updates, prompts, ...")
    for parsed in (two, commands.add_parser("table")):
        parsed.add_argument("--out", type=Path, default=Path("runs/sharpness"))
    chosen = parser.parse_args()
    try:
        if chosen.command == "filters":
            lines = filters(SETS, chosen.n, chosen.temperature, chosen.seed)
        else:
            if chosen.command == "sharpness":
                arms = [
                    (float(t), f, s)
                    for t in chosen.temperatures.split(",")
                    for f in chosen.filters.split(",")
                    for s in chosen.states.split(",")
                    if float(t) > 0 or f == "none"
                ]
                seeds = [int(seed) for seed in chosen.seeds.split(",")]
                sharpness(chosen.out, chosen.task, chosen.level, arms, seeds, chosen.overrides)
            lines = outcomes(chosen.out)
        for line in lines:
            print(line, flush=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
