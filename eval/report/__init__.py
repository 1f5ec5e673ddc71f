"""The report of a run: one HTML file that opens anywhere, also without a network."""

from eval.report.page import write_report

__all__ = ["write_report"]
