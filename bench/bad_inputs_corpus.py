"""The corpus of bad inputs: what was once wrong, and its relatives. Each is a `Case` that must be refused.

`tests/test_bad_inputs.py` asks the cheap ones in this process; `bench/bad_inputs.py` asks all, each in a fork with
limits of time and memory, and prints a table of tracebacks, hangs and silent successes.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import shlex
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from uni_train.core.errors import DataError, UserError

MOST_SAID = 6000
"""Letters of a refusal; more is no message but a dump."""


@dataclass(frozen=True, slots=True)
class Case:
    """One bad input: `ask(folder)` gives it to the product and returns if it was taken, which is wrong.

    cheap: milliseconds, without a model. fine: may also be taken, if nothing breaks.
    """

    kind: str
    name: str
    ask: Callable[[Path], object]
    cheap: bool = True
    fine: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """what: "refused", "taken", "traceback", "silent success", "raw escape", "long"; said: the message or the trace."""

    what: str
    said: str


def outcome(case: Case, folder: Path) -> Outcome:
    """What the product does with a case; never raises for what it does wrong."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()) as out:
            case.ask(folder)
        taken = True
    except (UserError, DataError, click.ClickException) as error:
        said.write(f"error: {error}")
        taken = False
    except SystemExit as end:
        taken = end.code in (0, None)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return Outcome("traceback", traceback.format_exc())
    text = said.getvalue()
    if "Traceback" in text:
        return Outcome("traceback", text)
    if "\x1b]" in text + out.getvalue():
        return Outcome("raw escape", text)
    if taken:
        return Outcome("taken" if case.fine else "silent success", text)
    if len(text) > MOST_SAID:
        return Outcome("long", text)
    return Outcome("refused" if text.strip() or out.getvalue().strip() else "silent failure", text)


def run(*arguments: str | Path) -> None:
    """`uni_train` as typed."""
    from uni_train.cli.main import uni_train

    uni_train.main([str(one) for one in arguments], prog_name="uni_train", standalone_mode=True)


# --- documents -------------------------------------------------------------------------------------------------------

DEEP = 100_000


