"""Docstrings of public modules, classes and functions have short sentences, and their names say something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.test_structure import trees

LONGEST = 30  # words
VAGUE = {"of", "told", "here", "said", "found", "asked", "one", "own", "truths", "inside", "made", "whose",
         "asking"}  # fmt: skip

Public = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public() -> Iterator[tuple[str, str, Public]]:
    """Place, name and source of modules, classes, functions and methods; not of nested functions."""
    for file, module in trees().items():
        yield file, file.rpartition("/")[2].removesuffix(".py"), module
        scopes: list[Public] = [module]
        for scope in scopes:  # grows
            for node in scope.body:
                if isinstance(node, ast.ClassDef):
                    scopes.append(node)
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                    yield f"{file}:{node.lineno}", node.name, node


def sentences(docstring: str) -> Iterator[str]:
    """Not of code: indented paragraphs, examples of a command, doctests, aligned columns. Code counts as one word."""
    text = re.sub(r"``?[^`]*``?", "code", docstring)
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line for line in paragraph.split("\n") if not re.match(r"\s*>>>|.*\S  +\S", line)]
        if not paragraph.startswith("\b") and not all(line.startswith("    ") for line in lines):
            joined = " ".join(line.strip() for line in lines).replace("et al.", "et al")
            yield from re.split(r"(?<=[.:;!?])[*\")]*\s+", joined)


def test_sentences_of_docstrings_are_short() -> None:
    docstrings = [(place, ast.get_docstring(node) or "") for place, _, node in public()]
    shown = [(place, one) for place, docstring in docstrings for one in sentences(docstring)]
    assert len(shown) > 1000
    assert [one for one in shown if sum(bool(re.search(r"\w", word)) for word in one[1].split()) > LONGEST] == []


def test_public_names_say_something() -> None:
    assert [place for place, name, _ in public() if name in VAGUE] == []
