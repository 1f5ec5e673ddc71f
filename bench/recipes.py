"""Every shipped recipe of nano and nano_edit, as it is, to its end; the data that headers ask for is made first.

    python bench/recipes.py                                   # three hours on a CPU core; continues where it stopped
    python bench/recipes.py --only sft_maze --only nft_maze   # some go on from the model of another one

Runs and data lie below --out. Exits with 1 if a recipe fails.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.markdown import row, table
from uni_train.config import places
from uni_train.config.compose import compose

ROOT = Path(__file__).resolve().parents[1]


def of_nano() -> list[str]:
    """Names of recipes, each behind the one whose model it goes on from."""
    needs = {}
    for recipe in places.recipes():
        model = compose(recipe.name).model
        if model.family == "nano":
            parts = Path(model.checkpoint or "").parts
            needs[recipe.name] = parts[1] if parts[:1] == ("runs",) else None
    return sorted(needs, key=lambda name: (needs[name] is not None, name))


def made_first(name: str) -> list[list[str]]:
    """The `data make` commands in the header of a recipe."""
    lines = [line.strip() for line in places.header(places.find_recipe(name))]
    return [shlex.split(line)[1:] for line in lines if line.startswith("python -m uni_train data make")]


def run(arguments: list[str], folder: Path) -> tuple[int, float]:
    """Exit code and seconds of a command of ours."""
    began = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=False)
    return done.returncode, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/recipes"))
    parser.add_argument("--only", action="append", choices=of_nano(), help="this recipe; may be given several times")
    wanted = parser.parse_args()
    wanted.out.mkdir(parents=True, exist_ok=True)
    for command in [command for name in of_nano() for command in made_first(name)]:
        if not (wanted.out / command[-1]).exists():
            run(command, wanted.out)
    lines = table("recipe", "exit code", "seconds")
    codes = []
    for name in [name for name in of_nano() if not wanted.only or name in wanted.only]:
        code, seconds = run(["-m", "uni_train", "fit", name], wanted.out)
        codes.append(code)
        lines.append(row(name, code, f"{seconds:.0f}"))
    print("\n".join(lines))
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
