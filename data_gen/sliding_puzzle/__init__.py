"""Sliding tiles."""
