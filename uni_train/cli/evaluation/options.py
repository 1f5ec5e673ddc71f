"""What can be typed after `uni_train eval`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from uni_train.cli.numbers import NAMES, Finite, Parsed
from uni_train.errors import UsageError, did_you_mean

PROJECT = "uni_train"
F = TypeVar("F", bound=Callable[..., Any])
REMOTE = (
    click.option(
        "--connections", type=click.IntRange(1, 1_000), default=8, show_default=True, help="To a remote model."
    ),
    click.option("--key-env", metavar="NAME", help="Environment variable with the remote model's key."),
    click.option("--revision", default="", metavar="TEXT", help="What is behind a remote model's name."),
)
"""How an endpoint is asked."""


def _pairs(text: str) -> dict[str, float]:
    return {name.strip(): float(x) for name, _, x in (one.partition("=") for one in text.split(","))}


def _price(text: str) -> tuple[float, float]:
    read, written = (float(x) for x in text.split(","))
    if not (0 <= read < math.inf and 0 <= written < math.inf):
        raise ValueError
    return read, written


PAIRS = Parsed("NAME=X", _pairs, "NAME=NUMBER,NAME=NUMBER")
PRICE = Parsed("IN,OUT", _price, "two numbers: dollars a million tokens read, and written")


class Folder(click.Path):
    """A path with letters: the empty one would mean the folder in which the command was typed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; give the name of a folder", param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of `eval` and `watch`, as typed; see their help."""

    benchmark: tuple[str, ...]
    data: tuple[str, ...]
    world: str | None
    n: int
    split: str
    sets: tuple[str, ...]
    settings: tuple[str, ...]
    subset: int | None
    k: int
    seed: int
    option: tuple[str, ...]
    compat: str
    verifier: str
    sampling: tuple[str, ...]
    batch: int | None
    connections: int
    key_env: str | None
    revision: str
    retry_failed: bool
    judge: str
    judge_base_url: str | None
    judge_dialect: str
    judge_way: str
    judge_draws: int
    judge_temperature: float | None
    small_judge: tuple[str, ...]
    small_way: str
    small_sure: float
    judge_key_env: str | None
    judge_revision: str
    judge_connections: int
    judge_max_tokens: int
    judge_timeout: float
    judge_price: tuple[float, float] | None
    judge_cost_limit: float | None
    out: Path | None
    store: Path | None
    logger: str
    project: str
    group: str | None


