"""A small part of HTML and CSS, laid out: which texts can be seen, in which rows, in which colours.

Elements: table, tr, td, div. Rules: type, class and id selectors, joined or nested, and :first-child, :last-child,
:nth-child(n); specificity, order, !important and style attributes decide as in a browser. Properties: display (none,
flex), flex-direction, order, color, which is not inherited here. Whatever else is written is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from uni_train.data_gen.ureason.execution import ExecutionError

_TAGS = {"body", "style", "table", "tr", "td", "div"}
_VALUES = {  # property -> its values
    "display": "none|flex",
    "flex-direction": "(row|column)(-reverse)?",
    "order": r"-?\d{1,9}",
    "color": "[^;]*",
}
_SIMPLE = re.compile(r"([a-z]+|\*)?((?:[.#][\w-]+|:first-child|:last-child|:nth-child\(\d+\))*)")
_PART = re.compile(r"([.#:])([\w-]+)(?:\((\d+)\))?")


class Cell(NamedTuple):
    """A text that can be seen; its colour as written in the style sheet, "" where none is."""

    text: str
    color: str


class _Element(NamedTuple):
    """An element, its place among its parent's children, from 1, and the number of these."""

    node: ElementTree.Element
    place: int
    siblings: int


class _Rule(NamedTuple):
    """weight: ids, classes and types that are named. selector: simple selectors, ancestors first. properties: name ->
    (value, whether it is important)."""

    weight: tuple[int, int, int]
    selector: Sequence[re.Match[str]]
    properties: dict[str, tuple[str, bool]]


def render(source: str) -> list[list[Cell]]:
    """The visible texts of a page, row by row, each row from left to right.

    Raises:
        ExecutionError: an unknown element, rule or property, or a row of things of which one has several rows.
    """
    try:
        page = ElementTree.fromstring("<body>" + re.sub("<(td|div) hidden>", r'<\1 hidden="">', source) + "</body>")
    except ElementTree.ParseError as error:
        raise ExecutionError(f"the page cannot be read: {error}") from error
    for node in page.iter():
        if node.tag not in _TAGS:
            raise ExecutionError(f"<{node.tag}> is not known here")
        if len(node) and any(text and text.strip() for text in (node.text, *(child.tail for child in node))):
            raise ExecutionError(f"a text of <{node.tag}> stands beside an element")
    rules = sorted(_rules("".join(style.text or "" for style in page.iter("style"))), key=lambda rule: rule.weight)
    return [row for row in _rows((_Element(page, 1, 1),), rules) if row]


def _rules(css: str) -> Iterator[_Rule]:
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        for selector in selectors.split(","):
            simple = [_SIMPLE.fullmatch(part) for part in selector.split()]
            matches = [match for match in simple if match is not None]
            if not matches or len(matches) < len(simple):
                raise ExecutionError(f"the selector {selector.strip()} is not known here")
            signs = [part[0] for match in matches for part in _PART.findall(match[2])]
            types = sum(match[1] not in (None, "*") for match in matches)
            yield _Rule((signs.count("#"), len(signs) - signs.count("#"), types), matches, _properties(body))
    if re.sub(r"[^{}]+\{[^{}]*\}", "", css).strip():
        raise ExecutionError("a style sheet that cannot be read")


def _properties(body: str) -> dict[str, tuple[str, bool]]:
    properties = {}
    for line in filter(str.strip, body.split(";")):
        name, _, value = (part.strip().lower() for part in line.partition(":"))
        plain = value.removesuffix("!important").strip()
        if not re.fullmatch(_VALUES.get(name, "(?!)"), plain) or ":" not in line:
            raise ExecutionError(f"the property {line.strip()} is not known here")
        properties[name] = (plain, plain != value)
    return properties


def _style(path: Sequence[_Element], rules: Sequence[_Rule]) -> dict[str, str]:
    """The properties of the last element of a path after the cascade. rules: by rising weight."""
    node = path[-1].node
    declared = [rule.properties for rule in rules if _matches(path, rule.selector)]
    declared.append(_properties(node.get("style", "")))
    style = {"display": "none"} if "hidden" in node.attrib else {}
    for important in (False, True):
        for properties in declared:
            style |= {name: value for name, (value, flag) in properties.items() if flag == important}
    return style


def _matches(path: Sequence[_Element], selector: Sequence[re.Match[str]]) -> bool:
    """Whether the last simple selector fits the last element, and those before fit ancestors of it, in order."""
    above = reversed(path[:-1])
    return _fits(path[-1], selector[-1]) and all(
        any(_fits(ancestor, simple) for ancestor in above) for simple in reversed(selector[:-1])
    )


def _fits(element: _Element, simple: re.Match[str]) -> bool:
    node, place, siblings = element
    by_sign = {
        "#": lambda name, _: node.get("id") == name,
        ".": lambda name, _: name in node.get("class", "").split(),
        ":": lambda name, n: place == {"first-child": 1, "last-child": siblings}.get(name, int(n or 0)),
    }
    return simple[1] in (None, "*", node.tag) and all(
        by_sign[sign](name, number) for sign, name, number in _PART.findall(simple[2])
    )


def _rows(path: tuple[_Element, ...], rules: Sequence[_Rule]) -> list[list[Cell]]:
    """The rows of cells that the last element of a path makes."""
    node = path[-1].node
    style = _style(path, rules)
    if style.get("display") == "none" or node.tag == "style":
        return []
    if not len(node):
        text = " ".join((node.text or "").split())
        return [[Cell(text, style.get("color", ""))]] if text else []
    flex = style.get("display") == "flex"
    children = [(*path, _Element(child, place, len(node))) for place, child in enumerate(node, 1)]
    if flex:
        children.sort(key=lambda child: int(_style(child, rules).get("order", "0")))
    parts = [rows for child in children if (rows := _rows(child, rules))]
    direction = "row" if node.tag == "tr" else style.get("flex-direction", "row") if flex else "column"
    if direction.endswith("reverse"):
        parts.reverse()
    if direction.startswith("column"):
        return [row for rows in parts for row in rows]
    if any(len(rows) > 1 for rows in parts):
        raise ExecutionError("things of several rows stand side by side")
    return [[cell for rows in parts for cell in rows[0]]] if parts else []
