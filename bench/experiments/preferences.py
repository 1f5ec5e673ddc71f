"""Preferences beside STARS on symbol mapping: is a wrong image of the same prompt worth learning from?

    python bench/experiment.py preferences --seeds 0,1,2 --threads 1 --jobs 2 --out research/data
    python bench/experiment.py preferences -o level=2 --only Flow-DPO,STARS --seeds 0
    python bench/experiment.py mazes --runs runs/few --seeds 3,4,5 -o n=100 --only sft_same,stars,dpo,nft_sft

All arms draw the same images of the same prompts, `candidates` each, and filter them alike. An update of Flow-DPO takes
two to three times as long as one of STARS with as many rows; each arm trains for as many as fill Flow-DPO's seconds.
Only prompts with a right and a wrong image have pairs, so one arm learns the chosen images of these alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.experiment import Lab
from bench.experiments.unisandbox import STARS, Comparison, page

DPO = "Flow-DPO"


def preferences(lab: Lab, level: int = 1, candidates: int = 4, filter: str = "self") -> Iterator[str]:
    """Equal prompts, images, filter and seconds; without replayed thoughts. Levels of mapping: 1, 2 or 3."""
    common = f"level={level} candidates={candidates} filter={filter} mode=normal"
    name = f"{level}-{candidates}-{filter}"
    arms = {
        DPO: f"dpo_mapping {common} name=dpo{name}",
        f"{DPO} (without sft)": f"dpo_mapping {common} sft_weight=0 name=without{name}",
        f"{DPO} (chosen images alone)": f"dpo_mapping {common} beta=1e-6 sft_weight=1 name=chosen{name}",
        STARS: f"stars_mapping {common} name=stars{name}",
    }
    against = {label: STARS for label in arms if label != STARS}
    title = f"Preferences on mapping of level {level}: {candidates} images a prompt, filter={filter}, equal seconds"
    return page(lab, Comparison(title, "mapping", arms, against=against, levels=(level,), as_long_as=DPO))
