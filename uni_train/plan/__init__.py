"""What a run needs before it is run: memory, traffic, time (docs/plan.md)."""
