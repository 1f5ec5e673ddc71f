"""UFO (anonymous, under review): questions that are answered with generated textual and visual cues.

benchmark  asks and judges
cases      the published questions
generated  questions of our own
names      regimes, tasks, sets and settings
prompts    what the model and the judge are asked
rubric     grading visual cues
counting   the numbers and tables; paper.csv has the published ones
"""

from uni_train.eval.benchmarks.ufo.benchmark import Ufo

__all__ = ["Ufo"]
