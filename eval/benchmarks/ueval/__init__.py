"""UEval (anonymous, under review): questions that want text and images, scored by rubrics of their own.

benchmark  what `uni_train eval` runs
cases      the published questions; ours are made and checked
prompts    what the judge is asked
counting   the numbers; paper.csv has the published ones
"""

from uni_train.eval.benchmarks.ueval.benchmark import UEval

__all__ = ["UEval"]
