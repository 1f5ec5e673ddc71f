"""`uni_train eval questions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uni_train.cli.evaluation.options import Folder, config_of, evaluation_options, overrides_of
from uni_train.core.errors import UsageError, UserError

if TYPE_CHECKING:
    from uni_train.eval.benchmark import Ask, Benchmark


@click.command("questions")
@evaluation_options()
@click.option(
    "--from", "answers", type=Folder(file_okay=False, path_type=Path), metavar="FOLDER",
    help="A folder of answers: write the questions that depend on them, such as an image from a thought.",
)  # fmt: skip
@click.option(
    "--references", is_flag=True, help="Write the benchmark's own reference answers in the place of questions."
)
def questions(words: tuple[str, ...], answers: Path | None, references: bool, **options: Any) -> None:
    """Write a benchmark's requests, for a system that is asked elsewhere; `eval FOLDER` scores its answers.

    BENCHMARK/questions.jsonl below --out has a row a request: id, setting, k, step, seed, prompt, images, and the kind
    of its reply. Write the answers beside it, in manifest.jsonl: the same id, setting, k and step, with thought, text,
    image or images. What depends on them is written by the same command with --from.

    \b
    Example:
      uni_train eval questions -b ureason --subset 60 --out answers
      uni_train eval questions -b ureason --subset 60 --from answers
      uni_train eval answers -b ureason --subset 60
      uni_train eval questions -b ueval data.ueval=FOLDER --references --out reference
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.answers import FolderAnswers
    from uni_train.eval.configured import plan_of
    from uni_train.eval.passage import Passage, questions_of
    from uni_train.eval.respondent import OF_WEIGHTS, expect_unset
    from uni_train.eval.submission import write_submission
    from uni_train.models.dialects import THINK_THEN_DRAW

    if answers is not None and not answers.is_dir():
        raise UserError(f"{answers} is no folder", "Name the one that --out named, or where the answers are.")
    if references and answers is not None:
        raise UsageError("--references asks nothing, so --from has no answers to add", "Leave one of them out.")
    options["out"] = options["out"] or ("reference" if references else str(answers or "answers"))
    config = config_of(overrides_of(words, options))
    expect_unset(config, (*OF_WEIGHTS, "redraw", "text_model"), "eval questions asks no model, but writes its requests")
    plan = plan_of(config.out, replace(config, world=config.world or "everyday"))
    progress = ConsoleProgress()
    system, questions_left = config.remote.think_system or THINK_THEN_DRAW, 0
    answered = None if answers is None else FolderAnswers(answers, progress.say)
    for benchmark in plan.benchmarks:
        _, _, asks = plan.asks(benchmark)
        folder = Path(config.out) / benchmark.name
        if references:
            _write_references(benchmark, asks, folder, progress.say)
            continue
        waiting = answered.waiting(benchmark, asks) if answered else Passage(benchmark, asks, {}, folder).waiting
        write_submission(folder, questions_of(waiting, system))
        questions_left += len(waiting)
        if waiting:
            progress.say(f"{benchmark.name}: {folder / 'questions.jsonl'}; answers go into {folder / 'manifest.jsonl'}")
    if references:
        progress.say(f"score them: uni_train eval {config.out} with the same options, without --references")
        return
    if questions_left:
        progress.say(f"then: uni_train eval questions --from {config.out} with the same options, until it asks nothing")
    now = "at last" if questions_left else "nothing is left to ask"
    progress.say(f"{now}: uni_train eval {config.out} with the same options")


def _write_references(benchmark: Benchmark, asks: Sequence[Ask], folder: Path, say: Callable[[str], None]) -> None:
    """The references of these asks below `folder`; those that there are not, or lack a part, are counted and named."""
    from uni_train.eval.answers import FolderAnswers
    from uni_train.eval.references import reference_answers
    from uni_train.eval.submission import write_submission

    if (folder / "manifest.jsonl").exists():
        raise UserError(f"{folder / 'manifest.jsonl'} holds answers already", "Remove it, or give another --out.")
    write_submission(folder, reference_answers(benchmark, asks))
    samples = FolderAnswers(folder, say).respond(benchmark, asks)
    for note in sorted({sample.note for sample in samples if sample.status == "no_skill"}):
        say(note)
