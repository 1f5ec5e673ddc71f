"""UniSandbox (paper 004): six reasoning sets and two of knowledge transfer.

`benchmark` is what `uni_train eval` runs over any checkpoint; `reasoning` counts the samples of training runs. `cases`
reads the published files and their labels, `thoughts` what a thought concludes, `counting` makes the numbers.
"""

from data_gen.registry import set_name, sources
from eval.benchmarks.unisandbox.benchmark import UniSandbox
from eval.benchmarks.unisandbox.reasoning import (
    LEVELS,
    PAPER_PAIRS,
    PAPER_PROMPTS,
    PAPER_TABLE_2,
    PAPER_TABLE_3,
    SETS,
    SETTINGS,
    PaperRow,
    Reliability,
    accuracy_rows,
    average,
    build_sets,
    compare,
    filter_reliability,
    items_of,
    named,
    one_of_two,
    per_image,
    score,
    set_of,
    statuses,
    strategies,
)
from eval.benchmarks.unisandbox.thoughts import said
from eval.sample import SAID

__all__ = [
    "LEVELS",
    "PAPER_PAIRS",
    "PAPER_PROMPTS",
    "PAPER_TABLE_2",
    "PAPER_TABLE_3",
    "SAID",
    "SETS",
    "SETTINGS",
    "PaperRow",
    "Reliability",
    "UniSandbox",
    "accuracy_rows",
    "average",
    "build_sets",
    "compare",
    "filter_reliability",
    "items_of",
    "named",
    "one_of_two",
    "per_image",
    "said",
    "score",
    "set_name",
    "set_of",
    "sources",
    "statuses",
    "strategies",
]
