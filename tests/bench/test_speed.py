"""The page of speed: what a call measures is new, what it does not, or cannot, stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import speed


def test_a_section_that_fails_keeps_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = {
        "labels": speed.Section("Labels", "puzzles.py labels --items 2 --only hanoi", "Two items."),
        "gone": speed.Section("Gone", "no_such_file.py", "None."),
    }
    monkeypatch.setattr(speed, "SECTIONS", sections)
    page = tmp_path / "speed.md"
    page.write_text("# Old\n\n## Gone\n\n| figure |\n|---|\n| 3.5 |\n\n## Never heard of\n\n1\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["speed.py", "--only", "labels,gone", "--out", str(page)])
    with pytest.raises(SystemExit) as ended:
        speed.main()
    assert ended.value.code == 1
    text = page.read_text(encoding="utf-8")
    assert text.startswith(speed.HEAD) and "python bench/puzzles.py labels --items 2" in text
    assert "| hanoi | 2 |" in text and "| 3.5 |" in text and "Never heard of" not in text
