"""A small part of HTML and CSS, laid out: which texts can be seen, in which rows, in which colours.

Elements: table, tr, td, div. Rules: type, class and id selectors, joined or nested, and :first-child, :last-child,
:nth-child(n); specificity, order, !important and style attributes decide as in a browser. Properties: display (none,
flex), flex-direction, order, color, which is not inherited here. Whatever else is written is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from uni_train.data_gen.ureason.execution import ExecutionError

_TAGS = {"style", "table", "tr", "td", "div"}
_PROPERTIES = {"display", "flex-direction", "order", "color"}
_DISPLAYS = ("none", "flex")
_DIRECTIONS = ("row", "row-reverse", "column", "column-reverse")
_SIMPLE = re.compile(r"([a-z]+|\*)?((?:[.#][\w-]+|:[\w-]+(?:\(\d+\))?)*)")
_PART = re.compile(r"([.#:])([\w-]+)(?:\((\d+)\))?")
_PSEUDO = {("first-child", False), ("last-child", False), ("nth-child", True)}

Rows = list[list["Cell"]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A text that can be seen; its colour as written in the style sheet, "" where none is."""

    text: str
    color: str = ""


@dataclass(eq=False)
class _Element:
    tag: str
    attributes: dict[str, str]
    parent: _Element | None = None
    children: list[_Element] = field(default_factory=list)
    text: str = ""
    style: dict[str, str] = field(default_factory=dict)


def render(source: str) -> Rows:
    """The visible texts of a page, row by row, each row from left to right.

    Raises ExecutionError for elements, rules and properties that are not known here, and for a row of things of which
    one has several rows.
    """
    reader = _Reader()
    reader.feed(source)
    reader.close()
    if reader.open is not reader.root:
        raise ExecutionError(f"<{reader.open.tag}> is not closed")
    rules = list(_rules(reader.css))
    for element in _all(reader.root):
        element.style = _style(element, rules)
    return [row for row in _rows(reader.root) if row]


