"""UFO (anonymous, under review): questions that are answered with generated textual and visual cues.

benchmark  asks and judges
cases      the published questions
generated  questions of our own
replies    reading answers
rubric     grading visual cues
counting   the numbers and tables; paper.csv has the published ones
"""

from uni_train.eval.benchmarks.ufo.benchmark import Ufo

__all__ = ["Ufo"]
