"""Tic-tac-toe and its larger boards: the one right move."""
