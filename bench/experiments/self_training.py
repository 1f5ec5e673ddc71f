"""What STARS internalises on nano: the thought, or the judgement? And how good must the judgement be?

thought_or_judgement  images from thoughts beside images drawn at once until the model accepts one, and controls
judge_noise           its judgement with a share of the verdicts flipped, at equal numbers of samples kept

    python bench/experiment.py thought_or_judgement judge_noise --seeds 0,1,2 --threads 1 --jobs 2
    python bench/experiment.py thought_or_judgement -o task=maths

The runs of judge_noise name this module as their plug-in: it registers the filters `flip5`, `flip15`, `flip30`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from bench.experiment import Lab
from bench.experiments.unisandbox import Comparison, page
from uni_train.config.compose import compose
from uni_train.core.seeds import rng
from uni_train.data_gen.task import Verdict
from uni_train.eval.benchmark import Scored
from uni_train.recipes.stars.filters import FILTERS, Asking, accept, reject, self_check

FLIPS = (5, 15, 30)
"""Percent of the verdicts."""
MOST = 8  # images of a prompt, redrawn
SEARCHED = 5  # prompts for each sample kept, at most: a third of nano's images are right


def thought_or_judgement(lab: Lab, task: Literal["mapping", "maths"] = "mapping") -> Iterator[str]:
    """Equal prompts and updates. With a quarter of the prompts, judging takes no more images, calls or seconds than
    thinking does with all of them."""
    recipe = {"mapping": "stars_curriculum", "maths": "stars_math level=1"}[task]
    name, *given = recipe.split()
    rounds = compose(name, [*given, *lab.overrides]).rounds
    quarter = " ".join(f"budget.{of.set_name}.prompts={of.prompts // 8 * 2}" for of in rounds)  # a pair is two prompts
    at_once = "mode=normal thoughts_replay=0"
    arms = {
        "thoughts": f"{recipe} name=thoughts",
        "judgement": f"{recipe} {at_once} redraw={MOST} name=judgement",
        "judgement (a quarter of the prompts)": f"{recipe} {at_once} redraw={MOST} {quarter} name=quarter",
        "thoughts and judgement": f"{recipe} redraw={MOST} name=both",
        "solutions": f"{recipe} teacher=reference filter=none name=solutions",
        "its own images (unfiltered)": f"{recipe} {at_once} filter=none name=own",
    }
    if task == "maths":  # others replay thoughts, which judging has none of
        arms["thoughts (none replayed)"] = f"{recipe} thoughts_replay=0 name=unreplayed"
    against = {label: "thoughts" for label in arms if label != "thoughts"}
    title = f"Thought or judgement: what STARS learns {task} from"
    return page(lab, Comparison(title, task, arms, against=against))


def judge_noise(lab: Lab) -> Iterator[str]:
    """Images drawn at once, one a prompt. A verdict is flipped by chance, whatever the image shows."""
    rounds = compose("stars_curriculum", list(lab.overrides)).rounds
    kept = {of.set_name: of.prompts // 2 for of in rounds}
    budget = " ".join(f"budget.{name}.prompts={SEARCHED * n} budget.{name}.kept={n}" for name, n in kept.items())
    filters = {"the exact verifier": "verifier", "its own judgement": "self"}
    filters |= {f"its own judgement ({percent} % flipped)": f"flip{percent}" for percent in FLIPS}
    filters["no filter"] = "none"
    line = f"stars_curriculum mode=normal {budget} plugins=[{__name__}]"
    arms = {label: f"{line} filter={name} name=kept-{name}" for label, name in filters.items()}
    against = {label: "no filter" for label in arms if label != "no filter"}
    title = "How good must a judge be: self-training on mapping without thoughts, at equal numbers of samples kept"
    return page(lab, Comparison(title, "mapping", arms, against=against))


def flipped(percent: int) -> Callable[[Sequence[Scored], Asking], list[Verdict]]:
    """The filter `self` with so many percent of its verdicts turned round, those of fewer percent among them."""

    def judge(samples: Sequence[Scored], asking: Asking) -> list[Verdict]:
        name, verdicts = f"flip{percent}", list[Verdict]()
        for answer, verdict in zip(samples, self_check(samples, asking), strict=True):
            ask = answer.sample.ask
            flip = rng(asking.config.seed, "flip", ask.case.id, ask.k).random() < percent / 100
            verdicts.append(accept(name) if verdict.passed != flip else reject(name, verdict.checks[0].reason))
        return verdicts

    judge.__doc__ = f"Keep what the model's own understanding accepts, {percent} % of its verdicts flipped."
    return judge


for _percent in FLIPS:
    FILTERS.register(f"flip{_percent}")(flipped(_percent))
