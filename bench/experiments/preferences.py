"""Preferences beside STARS on symbol mapping: is a wrong image of the same prompt worth learning from?

    python bench/experiment.py preferences --seeds 0,1,2 --threads 1
    python bench/experiment.py preferences -o level=2 --only STARS,Flow-DPO --seeds 0
    python bench/experiment.py mazes --runs runs/mazes --only stars,dpo,nft_sft --seeds 0,1,2   # at equal seconds

All arms draw the same images of the same prompts, `candidates` each. An update of Flow-DPO takes three to four times as
long as one of STARS with as many rows, so STARS also trains `longer` times as many updates.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.experiment import Lab
from bench.experiments.unisandbox import Comparison, page
from uni_train.config.compose import compose


def preferences(
    lab: Lab, level: int = 1, candidates: int = 4, longer: float = 3.0, filter: str = "self"
) -> Iterator[str]:
    """Equal prompts, images and filter; without replayed thoughts. Levels of mapping: 1, 2 or 3."""
    (round_,) = compose("dpo_mapping", [f"level={level}", *lab.overrides]).rounds
    common = f"level={level} candidates={candidates} filter={filter} mode=normal"
    updates = f"budget.{round_.set_name}.updates={round(longer * (round_.updates or 1))}"
    arms = {
        "STARS": f"stars_mapping {common} name=stars",
        f"STARS ({longer:g} times the updates)": f"stars_mapping {common} {updates} name=longer",
        "Flow-DPO": f"dpo_mapping {common} name=dpo",
        "Flow-DPO (without sft)": f"dpo_mapping {common} sft_weight=0 name=without",
    }
    against = {label: "STARS" for label in arms if label != "STARS"}
    title = f"Preferences on mapping of level {level}: {candidates} images a prompt, filter={filter}"
    return page(lab, Comparison(title, "mapping", arms, against=against, levels=(level,)))
