"""Tables of figures in markdown, and their raw form in CSV."""

from __future__ import annotations

import csv
import io

from uni_train.eval.statistics import Estimate


def table(*columns: str) -> list[str]:
    """The head of a table, its first column left-aligned."""
    return [row(*columns), f"|---|{'---:|' * (len(columns) - 1)}"]


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def interval(estimate: Estimate | None, form: str = ".2f", brackets: str = "[]", scale: float = 1) -> str:
    """ "0.62 [0.55, 0.69]"; "-" of nothing."""
    if estimate is None or estimate.value is None:
        return "-"
    value, low, high = (f"{scale * number:{form}}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} {brackets[0]}{low}, {high}{brackets[1]}"


def as_csv(page: str) -> str:
    """The tables of a markdown page, each below a line with the heading or sentence before it, blank lines between."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heading = ""
    inside = False
    for line in page.splitlines():
        if line.startswith("|") and not inside:
            out.write("\n" if out.tell() else "")
            writer.writerow([heading])
        if line.startswith("|") and not line.startswith("|--"):
            writer.writerow(cell.strip() for cell in line.strip("|").split("|"))
        elif line.startswith("#") or line.endswith(":"):
            heading = line.strip("#: ")
        inside = line.startswith("|")
    return out.getvalue()
