"""How replies of models and judges are read: one reader for each form of an answer, whoever gives it.

A reader takes what a person would take for the answer, whatever stands around it: thoughts, tags, code fences, marks of
Markdown and LaTeX, a reason. It gives None, `JsonReader` a ValueError, for no answer and for two that differ: a "yes"
in "eyes", or in prose, is none, and the article of "A cup" is no letter.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from uni_train.core.errors import UserError

T = TypeVar("T")
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u2060\ufeff]")
_THOUGHT = re.compile(  # many servers keep the opening mark to themselves
    r"<(think(?:ing)?)>.*?</\1>|\A(?![{\[])(?:(?!<think).)*</think(?:ing)?>", re.DOTALL | re.IGNORECASE
)
_LATEX_FONT = re.compile(r"\\(?:text(?:bf|rm|it)?|math(?:bf|rm))\s*\{([^{}]*)\}")
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>|\\boxed\s*\{([^{}]*)\}", re.DOTALL | re.IGNORECASE)
_MARKS = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[ \t]*\w*[ \t]*$|^[ \t]*#{1,6}[ \t]+|\*\*|__|`+|\\[()\[\]]", re.MULTILINE)
_REPEATED = re.compile(r"([^\w\s])\1{3,}")  # a model that is stuck writes thousands
_OPEN, _CLOSE = r"[\s\"'“‘(\[<{*$]*", r"[\"'”’)\]>}*$]*"
_BEHIND = r"\s*(?:$|\n|[.,;:!(}])|\s+(?:[–—-]|(?:because|since|as|for)\b)"

_WORDS = {"yes": True, "true": True, "no": False, "false": False}
_WORD = f"({'|'.join(_WORDS)})"
_LABELLED = re.compile(
    rf"\b((?:final\s+)?(?:answer|score|verdict|judge?ment|decision|conclusion|result)){_CLOSE}\s*(?:[:：=]|\bis\b|\n){_OPEN}{_WORD}\b"
    rf"(?!{_CLOSE}\s*(?:,|/|\||&|or\b|and\b){_OPEN}(?:{_WORD})\b)(?={_CLOSE}(?:{_BEHIND}))",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"^\W*{_WORD}\W*$", re.IGNORECASE)

_ANSWER = re.compile(
    r"\bfinal\s+answer\b\W+(?:is\b\W*)?|\banswer\b[^\w\n]*(?:(?:is|(?:should|must|would)\s+be)\b|:|\n)\W*",
    re.IGNORECASE,
)
_MARKED = re.compile(
    rf"{_ANSWER.pattern}|\b(?:I|we)(?:\s+(?:would|will)|['’](?:d|ll))?\s+(?:choose|pick|select|go\s+with)\s+"
    r"|\b(?:correct|right|best|my|final)\s+(?:choice|option)\b[^\w\n]*(?:is\b|:)\W*",
    re.IGNORECASE,
)
_END = r"\W*$|[^\w\s]+(?:\s|$)|\s*\n|\s+(?:[-–—:=(]|(?:because|since|as|or|and)\b)"  # no word, such as in "A cup"
_NAME = rf"(?:(?:option|choice)\s+\(?)?([A-D])(?=_*(?:{_END}))"
_LETTER = re.compile(rf"[\W_]*{_NAME}", re.IGNORECASE)
_ANOTHER = re.compile(rf"[\W_]*?(?:\b(?:or|and)\b|[,/&+])[\W_]*{_NAME}", re.IGNORECASE)
_LETTER_ALONE = re.compile(r"[\W_]*(?:(?:option|choice)\s+\(?)?([A-D])[\W_]*", re.IGNORECASE)
_RIGHT = re.compile(  # "Option B is correct", not "A or B is correct", nor "A is right of B"
    r"(?<![\w'’-])((?:[A-D]\W+)?(?:n?or|and|,|/|&)\W*)?(?:(?:option|choice|answer)\s+)?\(?([A-D])\)?(?:,[^,\n]*,)?\s+"
    r"(?:is|(?:would|must)\s+be)\s+(?:(?:clearly|therefore|thus)\s+)?(?:the\s+)?(?:(?:my|final)\s+)*"
    r"(?:answer|(?:correct|right|best)(?:\s+(?:answer|choice|option|one))?)"
    r"(?=\W*(?:$|\n)|\s*[.,;:!)]|\s+(?:because|since|as)\b)",
    re.IGNORECASE,
)
_TRIED = 20  # marks of an answer, from the end
_CAPTION = re.compile(r"\bcaption\s*[:：]\s*", re.IGNORECASE)

_NUMBER = r"([-−]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)(?![\d.]*\d)\s*(%|(?:/|out\s+of)\s*\d+)?"
_CAPTIONED = re.compile(r"\bcaption\s*[:：]\s*(\S.*)", re.IGNORECASE)
_COUNTED = re.compile(r"\d+(?: [a-z-]+){1,2}\.?", re.IGNORECASE)
_REFUSED = re.compile(r"(error|reject)(?:ed)?\b[.!]?(?:\s*[:,;(–—-].*)?", re.IGNORECASE)
_KNOWLEDGE = re.compile(
    r"^[^\w\n]*(?:(?:caption|output)\s*:[^\w\n]*)?"
    r"((?:Flower|Fruit): *[^\n:;\]\"]{2,40}|Person: *[^\n;]+(?:; *[^\n;\]\"]+){3}|Reject(?:\s*[:,;(–—-].*)?)[^\w\n]*$",
    re.MULTILINE | re.IGNORECASE,
)
# Of what a backslash begins, what is JSON's; a LaTeX command is not, though \f, \n and \t begin some.
_LATEX = (
    r"b(?:egin|eta|inom|oxed|ar|ig\w*|mod|ot|ullet|ackslash|f)|f(?:orall|rac|lat)"
    r"|n(?:abla|eg?|eq|u|ot|otin|exists|leq|geq)|r(?:angle|ceil|floor|ho|ight\w*|m)"
    r"|t(?:anh?|au|ext\w*|frac|herefore|heta|ilde|imes|o|op|riangle\w*)"
)
_BACKSLASH = re.compile(rf'\\(?:(?!(?:{_LATEX})(?![A-Za-z]))(["\\/bfnrt]|u[0-9a-fA-F]{{4}}))?')
_PYTHON = re.compile(r'"(?:\\.|[^"\\])*"|\b(True|False|None)\b|,(?=\s*[}\]])', re.DOTALL)
_OBJECT = re.compile(r"\{(?=\s*[\"'])")


# --- words -----------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """A reply without thoughts and without letters that nobody sees."""
    return _THOUGHT.sub("", _INVISIBLE.sub("", text).strip()).strip()


def words(text: str) -> str:
    """The same without blank lines and marks of Markdown and LaTeX; "Final answer:" is before one in tags or a box."""
    shown = _LATEX_FONT.sub(r"\1", _REPEATED.sub(r"\1\1\1", plain(text)))
    shown = _TAGGED.sub(lambda match: f"\nFinal answer: {(match[1] or match[2] or '').strip()}\n", shown)
    return "\n".join(" ".join(line.split()) for line in _MARKS.sub("", shown).splitlines() if line.strip())


def expecting(read: Callable[[str], T | None], wanted: str) -> Callable[[str], T]:
    """A reader that gives None for no answer, as one that raises ValueError and says what it wanted."""

    def parse(text: str) -> T:
        value = read(text)
        if value is None:
            raise ValueError(f"it must give {wanted}")
        return value

    return parse


def yes_no(text: str) -> bool | None:
    """The verdict of "Final Answer: YES", "Score: [NO] because ..." or "<answer>Yes</answer>", whose tags hold nothing
    else. Without one that of "Answer: no" and the like, else that of "no" alone on the first or last line."""
    tags = [tag for tag, box in _TAGGED.findall(plain(text)) if not box]
    if not all(_ALONE.match(tag) or _LABELLED.search(tag) for tag in tags):
        return None
    reply = words(text)
    lines, labelled = reply.split("\n"), [(match[0].lower(), match[1]) for match in _LABELLED.findall(reply)]
    found = [value for label, value in labelled if label.startswith(("final", "score"))] or [
        value for _, value in labelled
    ]
    if not found and (_ALONE.match(lines[0]) or _ALONE.match(lines[-1])):
        found = [match[1] for line in lines if (match := _ALONE.match(line))]
    values = {_WORDS[word.lower()] for word in found}
    return values.pop() if len(values) == 1 else None


def choice(reply: str, choices: Mapping[str, str | None]) -> str | None:
    """The letter that a reply chooses; None where it chooses none, or leaves open which.

    Read is what follows the last "Answer:", "answer is" or "I would choose" that chooses, else the whole reply: a
    letter, alone or before its text or a reason ("(B)", "B: a cup", "B because ..."), or the very words of exactly one
    choice, alone or on the first line. "Option B is correct" and a letter alone on the last line are choices too, which
    none may contradict. choices: letter -> its text, None where it is an image.
    """
    text = words(reply)
    tagged = [_chosen("".join(tag).strip(), choices) for tag in _TAGGED.findall(plain(reply))]
    if len(set().union(*tagged)) > 1:
        return None
    last = _LETTER_ALONE.fullmatch(text.rpartition("\n")[2])
    right = [match for match in _RIGHT.finditer(text) if "nor" not in (match[1] or "").lower()]
    claims = [(match.start(), "" if match[1] else match[2].upper()) for match in right]
    claims += [(len(text), last[1].upper())] if last else []
    starts = [0, *(marked.end() for marked in _MARKED.finditer(text))]
    for start in [*starts[:-_TRIED:-1], 0]:
        letters = _chosen(_uncaptioned(text[start:]), choices)
        if letters:
            claims = [(at, letter) for at, letter in claims if at >= start] + [(start, letter) for letter in letters]
            break
    found = {letter for _, letter in claims}
    return found.pop() if len(found) == 1 and found <= choices.keys() else None


def _chosen(answer: str, choices: Mapping[str, str | None]) -> set[str]:
    """The letters that a text begins with; one of several is no choice."""
    match = _LETTER.match(answer)
    if match is not None and (letter := match[1].upper()) in choices:
        rest = answer[match.end(1) :]
        own = re.match(rf"[\W_]*{re.escape(choices[letter] or '')}", rest, re.IGNORECASE)
        behind = (rest, rest[own.end() :] if own else "")
        return {letter, *(one[1].upper() for at in behind if (one := _ANOTHER.match(at)))}
    same = {normalised(answer), normalised(answer.partition("\n")[0])} - {""}
    named = {letter for letter, text in choices.items() if text is not None and normalised(text) in same}
    return named if len(named) == 1 else set()


def open_answer(reply: str) -> str:
    """The words that are compared with the reference: what follows the last "Answer:", else the whole reply."""
    text = words(reply)
    marked = list(_ANSWER.finditer(text))
    return _uncaptioned((text[marked[-1].end() :].strip() if marked else "") or text)


def same(reply: str, answer: str) -> bool:
    """Whether an open answer is the reference word for word, but for case, articles and punctuation around words."""
    return bool(normalised(reply)) and normalised(open_answer(reply)) == normalised(answer)


def normalised(text: str) -> str:
    """Lower case, one blank between words, no article in front, no punctuation at the ends of words."""
    plain_ = unicodedata.normalize("NFKC", text).casefold()
    parts = [word for each in plain_.split() if (word := each.strip(".,;:!?\"'`*()[]{}"))]
    return " ".join(parts[1:] if parts[:1] and parts[0] in ("a", "an", "the") and len(parts) > 1 else parts)


def _uncaptioned(text: str) -> str:
    return _CAPTION.sub("", text, count=1).strip() if _CAPTION.match(text) else text


def caption(text: str) -> str | None:
    """What follows "Caption:" (UniSandbox, Tables 9 and 10), or a reply of one line in the form asked for behind it:
    "3 apples". "Error" stands for itself and whatever explains it."""
    reply = words(text)
    captions = {_unwrapped(part) for part in _CAPTIONED.findall(reply.rpartition("\n")[2]) or _CAPTIONED.findall(reply)}
    alone = _unwrapped(reply)
    if not captions and (_COUNTED.fullmatch(alone) or _REFUSED.fullmatch(alone)):
        captions = {alone}
    return captions.pop() or None if len(captions) == 1 else None


def knowledge_caption(text: str) -> str | None:
    """The one line of Table 11: "Person: ...; ...; ...; ...", "Flower: rose", "Fruit: apple" or "Reject"."""
    names = {_unwrapped(phrase) for phrase in _KNOWLEDGE.findall(words(text))}
    return names.pop() if len(names) == 1 else None


def _unwrapped(phrase: str) -> str:
    """Without brackets or quotes around the whole."""
    phrase = phrase.strip().strip("*").strip()
    while len(phrase) > 1 and phrase[0] + phrase[-1] in ("[]", '""', "''", "“”", "‘’", "()", "<>"):
        phrase = phrase[1:-1].strip()
    refused = _REFUSED.fullmatch(phrase)
    return refused[1].capitalize() if refused else phrase


# --- numbers ---------------------------------------------------------------------------------------------------------


def mark(text: str, label: str, low: float, high: float) -> float | None:
    """The number behind a label ("Score: 7", "Score: [7/10] because ..."), or that is the whole reply; from `low` to
    `high`, of which a percentage is a share."""
    reply, numbers = words(text), list[tuple[str, str]]()
    value = rf"{_CLOSE}\s*(?:[:=：–—-]|\bis\b|\bof\b)?{_OPEN}{_NUMBER}(?!\s*(?:or|to|-|–|,|/)\s*\d)"
    for before, behind in ((rf"\b{label}\b", ""), (r"\banswer\b", ""), (r"\A", r"\W*\Z")):
        numbers = numbers or re.findall(before + value + behind, reply, re.IGNORECASE)
    values = {_within(digits, unit, low, high) for digits, unit in numbers}
    return values.pop() if len(values) == 1 else None


def number(value: Any, low: float, high: float) -> float | None:
    """A value of JSON as a number from `low` to `high`: 85, 85.0, "85", "40%"; true and false from 0 to 1."""
    if isinstance(value, bool):
        return float(value) if (low, high) == (0, 1) else None
    match = re.fullmatch(_NUMBER, str(value).strip()) if isinstance(value, str | int | float) else None
    return _within(match[1], match[2] or "", low, high) if match else None


def truth(value: Any) -> bool | None:
    """A value of JSON as true or false: true, "True", "yes", 1, "0"."""
    word = str(value).strip(" .").lower() if isinstance(value, bool | int | float | str) else ""
    return _WORDS.get(word, {"1": True, "y": True, "0": False, "n": False}.get(word))


def _within(digits: str, unit: str, low: float, high: float) -> float | None:
    value = float(digits.replace("−", "-"))
    if unit == "%":
        value = value / 100 * high if low == 0 and 1 < high < math.inf else -1.0
    elif unit and float(re.sub(r"\D", "", unit)) != high:
        return None
    return value if low <= value <= high else None


# --- JSON ------------------------------------------------------------------------------------------------------------


class JsonReader:
    """Turns a reply into what its JSON says; ValueError says what is wrong with it, in words the judge can act on.

    Text around the JSON is allowed, and a second object in it is not. A key that appears twice is an error. A scalar of
    another type counts where the schema leaves no doubt: "true" as true, "4" as 4, "Verified" as "verified".

    Raises:
        UserError: jsonschema is not installed.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        try:
            from jsonschema.validators import validator_for
        except ImportError as error:
            message = "jsonschema is not installed, which reads replies in JSON"
            raise UserError(message, "pip install -e '.[eval]'") from error
        validator = validator_for(schema)
        validator.check_schema(schema)
        self._validator = validator(schema)

    def __call__(self, text: str) -> Any:
        try:
            value = _meant(_value(plain(text)), self._validator.schema)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON ({error.msg} at line {error.lineno}, column {error.colno})") from error
        except RecursionError as error:
            raise ValueError("its JSON is nested too deeply") from error
        problems = sorted(self._validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        if problems:
            place = "/".join(map(str, problems[0].absolute_path)) or "the top"
            raise ValueError(f"its JSON does not fit: at {place}, {problems[0].message}")
        return value


def _value(reply: str) -> Any:
    reply = _BACKSLASH.sub(lambda match: match[0] if match[1] else r"\\", reply)
    try:
        return _decoded(reply)
    except json.JSONDecodeError as error:
        names = {"True": "true", "False": "false", "None": "null", None: ""}  # of Python, and a comma before an end
        with suppress(json.JSONDecodeError):
            return _decoded(_PYTHON.sub(lambda match: match[0] if match[0][0] == '"' else names[match[1]], reply))
        raise error


def _decoded(reply: str) -> Any:
    """The whole as JSON, else the one object in it. What begins like an object and is none is not looked into."""
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
    try:
        return decoder.decode(reply)
    except json.JSONDecodeError as error:
        objects, end = [], 0
        while opening := _OBJECT.search(reply, end):
            value, end = decoder.raw_decode(reply, opening.start())
            objects += [] if value in objects else [value]
        if not objects:
            raise error
    if len(objects) > 1:
        raise ValueError("it holds several JSON objects where one is wanted")
    return objects[0]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _meant(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value with its scalars as the schema has them, where it is clear what they mean."""
    if isinstance(value, dict):
        return {key: _meant(part, schema.get("properties", {}).get(key, {})) for key, part in value.items()}
    if isinstance(value, list):
        return [_meant(part, schema.get("items", {})) for part in value]
    for option in schema.get("anyOf", [schema]):
        parsed: Any = {str(name).lower(): name for name in option.get("enum", ())}.get(str(value).strip().lower())
        if option.get("type") == "boolean":
            parsed = truth(value)
        elif option.get("type") in ("integer", "number") and isinstance(value, str):
            parsed = number(value, option.get("minimum", 0), option.get("maximum", math.inf))
        if parsed is not None:
            return parsed
    return value
