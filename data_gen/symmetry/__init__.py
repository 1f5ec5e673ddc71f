"""Coloured patterns with a symmetry, to be completed."""
