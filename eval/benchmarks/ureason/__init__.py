"""UReason (Yang et al. 2026, arXiv 2602.08336): is what a model reasons out in words also what it draws?

benchmark   what `uni_train eval` runs
errors      telling the four error types apart
lengths     measuring contexts
counting    the numbers; paper.csv has the published ones
"""

from uni_train.eval.benchmarks.ureason.benchmark import UReason

__all__ = ["UReason"]
