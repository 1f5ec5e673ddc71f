"""UniSandbox (Niu et al. 2025, arXiv 2511.20561): six reasoning sets and two of knowledge transfer.

benchmark     what `uni_train eval` runs over any checkpoint; what it has in common with training runs is in `eval.sets`
cases         the published files and their labels
pooling       several evaluations of knowledge as one
"""

from uni_train.eval.benchmarks.unisandbox.benchmark import UniSandbox

__all__ = ["UniSandbox"]
