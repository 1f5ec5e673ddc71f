"""Maths with the operators and results of the published questions."""
