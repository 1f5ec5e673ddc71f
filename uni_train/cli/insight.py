"""`uni_train insight`: what a model knows, plans and draws, where its attention goes, what its states hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from uni_train.cli.evaluation.options import checkpoint_of, checkpoint_option, config_of, keys_of, overrides_of

F = TypeVar("F", bound=Callable[..., Any])

ITEMS = {
    **{"task": "--task", "level": "--level", "n": "--n", "world": "--world", "split": "--split", "seed": "--seed"},
    "weights": "--weights",
}
INSIGHT = {
    "links": {**ITEMS, "out": "--out", "k": "--k", "settings": "--settings"},
    "attention": {
        **ITEMS, "out": "--out", "layers": "--layers", "tokens": "--tokens", "maps": "--maps",
        "interventions": "--interventions/--no-interventions",
    },
    "states": {**ITEMS, "out": "--out", "probes": "--probes/--no-probes"},
}  # fmt: skip
"""Analysis -> key -> the options that set it."""


@click.group()
def insight() -> None:
    """Analyse a model: what it knows, plans and draws, its attention, its hidden states.

    All analyses of one folder share one page, insight.html. docs/insight.md says more.

    \b
    Example:
      uni_train insight links shipped task=mapping
    """


def _analysis(name: str) -> Callable[[F], F]:
    """Adds the checkpoint, the words and the options of an analysis."""
    keys = keys_of("insight.InsightConfig", INSIGHT[name], "CHECKPOINT [KEY=VALUE]...")
    return lambda command: checkpoint_option(keys(command))


@insight.command()
@_analysis("links")
def links(**typed: Any) -> None:
    """Know, plan, draw: which link between a question and its image breaks.

    Each item is answered at once, thought out, drawn when told plainly, drawn when asked, and drawn by its thought.
    The same command again continues.

    \b
    Examples:
      uni_train insight links shipped task=mapping level=2
      uni_train insight links runs/stars_math/seed0 task=maths level=1,2,3 n=100
      uni_train insight links checkpoints/BAGEL-7B-MoT task=ureason judge.model=openai/gpt-4o
      uni_train insight links http://127.0.0.1:8000/v1#painter task=maths world=nano
    """
    _run("links", **typed)


@insight.command()
@_analysis("attention")
def attention(**typed: Any) -> None:
    """Where image tokens look: instruction, trace and refined prompt, by layer and noise level.

    With it influence maps of words, and what dropping, repeating, shuffling, blanking or exchanging the thought does.

    \b
    Examples:
      uni_train insight attention shipped task=mapping level=2
      uni_train insight attention checkpoints/BAGEL-7B-MoT task=ureason data.ureason=UReason/data interventions=false
    """
    _run("attention", **typed)


@insight.command()
@_analysis("states")
def states(**typed: Any) -> None:
    """Hidden states through the language head: at which layer does the answer appear?

    The positions are the question's last word, the markers before an answer and an image, and the image's tokens.
    The items ask for a number of one object, or (task=knowledge) for what a run of the recipe knowledge has taught.

    \b
    Examples:
      uni_train insight states shipped task=mapping level=2
      uni_train insight states checkpoints/BAGEL-7B-MoT task=maths n=100
      uni_train insight states runs/knowledge/seed0 task=knowledge
    """
    _run("states", **typed)


def _run(analysis: str, checkpoint: str | None, words: tuple[str, ...], **options: Any) -> None:
    checkpoint, words = checkpoint_of(checkpoint, words)
    config = config_of(overrides_of(words, options), "insight.InsightConfig")
    from uni_train.api import run_analysis
    from uni_train.cli.evaluation.running import show
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.report.evaluation import REPORT
    from uni_train.eval.report.tables import print_table

    progress = ConsoleProgress()
    done = run_analysis(analysis, checkpoint, config, progress)
    if done.evaluation is not None:
        show(done.evaluation, progress, done.evaluation.folder / REPORT)
    for table in done.tables:
        print_table(table, progress)
    progress.say(f"page: {done.page}")
