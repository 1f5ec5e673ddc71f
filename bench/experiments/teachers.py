"""Who should teach nano: itself after a thought, or another model that is stronger or weaker?

    python bench/experiment.py teachers --seeds 0,1,2 --threads 1 --jobs 2 --out research/data
    python bench/experiment.py teachers -o strong=600 -o weak=60 --seeds 0

The other teachers are trained first, once for all seeds: nano, fine-tuned on solved items (STARS with
teacher=reference) for `strong` or `weak` updates. All arms ask the same prompts and train for the same updates. STARS
draws one image of each prompt; on-policy distillation draws none, its student has a rollout for each row. The table of
costs has the seconds of both.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from bench.experiment import Lab, plan
from bench.experiments.unisandbox import DISTILLED, STARS, Comparison, page
from uni_train.config.compose import compose
from uni_train.config.kinds import stage_list

ITSELF = "itself after a thought"


def teachers(lab: Lab, strong: int = 600, weak: int = 60) -> Iterator[str]:
    """strong, weak: updates of the two other teachers."""
    rounds = compose("stars_curriculum", list(lab.overrides)).rounds
    arms = {
        f"{STARS} ({ITSELF})": "stars_curriculum name=stars",
        f"{DISTILLED} ({ITSELF})": "distil_curriculum name=own",
    }
    jobs = []
    for name, updates in {"strong": strong, "weak": weak}.items():
        budget = [f"budget.{of.set_name}.updates={max(1, updates // len(rounds))}" for of in rounds]
        solved = [
            *budget,
            "mode=normal",
            "teacher=reference",
            "filter=none",
            "thoughts_replay=0",
            f"name={name}{updates}",
        ]
        line = shlex.join(["stars_curriculum", f"out={lab.runs / 'teachers'}", *lab.overrides, *solved])
        (job,) = plan(line, [0])
        jobs.append(job)
        last = [stage for stage in stage_list(job.config) if stage.kind == "finetune"][-1]
        teacher = shlex.quote(f"teacher={job.folder / 'stages' / f'{last.index:02d}-{last.name}' / 'model'}")
        at_once = f"thoughts_replay=0 {teacher} name={name}{updates}"
        arms[f"{STARS} (a {name} teacher)"] = f"stars_curriculum mode=normal {at_once}"
        arms[f"{DISTILLED} (a {name} teacher)"] = f"distil_curriculum states=student thoughts=none {at_once}"
    first = next(iter(arms))
    against = {label: first for label in arms if label != first}
    lines = page(lab, Comparison("Who should teach: equal prompts and updates", "mapping", arms, against=against))

    def made() -> Iterator[str]:
        lab.make(jobs)
        yield from lines

    return made()
