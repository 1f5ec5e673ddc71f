"""Plots of functions."""
