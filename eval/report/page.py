"""A page: one HTML file of a header and sections, which opens anywhere, also without a network.

    write_page(folder / "report.html", Page(title="nano", sections=[Section("Scores", tables=[table])]))

The page makes no network requests: styles and scripts are inline, images are data URLs. All text is escaped, and the
content security policy allows no other script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uni_train.core.files import atomic_write_text, disk_errors
from uni_train.eval.report.tables import shown_table
from uni_train.eval.statistics import Estimate, signed

if TYPE_CHECKING:
    from jinja2 import Environment

    from uni_train.eval.report.charts import Chart, Dots
    from uni_train.eval.report.flow_chart import Flow
    from uni_train.eval.report.radar import Radar
    from uni_train.eval.results import Table

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page; it is left out where it has nothing to show.

    Attributes:
        text, note: paragraphs above and below.
        images: (data URL, caption).
        id: of its anchor; "": made of the title.
        body: the template of what only this kind of section shows; it reads `shown`.
        script: its file.
    """

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart | Dots | Radar] = ()
    flows: Sequence[Flow] = ()
    images: Sequence[tuple[str, str]] = ()
    note: str = ""
    questions: str = ""
    id: str = ""
    body: str = ""
    shown: Mapping[str, Any] = field(default_factory=dict)
    script: str = ""

    @property
    def empty(self) -> bool:
        return not (self.tables or self.charts or self.flows or self.images or self.body)

    @property
    def anchor(self) -> str:
        return "-".join((self.id or self.title).lower().split())

    @property
    def shown_tables(self) -> list[dict[str, Any]]:
        return [shown_table(table) for table in self.tables if table.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Header and sections.

    Attributes:
        heading: where it is not the title.
        facts: (name, value). notes: sentences that a reader must know.
        tiles: name, value (an estimate) and lines (what, number) of the largest numbers, below `tiles_title`.
        command, settings: what made it, as typed, and in full; for the last section.
        style: a class of style.css.
        beside: whether images may also be files beside the page.
    """

    title: str
    heading: str = ""
    lead: str = ""
    questions: str = ""
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    tiles_title: str = ""
    tiles: Sequence[Mapping[str, Any]] = ()
    sections: Sequence[Section] = ()
    style: str = ""
    beside: bool = False


def about(title: str, command: str, notes: Sequence[str], settings: str, text: str = "") -> Section:
    """The last section: what made the results. settings: a text of many lines, folded."""
    shown = {"command": command, "notes": notes, "settings": settings}
    return Section(title, text, id="about", body="about.html", shown=shown)


def write_page(path: Path, page: Page) -> Path:
    """Write the page and return its path. Raises UserError where it cannot be written."""
    scripts = "\n".join(_asset(name) for name in dict.fromkeys(part.script for part in page.sections if part.script))
    context = {
        "page": page,
        "styles": _asset("style.css"),
        "scripts": scripts,
        "script_hash": base64.b64encode(hashlib.sha256(scripts.encode()).digest()).decode(),
    }
    with disk_errors(path):
        atomic_write_text(path, environment().get_template("page.html").render(context))
    return path


def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """The templates of this folder: everything is escaped, a missing name is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.undefined = jinja2.StrictUndefined
    environment.filters |= {
        "score": _score,
        "interval": _interval,
        "p_value": _p_value,
        "signed": signed,
        "sentence": lambda text: f"{text[:1].upper()}{text[1:]}.",
    }
    return environment


# --- how numbers are written ----------------------------------------------------------------------------------------


def _as_estimate(raw: Any) -> Estimate | None:
    return Estimate.from_dict(raw) if isinstance(raw, Mapping) else raw


def _score(raw: Any, digits: int = 2) -> str:
    value = raw if isinstance(raw, int | float) else getattr(_as_estimate(raw), "value", None)
    return "–" if value is None else f"{value:z.{digits}f}"


def _interval(raw: Any, digits: int = 2) -> str:
    estimate = _as_estimate(raw)
    if not isinstance(estimate, Estimate) or estimate.value is None:
        return ""
    if estimate.signed:
        return f"{signed(estimate.low, digits)} to {signed(estimate.high, digits)}"
    return f"{estimate.low:z.{digits}f}–{estimate.high:.{digits}f}"


def _p_value(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}" if value < 0.1 else f"p = {value:.2f}"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {whole % 60:02d} s"
