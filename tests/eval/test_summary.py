from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from uni_train.console.progress import ConsoleProgress
from uni_train.core.errors import UserError
from uni_train.eval import summary
from uni_train.eval.report.tables import print_table
from uni_train.eval.scored import read_folder
from uni_train.eval.sets import counting, training_run


def test_scores_are_those_of_the_shards(finished_run: Path) -> None:
    stored = list(read_folder(finished_run / "stages" / "01-evaluate-before" / "scored", images=False))
    cell = counting.units(stored, "official").by("setting")["cot"].by("set")["mapping2"]
    assert summary.read(finished_run)["scores"]["before"]["cot"]["mapping2"] == counting.accuracy(cell).to_dict()


@pytest.mark.slow
def test_the_last_round_is_after_unless_there_is_an_after(finished_run: Path) -> None:
    stages = finished_run / "stages"
    before = list(read_folder(stages / "01-evaluate-before" / "scored", images=False))
    after = list(read_folder(stages / "13-evaluate-after" / "scored", images=False))
    common = {"recipe": "r", "model": "nano", "seed": 0, "wall_seconds": 1.0, "peak_rss_bytes": 1}
    by_round = training_run.build(**common, evaluations={"before": before, "round2": after, "round1": before})
    by_name = training_run.build(**common, evaluations={"before": before, "after": after})
    assert by_round["scores"] == by_name["scores"]
    assert [row.name for row in training_run.rows(by_round, "mapping")] == ["nano", "after round 1", "after round 2"]
    assert [row.name for row in training_run.rows(by_name, "mapping")] == ["nano", "after"]
    alone = training_run.build(**common, evaluations={"before": before})
    assert alone["scores"]["after"] == {} and len(training_run.rows(alone, "maths")) == 1
    found = summary.read(finished_run)
    assert len(found["rounds"]) == 3 and "round2" in found["after_round"]
    same = {**found, "scores": {**found["scores"], "after": found["after_round"]["round2"]}}
    assert [row.name for row in training_run.rows(same, "mapping")][-1] == "after round 3"  # which changed nothing
    with pytest.raises(ValueError, match="before, round1"):
        training_run.build(**common, evaluations={"before": before, "middle": after})


def test_console_tables_show_every_number(finished_run: Path) -> None:
    found = summary.read(finished_run)
    console = Console(width=80, record=True, file=io.StringIO())
    for table in training_run.tables(found):
        print_table(table, ConsoleProgress(console))
    text = console.export_text()
    assert "Table 3" in text and "Table 2" in text and "round 3" in text and "Precision" in text
    (rounds,) = [table for table in training_run.tables(found) if "Distinct" in table.columns]
    distinct = rounds.columns.index("Distinct")
    assert [row[distinct] for row in rounds.rows] == ["701", "702", "703"]
    best = found["scores"]["after"]["normal"]["mapping1"]
    low, high = (f"{best[end]:.2f}".removeprefix("0").replace("1.00", "1.0") for end in ("low", "high"))
    assert f"{best['value']:.2f}" in text and f"{low}–{high}" in text
    assert "…" not in text
    plain = training_run.trivial(found, "mapping2")
    assert plain is not None
    mapping = text.split("Table 2")[0]
    assert "trivial" in mapping and "chance" in mapping and "distinct" in mapping
    (line,) = [line for line in mapping.splitlines() if line.startswith("Normal M2")]  # on its side, in 80 columns
    assert line.split()[-5:] == ["0.25", f"{plain.estimate.value:.2f}", "6", "/", "6"]
    assert f"M2 {plain.name}" in " ".join(text.split())
    older = {key: value for key, value in found.items() if key != "strategies"}
    assert len(list(training_run.tables(older))) == 3


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_filter_reliability(rows: list[tuple[bool, bool]]) -> None:
    accepted, correct = [a for a, _ in rows], [c for _, c in rows]
    found = summary.filter_reliability(accepted, correct)
    hits = sum(a and c for a, c in rows)
    assert (found.n, found.kept, found.correct) == (len(rows), sum(accepted), sum(correct))
    assert found.precision.value == (hits / sum(accepted) if any(accepted) else None)
    assert found.recall.value == (hits / sum(correct) if any(correct) else None)
    refused = sum(not a and not c for a, c in rows)
    assert found.specificity.value == (refused / correct.count(False) if not all(correct) else None)


def test_dependent_samples_of_a_filter_count_as_one() -> None:
    accepted, correct = [True] * 40, [i % 4 < 2 for i in range(40)]
    alone = summary.filter_reliability(accepted, correct).precision
    pairs = summary.filter_reliability(accepted, correct, [i // 2 for i in range(40)]).precision
    assert alone.value == pairs.value == 0.5 and (pairs.n, pairs.distinct) == (40, 20)
    assert pairs.high - pairs.low > 1.3 * (alone.high - alone.low)
    assert summary.filter_reliability(accepted, correct, range(40)).precision == alone
    nothing = summary.filter_reliability([False, False], [True, False])
    entry = summary.Round("maths", "1+2+3", 2, 0, 0, 0.0, nothing).to_dict()
    assert (entry["precision"], entry["recall"]) == (None, 0.0)
    json.dumps(entry, allow_nan=False)


def test_bad_summaries_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"summary\.json: there is no summary yet"):
        summary.read(tmp_path)
    for text, said in (('{"recipe": ', "cannot be read"), ('{"recipe": "r"}', "lacks model, seed")):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(UserError, match=said):
            summary.read(tmp_path)


@pytest.mark.parametrize(
    ("kept_right", "kept_wrong", "refused_right", "refused_wrong", "filter", "warned"),
    [
        (3041, 23, 4, 4, "self", True),  # the demo's
        (990, 2, 4, 4, "self", False),  # few are wrong, and most of them are refused
        (1000, 0, 0, 0, "self", False),  # there is nothing to refuse
        (500, 500, 0, 0, "none", False),  # no filter is asked for
        (500, 500, 0, 0, "judge", True),
        (400, 300, 100, 200, "self", False),
    ],
)
def test_a_filter_that_decides_nothing_is_said(
    kept_right: int, kept_wrong: int, refused_right: int, refused_wrong: int, filter: str, warned: bool
) -> None:
    groups = ((kept_right, True, True), (kept_wrong, True, False), (refused_right, False, True))
    rows = [(kept, right) for n, kept, right in (*groups, (refused_wrong, False, False)) for _ in range(n)]
    counts = summary.filter_reliability([kept for kept, _ in rows], [right for _, right in rows])
    assert counts.unfiltered.value == (kept_right + refused_right) / len(rows)
    entry = summary.Round("mapping", 1, len(rows), counts.kept, 1, 1.0, counts, filter).to_dict()
    table = summary.round_table([entry], "questions")
    assert f"{refused_wrong:,} of {kept_wrong + refused_wrong:,} wrong samples" in counts.refused
    assert (f"Round 1: filter={filter} decides nothing here" in table.note) == warned == (entry["warning"] is not None)
