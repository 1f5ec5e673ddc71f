"""Sudoku of 4 x 4 to 9 x 9 cells."""