def damaged(good: bytes) -> dict[str, bytes]:
    """A JSON document in forms that it must not have."""
    first = next((at for at, byte in enumerate(good) if chr(byte).isdigit()), len(good) - 2)
    end = good.rstrip()[:-1]

    def more(value: bytes) -> bytes:
        return end + b', "more": ' + value + b"}"

    return {
        "nothing": b"",
        "blanks": b" \n\t\n",
        "cut short": good[: len(good) // 2],
        "without its end": end,
        "an end too many": good + b"}",
        "twice": good + good,
        "a comment": b"// mine\n" + good,
        "single quotes": good.replace(b'"', b"'"),
        "no JSON": b"It works!",
        "a web page": b"<!doctype html><html></html>",
        "binary": bytes(range(256)),
        "UTF-16": good.decode().encode("utf-16"),
        "UTF-32": good.decode().encode("utf-32"),
        "latin-1": more('"\u00e9"'.encode("latin-1")),
        "NUL within": more(b'"a\0b"'),
        "NULs": b"\0" * 100,
        "a half pair, escaped": more(b'"\\ud800"'),
        "a half pair, encoded": more(b'"\xed\xa0\x80"'),
        "NaN": more(b"NaN"),
        "-Infinity": more(b"-Infinity"),
        "1e999": more(b"1e999"),
        "5,001 digits": more(b"1" * 5001),
        "deep lists": b"[" * DEEP + b"]" * DEEP,
        "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        "deep, open": b"[" * DEEP,
        "deep within": more(b"[" * 500 + b"]" * 500),
        "deeper within": more(b"[" * 5000 + b"]" * 5000),
        "cut after a number": good[: first + 1],
    }


def of_another_type(good: bytes) -> dict[str, bytes]:
    """A JSON object as another value, and each of its keys missing or of another type."""
    whole = json.loads(good)
    found = {f"the value {value}": value.encode() for value in ("null", "[]", "3", '"text"', "true", "[null]", "[[]]")}
    for key, old in whole.items():
        found[f"without {key}"] = json.dumps({name: one for name, one in whole.items() if name != key}).encode()
        for value in (None, [], {}, "text", -1, [None], {"a": None}):
            if type(value) is not type(old):
                found[f"{key} = {json.dumps(value)}"] = json.dumps({**whole, key: value}).encode()
    return found


def special(path: Path) -> dict[str, Callable[[], object]]:
    """What may lie in the place of a file; each makes it."""
    return {
        "a FIFO": lambda: os.mkfifo(path),
        "a folder": path.mkdir,
        "/dev/zero": lambda: path.symlink_to("/dev/zero"),
        "/dev/stdin's pipe": lambda: path.symlink_to("/proc/self/fd/0"),
        "a link to nowhere": lambda: path.symlink_to(path.with_name("nowhere")),
        "a link to itself": lambda: path.symlink_to(path.name),
        "far too large": lambda: _sparse(path, 3 << 30),
    }


def _sparse(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)


def replaced(path: Path, how: bytes | Callable[[], object]) -> None:
    """Put something else in a file's place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.exists():
        path.unlink()
    if isinstance(how, bytes):
        path.write_bytes(how)
    else:
        how()


# --- YAML ------------------------------------------------------------------------------------------------------------

_HEAD = "defaults:\n  - stars_curriculum\n  - _self_\n"
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
YAML: Mapping[str, bytes] = {
    "nothing": b"",
    "a list": b"- 1\n",
    "a text": b"hello\n",
    "a number": b"3\n",
    "null": b"null\n",
    "latin-1": (_HEAD + "name: caf\u00e9\n").encode("latin-1"),
    "UTF-16": (_HEAD + "seed: 1\n").encode("utf-16"),
    "UTF-32": (_HEAD + "seed: 1\n").encode("utf-32"),
    "UTF-16 without a mark": (_HEAD + "seed: 1\n").encode("utf-16-le"),
    "NUL": (_HEAD + "name: a\0b\n").encode(),
    "a bell": (_HEAD + "name: a\x07b\n").encode(),
    "binary": bytes(range(256)),
    "a PNG's head": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "tabs": (_HEAD + "model:\n\tname: x\n").encode(),
    "open list": (_HEAD + "x: [1\n").encode(),
    "open quote": (_HEAD + "name: 'a\n").encode(),
    "open quote, double": (_HEAD + 'name: "a\n').encode(),
    "bad escape": (_HEAD + 'name: "\\q"\n').encode(),
    "bad indentation": b"kind: stars\n  seed: 1\n",
    "a key twice": (_HEAD + "seed: 1\nseed: 2\n").encode(),
    "a key twice within": (_HEAD + "optimizer: {lr: 1, lr: 2}\n").encode(),
    "two documents": b"kind: stars\n---\nkind: sft\n",
    "an unknown alias": (_HEAD + "name: *who\n").encode(),
    "an alias to itself": (_HEAD + "rounds: &a [*a]\n").encode(),
    "a section within itself": (_HEAD + "model: &a\n  x: *a\n").encode(),
    "an alias bomb": (_HEAD + _BOMB).encode(),
    "an alias bomb of sections": (_HEAD + "".join(
        f"k{i}: &k{i} {{a: {'*k' + str(i - 1) if i else 1}, b: {'*k' + str(i - 1) if i else 1}}}\n" for i in range(40)
    )).encode(),
    "deep lists": (_HEAD + "x: " + "[" * 5000 + "]" * 5000 + "\n").encode(),
    "deep lists, open": (_HEAD + "x: " + "[" * 50_000).encode(),
    "deep sections": (_HEAD + "x: " + "{a: " * 3000 + "1" + "}" * 3000 + "\n").encode(),
    "deep, a line each": "".join(f"{' ' * i}a:\n" for i in range(900)).encode(),
    "deep but parsed": (_HEAD + "x: " + "[" * 150 + "]" * 150 + "\n").encode(),
    "a python object": (_HEAD + "name: !!python/object/apply:os.system ['true']\n").encode(),
    "an unknown tag": (_HEAD + "name: !mine x\n").encode(),
    "a set": (_HEAD + "name: !!set {a, b}\n").encode(),
    "bytes": (_HEAD + "name: !!binary aGk=\n").encode(),
    "bad bytes": (_HEAD + "name: !!binary '*'\n").encode(),
    "a list as key": (_HEAD + "? [a]\n: 1\n").encode(),
    "a section as key": (_HEAD + "? {a: 1}\n: 1\n").encode(),
    "a number as key": (_HEAD + "3: 1\n").encode(),
    "null as key": (_HEAD + "null: 1\n").encode(),
    "true as key": (_HEAD + "true: 1\n").encode(),
    "a date that is none": (_HEAD + "name: 2025-99-99\n").encode(),
    "a time that is none": (_HEAD + "name: 2025-01-01 99:99:99\n").encode(),
    "a date": (_HEAD + "seed: 2025-01-01\n").encode(),
    "a merge of a number": (_HEAD + "<<: 3\n").encode(),
    "defaults: 3": b"defaults: 3\nkind: stars\n",
    "defaults: text": b"defaults: model\nkind: stars\n",
    "defaults: a section": b"defaults: {model: nano}\nkind: stars\n",
    "defaults: numbers": b"defaults: [1, 2]\nkind: stars\n",
    "defaults: null within": b"defaults: [null]\nkind: stars\n",
    "defaults: lists": b"defaults: [[model]]\nkind: stars\n",
    "defaults: unknown": b"defaults: [nowhere]\nkind: stars\n",
    "defaults: unknown group": b"defaults: [{nogroup: x}, _self_]\nkind: stars\n",
    "defaults: unknown option": b"defaults: [{model: nomodel}, _self_]\nkind: stars\n",
    "defaults: a number as option": b"defaults: [{model: 3}, _self_]\nkind: stars\n",
    "defaults: a list as option": b"defaults: [{model: [nano, bagel_7b]}, _self_]\nkind: stars\n",
    "defaults: two keys": b"defaults: [{model: nano, logger: none}, _self_]\nkind: stars\n",
    "defaults: upwards": b"defaults: [../../etc/passwd]\nkind: stars\n",
    "defaults: itself": b"defaults: [mine, _self_]\nkind: stars\n",
    "defaults: in a circle": b"defaults: [other, _self_]\nkind: stars\n",
    "no kind": b"seed: 1\n",
    "kind: [x]": b"kind: [x]\n",
    "kind: {}": b"kind: {}\n",
    "kind: null": b"kind: null\n",
    "kind: 3": b"kind: 3\n",
    "kind: unknown": b"kind: starz\n",
    "an interpolation of itself": (_HEAD + "name: ${name}\n").encode(),
    "an interpolation of nothing": (_HEAD + "name: ${nowhere}\n").encode(),
    "an open interpolation": (_HEAD + "name: ${seed\n").encode(),
    "an unknown resolver": (_HEAD + "name: ${rm:-rf}\n").encode(),
    "the environment": (_HEAD + "name: ${oc.env:NOT_SET_ANYWHERE}\n").encode(),
    "mandatory": (_HEAD + "seed: ???\n").encode(),
    "hydra": (_HEAD + "hydra: {run: {dir: /tmp/x}}\n").encode(),
    "rounds: 3": (_HEAD + "rounds: 3\n").encode(),
    "rounds: null": (_HEAD + "rounds: null\n").encode(),
    "rounds: [null]": (_HEAD + "rounds: [null]\n").encode(),
    "rounds: [[]]": (_HEAD + "rounds: [[]]\n").encode(),
    "rounds: a level of text": (_HEAD + "rounds: [{task: maths, level: x}]\n").encode(),
    "rounds: a task of a list": (_HEAD + "rounds: [{task: [maths], level: 1}]\n").encode(),
    "budget: 3": (_HEAD + "budget: 3\n").encode(),
    "budget: [1]": (_HEAD + "budget: [1]\n").encode(),
    "budget: null within": (_HEAD + "budget: {mapping1: null}\n").encode(),
    "model: 3": (_HEAD + "model: 3\n").encode(),
    "model: null": (_HEAD + "model: null\n").encode(),
    "model: []": (_HEAD + "model: []\n").encode(),
    "an escape in a key": (_HEAD + '"\\e]0;mine\\a": 1\n').encode(),
    "an escape in a value": (_HEAD + 'filter: "\\e]0;mine\\a"\n').encode(),
    "a long line": (_HEAD + "name: " + "x" * 100_000 + "\n").encode(),
    "a long key": (_HEAD + "x" * 5000 + ": 1\n").encode(),
    "two megabytes": (_HEAD + "# " + "x" * (2 << 20) + "\n").encode(),
    "infinity": (_HEAD + "optimizer: {lr: .inf}\n").encode(),
    "NaN": (_HEAD + "optimizer: {lr: .nan}\n").encode(),
    "a large whole number": (_HEAD + "seed: " + "9" * 5001 + "\n").encode(),
    "a half pair": (_HEAD + 'name: "\\ud800"\n').encode(),
}  # fmt: skip


def yaml_cases() -> Iterator[Case]:
    def ask(content: bytes | str) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            file = folder / "mine.yaml"
            (folder / "other.yaml").write_text("defaults: [mine, _self_]\nkind: stars\n")
            replaced(file, content if isinstance(content, bytes) else special(file)[content])
            run("fit", file, "--dry-run")

        return asked

    for name, content in YAML.items():
        yield Case("YAML", name, ask(content), fine=name == "mandatory")  # what a recipe leaves open, its base says
    for name in special(Path("x")):
        yield Case("YAML", name, ask(name))


# --- overrides -------------------------------------------------------------------------------------------------------

RECIPES = ("stars_curriculum", "nano_pretrain", "sft_nano", "flow_grpo_math", "knowledge")
_TYPED = (
    "seed", "=1", "seed=", "seed==1", "~seed", "+seed", "seed=1=2", "=", "..=1", "a..b=1", "seed.x=1", "seed=[",
    "seed={", "seed='", "seed=${seed}", "seed=${oc.env:HOME}", "seed=1,2", "seed=choice(1,2)", "seed=range(1,5)",
    "seed=glob(*)",
    "seed=-1", "seed=1.5", "seed=1e3", "seed=nan", "seed=inf", "seed=true", "seed=null", "seed=[1]", "seed={a:1}",
    "seed=" + "9" * 5001, "kind=sft", "recipe=x", "hydra.run.dir=/tmp", "model=nomodel", "model=[nano]", "model=3",
    "logger=nologger", "model.nokey=1", "nokey=1", "name=" + "x" * 300, "name=a/b", "name=..", "name=", "name=.",
    "name=\x1b]0;mine\x07", "\x1b]0;mine\x07=1", "name=a\0b", "out=", "rounds=3", "rounds=[]", "rounds=[3]",
    "rounds=[{task:maths}]", "rounds=[{task:maths,level:9}]", "rounds=[{task:x,level:1}]", "rounds.0.level=9",
    "rounds.9.level=1", "rounds.x.level=1", "budget=3", "budget={x:1}", "evaluation.sets=[x]", "evaluation.sets=3",
    "evaluation.sets=[]", "evaluation.n=0", "schedule.kind=x", "filter=x", "teacher=x", "model.checkpoint=3",
    "model.checkpoint=[]", "strategy.kind=x", "strategy.devices=0", "strategy.devices=-1", "strategy.precision=x",
)  # fmt: skip


def override_cases() -> Iterator[Case]:
    def ask(recipe: str, typed: str) -> Callable[[Path], object]:
        return lambda folder: run("fit", "--recipe", recipe, "--dry-run", typed)

    for typed in _TYPED:
        taken = typed in ("seed=1e3", "seed=[1]", "model.checkpoint=3", "out=", "seed=${seed}", "seed=1=2")
        yield Case("overrides", typed[:60].encode("unicode_escape").decode(), ask("stars_curriculum", typed),
                   fine=taken and typed not in ("seed=[1]", "seed=${seed}", "out="))  # fmt: skip
    eight = ("strategy=ddp", "strategy.devices=8")
    for typed in (
        ("fit", "stars_curriculum", "--dry-run", *eight, "batch.prompts=3"),
        ("fit", "flow_grpo_math", "--dry-run", *eight, "rollout.prompts_per_epoch=3"),
        ("fit", "sft", "--dry-run", "strategy=fsdp2", "strategy.devices=8", "strategy.replicas=3"),
        ("fit", "sft", "--dry-run", *eight, "strategy.replicas=2"),
        ("fit", "sft", "--dry-run", "model=bagel_7b", "model.weights=nf4"),
        ("plan", "stars_curriculum", "batch.prompts=3"),
        ("plan", "sft", "strategy=fsdp2", "strategy.replicas=3"),
        ("plan", "sft", "--gpu", "mi300"),
        ("plan", "sft", "--gpu", "h100-80gb,a100-80gb"),
    ):
        yield Case("cards", " ".join(typed), lambda folder, typed=typed: run(*typed))
    for recipe in RECIPES:
        for key, wrong in wrong_values(recipe):
            name = f"{recipe} {key}={wrong}"
            yield Case("overrides of each key", name, ask(recipe, f"{key}={wrong}"), cheap=False)


def wrong_values(recipe: str) -> Iterator[tuple[str, str]]:
    """Every number of a recipe's schema with what is no number, every section with what is no section."""
    from uni_train.config.kinds import kind_named

    kind = {"stars_curriculum": "stars", "nano_pretrain": "pretrain", "sft_nano": "sft", "knowledge": "knowledge"}
    yield from _wrong(kind_named(kind.get(recipe, "flow_grpo")).config, "")


def _wrong(cls: type, at: str) -> Iterator[tuple[str, str]]:
    hints = get_type_hints(cls)
    for field in fields(cls):
        if field.name in ("kind", "recipe"):
            continue
        key, members = f"{at}{field.name}", get_args(hints[field.name]) or (hints[field.name],)
        section = next((one for one in (hints[field.name], *members) if is_dataclass(one)), None)
        if (
            section is not None
            and isinstance(section, type)
            and not str(hints[field.name]).startswith(("dict", "tuple"))
        ):
            yield key, "3"
            yield key, "[1]"
            yield f"{key}.nokey", "1"
            yield from _wrong(section, f"{key}.")
        elif any(one in (int, float) for one in (hints[field.name], *members)) and str not in members:
            for value in ("nan", "inf", "text", "{a: 1}", "[[1]]", "1e400"):
                yield key, value
            limits = field.metadata
            if limits.get("low") is not None:
                yield key, str(limits["low"] - 1)


# --- JSON and JSON lines ---------------------------------------------------------------------------------------------

_DOCUMENT = b'{"a": 1, "b": "text", "c": [1, 2.5]}'


def json_cases() -> Iterator[Case]:
    """The gate itself."""
    from uni_train.core import reading_limits as gate

    def ask(content: bytes | str) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            file = folder / "x.json"
            replaced(file, content if isinstance(content, bytes) else special(file)[content])
            gate.read_json(file)

        return asked

    for name, content in damaged(_DOCUMENT).items():
        yield Case("JSON", name, ask(content))
    for name in special(Path("x")):
        if name != "a link to nowhere" and name != "a link to itself" and name != "a folder":
            yield Case("JSON", name, ask(name))


_ITEM = (
    b'{"id": "maths1/train/0", "task": "maths", "level": 1, "split": "train", "prompt": "Draw 2 - 1 trees .", '
    b'"answer": "1 tree", "facts": {"world": "nano", "object": "tree", "plural": "trees", "count": 1, '
    b'"expression": "2 - 1", "canonical": "(- 2 1)"}, "thought": "2 - 1 = 1 .", "pair": null}'
)
_MATHS = b'{"Question": "Draw 1 + 1 apples.", "Answer": "2 apples", "id": "1"}'


def line_cases() -> Iterator[Case]:
    """Files of rows that people bring: `data audit` of published ones, `data verify` of our own."""

    def ask(command: str, content: bytes | str) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            file = folder / "x.jsonl"
            replaced(file, content if isinstance(content, bytes) else special(file)[content])
            if command == "audit":
                run("data", "audit", file)
            else:
                (folder / "images").mkdir()
                (folder / "images" / "0.png").write_bytes(png(24, 24))
                run("data", "verify", "--items", file, "--images", folder / "images", "--out", folder / "out.jsonl")

        return asked

    for command, row in (("audit", _MATHS), ("verify", _ITEM)):
        for name, content in {**damaged(row), **of_another_type(row)}.items():
            fine = name in ("nothing", "blanks") or "pair" in name or (command == "audit" and name == "id = -1")
            yield Case(f"data {command}", name, ask(command, row + b"\n" + content), fine=fine)
        for name in special(Path("x")):
            yield Case(f"data {command}", name, ask(command, name), cheap=name != "far too large")
        for name, content in {
            "no rows": b"", "blank lines": b"\n\n\n", "a line of 100 MB": b'{"id": "' + b"x" * (100 << 20) + b'"}',
            "an id twice": row + b"\n" + row, "bare carriage returns": row + b"\r" + row,
            "an escape in the id": row.replace(b'"id": "', b'"id": "\\u001b]0;mine\\u0007'),
            "5,001 digits in a question": row.replace(b"1 + 1", b"1" * 5001 + b" + 1").replace(b"2 - 1", b"2" * 5001),
        }.items():  # fmt: skip
            yield Case(f"data {command}", name, ask(command, content), cheap="100 MB" not in name,
                       fine=name == "an escape in the id" or "digits" in name)  # fmt: skip


_LABEL = b'{"id": "c0", "label": "pass", "rater": "ann", "k": 0, "images": ["x.png"]}'
_LABELS_CSV: Mapping[str, bytes] = {
    "nothing": b"",
    "a header alone": b"id,label\n",
    "no header": b"c0,pass\n",
    "blank lines": b"\n\n\n",
    "latin-1": "id,label,note\nc0,pass,caf\u00e9\n".encode("latin-1"),
    "UTF-16": "id,label\nc0,pass\n".encode("utf-16"),
    "NUL": b"id,label\nc0\0,pass\n",
    "binary": bytes(range(256)),
    "a column twice": b"id,id,label\nc0,c1,pass\n",
    "an unknown column": b"id,label,verdict\nc0,pass,x\n",
    "100,000 columns": b"id,label," + b",".join(b"c%d" % i for i in range(100_000)) + b"\n",
    "too few cells": b"id,label\nc0\n",
    "too many cells": b"id,label\nc0,pass,x\n",
    "an open quote": b'id,label\n"c0,pass\n',
    "a quote within": b'id,label\nc"0,pass\n"x"y,pass\n',
    "semicolons": b"id;label\nc0;pass\n",
    "tabs": b"id\tlabel\nc0\tpass\n",
    "a cell of a megabyte": b"id,label\nc0," + b"x" * (1 << 20) + b"\n",
    "an unknown id": b"id,label\nc99,pass\n",
    "an id of 5,000 letters": b"id,label\n" + b"x" * 5000 + b",pass\n",
    "an escape in the id": b"id,label\n\x1b]0;mine\x07,pass\n",
    "an escape in the label": b"id,label\nc0,\x1b]0;mine\x07\n",
    "an escape in the header": b"id,label,\x1b]0;mine\x07\nc0,pass,x\n",
    "no label": b"id,label\nc0,\n",
    "a label of words": b"id,label\nc0,maybe\n",
    "NaN": b"id,label\nc0,nan\n",
    "infinity": b"id,label\nc0,inf\n",
    "1e308": b"id,label\nc0,1e308\n",
    "-0.5": b"id,label\nc0,-0.5\n",
    "1.01": b"id,label\nc0,1.01\n",
    "an unknown setting": b"id,label,setting\nc0,pass,x\n",
    "a setting of 5,000 letters": b"id,label,setting\nc0,pass," + b"x" * 5000 + b"\n",
    "k = -1": b"id,label,k\nc0,pass,-1\n",
    "k = 1.5": b"id,label,k\nc0,pass,1.5\n",
    "k of 5,001 digits": b"id,label,k\nc0,pass," + b"9" * 5001 + b"\n",
    "k of another script": "id,label,k\nc0,pass,\u00b2\n".encode(),
    "twice by one person": b"id,label,rater\nc0,pass,ann\nc0,fail,ann\n",
    "twice by nobody": b"id,label\nc0,pass\nc0,pass\n",
    "an image that is not there": b"id,label,images\nc0,pass,nowhere.png\n",
    "an image that is the file itself": b"id,label,images\nc0,pass,labels.csv\n",
    "an image that is a device": b"id,label,images\nc0,pass,/dev/zero\n",
    "an image that is a folder": b"id,label,images\nc0,pass,.\n",
    "an image with a long name": b"id,label,images\nc0,pass," + b"x" * 5000 + b"\n",
}


def augmented_cases() -> Iterator[Case]:
    """Rows without symmetries, of which they are asked."""

    def ask(row: bytes) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            file = folder / "x.jsonl"
            file.write_bytes(row)
            given = (f"sources.mazes={{path: {file}, augment: symmetries}}", f"out={folder}", "held_out.task=null")
            run("fit", "sft_maze", *given, "updates=1", "model.threads=1")

        return asked

    for name, row in {"a task without symmetries": _ITEM, "no item": _MATHS}.items():
        yield Case("augment", name, ask(row + b"\n"), cheap=False)


def label_cases() -> Iterator[Case]:
    """Labels of people, as `eval calibrate --labels` reads them."""

    def ask(name: str, content: bytes | str) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            from tests.eval.judges.criteria import Criteria
            from uni_train.eval.judges.calibrate import read_labels

            (folder / "x.png").write_bytes(png())
            file = folder / name
            replaced(file, content if isinstance(content, bytes) else special(file)[content])
            read_labels(file, Criteria(4))

        return asked

    for name, content in _LABELS_CSV.items():
        yield Case("labels", f"CSV, {name}", ask("labels.csv", content))
    for name in special(Path("x")):
        yield Case("labels", f"CSV, {name}", ask("labels.csv", name))
    for name, content in {**damaged(_LABEL), **of_another_type(_LABEL)}.items():
        fine = name.startswith(("without rater", "without k", "without images", "rater = ", "images = null", "k = null",
                                "images = []"))  # fmt: skip
        yield Case("labels", f"JSON, {name}", ask("labels.jsonl", content), fine=fine)
    for name, change in {
        "NUL in an image's name": {"images": "a\0b"},
        "NUL in an id": {"id": "c0\0"},
        "an object as label": {"label": {}},
        "a list as id": {"id": ["c0"]},
        "a large number as k": {"k": 10**400},
        "lists in images": {"images": [["x.png"]]},
    }.items():
        content = json.dumps({**json.loads(_LABEL), **change}).encode()
        yield Case("labels", f"JSON, {name}", ask("labels.jsonl", content))


# --- images ----------------------------------------------------------------------------------------------------------


def png(height: int = 4, width: int = 4) -> bytes:
    """Of noise, which is not compressed."""
    import numpy as np
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)).save(data, "PNG")
    return data.getvalue()


