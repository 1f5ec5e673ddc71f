"""`uni_train insight`: what a model knows, plans and draws, where its attention goes, what its states hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uni_train.cli.evaluation.options import Folder, Names
from uni_train.errors import UserError

if TYPE_CHECKING:
    from eval.benchmark import Benchmark, Case
    from eval.evaluation import Evaluation
    from uni_train.cli.progress import ConsoleProgress

F = TypeVar("F", bound=Callable[..., Any])


class Numbers(click.ParamType):
    """1,2,3."""

    name = "N,N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return tuple(int(one) for one in value.split(",") if one.strip())
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers", param, ctx)


def _about(n: int) -> Callable[[F], F]:
    """The options of all analyses: which model, which items."""

    def decorate(command: F) -> F:
        options = [
            click.option("--checkpoint", "-c", required=True, metavar="PATH|NAME", help="A folder, a run, or shipped."),
            click.option("--task", required=True, metavar="NAME", help="mapping, maths, ureason, ... or a plug-in's."),
            click.option("--level", type=Numbers(), default=(), help="Of the task.  [default: the task's]"),
            click.option("--n", type=click.IntRange(1), default=n, show_default=True, help="Draws of each level."),
            click.option(
                "--world",
                type=click.Choice(["nano", "everyday"]),
                help="Of the items.  [default: nano for nano, else everyday]",
            ),
            click.option("--split", default="test", show_default=True, help="Of the task."),
            click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
            click.option("--batch", type=click.IntRange(1), help="Requests at once.  [default: the model's]"),
            click.option("--out", type=Folder(path_type=Path), metavar="DIR", help="[default: insight/MODEL-TASK]"),
        ]
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.group()
def insight() -> None:
    """Look inside a model: what it knows, plans and draws, its attention, its states.

    All analyses of one folder share one page, insight.html. docs/insight.md says more.
    """


@insight.command()
@_about(n=50)
@click.option("--k", type=click.IntRange(1), default=1, show_default=True, help="Draws of each item.")
@click.option("--settings", type=Names(), default="", help="said,thought,told,normal,cot  [default: all]")
@click.option("--judge", metavar="MODEL", help="For images that no program can check: openai/gpt-4o, ...")
@click.option("--judge-base-url", metavar="URL", help="The judge's own OpenAI-compatible server.")
def links(k: int, settings: tuple[str, ...], judge: str | None, judge_base_url: str | None, **asked: Any) -> None:
    """Know, plan, draw: which link between a question and its image breaks.

    Each item is answered at once, thought out, drawn when told plainly, drawn when asked, and drawn by its thought.
    The same command again continues.

    \b
    Examples:
      uni_train insight links -c shipped --task mapping --level 2
      uni_train insight links -c runs/stars_math/seed0 --task maths --level 1,2,3 --n 100
      uni_train insight links -c checkpoints/BAGEL-7B-MoT --task ureason --judge openai/gpt-4o
    """
    cases, progress = _cases(asked)
    from uni_train.insight import page
    from uni_train.insight.links import Links, found_of

    done = _evaluated(Links(cases, settings), asked, progress, k=k, judge=judge, judge_base_url=judge_base_url)
    progress.say(f"page: {page.keep(_folder(asked), 'links', found_of(done))}")


def _cases(asked: dict[str, Any]) -> tuple[list[Case], ConsoleProgress]:
    """The items that are asked about, after the checkpoint was seen to be there."""
    from uni_train.models.recognise import expect_there

    if "://" not in asked["checkpoint"]:
        expect_there(asked["checkpoint"])  # before torch is imported, which takes seconds
    from uni_train.cli.evaluation.plans import world_of
    from uni_train.cli.progress import ConsoleProgress
    from uni_train.insight.questions import cases_of_task

    world = asked["world"] or world_of(asked["checkpoint"])
    cases = cases_of_task(
        asked["task"], asked["level"], asked["n"], world=world, split=asked["split"], seed=asked["seed"]
    )
    return cases, ConsoleProgress()


def _folder(asked: dict[str, Any]) -> Path:
    model = Path(asked["checkpoint"]).name or "model"
    return asked["out"] or Path("insight") / f"{model}-{asked['task']}".replace("#", "-")


def _evaluated(
    benchmark: Benchmark,
    asked: dict[str, Any],
    progress: ConsoleProgress,
    *,
    k: int = 1,
    judge: str | None = None,
    judge_base_url: str | None = None,
) -> Evaluation:
    """Ask and score by the engine of evaluations; tables on the console, samples in the folder's report."""
    import sys

    from eval import evaluation as engine
    from eval.judges import JudgeConfig
    from eval.report.evaluation import not_scored, report_of
    from uni_train.cli.evaluation.running import show
    from uni_train.models.base import SkillMissing
    from uni_train.stages.cpu import prepare_cpu

    prepare_cpu("auto")
    plan = engine.EvaluationPlan(
        checkpoint=asked["checkpoint"],
        benchmarks=[benchmark],
        seed=asked["seed"],
        k=k,
        judge=JudgeConfig(judge, base_url=judge_base_url) if judge else None,
        batch=asked["batch"],
        out=_folder(asked) / "evals",
        command=tuple(sys.argv),
    )
    try:
        done = engine.run(plan, progress)
    except SkillMissing as error:
        raise UserError(error.message, "Leave those settings out with --settings, or choose another model.") from error
    broken = not_scored(done.results[benchmark.name])
    if broken:
        raise UserError("; ".join(broken), "Leave that setting out with --settings, or ask another model.")
    unjudged = done.results[benchmark.name].unjudged
    if unjudged:
        names = ", ".join(f"{name} ({setting})" for setting, name in unjudged)
        raise UserError(f"no program can check the images of {names}", "Name a judge with --judge MODEL.")
    show(done, progress)
    progress.say(f"samples: {report_of(done)}")
    return done
