"""Nonograms: pictures given by the lengths of their runs."""
