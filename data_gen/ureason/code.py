"""Code reasoning: what a snippet comes to, in eight languages (Yang et al. 2026, arXiv 2602.08336, section 2.1).

A snippet is written, then run or rendered (`execution`): the expected outcome is what came out, never what the writer
meant. Python, C#, C++, Java and JavaScript share four programs: a shelf, a number, a colour, a label. These end in a
layout, a count, an attribute and a text; HTML and CSS end in a page, SQL in rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from uni_train.data_gen.ureason import words
from uni_train.data_gen.ureason.execution import html, python, sql
from uni_train.data_gen.ureason.outcomes import Attributes, Counts, Group, Layout, Writing
from uni_train.data_gen.ureason.puzzle import Puzzle
from uni_train.data_gen.ureason.spatial import GRIDS, ROWS, SHELVES
from uni_train.data_gen.ureason.words import article

# The colour of a style sheet, and of the image.
_COLOURS = ("red", "blue", "green", "yellow", "orange", "purple", "pink", "brown")
_LABELS = (
    "NOTEBOOK", "SUNFLOWER", "RAINBOW", "STARFISH", "KEYBOARD", "MOONLIGHT", "SNOWMAN", "BLUEBIRD", "NEWSPAPER",
    "WATERFALL", "GOLDFISH", "BUTTERFLY", "WINDMILL", "CAMPFIRE", "SEAHORSE", "FIREWALL",
)  # fmt: skip

Statement = tuple[Any, ...]


def draw(subcategory: str, level: int, random_: random.Random) -> Puzzle | None:
    """A snippet in the language `subcategory`; None when it comes to nothing that can be drawn."""
    if subcategory in PROGRAMMING:
        return random_.choice((_shelf, _number, _colour, _label))(subcategory, level, random_)
    if subcategory == "SQL":
        return random_.choice((_rows, _stock))(level, random_)
    return (_table if subcategory == "HTML" else random_.choice((_flex, _cascade)))(level, random_)


def run(program: Sequence[Statement]) -> dict[str, Any]:
    """The variables at the end of a program, which is run as the Python that it writes. Raises ExecutionError."""
    return python.run(write(program, "Python"))


# --- one program, five languages ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Syntax:
    """How statements are written. Conditions and sums are alike in all five but for `equals`."""

    end: str
    comment: str
    number: str
    text: str
    array: str
    loop: str
    condition: str
    otherwise: str
    close: str
    letter: str
    equals: str = "=="


_C_LOOP = "for (int {i} = 0; {i} < {n}; {i}++) {{"
_BRACES = {"condition": "if ({}) {{", "otherwise": "}} else {{", "close": "}"}
_SYNTAX = {
    "Python": _Syntax("", "# {}", "{} = {}", '{} = "{}"', "{} = [{}]", "for {i} in range({n}):", "if {}:", "else:", "",
                      "{}[{}]"),
    "C#": _Syntax(";", "// {}", "int {} = {}", 'string {} = "{}"', "string[] {} = {{ {} }}", _C_LOOP, letter="{}[{}]",
                  **_BRACES),
    "C++": _Syntax(";", "// {}", "int {} = {}", 'std::string {} = "{}"', "std::vector<std::string> {} = {{{}}}",
                   _C_LOOP, letter="{}[{}]", **_BRACES),
    "Java": _Syntax(";", "// {}", "int {} = {}", 'String {} = "{}"', "String[] {} = {{{}}}", _C_LOOP,
                    letter="{}.charAt({})", **_BRACES),
    "JavaScript": _Syntax(";", "// {}", "let {} = {}", 'let {} = "{}"', "let {} = [{}]",
                          "for (let {i} = 0; {i} < {n}; {i}++) {{", letter="{}[{}]", equals="===", **_BRACES),
}  # fmt: skip
PROGRAMMING = tuple(_SYNTAX)


def write(program: Sequence[Statement], language: str) -> str:
    """A program in a language.

    Statements:

        ("number" | "text", name, value)  ("array", name, values)  ("put", array, place, text)  ("swap", array, i, j)
        ("shift", array, length)  ("set", name, expression)  ("say", name, text)  ("letter", name, text, place)
        ("loop", times, body)  ("if", condition, body, otherwise or ())  ("comment", text)
    """
    return "\n".join(_lines(program, _SYNTAX[language], 0))


def _lines(program: Sequence[Statement], syntax: _Syntax, depth: int) -> Iterator[str]:
    pad = "    " * depth
    for what, *rest in program:
        match what, rest:
            case "comment", [text]:
                yield pad + syntax.comment.format(text)
            case "number", [name, value]:
                yield pad + syntax.number.format(name, value) + syntax.end
            case "text", [name, value]:
                yield pad + syntax.text.format(name, value) + syntax.end
            case "array", [name, values]:
                yield pad + syntax.array.format(name, ", ".join(f'"{value}"' for value in values)) + syntax.end
            case "put", [name, place, text]:
                yield f'{pad}{name}[{place}] = "{text}"{syntax.end}'
            case "swap", [name, i, j]:
                yield pad + syntax.text.replace('"{}"', "{}").format("held", f"{name}[{i}]") + syntax.end
                yield f"{pad}{name}[{i}] = {name}[{j}]{syntax.end}"
                yield f"{pad}{name}[{j}] = held{syntax.end}"
            case "shift", [name, length]:
                yield pad + syntax.text.replace('"{}"', "{}").format("first", f"{name}[0]") + syntax.end
                yield from _lines([("loop", length - 1, [("set", f"{name}[i]", f"{name}[i + 1]")])], syntax, depth)
                yield f"{pad}{name}[{length - 1}] = first{syntax.end}"
            case "set", [name, expression]:
                yield f"{pad}{name} = {expression}{syntax.end}"
            case "say", [name, text]:
                yield f'{pad}{name} = "{text}"{syntax.end}'
            case "letter", [name, text, place]:
                yield f"{pad}{name} = {name} + {syntax.letter.format(text, place)}{syntax.end}"
            case "loop", [times, body]:
                yield pad + syntax.loop.format(i="i", n=times)
                yield from _lines(body, syntax, depth + 1)
                if syntax.close:
                    yield pad + syntax.close
            case "if", [condition, body, otherwise]:
                yield pad + syntax.condition.format(condition.replace("==", syntax.equals))
                yield from _lines(body, syntax, depth + 1)
                if otherwise:
                    yield pad + syntax.otherwise.format()
                    yield from _lines(otherwise, syntax, depth + 1)
                if syntax.close:
                    yield pad + syntax.close


def _shelf(language: str, level: int, random_: random.Random) -> Puzzle | None:
    """An array of things that is changed `level` times."""
    size = random_.choice((3, 4))
    names = words.things(size + level, random_)
    program: list[Statement] = [
        ("comment", "what stands on the shelf, from left to right"),
        ("array", "shelf", names[:size]),
    ]
    spare = names[size:]
    kinds = [*random_.sample(("put", "swap", "shift"), 2), "put"]
    for kind in kinds[:level]:
        i, j = random_.sample(range(size), 2)
        program.append({"put": ("put", "shelf", i, spare.pop()), "swap": ("swap", "shelf", i, j),
                        "shift": ("shift", "shelf", size)}[kind])  # fmt: skip
    code = write(program, language)
    final = run(program)["shelf"]
    if final == names[:size]:
        return None
    outcome = Layout.from_things(ROWS[size], final)
    return _puzzle("A shelf in code", code, language,
                   "The array shelf says what stands on a shelf, from left to right.",
                   f"a shelf with {size} things in a row", outcome, "shelf", final, program)  # fmt: skip


def _number(language: str, level: int, random_: random.Random) -> Puzzle | None:
    """A number that is worked out; in a loop from level 2, with a condition in it at level 3."""
    noun = words.small_things(1, random_)[0]
    a, b, c = random_.randint(1, 5), random_.randint(2, 3), random_.randint(1, 4)
    program: list[Statement] = [("number", "count", a)]
    if level == 1:
        program += [("set", "count", f"count * {b} + {c}")]
    elif level == 2:
        program += [
            ("loop", c, [("set", "count", f"count + {b}")]),
            ("set", "count", f"count - {random_.randint(1, 3)}"),
        ]
    else:
        inner = ("if", "i % 2 == 0", [("set", "count", f"count + {b}")], [("set", "count", "count - 1")])
        program += [("loop", c + 2, [inner])]
    if level > 1 and random_.random() < 0.5:
        program.append(("if", f"count > {random_.randint(3, 8)}", [("set", "count", f"count - {b}")], ()))
    code = write(program, language)
    final = run(program)["count"]
    if not 1 <= final <= 8 or final == a:
        return None
    outcome = Counts((Group(final, noun.singular, noun.plural, "on the plate"),))
    return _puzzle(f"{noun.plural.capitalize()} in code", code, language,
                   f"The number count says how many {noun.plural} lie on a plate.",
                   f"a large white plate seen from above, with the {noun.plural} on it",
                   outcome, "count", final, program)  # fmt: skip


def _colour(language: str, level: int, random_: random.Random) -> Puzzle | None:
    """A colour that conditions decide."""
    thing = random_.choice(("kite", "umbrella", "bicycle", "mug", "armchair", "balloon", "scarf", "door"))
    first, second, third = random_.sample(_COLOURS, 3)
    n, bound, step = random_.randint(1, 12), random_.randint(2, 12), random_.randint(2, 4)
    program: list[Statement] = [("number", "n", n), ("text", "color", first)]
    if level > 1:
        program.append(("loop", step, [("set", "n", f"n + {random_.randint(1, 3)}")]))
    inner: list[Statement] = [("say", "color", second)]
    if level == 3:
        inner = [("if", "n % 2 == 0", [("say", "color", second)], [("say", "color", third)])]
    otherwise = [("say", "color", third)] if level < 3 and random_.random() < 0.5 else []
    program.append(("if", f"n > {bound}", inner, otherwise))
    code = write(program, language)
    final = run(program)["color"]
    outcome = Attributes((f"the {thing} is {final}",))
    return _puzzle(f"{article(thing).capitalize()} in code", code, language,
                   f"The text color is the colour of the {thing}.",
                   f"the {thing} in front of a plain wall", outcome, "color", final, program)  # fmt: skip


def _label(language: str, level: int, random_: random.Random) -> Puzzle | None:
    """A text that is put together from letters of a word."""
    word = random_.choice(_LABELS)
    n = random_.randint(3, 4)
    start = random_.randint(0, len(word) - n)
    place = {1: f"i + {start}" if start else "i", 2: "i * 2", 3: f"{len(word) - 1} - i"}[level]
    program: list[Statement] = [
        ("text", "word", word), ("text", "label", ""), ("loop", n, [("letter", "label", "word", place)]),
    ]  # fmt: skip
    code = write(program, language)
    final = run(program)["label"]
    outcome = Writing(final, (word,))
    return _puzzle("A label in code", code, language, "The text label is what is printed on a paper tag.",
                   "a paper tag on a string, with what is printed on it", outcome, "label", final, program)  # fmt: skip


# --- pages ---------------------------------------------------------------------------------------------------------


def _table(level: int, random_: random.Random) -> Puzzle | None:
    """A table, with `level` cells that are commented out or hidden."""
    columns = 2 if level < 3 else 3
    names = words.things(2 * columns + level, random_)
    lines = [[f"    <td>{thing}</td>" for thing in names[row * columns : (row + 1) * columns]] for row in (0, 1)]
    for extra in names[2 * columns :]:
        row = random_.choice(lines)
        place = random_.randint(0, len(row))
        ways = (f"    <!-- <td>{extra}</td> -->", f"    <td hidden>{extra}</td>",
                f'    <td style="display: none">{extra}</td>')  # fmt: skip
        row.insert(place, random_.choice(ways))
    code = "<table>\n" + "\n".join(f"  <tr>\n{chr(10).join(row)}\n  </tr>" for row in lines) + "\n</table>"
    seen = [cell.text for row in html.render(code) for cell in row]
    outcome = Layout.from_things(GRIDS[columns], seen, names[2 * columns :])
    return _puzzle("A table of things", code, "HTML", "The visible cells of the table are the panes of a shop window.",
                   f"a shop window with two rows of {columns} panes", outcome, "the page", seen)  # fmt: skip


def _flex(level: int, random_: random.Random) -> Puzzle | None:
    """A row or column whose order and contents the style sheet changes."""
    size = 3 if level == 1 else 4
    names = words.things(size, random_)
    flat = random_.random() < 0.6
    direction = random_.choice(("row", "row-reverse") if flat else ("column", "column-reverse"))
    rules = [f".shelf {{ display: flex; flex-direction: {direction}; }}"]
    if level > 1:
        rules.append(f".shelf div:nth-child({random_.randint(1, size)}) {{ order: {random_.choice((-1, 1))}; }}")
    if level == 3:
        rules.append(f"#item{random_.randint(1, size)} {{ display: none; }}")
    items = "\n".join(f'  <div id="item{i}">{thing}</div>' for i, thing in enumerate(names, 1))
    code = f'<style>\n{chr(10).join(f"  {rule}" for rule in rules)}\n</style>\n<div class="shelf">\n{items}\n</div>'
    seen = [cell.text for row in html.render(code) for cell in row]
    if seen == names:
        return None
    places = (ROWS if flat else SHELVES)[len(seen)]
    outcome = Layout.from_things(places, seen, [name for name in names if name not in seen])
    rack = f"a shelf with {len(seen)} things in a row" if flat else f"a narrow rack with {len(seen)} shelves"
    way = "a shelf, in a row" if flat else "a narrow rack, one on each shelf"
    return _puzzle("Things in a style sheet", code, "CSS",
                   f"What the page shows stands on {way}, where the page has it.",
                   rack, outcome, "the page", seen)  # fmt: skip


def _cascade(level: int, random_: random.Random) -> Puzzle | None:
    """Colours that several rules want; `level` + 1 rules for two things."""
    things = random_.sample(("kite", "umbrella", "mug", "scarf", "balloon", "lantern"), 2)
    colours = random_.sample(_COLOURS, level + 2)
    selectors = random_.sample(
        [
            "div",
            ".thing",
            ".window .thing",
            f"#{things[0]}",
            f"#{things[1]}",
            ".thing:first-child",
            ".thing:last-child",
        ],
        level + 1,
    )
    important = random_.randrange(level + 1) if level == 3 else -1
    rules = [".thing { color: " + colours[0] + "; }"] if ".thing" not in selectors else []
    rules += [
        f"{selector} {{ color: {colour}{' !important' if place == important else ''}; }}"
        for place, (selector, colour) in enumerate(zip(selectors, colours[1:], strict=True))
    ]
    random_.shuffle(rules)
    items = "\n".join(f'  <div class="thing" id="{thing}">{thing}</div>' for thing in things)
    code = f'<style>\n{chr(10).join(f"  {rule}" for rule in rules)}\n</style>\n<div class="window">\n{items}\n</div>'
    seen = {cell.text: cell.color for row in html.render(code) for cell in row}
    outcome = Attributes(tuple(f"the {thing} is {seen[thing]}" for thing in things))
    return _puzzle("Colours in a style sheet", code, "CSS", "Each thing has the colour that the style sheet gives it.",
                   f"the {things[0]} and the {things[1]} side by side", outcome, "the page",
                   [f"{thing}: {colour}" for thing, colour in seen.items()])  # fmt: skip


# --- tables --------------------------------------------------------------------------------------------------------


def _rows(level: int, random_: random.Random) -> Puzzle | None:
    """A table of things; the first three by some order, after `level` - 1 changes."""
    names = words.things(5, random_)
    prices = random_.sample(range(2, 30), 5)
    code, changes = _create("shelf", "item TEXT, price INTEGER", list(zip(names, prices, strict=True))), []
    spare = [price for price in range(2, 30) if price not in prices]
    for _ in range(level - 1):
        name = random_.choice(names)
        changes.append(random_.choice((
            f"UPDATE shelf SET price = {spare.pop(random_.randrange(len(spare)))} WHERE item = '{name}';",
            f"DELETE FROM shelf WHERE item = '{name}';",
        )))  # fmt: skip
    where = f" WHERE price > {random_.randint(3, 12)}" if random_.random() < 0.5 else ""
    down = random_.choice(("", " DESC"))
    code = "\n".join([code, *changes, f"SELECT item FROM shelf{where} ORDER BY price{down} LIMIT 3;"])
    seen = [str(item) for (item,) in sql.run(code)]
    if len(seen) < 3:
        return None
    outcome = Layout.from_things(ROWS[3], seen)
    return _puzzle("A shelf from a table", code, "SQL",
                   "The rows of the result stand on a shelf, the first at the left.",
                   "a shelf with 3 things in a row", outcome, "the result", seen)  # fmt: skip


def _stock(level: int, random_: random.Random) -> Puzzle | None:
    """How many of a thing there are, summed or counted."""
    nouns = words.small_things(3, random_)
    rows = [(random_.choice(nouns).plural, random_.randint(1, 4), random_.choice(("table", "cellar")))
            for _ in range(3 + level)]  # fmt: skip
    noun = random_.choice(nouns)
    where = f"thing = '{noun.plural}'" + (" AND place = 'table'" if level > 1 else "")
    change = [f"UPDATE stock SET number = number - 1 WHERE {where} AND number > 1;"] if level == 3 else []
    ask = f"SELECT SUM(number) FROM stock WHERE {where};"
    code = "\n".join([_create("stock", "thing TEXT, number INTEGER, place TEXT", rows), *change, ask])
    ((final,),) = sql.run(code)
    if not isinstance(final, int) or not 1 <= final <= 8 or sum(row[0] == noun.plural for row in rows) < 2:
        return None
    outcome = Counts((Group(final, noun.singular, noun.plural, "on the table"),))
    return _puzzle(f"{noun.plural.capitalize()} from a table", code, "SQL",
                   f"The result says how many {noun.plural} lie on a table.",
                   f"a plain table seen from above, with the {noun.plural} on it",
                   outcome, "the result", final)  # fmt: skip


def _create(name: str, columns: str, rows: Sequence[Sequence[Any]]) -> str:
    values = ",\n".join(
        f"  ({', '.join(str(value) if isinstance(value, int) else repr(value) for value in row)})" for row in rows
    )
    return f"CREATE TABLE {name} ({columns});\nINSERT INTO {name} VALUES\n{values};"


def _puzzle(
    title: str,
    code: str,
    language: str,
    meaning: str,
    scene: str,
    outcome: Any,
    asks: str,
    final: Any,
    program: Sequence[Statement] = (),
) -> Puzzle:
    shown = ", ".join(map(str, final)) if isinstance(final, list) else str(final)
    facts = {"code": code, "language": language, "asks": asks}
    canonical = json.dumps(facts, sort_keys=True)
    return Puzzle(
        title,
        f"Code ({language}):\n{code}\n\n{meaning}",
        scene,
        outcome,
        (f"After the code has run, {asks} is: {shown}.",),
        facts | ({"program": json.loads(json.dumps(program))} if program else {}),
        canonical,
    )
