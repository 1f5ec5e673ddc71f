"""Clocks with two hands."""
