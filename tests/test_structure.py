"""What the tree promises: arrows between packages, and functions that fit on a screen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("uni_train", "eval", "data_gen")

LAYERS = (
    (
        "uni_train.data_gen",
        "uni_train.errors",
        "uni_train.files",
        "uni_train.addresses",
        "uni_train.hub",
        "uni_train.__version__",
    ),
    ("uni_train.config", "uni_train.run_folder", "uni_train.http_client", "uni_train.flow"),
    ("uni_train.models", "uni_train.distributed"),
    ("uni_train.eval",),
    ("uni_train.rewards", "uni_train.insight"),
    ("uni_train.training",),
    ("uni_train.stages", "uni_train.recipes"),
    ("uni_train.plan", "uni_train.serving"),
    (
        "uni_train.console",
        "uni_train.fitting",
        "uni_train.api",
        "uni_train.view",
        "uni_train.cli",
        "uni_train.__main__",
        "uni_train.__init__",
    ),
)
"""A package imports from its own layer and from those above it in this list, and from nowhere else."""

LONG = 60  # lines of a function, its docstring and signature left out
DEEP = 4  # blocks within blocks
EXCEPTIONS = {
    "uni_train/models/bagel/packing.py pack": "the layout of a packed batch, one field after the other",
    "uni_train/models/bagel/packing.py encode": "the layout of one sequence, one kind of segment after the other",
    "uni_train/training/fit.py run": "the order of a fit, which is best read in one place",
    "uni_train/plan/plan.py plan": "one plan, filled field by field",
    "uni_train/config/build.py _check_common": "a list of checks, each two lines",
    "uni_train/cli/generate.py generate": "the options of a command, each handed on",
    "data_gen/maze/reading.py __init__": "one algorithm, whose steps share ten arrays",
    "eval/evaluation.py run": "one engine's loop: benchmarks, batches, failures",
}
"""`FILE FUNCTION` -> why it is longer or deeper."""


def files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def module_of(file: Path) -> str:
    """ "uni_train.eval.calls" of eval/calls.py: folders beside uni_train/ are linked into it."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "uni_train" else ("uni_train", *parts))


def package_of(module: str) -> str:
    """ "uni_train.models" of "uni_train.models.base"; "eval" of "uni_train.eval.calls"."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "uni_train" else parts[0]


def imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Modules of ours that are imported, and the line; what only a type checker reads is left out."""
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [alias.name for alias in node.names]
            found = [f"uni_train.{name}" for name in names] if node.module == "uni_train" else [node.module]
        else:
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from ((name, node.lineno) for name in found if name.split(".")[0] == "uni_train")


@pytest.mark.slow
def test_arrows_between_packages_point_one_way() -> None:
    layer = {package: number for number, layer in enumerate(LAYERS) for package in layer}
    wrong = []
    for file in files():
        own = layer[package_of(module_of(file))]
        for imported, line in imports(ast.parse(file.read_text(encoding="utf-8"))):
            if layer[package_of(imported)] > own:
                wrong.append(f"{file.relative_to(ROOT)}:{line} imports {imported}")
    assert not wrong


BESIDE = {"bench", "cuda", "data", "multinode"}
"""Folders of tests that mirror no package: of `bench/`, what tests read, several machines, a pretended GPU."""


def test_tests_mirror_the_tree() -> None:
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("*.py")} - {Path()}
    mirrored = [one for one in folders if one.parts[0] not in BESIDE]
    packages = (ROOT, ROOT / "uni_train")
    assert [one for one in mirrored if not any((place / one).is_dir() for place in packages)] == []


_BLOCKS = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith, ast.Match)
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def depth(node: ast.AST) -> int:
    """The most blocks around a line of a function; `elif` is no block of its own, and inner functions count alone."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _INNER):
            continue
        elif_ = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, _BLOCKS) and not elif_))
    return deepest


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body, without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.slow
def test_functions_are_short_and_flat_or_say_why_not() -> None:
    large = {
        f"{file.relative_to(ROOT)} {one.name}": (length(one), depth(one))
        for file in files()
        for one in functions(file.read_text(encoding="utf-8"))
        if length(one) > LONG or depth(one) > DEEP
    }
    assert {name: size for name, size in large.items() if name not in EXCEPTIONS} == {}
    named = {f"{file.relative_to(ROOT)} {one.name}" for file in files() for one in functions(file.read_text("utf-8"))}
    assert [name for name in EXCEPTIONS if name in named and name not in large] == [], "these are short: take them out"


@pytest.mark.parametrize(
    ("code", "lines", "blocks"),
    [
        ("def f():\n    '''Doc\n    string.'''\n    return 1\n", 1, 0),
        (
            "def f():\n    for a in b:\n        if a:\n            return a\n        elif b:\n            return b\n",
            5,
            2,
        ),
        ("def f():\n    def g():\n        if a:\n            return a\n    return g\n", 4, 0),
    ],
)
def test_sizes_are_counted_as_meant(code: str, lines: int, blocks: int) -> None:
    function = next(functions(code))
    assert (length(function), depth(function)) == (lines, blocks)
