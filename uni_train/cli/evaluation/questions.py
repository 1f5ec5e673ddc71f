"""`uni_train eval questions`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from uni_train.cli.evaluation.options import config_of, evaluation_options, overrides_of


@click.command("questions")
@evaluation_options()
def questions(words: tuple[str, ...], **options: Any) -> None:
    """Write a benchmark's questions, for a system that is asked elsewhere; `eval FOLDER` scores its answers.

    BENCHMARK/questions.jsonl below --out has a row an answer: id, setting, prompt, images, k, seed. Write the answers
    beside it, in manifest.jsonl: the same id, setting and k, with image, images or text.

    \b
    Example:
      uni_train eval questions -b ureason --subset 60 --out answers
      uni_train eval answers -b ureason --subset 60
    """
    from uni_train.console.progress import ConsoleProgress
    from uni_train.eval.answers import questions_of
    from uni_train.eval.configured import plan_of
    from uni_train.eval.submission import write_submission

    options["out"] = options["out"] or "answers"
    config = config_of(overrides_of(words, options))
    plan = plan_of(config.out, replace(config, world=config.world or "everyday"))
    progress = ConsoleProgress()
    for benchmark in plan.benchmarks:
        _, _, asks = plan.asks(benchmark)
        folder = Path(config.out) / benchmark.name
        write_submission(folder, questions_of(benchmark, asks))
        progress.say(f"{benchmark.name}: {folder / 'questions.jsonl'}; answers go into {folder / 'manifest.jsonl'}")
    progress.say(f"then: uni_train eval {config.out} with the same options")