def images() -> dict[str, bytes]:
    good = png(40, 40)
    large = bytearray(good)
    large[16:24] = struct.pack(">II", 60_000, 60_000)
    endless = bytearray(good)
    endless[16:24] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
    none = bytearray(good)
    none[16:24] = struct.pack(">II", 0, 0)
    return {
        "nothing": b"",
        "no image": b"hello",
        "a web page": b"<html></html>",
        "JSON": b"{}",
        "cut in its head": good[:20],
        "cut in its pixels": good[:-2000],
        "a head alone": good[:33],
        "a changed byte": good[:45] + bytes([good[45] ^ 0xFF]) + good[46:],
        "60,000 x 60,000": bytes(large),
        "2^31 x 2^31": bytes(endless),
        "0 x 0": bytes(none),
        "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
        "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>',
        "PDF": b"%PDF-1.4\n",
        "a JPEG's head": b"\xff\xd8\xff\xe0\x00\x10JFIF",
        "a GIF's head": b"GIF89a\x04\x00\x04\x00",
        "a WebP's head": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
        "a TIFF's head": b"II*\x00\x08\x00\x00\x00",
        "zeros": bytes(1000),
    }


def image_cases() -> Iterator[Case]:
    from uni_train.models import pictures
    from uni_train.models.pictures import read_image

    def of_file(content: bytes | str) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            file = folder / "x.png"
            replaced(file, content if isinstance(content, bytes) else special(file)[content])
            read_image(file)

        return asked

    def of_url(url: str) -> Callable[[Path], object]:
        return lambda folder: pictures.decode_picture(pictures.decode_data_url(url, "image 1"), "image 1")

    def of_row(content: bytes) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            from uni_train.training.data.rows import BadRow, Row

            try:
                Row({}, folder).image(content, "image")
            except BadRow as error:
                raise UserError(str(error)) from None

        return asked

    def verified(content: bytes | str) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            (folder / "items.jsonl").write_bytes(_ITEM)
            file = folder / "x.png"
            replaced(file, content if isinstance(content, bytes) else special(file)[content])
            run("data", "verify", "--items", folder / "items.jsonl", "--item", "maths1/train/0", "--image", file)

        return asked

    for name, content in images().items():
        yield Case("images", f"a file, {name}", of_file(content))
        yield Case("images", f"a reply, {name}", lambda _, content=content: pictures.decode_picture(content, "image 1"))
        yield Case("images", f"a row, {name}", of_row(content))
        # An answer that cannot be read is judged: unreadable.
        yield Case("images", f"verified, {name}", verified(content), fine=True)
    for name in special(Path("x")):
        yield Case("images", f"a file, {name}", of_file(name))
        yield Case("images", f"verified, {name}", verified(name), fine=True)
    for name, url in {
        "no data URL": "https://host/x.png", "a file": "file:///etc/passwd", "no base64": "data:image/png;base64,***",
        "nothing": "", "half": "data:image/png;base64,iVBO",
    }.items():  # fmt: skip
        yield Case("images", f"a URL, {name}", of_url(url))


