"""The report of a run: one HTML file that opens anywhere, also without a network."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from uni_train.config.kinds import load_plugins_of
from uni_train.data_gen.reading_limits import read_yaml

__all__ = ["write_report"]


def write_report(run_dir: Path) -> Path:
    """Write run_dir/report.html from a finished run, of any kind, and return its path.

    Raises:
        UserError: a file of the run cannot be read, or the page cannot be written.
    """
    from uni_train.eval.report import knowledge, page

    with suppress(OSError, ValueError):  # pages say what of a damaged run is missing
        config = read_yaml(Path(run_dir) / "config.yaml")
        load_plugins_of(config if isinstance(config, dict) else {})
    return knowledge.write_report(run_dir) if knowledge.is_one(run_dir) else page.write_report(run_dir)
