"""Every cheap case of the corpus of bad inputs is refused in one message; all of them: `python bench/bad_inputs.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.bad_inputs_corpus import Case, cases, outcome

ROOT = Path(__file__).parents[1]
AROUND = re.compile(
    r"json\.load\(|json\.loads\([^)]*read_|yaml\.(safe_)?load|Image\.open\((?!io\.BytesIO)"
    r"|(pq|parquet)\.(read_|ParquetFile)|\bpa\.ipc|\b(zipfile|gzip|bz2|lzma|zlib)\.\w*(open|File|decompress)|np\.load\("
    r"|torch\.load\(|pickle\.load|trust_remote_code=True"
)


@pytest.mark.parametrize("case", [one for one in cases() if one.cheap], ids=str)
def test_a_bad_input_is_refused_in_one_message(case: Case, tmp_path: Path) -> None:
    found = outcome(case, tmp_path)
    assert found.what in ("refused", "taken"), f"{found.what}\n{found.said[-3000:]}"


def test_files_are_read_through_the_gate() -> None:
    """What goes around it would have to know all of this corpus; a server of our own on this machine may."""
    own = {"uni_train/core/reading_limits.py", "uni_train/stages/judging.py"}
    files = [file for package in ("uni_train", "data_gen", "eval") for file in (ROOT / package).rglob("*.py")]
    names = {str(file.relative_to(ROOT)) for file in files if AROUND.search(file.read_text(encoding="utf-8"))}
    assert names - own == set()
