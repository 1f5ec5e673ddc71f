"""Sections of a run's report, each for files that a leaf has written in the run's folder."""
