"""Who should teach nano: itself after a thought, or another model that is stronger or weaker?

    python bench/experiment.py teachers --seeds 0,1,2 --threads 1 --jobs 2 --out research/data
    python bench/experiment.py teachers -o level=2 -o strong=600 -o weak=60 --seeds 0

The other teachers are trained first, once for all seeds: nano, fine-tuned on solved items (STARS with
teacher=reference) for `strong` or `weak` updates. All arms ask the same prompts. STARS draws one image of each prompt;
on-policy distillation draws none before it trains, its student has a rollout for each row. Each arm trains for as many
updates as fill the seconds of STARS that teaches itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from bench.experiment import Lab, plan
from bench.experiments.unisandbox import DISTILLED, STARS, Comparison, one_round, page
from uni_train.config.kinds import stage_list

ITSELF = "itself after a thought"


def teachers(lab: Lab, level: int = 1, strong: int = 600, weak: int = 60) -> Iterator[str]:
    """level: of mapping. strong, weak: updates of the two other teachers."""
    stars, distilled = f"stars_mapping level={level}", f"distil_curriculum {one_round('mapping', level)}"
    arms = {
        f"{STARS} ({ITSELF})": f"{stars} name=stars{level}",
        f"{DISTILLED} ({ITSELF})": f"{distilled} name=own{level}",
    }
    first = next(iter(arms))
    jobs = []
    for name, updates in {"strong": strong, "weak": weak}.items():
        solved = f"budget.mapping{level}.updates={updates} mode=normal teacher=reference filter=none thoughts_replay=0"
        folder = shlex.join([f"out={lab.runs / 'teachers'}", *lab.overrides])
        (job,) = plan(f"{stars} {folder} {solved} name={name}{level}-{updates}", [0])
        jobs.append(job)
        last = [stage for stage in stage_list(job.config) if stage.kind == "finetune"][-1]
        teacher = shlex.quote(f"teacher={job.folder / 'stages' / f'{last.index:02d}-{last.name}' / 'model'}")
        at_once = f"thoughts_replay=0 {teacher} name={name}{level}-{updates}"
        arms[f"{STARS} (a {name} teacher)"] = f"{stars} mode=normal {at_once}"
        on_policy = f"states=student thoughts=none {at_once}"
        arms[f"{DISTILLED} (a {name} teacher)"] = f"{distilled} {on_policy}"
        if name == "strong":
            arms[f"{DISTILLED} (a {name} teacher, by divergence)"] = f"{distilled} weighting=kl {on_policy}-kl"
    against = {label: first for label in arms if label != first}
    title = f"Who should teach mapping of level {level}: equal prompts and seconds"
    lines = page(lab, Comparison(title, "mapping", arms, against=against, levels=(level,), as_long_as=first))

    def made() -> Iterator[str]:
        lab.make(jobs)
        yield from lines

    return made()
