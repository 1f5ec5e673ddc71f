"""The report of a run: one HTML file that opens anywhere, also without a network."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_report"]


def write_report(run_dir: Path) -> Path:
    """Write run_dir/report.html from a finished run, of any kind, and return its path.

    Raises:
        UserError: a file of the run cannot be read, or the page cannot be written.
    """
    from uni_train.eval.report import knowledge, page

    return knowledge.write_report(run_dir) if knowledge.is_one(run_dir) else page.write_report(run_dir)
