"""WISE (Niu et al. 2025, arXiv 2503.07265): does a prompt's meaning reach the image, if it takes world knowledge?

benchmark  what `uni_train eval` runs
cases      the published files of both editions, and questions of our own
editions   what each edition asks the judge, and how its scores are read; paper.csv has the published numbers
"""

from uni_train.eval.benchmarks.wise.benchmark import Wise

__all__ = ["Wise"]
