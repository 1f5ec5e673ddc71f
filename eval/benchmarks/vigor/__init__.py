"""ViGoR-Bench (Han et al. 2026, arXiv 2603.25823).

Can a model reason in images? 20 tasks in three domains, process and result apart.

`benchmark` is what `uni_train eval` runs; `files` reads the published layout, `templates` holds the judge's prompts
(Tables 5 to 22), `programs` what needs no judge, `counting` makes the numbers, paper.csv has the published ones.
"""

from uni_train.eval.benchmarks.vigor.benchmark import Vigor

__all__ = ["Vigor"]
