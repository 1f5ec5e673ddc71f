"""UniSandbox (Niu et al. 2025, arXiv 2511.20561): six reasoning sets and two of knowledge transfer.

benchmark     what `uni_train eval` runs over any checkpoint, and training runs over theirs
sets          their names
cases         the published files and their labels
thoughts      what a thought concludes
counting      the numbers; paper.csv has the published ones
training_run  what the page of a run shows
"""

from uni_train.data_gen.registry import set_name, sources
from uni_train.eval.benchmarks.unisandbox.benchmark import UniSandbox
from uni_train.eval.benchmarks.unisandbox.counting import PAPER
from uni_train.eval.benchmarks.unisandbox.sets import LEVELS, SAID, SETS, SETTINGS, named
from uni_train.eval.task_benchmark import set_of

__all__ = [
    "LEVELS",
    "PAPER",
    "SAID",
    "SETS",
    "SETTINGS",
    "UniSandbox",
    "named",
    "set_name",
    "set_of",
    "sources",
]
