"""What a text says of an item's answer, and how an item is told plainly.

What an image shows, `Task.verify` decides. The benchmarks' readers read texts of sprites and UReason. For other tasks a
text counts if it names the answer.
"""

from __future__ import annotations

import re

from uni_train.data_gen.registry import task_of
from uni_train.data_gen.task import Item, Status
from uni_train.eval.benchmark import Case, Scored
from uni_train.eval.extraction import extract
from uni_train.eval.sets import thoughts
from uni_train.eval.task_benchmark import item_case

_STATUS: dict[bool | None, Status] = {True: "pass", False: "fail", None: "unreadable"}
_CONCLUDED: dict[str, Status] = {"right": "pass", "wrong": "fail", "unclear": "unreadable"}


def world_of(case: Case) -> str:
    """The world whose words a thought about the case is in; of a task without worlds the everyday one."""
    return str(case.facts["world"] or "everyday")


def draw_of(row: Scored) -> tuple[str, int]:
    """Case and draw: equal in settings that share their noise."""
    return row.sample.ask.case.id, row.sample.ask.k


def plainly(item: Item) -> str:
    """The prompt that tells the answer: "Draw 3 apples ."; for other tasks the question and its exact thought."""
    _, label, conclusion = item.thought.rpartition("So draw ")
    if label:
        return f"Draw {conclusion.strip()}"
    refined = extract(item.thought, "paper").text
    return refined or f"{item.prompt}\n{item.thought}"


def says(item: Item, reply: str) -> Status:
    """Whether a direct reply in words names the answer."""
    if "outcome" in item.facts:
        return _STATUS[task_of(item).find(item, reply)]  # type: ignore[attr-defined]
    if "object" in item.facts:
        return thoughts.answer_status(reply, item)
    return _names(reply, item)


def concludes(item: Item, thought: str) -> Status:
    """Whether a thought ends where the answer is."""
    world = str(item.facts.get("world", "everyday"))
    if "outcome" in item.facts:
        text = extract(thought, "paper", world).text
        return _STATUS[task_of(item).find(item, text)] if text else "unreadable"  # type: ignore[attr-defined]
    if "object" in item.facts and (world == "nano" or item.task in ("maths", "mapping")):
        return _CONCLUDED[thoughts.conclusion(thought, item_case(item))]
    return _names(thought, item)


def _names(text: str, item: Item) -> Status:
    """Right where the answer or the reference's last words stand in the text; else nobody can tell."""
    words = " ".join(re.findall(r"\w+", text.casefold()))
    answers = [" ".join(re.findall(r"\w+", answer.casefold())) for answer in (item.answer, item.thought)]
    return "pass" if any(answer and f" {answer} " in f" {words} " for answer in answers) else "unreadable"