# --- what `serve` is asked -------------------------------------------------------------------------------------------

_CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
_DRAW: dict[str, Any] = {"prompt": "a red boat"}


def body_cases() -> Iterator[Case]:
    from uni_train.core.http_client import parsed
    from uni_train.serving.protocol import BadRequest, parse_chat, parse_drawing

    def ask(read: Callable[[Any], Any], content: bytes) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            try:
                body = parsed(content)
            except ValueError as error:
                raise BadRequest(f"no JSON ({error})") from None
            read(body).tasks()

        return asked

    odd = (None, [], {}, 3, -1, 1.5, True, "", " ", "text", [None], [[]], [{}], [3], {"a": 1}, 10**30, 1e308)
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png()).decode()}"}}
    parts: Sequence[Any] = (
        [{"type": "text"}], [{"type": "text", "text": 3}], [{"type": "x"}], [{"type": None}], [{"type": ["text"]}],
        [{"type": "image_url"}], [{"type": "image_url", "image_url": 3}], [{"type": "image_url", "image_url": {}}],
        [{"type": "image_url", "image_url": {"url": None}}], [{"type": "image_url", "image_url": {"url": "http://x"}}],
        [image], [{"type": "text", "text": "a"}, *[image] * 20], [{"type": "text", "text": "a " * 40_000}],
        [{"type": "text", "text": "a" * 400_000}],
    )  # fmt: skip
    for name, content in damaged(json.dumps(_CHAT).encode()).items():
        replacing = ("latin-1", "a half pair", "NUL within", "NaN", "-Infinity", "1e999")
        yield Case("bodies of chat", name, ask(parse_chat, content), fine=name.startswith(replacing))
    for value in odd:
        shown = json.dumps(value)
        yield Case("bodies of chat", f"messages = {shown}", ask(parse_chat, json.dumps({"messages": value}).encode()))
        content = json.dumps({"messages": [{"role": "user", "content": value}]}).encode()
        yield Case("bodies of chat", f"content = {shown}", ask(parse_chat, content), fine=value == "text")
        content = json.dumps({"prompt": value}).encode()
        yield Case("bodies of drawing", f"prompt = {shown}", ask(parse_drawing, content), fine=value == "text")
        for key, good in (("seed", (None, 3)), ("n", (None, 3)), ("temperature", (None, 1.5)), ("skill", (None,)),
                          ("max_tokens", (None, 3, 10**30)), ("thinking", (None, True, ""))):  # fmt: skip
            content = json.dumps({**_CHAT, key: value}).encode()
            fine = any(value == one and type(value) is type(one) for one in good)
            yield Case("bodies of chat", f"{key} = {shown}", ask(parse_chat, content), fine=fine)
        for key, good in (("size", (None,)), ("thought", (None, "", " ", "text")), ("mask", (None,)),
                          ("response_format", (None,)), ("n", (None, 3))):  # fmt: skip
            content = json.dumps({**_DRAW, key: value}).encode()
            fine = any(value == one and type(value) is type(one) for one in good)
            yield Case("bodies of drawing", f"{key} = {shown}", ask(parse_drawing, content), fine=fine)
    for number, content in enumerate(parts):
        body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
        yield Case("bodies of chat", f"parts {number}: {json.dumps(content)[:50]}", ask(parse_chat, body))
    for size in ("0", "x", "1x", "-1x1", "99999x99999", "1e3x1", "100000x1", "4 x 4"):
        yield Case(
            "bodies of drawing", f"size = {size}", ask(parse_drawing, json.dumps({**_DRAW, "size": size}).encode())
        )


