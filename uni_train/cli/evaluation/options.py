"""What can be typed after `eval`, `watch` and `eval calibrate`: KEY=VALUE, and options for the keys that all use."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from uni_train.console.terminal import echo
from uni_train.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from uni_train.config.schema import EvalConfig

F = TypeVar("F", bound=Callable[..., Any])
_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)*=")
_LISTS = ("benchmarks", "sets", "settings")


class Folder(click.Path):
    """A path with letters: the empty one would mean the folder in which the command was typed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; give the name of a folder", param, ctx)
        return super().convert(value, param, ctx)


class Words(click.Argument):
    """Words of a command, which the usage of its own commands leaves out."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return super().get_usage_pieces(ctx) if self in ctx.command.params else []


def complete_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Keys of `eval` for the shell."""
    from uni_train.config.reference import keys
    from uni_train.config.schema import EvalConfig

    return [f"{key.name}=" for key in keys(EvalConfig) if key.name.startswith(incomplete) and "[" not in key.name]


def complete_benchmarks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of benchmarks for the shell, after a comma too."""
    from uni_train.eval.benchmark import BENCHMARKS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in (*BENCHMARKS.names(), "all") if name.startswith(last)]


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
    echo(f"{name}: {(inspect.getdoc(kind) or '').partition(chr(10))[0]}\n")
    echo(f"sets=[{','.join(kind.known_sets)}]")
    for option in kind.options:
        default = f"[{','.join(option.default)}]" if isinstance(option.default, tuple) else option.default
        shown = f" ({', '.join(option.choices)})" if option.choices else ""
        echo(f"options.{name}.{option.key}={default}\n    {option.help}{shown}")
    context.exit()


def evaluation_options(command: F) -> F:
    """Adds the options, which `config_of` takes as keywords, and the words beside them."""
    options = [
        click.argument("words", cls=Words, nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_keys),
        click.option(
            "--benchmark", "-b", "benchmarks", metavar="NAME,...", shell_complete=complete_benchmarks,
            help="The benchmarks; all for every one.  [default: unisandbox]",
        ),
        click.option("--sets", metavar="NAME,...", help="Only these sets of them.  [default: all]"),
        click.option("--settings", metavar="NAME,...", help="Only these settings, such as normal,cot.  [default: all]"),
        click.option("--subset", "--limit", metavar="N", help="About N cases of a benchmark in all.  [default: all]"),
        click.option("--n", metavar="N", help="Generated questions of each set.  [default: 100]"),
        click.option("--k", metavar="N", help="Draws of each case.  [default: 1]"),
        click.option("--seed", metavar="N", help="The seed of the draws and the subset.  [default: 0]"),
        click.option("--out", "--output_path", metavar="DIR", help="The folder of evaluations.  [default: evals]"),
        click.option(
            "--log_samples", is_flag=True, expose_value=False,
            help="As lmms-eval has it: samples are always stored, below OUT/NAME/scored.",
        ),
        click.option(
            "--help-benchmark", metavar="NAME", is_eager=True, expose_value=False, callback=_describe,
            help="Print a benchmark's sets and options, and stop.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def overrides_of(words: Sequence[str], options: dict[str, str | None]) -> list[str]:
    """KEY=VALUE of the options and the words. Raises UsageError for a word that is none."""
    found = []
    for key, value in options.items():
        if value is not None:
            found.append(f"{key}=[{value}]" if key in _LISTS else f"{key}={value}")
    for word in words:
        if not _KEY.match(word):
            raise UsageError(f"{word!r:.80} is no KEY=VALUE", "Such as subset=60 or judge.model=openai/gpt-4o.")
    return [*found, *words]


def config_of(overrides: Sequence[str]) -> EvalConfig:
    """The checked section."""
    from uni_train.config.compose import compose_section
    from uni_train.config.schema import EvalConfig

    return compose_section(EvalConfig, overrides)


def is_key(word: str) -> bool:
    """Whether a word is KEY=VALUE and no path such as .../step=00000100."""
    return _KEY.match(word) is not None
