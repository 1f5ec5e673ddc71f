"""Every cheap case of the corpus of bad inputs is refused in one message; all of them: `python bench/bad_inputs.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_inputs import Case, cases, outcome


@pytest.mark.parametrize("case", [one for one in cases() if one.cheap], ids=str)
def test_a_bad_input_is_refused_in_one_message(case: Case, tmp_path: Path) -> None:
    found = outcome(case, tmp_path)
    assert found.what in ("refused", "taken"), f"{found.what}\n{found.said[-3000:]}"
