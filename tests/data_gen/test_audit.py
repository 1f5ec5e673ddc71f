"""The audit on small rows made for it, in the published schema; one phenomenon each."""

import json

import pytest

from uni_train.core.errors import DataError
from uni_train.data_gen.audit import audit_file
from uni_train.data_gen.findings import counts, has_wrong
from uni_train.data_gen.jsonl import published_rows, write_rows
from uni_train.data_gen.registry import get_task


def maths(tmp_path, *rows):
    path = tmp_path / "math.jsonl"
    write_rows(path, [{"Question": q, "Answer": a, "id": str(i)} for i, (q, a) in enumerate(rows, 1)])
    return audit_file(path)


@pytest.mark.parametrize(
    ("question", "answer", "status", "expected", "reason"),
    [
        ("Draw as many owls as 2 + 2.", "4 owls.", "ok", "4 owls", ""),
        ("Draw as many apples as 2 - 1.", "an apple", "ok", "1 apple", ""),
        ("Generate as many kites as the result of 8 / 4.", "2 kites", "ok", "2 kites", ""),
        ("Show an amount of nuts equal to √(K² + 9) where K = 4.", "5 nuts", "ok", "5 nuts", ""),
        ("Create the same quantity of jugs as 11 / 4 equals then rounded down.", "2 jugs", "ok", "2 jugs", ""),
        ("Work out 3 + 2 and draw that many hens.", "5 hens", "ok", "5 hens", ""),
        ("Draw (2 + 1) * 2 hens.", "6 hens", "ok", "6 hens", ""),
        ("Draw as many owls as 2 + 2.", "four owls", "ok", "4 owls", ""),
        ("Draw as many sheep as 4 % 3.", "1 sheep", "ok", "1 sheep", ""),
        ("Draw as many pairs of socks as 4 / 2.", "2 pairs of socks", "ok", "2 pairs of socks", ""),
        ("Draw as many owls as 8 % 3 + 2.", "3 owls", "wrong", "4 owls", "(8 % 3) + 2 = 4; the label says 3"),
        ("Draw as many owls as 2 + 2.", "4 cats", "wrong", "4 owls", 'the label counts "cats"'),
        ("Draw as many owls as √(M² + 9) where M = 1.", "3 owls", "wrong", "√10 owls", "√10 is not a whole number"),
        ("Draw as many owls as 3 / 0.", "3 owls", "wrong", None, "divided by zero"),
        ("Draw as many owls as 4 + 5.", "9 owls", "out_of_range", "9 owls", "9 is not a whole number from 1 to 6"),
        ("Draw as many owls as 10 / √25.", "2 owl", "ok", "2 owls", 'reads "2 owl"'),
        ("Draw as many owls as the square root of 9 plus 1 minus 2.", "2 owls", "ambiguous", "2 owls", "√(9 + 1) - 2"),
        ("Draw as many owls as two plus one times two.", "6 owls", "ambiguous", "4 owls", "(2 + 1) * 2 = 6"),
        ("Show the outcome of (7 % 5) + 3.", "5 toys", "ambiguous", "5", "names no object"),
        ("Draw as many owls as the day is long.", "5 owls", "unparseable", None, "no part of an expression"),
        ("What is the capital of France?", "5 owls", "unparseable", None, "no number of objects"),
        ("Draw as many owls as 2 + 2.", "some owls", "unparseable", "4 owls", "does not begin with a number"),
    ],
)  # fmt: skip
def test_a_maths_row(tmp_path, question, answer, status, expected, reason):
    (row,) = maths(tmp_path, (question, answer))
    assert (row.status, row.expected) == (status, expected)
    assert reason in row.reason and bool(reason) == bool(row.reason)
    assert row.to_dict() == {"id": "1", "status": status, "expected": expected, "reason": row.reason}
    assert has_wrong([row]) == (status == "wrong")


RULES = "Rule 1: The letter A refers to 7. Rule 2: 7 means apples. Rule 3: 'B' maps to @. Rule 4: The symbol @ is dogs."


