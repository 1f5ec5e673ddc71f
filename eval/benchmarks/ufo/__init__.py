"""UFO (anonymous, under review): questions that are answered with generated textual and visual cues.

`benchmark` asks and judges, `cases` reads the published questions, `generated` makes some of our own, `replies` reads
answers, `rubric` grades visual cues, `counting` makes the numbers and tables, paper.csv has the published ones.
"""

from uni_train.eval.benchmarks.ufo.benchmark import Ufo

__all__ = ["Ufo"]
