"""The towers of Hanoi."""