MISSING = "Rule 1: A means 7. Rule 2: 8 means apples. Rule 3: B means 9. Rule 4: C means dogs."
TWICE = "Rule 1: A means B. Rule 2: B means apples. Rule 3: C means dogs."
DOUBLE = "Rule 1: A means apples. Rule 2: A means dogs. Rule 3: B means cups."
EQUAL = 'both questions of the pair have the label "dogs"'


@pytest.mark.parametrize(
    ("rules", "a", "b", "status", "expected", "reasons"),
    [
        (RULES, "object represented by 'A': Apples", "animal represented by B: dog", "ok ok", ("apples", "dogs"),
         ("", "")),
        (RULES, "object represented by A: dogs", "object represented by B: dogs", "wrong ok", ("apples", "dogs"),
         ("A -> 7 -> apples", EQUAL)),
        (MISSING, "object represented by A: apples", "object represented by B: undefined", "wrong out_of_range",
         (None, None), ("A -> 7 ends there: no rule says what 7 means", "")),
        (RULES, "animal represented by A: Apples", "animal represented by B: Dogs", "ambiguous ok", ("apples", "dogs"),
         ('the request is for "animal"; dogs would be one', "")),
        (TWICE, "object represented by A: apples", "object represented by B: apples", "ambiguous ambiguous",
         ("apples", "apples"), ("", "")),
        (DOUBLE, "object represented by A: dogs", "object represented by B: cups", "ambiguous ok",
         ("apples or dogs", "cups"), ("", "")),
    ],
    ids=["right", "wrong, and equal labels", "missing link", "another category", "twice the same", "two meanings"],
)  # fmt: skip
def test_a_mapping_pair(tmp_path, rules, a, b, status, expected, reasons):
    rows = [
        {"ID": "1", f"Question_{which}": f"{rules} Please generate the {asked}.", "Answer": label}
        for which, (asked, label) in (("A", a.split(": ")), ("B", b.split(": ")))
    ]
    write_rows(tmp_path / "mapping.jsonl", rows)
    found = audit_file(tmp_path / "mapping.jsonl")
    assert [row.id for row in found] == ["1/A", "1/B"] and [row.status for row in found] == status.split()
    assert tuple(row.expected for row in found) == expected
    assert all(reason in row.reason for row, reason in zip(found, reasons, strict=True))
    assert (EQUAL in found[0].reason) == (EQUAL in reasons) and bool(found[0].reason) == (status != "ok ok")


def test_rows_that_are_not_understood_or_lack_their_partner(tmp_path):
    path = tmp_path / "mapping.jsonl"
    write_rows(path, [
        {"ID": "1", "Question_A": "Rule 1: A means apples.", "Question_B": "Rule 1.", "Answer": "apples"},
        {"ID": "2", "Question_A": "Rule 1: A means apples. Draw the fruit represented by A.", "Answer": "apples"},
        {"ID": "3", "Question_A": "Rule 1: Bananas are nice. Draw the fruit represented by A.", "Answer": "apples"},
    ])  # fmt: skip
    both, alone, odd = audit_file(path)
    assert both.status == "unparseable" and "both questions and one answer" in both.reason
    assert alone.status == "ok" and "question B of the pair is missing" in alone.reason
    assert odd.status == "unparseable" and '"Bananas are nice" is no rule' in odd.reason


@pytest.mark.parametrize("task", ["maths", "mapping"])
@pytest.mark.parametrize("world", ["nano", "everyday"])
def test_what_we_generate_passes_our_own_audit(tmp_path, task, world):
    items = [item for level in (1, 2, 3) for item in get_task(task, world).generate(30, level, "train", seed=9)]
    write_rows(tmp_path / "made.jsonl", published_rows(items))
    rows = audit_file(tmp_path / "made.jsonl")
    assert counts(rows)["ok"] == len(items) == len(rows)
    assert not any(row.reason for row in rows)


def test_a_file_of_another_schema_is_refused(tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps({"id": "1", "conversations": []}) + "\n")
    with pytest.raises(DataError, match=r"other.jsonl, line 1: the keys are conversations, id; expected a maths row"):
        audit_file(path)
