"""What the tree promises: no circles of imports, arrows between packages, and functions that fit on a screen.

Read from the source, so that an import inside a function counts as one too: it hides a circle, it does not remove it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("uni_train", "eval", "data_gen")

LAYERS = (
    "core __version__",
    "data_gen",
    "config run_folder flow",
    "models distributed",
    "eval",
    "rewards insight",
    "training",
    "stages recipes",
    "plan serving",
    "console fitting dry_run api view cli __main__ __init__",
)
"""A package imports from its own layer and from those above it in this list, and from nowhere else."""

LONG = 60  # lines of a function, its docstring and signature left out
DEEP = 4  # blocks within blocks
EXCEPTIONS = {
    "uni_train/models/bagel/packing.py pack": "the layout of a packed batch, one field after the other",
    "uni_train/models/bagel/packing.py encode": "the layout of one sequence, one kind of segment after the other",
    "uni_train/training/fit.py run": "the order of a fit, which is best read in one place",
    "uni_train/plan/plan.py plan": "one plan, filled field by field",
    "uni_train/cli/generate.py generate": "the options of a command, each handed on",
    "data_gen/maze/reading.py __init__": "one algorithm, whose steps share ten arrays",
    "eval/evaluation.py run": "one engine's loop: benchmarks, batches, failures",
}
"""`FILE FUNCTION` -> why it is longer or deeper."""


@cache
def trees() -> dict[str, ast.Module]:
    """File, relative to the root -> its source."""
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def parts_of(file: str) -> list[str]:
    """["uni_train", "eval", "calls"] of eval/calls.py: folders beside uni_train/ are linked into it."""
    parts = file.removesuffix(".py").split("/")
    return parts if parts[0] == "uni_train" else ["uni_train", *parts]


@cache
def modules() -> dict[str, str]:
    """Module -> its file."""
    return {".".join(parts_of(file)).removesuffix(".__init__"): file for file in trees()}


def imported(node: ast.AST, types: bool) -> Iterator[tuple[str, int]]:
    """Modules of ours that a piece of source imports when it runs, and the line; `types`: for type checking, too."""
    for child in ast.iter_child_nodes(node):
        if not types and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from imported(other, types)
        elif isinstance(child, ast.Import):
            yield from ((alias.name, child.lineno) for alias in child.names if alias.name in modules())
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0 and child.module, "imports are absolute"
            for name in (f"{child.module}.{alias.name}" for alias in child.names):
                found = name if name in modules() or child.module == "uni_train" else child.module
                if found.split(".")[0] == "uni_train":
                    yield found, child.lineno
        elif not isinstance(child, ast.expr):
            yield from imported(child, types)


@pytest.mark.slow
def test_modules_do_not_import_in_circles() -> None:
    """Not for type checking either: who reads one of two such modules reads both."""
    graph = {
        module: {name for name, _ in imported(trees()[file], types=True)} & modules().keys() - {module}
        for module, file in modules().items()
    }
    order = list(TopologicalSorter(graph).static_order())  # a CycleError names the circle
    assert len(order) == len(graph) > 100


@pytest.mark.slow
def test_arrows_between_packages_point_one_way() -> None:
    layer = {package: number for number, names in enumerate(LAYERS) for package in names.split()}
    wrong = [
        f"{file}:{line} imports {name}"
        for file, tree in trees().items()
        for name, line in imported(tree, types=False)
        if layer[name.split(".")[1]] > layer[parts_of(file)[1]]
    ]
    assert not wrong


LEAVES = {
    "distillation": "uni_train/recipes/distil uni_train/training/distillation.py uni_train/flow/distillation.py",
    "preferences": "uni_train/recipes/dpo uni_train/training/dpo.py uni_train/flow/dpo.py",
    "Flow-GRPO": "uni_train/recipes/flow_grpo uni_train/training/flow_grpo",
    "knowledge": "uni_train/recipes/knowledge",
    "pretraining": "uni_train/recipes/pretrain.py",
    "supervised fine-tuning": "uni_train/recipes/sft",
    "nano": "uni_train/models/nano uni_train/recipes/pretrain.py",
    "Janus": "uni_train/models/janus",
    "diffusers": "uni_train/models/diffusers uni_train/models/qwen_image_edit",
    "insight": "uni_train/insight",
    "plan": "uni_train/plan",
    "serving": "uni_train/serving",
    "view": "uni_train/view.py",
    "watch": "eval/watch.py",
    "doctor": "uni_train/models/doctor.py uni_train/models/endpoint_doctor.py "
    "eval/abilities.py",
    **{f"dialect {name}": f"uni_train/models/dialects/{name}.py" for name in ("ark", "gemini", "responses")},
    "dialects of videos": " ".join(f"uni_train/models/dialects/{name}.py" for name in ("videos", "veo", "seedance")),
    "calibration": "eval/judges/calibrate.py",
    "leaderboard and exports": "eval/leaderboard.py eval/report/leaderboard.py eval/export.py",
    "audit": "data_gen/audit.py",
    "attacks": "data_gen/attacks.py data_gen/judge_rows.py uni_train/rewards/audit.py eval/report/items.py",
    **{f"files of rows, {kind}": f"uni_train/training/data/files/{kind}.py"
       for kind in ("csv", "json", "jsonl", "parquet", "tar")},
    "rewards elsewhere": "uni_train/rewards/elsewhere.py uni_train/rewards/worker.py",
    "CLIP rewards": "uni_train/rewards/clip.py",
    **{f"task {one}": f"data_gen/{one}" for one in ("bar_chart", "clock", "function_plot", "hanoi", "jigsaw",
       "maths_paper", "maze", "nonogram", "queens", "shortest_path", "sliding_puzzle", "sudoku", "symmetry",
       "tic_tac_toe")},
    **{f"benchmark {one}": f"eval/benchmarks/{one}" for one in ("ueval", "ufo", "unisandbox", "ureason", "vigor",
       "wise")},
}  # fmt: skip
"""Capability -> its folders and files, which nothing outside them imports. Delete them, and all else works: registries
and the command line find them by name. `uni_train/cli` and `uni_train/api.py` may import a leaf within a function, for
a command whose leaf is gone ends in one message."""
DOORS = ("uni_train/cli/", "uni_train/api.py")


@pytest.mark.slow
@pytest.mark.parametrize("leaf", LEAVES)
def test_nothing_imports_a_leaf(leaf: str) -> None:
    """Imports inside functions, for type checking and by name count: a module's name in a text is one."""
    places = LEAVES[leaf].split()
    assert [place for place in places if not (ROOT / place).exists()] == []

    def inside(file: str) -> bool:
        return any(file == place or file.startswith(f"{place}/") for place in places)

    own = {module for module, file in modules().items() if inside(file)}
    assert [f"{file} names {name}" for file, names in named().items() if not inside(file) for name in names & own] == []


