"""UEval (anonymous, under review): questions that want text and images, scored by rubrics of their own.

`benchmark` is what `uni_train eval` runs; `cases` reads the published questions, and makes and checks ours,
`prompts` holds the judge's, `counting` makes the numbers, paper.csv has the published ones.
"""

from uni_train.eval.benchmarks.ueval.benchmark import UEval

__all__ = ["UEval"]