class _Reader(HTMLParser):
    """The tree of elements, and the text of all <style>; comments are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.root = _Element("body", {})
        self.open = self.root
        self.css = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            raise ExecutionError(f"<{tag}> is not known here")
        element = _Element(tag, {name: value or "" for name, value in attrs}, self.open)
        self.open.children.append(element)
        self.open = element

    def handle_endtag(self, tag: str) -> None:
        if tag != self.open.tag or self.open.parent is None:
            raise ExecutionError(f"</{tag}> closes <{self.open.tag}>")
        self.open = self.open.parent

    def handle_data(self, data: str) -> None:
        if self.open.tag == "style":
            self.css += data
        elif data.strip():
            if self.open.children:
                raise ExecutionError(f"{data.strip()[:20]!r} stands beside an element")
            self.open.text += " ".join(data.split())


def _all(element: _Element) -> Iterator[_Element]:
    yield element
    for child in element.children:
        yield from _all(child)


@dataclass(frozen=True, slots=True)
class _Rule:
    selector: tuple[str, ...]  # simple selectors, ancestors first
    weight: tuple[int, int, int]
    properties: dict[str, tuple[str, bool]]  # value, important


def _rules(css: str) -> Iterator[_Rule]:
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        for selector in selectors.split(","):
            simple = tuple(selector.split())
            if not simple:
                raise ExecutionError("a rule without a selector")
            yield _Rule(simple, _specificity(simple), _properties(body))
    if re.sub(r"[^{}]+\{[^{}]*\}", "", css).strip():
        raise ExecutionError("a style sheet that cannot be read")


def _properties(body: str) -> dict[str, tuple[str, bool]]:
    found = {}
    for line in body.split(";"):
        if not line.strip():
            continue
        name, colon, value = (part.strip().lower() for part in line.partition(":"))
        important = value.endswith("!important")
        value = value.removesuffix("!important").strip()
        if not colon or name not in _PROPERTIES:
            raise ExecutionError(f"the property {name} is not known here")
        if (name == "display" and value not in _DISPLAYS) or (name == "flex-direction" and value not in _DIRECTIONS):
            raise ExecutionError(f"{name}: {value} is not known here")
        if name == "order" and not re.fullmatch(r"-?\d{1,9}", value):
            raise ExecutionError(f"order: {value} is no whole number")
        found[name] = (value, important)
    return found


def _style(element: _Element, rules: list[_Rule]) -> dict[str, str]:
    """The properties of an element after the cascade."""
    weighed: dict[str, tuple[tuple[int, ...], str]] = {}
    for place, rule in enumerate(rules):
        if _matches(element, rule.selector):
            for name, (value, important) in rule.properties.items():
                key = (int(important), 0, *rule.weight, place)
                if name not in weighed or key > weighed[name][0]:
                    weighed[name] = (key, value)
    for name, (value, important) in _properties(element.attributes.get("style", "")).items():
        inline = (int(important), 1)
        if name not in weighed or inline > weighed[name][0]:
            weighed[name] = (inline, value)
    style = {name: value for name, (_, value) in weighed.items()}
    if "hidden" in element.attributes and "display" not in style:
        style["display"] = "none"
    return style


def _specificity(selector: tuple[str, ...]) -> tuple[int, int, int]:
    """How many ids, classes and types are named. ExecutionError for a selector that is not known here."""
    ids = classes = types = 0
    for simple in selector:
        found = _SIMPLE.fullmatch(simple)
        if found is None:
            raise ExecutionError(f"the selector {simple} is not known here")
        types += found[1] not in (None, "*")
        for sign, name, number in _PART.findall(found[2]):
            if sign == ":" and (name, bool(number)) not in _PSEUDO:
                raise ExecutionError(f":{name} is not known here")
            ids += sign == "#"
            classes += sign != "#"
    return ids, classes, types


def _matches(element: _Element, selector: tuple[str, ...]) -> bool:
    """Whether the last simple selector fits the element, and those before fit ancestors of it, in order."""
    if not _is(element, selector[-1]):
        return False
    wanted = list(selector[:-1])
    above = element.parent
    while above is not None and wanted:
        if _is(above, wanted[-1]):
            wanted.pop()
        above = above.parent
    return not wanted


def _is(element: _Element, simple: str) -> bool:
    found = _SIMPLE.fullmatch(simple)
    if found is None or found[1] not in (None, "*", element.tag):
        return False
    siblings = element.parent.children if element.parent is not None else [element]
    place = siblings.index(element) + 1
    for sign, name, number in _PART.findall(found[2]):
        if sign == "#":
            fits = element.attributes.get("id") == name
        elif sign == ".":
            fits = name in element.attributes.get("class", "").split()
        elif name == "nth-child":
            fits = place == int(number)
        else:
            fits = place == (1 if name == "first-child" else len(siblings))
        if not fits:
            return False
    return True


def _rows(element: _Element) -> Rows:
    """The rows of cells that an element makes."""
    style = element.style
    if style.get("display") == "none" or element.tag == "style":
        return []
    if not element.children:
        return [[Cell(element.text, style.get("color", ""))]] if element.text else []
    parts = [rows for child in _in_order(element) if (rows := _rows(child))]
    direction = style.get("flex-direction", "row") if style.get("display") == "flex" else "column"
    if element.tag == "tr":
        direction = "row"
    if direction.endswith("reverse"):
        parts.reverse()
    if direction.startswith("row"):
        if any(len(rows) > 1 for rows in parts):
            raise ExecutionError("things of several rows stand side by side")
        return [[cell for rows in parts for cell in rows[0]]] if parts else []
    return [row for rows in parts for row in rows]


def _in_order(element: _Element) -> list[_Element]:
    """Children by `order`, which only flex containers heed."""
    children = list(element.children)
    if element.style.get("display") == "flex":
        children.sort(key=lambda child: int(child.style.get("order", "0")))
    return children