# --- models ----------------------------------------------------------------------------------------------------------


def safetensors(header: Any, body: bytes = bytes(16)) -> bytes:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(data)) + data + body


_TENSOR = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


def headers() -> dict[str, bytes]:
    good = json.dumps({"a": _TENSOR}).encode()
    found = {f"a header of {name}": safetensors(content) for name, content in damaged(good).items()}
    for name, change in {
        "no dtype": {"dtype": None}, "unknown dtype": {"dtype": "F12"}, "a list as dtype": {"dtype": ["F32"]},
        "shape of text": {"shape": "4"}, "shape null": {"shape": None}, "negative shape": {"shape": [-4]},
        "shape of floats": {"shape": [4.5]}, "shape of lists": {"shape": [[4]]}, "a huge shape": {"shape": [10**18]},
        "offsets null": {"data_offsets": None}, "one offset": {"data_offsets": [0]},
        "offsets of text": {"data_offsets": ["0", "16"]}, "negative offsets": {"data_offsets": [-16, 0]},
        "offsets beyond": {"data_offsets": [0, 1 << 60]}, "offsets the other way": {"data_offsets": [16, 0]},
        "floats as offsets": {"data_offsets": [0.0, 16.0]},
    }.items():  # fmt: skip
        found[name] = safetensors({"a": {**_TENSOR, **change}})
    for value in (None, [], "text", 3, True):
        found[f"a tensor that is {json.dumps(value)}"] = safetensors({"a": value})
    found |= {
        "nothing": b"", "seven bytes": bytes(7), "a length alone": struct.pack("<Q", 100),
        "a length without end": struct.pack("<Q", 2**63) + b"{}", "a length of 2^64 - 1": b"\xff" * 8 + b"{}",
        "no tensors": safetensors({}), "a pickle": b"\x80\x04\x95", "a zip": b"PK\x03\x04" + bytes(60),
        "git lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    }  # fmt: skip
    return found


def model_cases() -> Iterator[Case]:
    def ask(file: str, content: bytes | str) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            from uni_train.models.nano.family import ASSETS

            model = folder / "model"
            model.mkdir()
            for source in ASSETS.iterdir():
                if source.is_file():
                    (model / source.name).symlink_to(source)
            place = model / file
            replaced(place, content if isinstance(content, bytes) else special(place)[content])
            run("models", "inspect", model)

        return asked

    for name, content in headers().items():
        yield Case("safetensors", name, ask("model.safetensors", content), cheap=False)
    good = json.dumps({"model": "nano", "bagel": {"hidden_size": 32}}).encode()
    for name, content in {**damaged(good), **of_another_type(good)}.items():
        yield Case("config.json", name, ask("config.json", content), cheap=False)
    for name in special(Path("x")):
        yield Case("config.json", name, ask("config.json", name), cheap=False)
        yield Case("safetensors", name, ask("model.safetensors", name), cheap=False)


# --- run folders -----------------------------------------------------------------------------------------------------


def run_cases(finished: Path, arguments: Sequence[str]) -> Iterator[Case]:
    """A finished run with one of its files edited, then continued and reported.

    arguments: of the `fit` that has made it, without out=; `finished` is its folder, OUT/RECIPE/NAME.
    """
    import shutil

    def ask(file: str, content: bytes | str, then: Sequence[str]) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            copy = folder / "out" / finished.parent.name / finished.name
            shutil.copytree(finished, copy)
            place = copy / file
            replaced(place, content if isinstance(content, bytes) else special(place)[content])
            run(*(one.format(run=copy, out=folder / "out") for one in then))

        return asked

    manifest = next(iter(sorted(finished.glob("stages/*/manifest.json")))).relative_to(finished)
    evaluated = next(iter(sorted(finished.glob("stages/*-evaluate-*/evaluation.json")))).relative_to(finished)
    needed = ("format", "model", "benchmarks", "options", "seed", "k", "command", "started", "subset", "judge = [",
              "judge = -", "judge = {", 'judge = "')  # fmt: skip
    board = ("eval", "leaderboard", f"{{run}}/{evaluated.parent}", "--out", "{out}/board")
    again = ("fit", *(one.replace("{", "{{").replace("}", "}}") for one in arguments), "out={out}")
    report, compared = ("report", "{run}"), ("eval", "compare", "{run}", "{run}")
    for file, commands in (
        (str(manifest), {"fit": again, "report": report}),
        ("run.json", {"fit": again}),
        ("config.yaml", {"fit": again}),
        ("summary.json", {"report": report, "compare": compared}),
        (str(evaluated), {"leaderboard": board}),
    ):
        good = (finished / file).read_bytes()
        as_json = good if file.endswith(".json") else b'{"recipe": "x", "seed": 1}'
        contents: dict[str, bytes | str] = {**damaged(as_json), **dict.fromkeys(special(Path("x")), "")}
        if file.endswith(".json"):
            contents |= of_another_type(as_json)
        for name, content in contents.items():
            for command, then in commands.items():
                given = content if isinstance(content, bytes) and content != "" else name
                # Notes may hold more than is read; what is missing is written again.
                more = name.startswith(("without ", "a link to nowhere")) or " = " in name
                fine = (file == "run.json" and more) or (name.startswith("a link") and file != "summary.json")
                fine |= (file == str(manifest) and command == "report") or (file == "summary.json" and more)
                fine |= file == str(evaluated) and more and not name.removeprefix("without ").startswith(needed)
                fine |= file == str(manifest) and name.startswith(("stage = ", "seconds = ", "without result"))
                yield Case(f"{Path(file).name}, {command}", name, ask(file, given, then), cheap=False, fine=fine)


# --- options ---------------------------------------------------------------------------------------------------------

_STANDS_FOR = {
    "LONG": "x" * 300,
    "LONGEST": "x" * 5000,
    "DIGITS": "9" * 5001,
    "ESCAPE": "\x1b]0;x\x07",
    "NUL": "a\0b",
    "LINES": "a\nb",
}
OPTIONS = """
fit
fit nowhere
fit nowhere.yaml
fit .
fit /
fit ''
fit ESCAPE
fit LONGEST
fit a/b
fit sft_puzzle model.puzzles=[clock]
fit nano_pretrain vae=null
fit stars_math model.architecture.fusion=last
fit flow_grpo_maze prompts.levels=[4,8]
fit flow_grpo_math objective.image_weight=0
fit unigrpo_math objective.image_weight=0 thoughts.weight=0
fit unigrpo_math objective.image_weight=0 objective.kl=0.1
fit unigrpo_math thoughts.loss=cross_entropy
fit unigrpo_math thoughts.weight=0 thoughts.result_weight=3
fit sft_maze data.maze_side=40
fit sft_maze data.maze_style=clasic
fit flow_grpo_maze data.maze_style=classic data.maze_side=80 model.architecture.image_size=80
fit sft_maze sources.mazes.form=edit sources.mazes.augment=symmetries
fit stars_maze solved=null rounds.0.replay={} rounds.1.replay={} rounds.2.replay={}
fit NUL
report ''
report nowhere
report /dev/zero
report /
report LONG
data make --out ''
data make --n 0 --out x
data make --n -5 --out x
data make --n x --out x
data make --level 99 --out x
data make --level x --out x
data make --task x --out x
data make --world x --out x
data make --split x --out x
data make --task maze --size 0 --out x
data make --task maze --size 100000 --out x
data make --task maze --style x --out x
data make --out /dev/null/x
data make --out /proc/x
data make --out LONG
data make --seed x --out x
data make --seed DIGITS --out x
data knowledge --n 0 --out x
data knowledge --split x --out x
data knowledge --out ''
data show nowhere
data show /dev/zero
data show ''
data show --n 0
data show --out ''
data show --out /
data make --task sudoku --style nano --level 6 --out x
data make --task clock --pixels 100 --out x
data make --task all --out /
data make --format tar --out x
data audit-verifier --task nothing
data audit-verifier nowhere.py:f --task maze
data audit-verifier maze --task maze
data audit ''
data audit .
data audit nowhere
data verify
data verify --items nowhere
data verify --items ''
models inspect ''
models inspect nowhere
models inspect /dev/zero
models inspect /
models inspect /etc/passwd
recipes nowhere
recipes ''
recipes LONGEST
export
export nowhere out
export '' out
export nowhere ''
generate -m nowhere -p x
generate -m '' -p x
generate -m nano -p ''
generate -m nano -p x -n 0
generate -m nano -p x --steps 0
generate -m nano -p x --temperature nan
generate -m nano -p x --out ''
generate -m nano -p x --text-scale inf
generate -m nano -p x --size 0x0
generate -m nano -p x --size x
generate -m nano -p x --seed -1
generate -m nano -p x --image nowhere
generate -m nano -p x --image /
generate -m nano -p x --image /dev/zero
generate -m nano -p x --out /
generate -m nano -p x --size 999999x999999
eval compare nowhere nowhere
eval compare '' ''
eval compare / /
eval leaderboard nowhere
eval leaderboard a=nowhere b=
eval -c shipped --judges a,a
eval -c nowhere
eval -c ''
eval -c shipped --n 0
eval -c shipped --k 0
eval -c shipped sampling.steps=nan
eval -c shipped sampling.steps
eval -c shipped sampling.=
eval -c shipped sampling.steps=0
eval -c shipped sampling.steps=1.5
eval -c shipped sampling.temperature=-1
eval -c shipped sampling.cfg_renorm=x
eval -c shipped --benchmark ''
eval -c shipped data.unisandbox=nowhere
eval -c shipped data.unisandbox=/dev/zero
eval -c shipped --out ''
eval -c shipped judge.timeout=inf
eval -c shipped judge.price=[nan,1]
eval -c 'http://127.0.0.1:1/v1#x' --n 1
eval -c 'http://[/v1#x' --n 1
eval -c 'http://x:99999/v1#x' --n 1
eval -c 'ftp://x/v1#x' --n 1
serve --model nowhere
serve --model ''
serve --model nano --port -1
serve --model nano --port 99999
serve --model nano --port x
plan nowhere
plan ''
launch
launch -- nowhere
launch --nodes 0 -- fit
watch nowhere
watch ''
eval leaderboard
eval leaderboard ''
eval leaderboard =
eval leaderboard /dev/zero
eval leaderboard NUL
eval leaderboard LONG
eval leaderboard a=nowhere --out ''
eval leaderboard ESCAPE=nowhere
eval calibrate
eval calibrate judge=null
eval calibrate judge.model=http://127.0.0.1:1/v1#x --labels nowhere -b ureason
eval calibrate judge.model=http://127.0.0.1:1/v1#x --labels /dev/zero -b unisandbox
eval calibrate judge.model=http://127.0.0.1:1/v1#x --labels '' -b unisandbox
eval calibrate judge.model=http://127.0.0.1:1/v1#x --labels x -b unisandbox,ureason
eval calibrate judge.model=http://127.0.0.1:1/v1#x --references nowhere
eval calibrate judge.model=http://127.0.0.1:1/v1#x --references none
eval calibrate judge.model=http://127.0.0.1:1/v1#x --changes blur
eval calibrate judge.model=http://127.0.0.1:1/v1#x --ways nothing
eval calibrate judge.model=http://127.0.0.1:1/v1#x --reruns 1000000000
eval calibrate judge.model=http://127.0.0.1:1/v1#x --reruns -1
eval calibrate judge.model=http://127.0.0.1:1/v1#x --anchors 0
eval calibrate judge.model=http://127.0.0.1:1/v1#x judge.sure=nan
eval calibrate judge.model=http://127.0.0.1:1/v1#x judge.small=[{model:x}]
eval calibrate -c nowhere judge.model=http://127.0.0.1:1/v1#x
eval -c shipped --n 100000000
eval -c shipped --k 1000000000
eval -c shipped judge.model=http://127.0.0.1:1/v1#x judge.way=x
eval -c shipped judge.model=http://127.0.0.1:1/v1#x judge.way=majority judge.draws=1000000000
eval -c shipped judge.model=http://127.0.0.1:1/v1#x judge.temperature=nan
eval -c shipped judge.connections=1000000000
generate -m nano -p x -n 100000000
generate -m nano -p x --steps 1000000000
data make --n 100000000 --out x
plan --recipe stars_math --gpus 1000000000
launch --gpus 0 --processes 1000000000 -- fit stars_math
launch --gpus 1 --slurm --time soon -- fit stars_math
launch --gpus 1 --slurm --partition LINES -- fit stars_math
launch --gpus 1 --slurm --container LINES -- fit stars_math
launch --gpus 1 --nodes 2 --torchrun --hosts a,a -- fit stars_math
insight
insight nothing
insight links -c nowhere --task mapping
insight links -c '' --task mapping
insight links -c shipped --task nowhere
insight links -c shipped --task ''
insight links -c shipped --task mapping --level 99
insight links -c shipped --task mapping --level x
insight links -c shipped --task mapping --level -1
insight links -c shipped --task mapping --level DIGITS
insight links -c shipped --task mapping --n 100000000
insight links -c shipped --task mapping --n 0
insight links -c shipped --task mapping --k 1000000000
insight links -c shipped --task mapping --split x
insight links -c shipped --task mapping --settings x
insight links -c shipped --task mapping --n 1 --out ''
insight links -c shipped --task mapping --n 1 --out /proc/x
insight links -c shipped --task mapping --n 1 sampling.steps=nan
insight links -c shipped --task mapping --n 1 sampling.x=1
insight links -c shipped --task mapping --n 1 --out /dev/null/x
insight states -c http://127.0.0.1:1/v1#x --task mapping --n 1 --world nano
insight states -c shipped --task maze --n 1
insight states -c shipped --task knowledge --n 1
insight states -c shipped --task knowledge --level 1
insight states -c shipped --task mapping --n 1 sampling.steps=0
insight attention -c shipped --task mapping --n 1 --layers 9-3
insight attention -c shipped --task mapping --n 1 --layers 0-0
insight attention -c shipped --task mapping --n 1 --layers x
insight attention -c shipped --task mapping --n 1 --layers 1-99
insight attention -c shipped --task mapping --n 1 --tokens 9-3
insight attention -c shipped --task mapping --n 1 --maps -1
doctor
doctor ''
doctor nowhere
doctor /
doctor /dev/zero
doctor NUL
doctor LONG
doctor nano --image /
doctor nano --image nowhere/x.png
doctor nano --image /dev/null/x.png
nocommand
--nooption
"""


def _options() -> list[list[str]]:
    lines = OPTIONS.strip().splitlines()
    return [[_STANDS_FOR.get(part, part) for part in shlex.split(line)] for line in lines]


_MODEL_NEEDED = ("generate", "eval", "serve", "watch", "plan", "launch", "insight", "doctor")


def option_cases() -> Iterator[Case]:
    def ask(arguments: Sequence[str]) -> Callable[[Path], object]:
        def asked(folder: Path) -> None:
            with contextlib.chdir(folder):
                run(*arguments)

        return asked

    for arguments in _options():
        name = " ".join(one[:40] or "''" for one in arguments).encode("unicode_escape").decode()
        yield Case("options", name, ask(arguments), cheap=arguments[0] not in _MODEL_NEEDED)


def cases() -> list[Case]:
    """All but those that need a finished run (`run_cases`)."""
    return [
        *yaml_cases(), *override_cases(), *json_cases(), *line_cases(), *augmented_cases(), *label_cases(),
        *image_cases(), *body_cases(), *model_cases(), *option_cases(),
    ]  # fmt: skip


if __name__ == "__main__":
    found = cases()
    print(len(found), "cases,", sum(case.cheap for case in found), "of them cheap", file=sys.stderr)
