"""Who imports whom: no circles, and arrows that point one way.

Read from the source, so that an import inside a function counts as one too: it hides a circle, it does not remove it.
Imports for type checking count as well where circles are looked for: who reads one of two such modules reads both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("data_gen", "eval", "uni_train")

# Circles that are left, each as the modules in it. Only to be made shorter.
KNOWN: tuple[frozenset[str], ...] = ()


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "uni_train" else ("uni_train", *parts)  # linked into it
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def files() -> dict[str, Path]:
    """Module -> its file."""
    return {module_of(file): file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))}


def imported(node: ast.AST, types: bool = False) -> Iterator[str]:
    """Modules of ours that a piece of source imports when it runs; `types`: for type checking, too."""
    for child in ast.iter_child_nodes(node):
        if not types and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from imported(other)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0 and child.module, "imports are absolute"
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield whole if whole in files() else child.module
        else:
            yield from imported(child, types)


def graph(types: bool = False) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports; `types`: for type checking, too."""
    found = {}
    for module, file in files().items():
        names = set(imported(ast.parse(file.read_text(encoding="utf-8")), types))
        found[module] = (names & files().keys()) - {module}
    return found


def circles(edges: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = frozenset(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(members) > 1:
                found.append(members)

    for node in edges:
        if node not in index:
            visit(node)
    return found


@pytest.mark.slow
def test_modules_do_not_import_in_circles() -> None:
    assert circles(graph()) == [], "these modules import each other when they run"
    left = circles(graph(types=True))
    new = [sorted(circle) for circle in left if not any(circle <= known for known in KNOWN)]
    assert not new, f"these modules import each other: {new}"
    gone = [sorted(known) for known in KNOWN if not any(circle <= known for circle in left)]
    assert not gone, f"no longer circles, take them out of KNOWN: {gone}"


def test_a_circle_is_found() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [frozenset("bc")]


@pytest.mark.slow
def test_data_gen_imports_nothing_of_the_others() -> None:
    ours = "uni_train.data_gen"
    against = {module: sorted(o for o in others if not o.startswith(ours)) for module, others in graph().items()}
    assert {module: others for module, others in against.items() if others and module.startswith(ours)} == {}
