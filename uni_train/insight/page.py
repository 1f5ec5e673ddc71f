"""One page with the results of all analyses in the folder, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from uni_train.core.errors import UserError
from uni_train.core.files import atomic_write_json
from uni_train.core.reading_limits import read_json

PAGE = "insight.html"
ANALYSES = ("links", "attention", "states")
"""Modules of this package; each has `sections(result)` for its NAME.json."""


def keep(folder: Path, analysis: str, result: Mapping[str, Any]) -> Path:
    """Write an analysis's result into the folder, and the page anew. Returns the page.

    Args:
        result: JSON-able; "model" and "asked" (name -> text) say what it is about.

    Raises:
        UserError: the folder or the disk cannot be written, or another result there is damaged.
    """
    from uni_train.eval.report.page import Page, Section, write_page

    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_json(folder / f"{analysis}.json", dict(result))
    results = {name: read_json(folder / f"{name}.json") for name in ANALYSES if (folder / f"{name}.json").is_file()}
    sections: list[Section] = []
    facts: dict[str, str] = {}
    for name, result in results.items():
        try:
            sections += import_module(f"uni_train.insight.{name}").sections(result)
            settings = {f"{name}: {key}": str(value) for key, value in result["asked"].items()}
            facts |= {"Model": str(result["model"]), **settings}
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # somebody has edited it
            file = folder / f"{name}.json"
            raise UserError(
                f"{file} is damaged ({error!r:.200})", "Delete it; its analysis writes it again."
            ) from error
    title = f"Inside {facts.get('Model', 'a model')}"
    return write_page(folder / PAGE, Page(title=title, facts=list(facts.items()), sections=sections))
