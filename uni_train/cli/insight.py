"""`uni_train insight`: what a model knows, plans and draws, where its attention goes, what its states hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uni_train.cli.evaluation.options import Folder, complete_keys, config_of, overrides_of
from uni_train.cli.numbers import NAMES, Parsed
from uni_train.cli.recipe import complete_models
from uni_train.errors import UsageError, UserError, did_you_mean

if TYPE_CHECKING:
    from uni_train.config.schema import EvalConfig
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.benchmark import Benchmark, Case
    from uni_train.eval.evaluation import Evaluation
    from uni_train.models.base import UnifiedModel

F = TypeVar("F", bound=Callable[..., Any])


def _range(text: str) -> tuple[int, int]:
    ends = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text)
    first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(text)
    return first, last


NUMBERS = Parsed(
    "N,N", lambda text: tuple(int(one) for one in text.split(",") if one.strip()), "a list of whole numbers"
)
RANGE = Parsed("A-B", _range, "A-B or A, whole numbers from 1 on, the smaller one first")


def _about(n: int) -> Callable[[F], F]:
    """The options of all analyses: which model, which items."""

    def decorate(command: F) -> F:
        options = [
            click.argument("words", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_keys),
            click.option(
                "--checkpoint", "-c", required=True, metavar="PATH|NAME", shell_complete=complete_models,
                help="A folder, a run, shipped, or URL#MODEL.",
            ),
            click.option("--task", required=True, metavar="NAME", help="mapping, maths, ureason, ... or a plug-in's."),
            click.option("--level", type=NUMBERS, default=(), help="Levels of the task.  [default: all]"),
            click.option(
                "--n", type=click.IntRange(1, 100_000), default=n, show_default=True, help="Items of each level."
            ),
            click.option(
                "--world",
                type=click.Choice(["nano", "everyday"]),
                help="The world of the items.  [default: nano for nano, else everyday]",
            ),
            click.option("--split", default="test", show_default=True, help="The split of the items."),
            click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True),
            click.option(
                "--out", type=Folder(path_type=Path, file_okay=False), metavar="DIR",
                help="[default: insight/MODEL-TASK]",
            ),
        ]  # fmt: skip
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.group()
def insight() -> None:
    """Analyse a model: what it knows, plans and draws, its attention, its hidden states.

    All analyses of one folder share one page, insight.html. docs/insight.md says more.

    \b
    Example:
      uni_train insight links -c shipped --task mapping
    """


@insight.command()
@_about(n=50)
@click.option("--k", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Draws of each item.")
@click.option("--settings", type=NAMES, default="", help="said,thought,told,normal,cot  [default: all]")
def links(k: int, settings: tuple[str, ...], **asked: Any) -> None:
    """Know, plan, draw: which link between a question and its image breaks.

    Each item is answered at once, thought out, drawn when told plainly, drawn when asked, and drawn by its thought.
    The same command again continues.

    \b
    Examples:
      uni_train insight links -c shipped --task mapping --level 2
      uni_train insight links -c runs/stars_math/seed0 --task maths --level 1,2,3 --n 100
      uni_train insight links -c checkpoints/BAGEL-7B-MoT --task ureason judge.model=openai/gpt-4o
      uni_train insight links -c http://127.0.0.1:8000/v1#painter --task maths --world nano
    """
    cases, progress = _cases(asked)
    from uni_train.insight import page
    from uni_train.insight.links import Links, found_of

    done = _evaluated(Links(cases, settings), asked, progress, k=k)
    progress.say(f"page: {page.keep(_folder(asked), 'links', found_of(done))}")


@insight.command()
@_about(n=16)
@click.option("--layers", type=RANGE, multiple=True, help="A group of layers, from 1; repeatable.  [default: four]")
@click.option("--tokens", type=RANGE, help="Thought tokens for the influence maps.  [default: the strongest]")
@click.option("--maps", type=click.IntRange(0), default=4, show_default=True, help="Items with influence maps.")
@click.option("--interventions/--no-interventions", default=True, help="Also draw with changed thoughts.")
def attention(
    layers: tuple[tuple[int, int], ...],
    tokens: tuple[int, int] | None,
    maps: int,
    interventions: bool,
    **asked: Any,
) -> None:
    """Where image tokens look: instruction, trace and refined prompt, by layer and noise level.

    With it influence maps of words, and what dropping, repeating, shuffling, blanking or exchanging the thought does.

    \b
    Examples:
      uni_train insight attention -c shipped --task mapping --level 2
      uni_train insight attention -c checkpoints/BAGEL-7B-MoT --task ureason --layers 1-7 --layers 8-28
    """
    cases, progress = _cases(asked)
    from uni_train.insight import page
    from uni_train.insight.attention import observe, with_interventions
    from uni_train.insight.interventions import Interventions

    model, size = _model(asked)
    with progress.bar("attention", len(cases)) as bar:
        found = observe(
            model, cases, seed=asked["seed"], batch=size, maps=maps, layers=layers, tokens=tokens, on_item=bar.advance
        )
    if interventions:
        tampered = _evaluated(Interventions(cases), asked, progress)
        found = with_interventions(found, tampered)
    found |= {"model": model.name, "asked": _asked_of(cases, asked)}
    _say_tables(found, "attention", progress)
    progress.say(f"page: {page.keep(_folder(asked), 'attention', found)}")


@insight.command()
@_about(n=50)
@click.option("--probes/--no-probes", default=True, help="Also linear probes, with shuffled labels as the control.")
def states(probes: bool, **asked: Any) -> None:
    """Hidden states through the language head: at which layer does the answer appear?

    The positions are the question's last word, the markers before an answer and an image, and the image's tokens. The
    items ask for a number of one object.

    \b
    Examples:
      uni_train insight states -c shipped --task mapping --level 2
      uni_train insight states -c checkpoints/BAGEL-7B-MoT --task maths --n 100
    """
    cases, progress = _cases(asked)
    from uni_train.insight import page
    from uni_train.insight.states import labels_of, observe

    for case in cases:
        labels_of(case)  # before the model is loaded
    model, size = _model(asked)
    with progress.bar("states", len(cases)) as bar:
        found = observe(model, cases, seed=asked["seed"], batch=size, probes=probes, on_item=bar.advance)
    found |= {"model": model.name, "asked": _asked_of(cases, asked)}
    _say_tables(found, "states", progress)
    progress.say(f"page: {page.keep(_folder(asked), 'states', found)}")


def _asked_of(cases: list[Case], asked: dict[str, Any]) -> dict[str, Any]:
    return {"sets": ", ".join(dict.fromkeys(case.set for case in cases)), "items": len(cases), "seed": asked["seed"]}


def _model(asked: dict[str, Any]) -> tuple[UnifiedModel, int]:
    """The model itself, whose layers are watched, and how many requests it draws at once."""
    from uni_train.api import build_here
    from uni_train.eval.respondent import is_remote
    from uni_train.models.load import model_config

    if is_remote(asked["checkpoint"]):
        raise UserError("the layers of a remote model cannot be read", "Give its checkpoint.")
    config, keys = model_config(asked["checkpoint"]), _config(asked)
    config = replace(config, sampling=replace(config.sampling, **keys.sampling))
    return build_here(config), keys.batch or min(config.draw_batch, config.think_batch)


def _say_tables(found: dict[str, Any], analysis: str, progress: ConsoleProgress) -> None:
    """The first two tables of an analysis's first section."""
    from importlib import import_module

    from uni_train.eval.report.tables import print_table

    for table in import_module(f"uni_train.insight.{analysis}").sections(found)[0].tables[:2]:
        print_table(table, progress)


