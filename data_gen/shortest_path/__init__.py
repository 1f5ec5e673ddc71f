"""Shortest paths on graphs."""