def _describe(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    """What a benchmark is, its sets and options; then the command ends."""
    if name is None or context.resilient_parsing:
        return
    import inspect

    from uni_train.eval.benchmark import BENCHMARKS

    known = BENCHMARKS.names()
    if name not in known:
        raise UsageError(f"there is no benchmark {name}", did_you_mean(name, known, "benchmarks"))
    kind = BENCHMARKS.get(name)
    click.echo(f"{name}: {(inspect.getdoc(kind) or '').partition(chr(10))[0]}\n")
    click.echo(f"--sets {','.join(kind.known_sets)}")
    for one in kind.options:
        default = ",".join(one.default) if isinstance(one.default, tuple) else one.default
        shown = f" ({', '.join(one.choices)})" if one.choices else ""
        click.echo(f"--option {name}.{one.key}={default}\n    {one.help}{shown}")
    context.exit()


def evaluation_options(command: F) -> F:
    """The options that `eval` and `watch` share; a command takes them as keywords, for `Asked(**keywords)`."""
    options = [
        click.option(
            "--benchmark", "-b", type=NAMES, default="unisandbox", show_default=True, help="unisandbox,ureason; all"
        ),
        click.option("--data", multiple=True, metavar="[NAME=]DIR", help="Published files of a benchmark; repeatable."),
        click.option(
            "--world",
            type=click.Choice(["nano", "everyday"]),
            help="Of questions of our own, without --data.  [default: nano for nano, else everyday]",
        ),
        click.option(
            "--n", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Questions of our own a set."
        ),
        click.option("--split", type=click.Choice(["test", "validation", "train"]), default="test", show_default=True),
        click.option("--sets", type=NAMES, default="", help="Which sets (math1, spatial, ...).  [default: all]"),
        click.option("--settings", type=NAMES, default="", help="normal,cot; direct,...  [default: all]"),
        click.option("--subset", type=click.IntRange(1), metavar="N", help="About N cases of each benchmark."),
        click.option("--k", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Draws of each case."),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**63 - 1),
            default=0,
            show_default=True,
            help="Of the draws and the subset.",
        ),
        click.option(
            "--option", multiple=True, metavar="NAME.KEY=VALUE", help="Of one benchmark; repeatable: --help-benchmark."
        ),
        click.option(
            "--help-benchmark",
            metavar="NAME",
            is_eager=True,
            expose_value=False,
            callback=_describe,
            help="Its sets and options.",
        ),
        click.option(
            "--compat",
            type=click.Choice(["paper", "official"]),
            default="paper",
            show_default=True,
            help="Where paper and published code differ.",
        ),
        click.option(
            "--verifier",
            type=click.Choice(["program", "judge"]),
            default="program",
            show_default=True,
            help="Who scores what a program could.",
        ),
        click.option("--sampling", multiple=True, metavar="KEY=VALUE", help="Replaces the model's own; repeatable."),
        click.option(
            "--batch", type=click.IntRange(1, 65_536), metavar="N", help="Requests at once.  [default: the model's]"
        ),
        *REMOTE,
        click.option("--retry-failed", is_flag=True, help="Make calls again that brought no answer."),
        click.option("--judge", default="none", show_default=True, metavar="none|MODEL,...", help="openai/gpt-4o, ..."),
        click.option("--judge-base-url", metavar="URL", help="The judge's own OpenAI-compatible server."),
        click.option("--judge-dialect", type=click.Choice(["paper", "nano"]), default="paper", show_default=True),
        click.option(
            "--judge-way",
            type=click.Choice(["published", "binary", "chain_of_thought", "majority", "confidence", "tournament"]),
            default="published",
            show_default=True,
            help="How it is asked: docs/judges.md.",
        ),
        click.option(
            "--judge-draws",
            type=click.IntRange(1, 1_000),
            default=5,
            show_default=True,
            metavar="N",
            help="Of majority and confidence.",
        ),
        click.option(
            "--judge-temperature", type=Finite(0), metavar="X", help="[default: 0; 0.7 of majority and confidence]"
        ),
        click.option(
            "--small-judge",
            multiple=True,
            metavar="URL#MODEL|NAME",
            help="Asked first; --judge only where these differ or are unsure. Repeatable.",
        ),
        click.option(
            "--small-way",
            type=click.Choice(["published", "binary", "chain_of_thought", "majority", "confidence"]),
            default="published",
            show_default=True,
        ),
        click.option(
            "--small-sure", type=Finite(0, 1), default=0.8, show_default=True, help="The least confidence that settles."
        ),
        click.option("--judge-key-env", metavar="NAME", help="Environment variable with the judge's key."),
        click.option("--judge-revision", default="", metavar="TEXT", help="What is behind the judge's name."),
        click.option("--judge-connections", type=click.IntRange(1, 1_000), default=16, show_default=True, metavar="N"),
        click.option(
            "--judge-max-tokens", type=click.IntRange(1, 1_048_576), default=1024, show_default=True, metavar="N"
        ),
        click.option("--judge-timeout", type=Finite(0.1), default=120.0, show_default=True, metavar="SECONDS"),
        click.option("--judge-price", type=PRICE, help="Dollars a million tokens, read and written."),
        click.option("--judge-cost-limit", type=Finite(0), metavar="DOLLARS", help="Stop judging there."),
        click.option("--out", type=Folder(path_type=Path), metavar="DIR", help="[default: evals]"),
        click.option(
            "--store", type=Folder(path_type=Path), metavar="DIR", help="Finished calls.  [default: OUT/store]"
        ),
        click.option("--logger", type=click.Choice(["none", "wandb"]), default="none", show_default=True),
        click.option("--project", default=PROJECT, show_default=True, help="W&B project, where no run says it."),
        click.option("--group", metavar="NAME", help="W&B group.  [default: the training run's]"),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def child_arguments(asked: Asked) -> list[str]:
    """The options as another process is given them (`watch`)."""
    found: list[str] = []
    for field in fields(Asked):
        value, name = getattr(asked, field.name), f"--{field.name.replace('_', '-')}"
        if value is None or value is False or value in ((), ""):
            continue
        if value is True:
            found.append(name)
        elif field.name in ("data", "sampling", "option", "small_judge"):
            found += [part for one in value for part in (name, one)]
        elif isinstance(value, tuple):
            found += [name, ",".join(map(str, value))]
        else:
            found += [name, str(value)]
    return found
