"""ViGoR-Bench (Han et al. 2026, arXiv 2603.25823).

Can a model reason in images? 20 tasks in three domains, process and result apart.

`benchmark` is what `uni_train eval` runs; `cases` reads the published layout, `prompts` holds those of judges (Tables 5
to 22), `programs` and `solutions` what needs none, `counting` makes the numbers, paper.csv has the published ones.
"""

from uni_train.eval.benchmarks.vigor.benchmark import Vigor

__all__ = ["Vigor"]