@cache
def named() -> dict[str, set[str]]:
    """File -> the modules of ours that it imports or has in a text; of a door outside of its functions."""
    found = {}
    for file, tree in trees().items():
        if door := file.startswith(DOORS):
            tree = ast.Module([one for one in tree.body if not isinstance(one, _FUNCTIONS)], [])
        texts = {one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        found[file] = {name for name, _ in imported(tree, types=not door)} | texts & modules().keys()
    return found


IMPORTED: dict[int, list[str]] = {
    26_895: ["fit", "stars_curriculum", "evaluation.n=1", "evaluation.sets=[mapping1]", "strategy.all_cores=false",
             "rounds=[{task: mapping, level: 1, prompts: 24, updates: 1, replay: {pretrain: 0.1}}]", "out=out",
             "model.sampling.steps=1"],
    20_070: ["eval", "-c", "nano", "-b", "ureason", "--subset", "5", "--out", "out", "sampling.steps=1"],
    11_780: ["generate", "-m", "nano", "-p", "Draw 3 apples .", "--out", "out.png", "--steps", "1"],
    510: ["--help"],
}  # fmt: skip
"""Lines of ours that a command may load -> the command. They may only fall."""


@pytest.mark.slow
@pytest.mark.parametrize("most", IMPORTED, ids=lambda most: IMPORTED[most][0])
def test_a_command_loads_what_it_needs(most: int, tmp_path: Path) -> None:
    script = str(ROOT / "bench/imported_lines.py")
    done = subprocess.run([sys.executable, script, *IMPORTED[most]], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-2].replace(",", "")) <= most, done.stderr


BESIDE = {"bench", "cuda", "data", "multinode"}
"""Folders of tests that mirror no package: of `bench/`, what tests read, several machines, a pretended GPU."""


def test_tests_mirror_the_tree() -> None:
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("*.py")} - {Path()}
    mirrored = [one for one in folders if one.parts[0] not in BESIDE]
    packages = (ROOT, ROOT / "uni_train")
    assert [one for one in mirrored if not any((place / one).is_dir() for place in packages)] == []


_BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def depth(node: ast.AST) -> int:
    """The most blocks around a line of a function; `elif` is no block of its own, and inner functions count alone."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef, ast.expr)):
            continue
        elif_ = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, _BLOCKS) and not elif_))
    return deepest


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.mark.slow
def test_functions_are_short_and_flat_or_say_why_not() -> None:
    large, short = {}, set()
    for file, tree in trees().items():
        for one in ast.walk(tree):
            if isinstance(one, _FUNCTIONS):
                name, size = f"{file} {one.name}", (length(one), depth(one))
                if size[0] > LONG or size[1] > DEEP:
                    large[name] = size
                else:
                    short.add(name)
    assert {name: size for name, size in large.items() if name not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() & short - large.keys() == set(), "take them out"


@pytest.mark.parametrize(
    ("body", "lines", "blocks"),
    [
        ("    '''Doc\n    string.'''\n    return 1\n", 1, 0),
        ("    for a in b:\n        if a:\n            return a\n        elif b:\n            return b\n", 5, 2),
        ("    def g():\n        if a:\n            return a\n    return g\n", 4, 0),
    ],
)
def test_sizes_are_counted_as_meant(body: str, lines: int, blocks: int) -> None:
    function = ast.parse(f"def f():\n{body}").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert (length(function), depth(function)) == (lines, blocks)