_KEYS = ("sampling", "batch", "judge", "remote", "retry_failed")


def _config(asked: dict[str, Any]) -> EvalConfig:
    """The keys that analyses share with `eval`. Raises UsageError for others."""
    from uni_train.config.build import build_section
    from uni_train.config.schema import SamplingConfig

    overrides = overrides_of(asked["words"], {})
    for override in overrides:
        key = override.partition("=")[0].partition(".")[0]
        if key not in _KEYS:
            raise UsageError(f"insight takes no {key} ({override})", did_you_mean(key, _KEYS, "keys"))
    config = config_of([*overrides, f"out={_folder(asked) / 'evals'}"])
    build_section(SamplingConfig, config.sampling)
    return config


def _cases(asked: dict[str, Any]) -> tuple[list[Case], ConsoleProgress]:
    """The items that are asked about, after the checkpoint was seen to be there."""
    _config(asked)
    from uni_train.eval.respondent import fetched, is_remote
    from uni_train.models.checkpoint import expect_there

    if not is_remote(asked["checkpoint"]):
        asked["checkpoint"] = fetched(asked["checkpoint"])
        expect_there(asked["checkpoint"])  # before torch is imported, which takes seconds
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.configured import world_of
    from uni_train.eval.task_benchmark import cases_of_task

    world = asked["world"] or world_of(asked["checkpoint"])
    cases = cases_of_task(
        asked["task"], asked["level"], asked["n"], world=world, split=asked["split"], seed=asked["seed"]
    )
    return cases, ConsoleProgress()


def _folder(asked: dict[str, Any]) -> Path:
    model = Path(asked["checkpoint"]).name or "model"
    return asked["out"] or Path("insight") / f"{model}-{asked['task']}".replace("#", "-")


def _evaluated(benchmark: Benchmark, asked: dict[str, Any], progress: ConsoleProgress, *, k: int = 1) -> Evaluation:
    """Ask and score by the engine of evaluations; tables on the console, samples in the folder's report."""
    import sys
    from dataclasses import replace

    from uni_train.cli.evaluation.running import show
    from uni_train.eval import evaluation as engine
    from uni_train.eval.configured import judge_of
    from uni_train.eval.report.evaluation import not_scored, report_of
    from uni_train.stages.cpu import prepare_cpu

    prepare_cpu("auto")
    config = _config(asked)
    plan = engine.EvaluationPlan(
        checkpoint=asked["checkpoint"],
        benchmarks=[benchmark],
        config=replace(config, seed=asked["seed"], k=k, judge=judge_of(config)),
        command=tuple(sys.argv),
    )
    done = engine.run(plan, progress)
    broken = not_scored(done.results[benchmark.name])
    if broken:
        raise UserError("; ".join(broken), "Leave that setting out with --settings, or ask another model.")
    unjudged = done.results[benchmark.name].unjudged
    if unjudged:
        names = ", ".join(f"{name} ({setting})" for setting, name in unjudged)
        raise UserError(f"no program can check the images of {names}", "Name a judge: judge.model=openai/gpt-4o.")
    show(done, progress, report_of(done))
    return done
