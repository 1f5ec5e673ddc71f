"""UReason (Yang et al. 2026, arXiv 2602.08336): is what a model reasons out in words also what it draws?

`benchmark` is what `uni_train eval` runs; `extraction` finds refined prompts, `errors` tells the four error types
apart, `lengths` measures contexts, `counting` makes the numbers, `paper` holds the published ones.
"""

from uni_train.eval.benchmarks.ureason.benchmark import UReason

__all__ = ["UReason"]
