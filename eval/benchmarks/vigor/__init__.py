"""ViGoR-Bench (Han et al. 2026, arXiv 2603.25823).

Can a model reason in images? 20 tasks in three domains, process and result apart.

benchmark  what `uni_train eval` runs
cases      the published layout
prompts    what judges are asked (Tables 5 to 22)
programs   what a program decides; `solutions` by the ground truth
counting   the numbers; paper.csv has the published ones
"""

from uni_train.eval.benchmarks.vigor.benchmark import Vigor

__all__ = ["Vigor"]
