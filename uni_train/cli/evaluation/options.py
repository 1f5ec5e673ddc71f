"""What can be typed after `eval`, `watch` and `insight`: KEY=VALUE, and options that are other spellings of keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from typing import Any, TypeVar

import click

from uni_train.cli.commands import completer
from uni_train.console.terminal import echo
from uni_train.core.errors import UsageError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
_KEY = re.compile(r"[A-Za-z_]\w*(\.\w+)*=")


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


class Alias(click.Option):
    """An option that is another spelling of a key, which describes it.

    Args:
        section: the class in `uni_train.config.schema` that has the key of the option's name.
    """

    help = property(lambda self: _description(self._section, self.name), lambda self, _: None)  # type: ignore[assignment]

    def __init__(self, *declared: Any, section: str, **attributes: Any) -> None:
        self._section = section
        super().__init__(*declared, **attributes)


@cache
def _described(section: str) -> dict[str, str]:
    from uni_train.config.places import section_of
    from uni_train.config.reference import keys

    section_keys = keys(section_of(section), nested=False)  # of all sections it takes a quarter of a second
    return {key.name: f"{key.name}={key.default}: {key.meaning}." for key in section_keys}


def _description(section: str, key: str) -> str:
    return _described(section)[key].replace(": .", "").replace("=required", "")


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
    if kind.optional_settings:
        echo(f"settings: also {', '.join(kind.optional_settings)}, asked where they are named")
    for option in kind.options:
        default = f"[{','.join(option.default)}]" if isinstance(option.default, tuple) else option.default
        shown = f" ({', '.join(option.choices)})" if option.choices else ""
        echo(f"options.{name}.{option.key}={default}\n    {option.help}{shown}")
    context.exit()


EVAL = {
    "benchmarks": "--benchmark -b",
    "sets": "--sets",
    "settings": "--settings",
    "subset": "--subset",
    "n": "--n",
    "k": "--k",
    "seed": "--seed",
    "weights": "--weights",
    "out": "--out",
}
"""Key of `eval` -> the options that set it."""
_LISTS = ("benchmarks", "sets", "settings", "level", "layers")
_FLAGS = ("interventions", "probes")


def keys_of(section: str, options: Mapping[str, str], words: str = "[KEY=VALUE]...") -> Callable[[F], F]:
    """Adds the words of a command, and options for some keys of a section, which `overrides_of` takes."""

    def decorate(command: F) -> F:
        for key, flags in reversed(list(options.items())):
            attributes: dict[str, Any] = {"multiple": key in _LISTS, "metavar": "VALUE"}
            if key in _FLAGS:
                attributes = {"default": None, "is_flag": True}
            complete = completer("values", section, key)
            option = click.option(
                *flags.split(), key, cls=Alias, section=section, shell_complete=complete, **attributes
            )
            command = option(command)
        argument = click.argument(
            "words", cls=Words, nargs=-1, metavar=words, shell_complete=completer("words", section)
        )
        return argument(command)

    return decorate


def checkpoint_option(command: F) -> F:
    """Adds --checkpoint; `checkpoint_of` takes it, or the first word."""
    option = click.option(
        "--checkpoint", "-c", metavar="PATH|NAME|URL#MODEL", shell_complete=completer("models"),
        help="The same as CHECKPOINT: a folder, a run, a step of it, shipped, a remote model, or a folder of answers.",
    )  # fmt: skip
    return option(command)


def evaluation_options(words: str = "[KEY=VALUE]...") -> Callable[[F], F]:
    """Adds the words and options of `eval`."""
    options = [
        keys_of("schema.EvalConfig", EVAL, words),
        click.option(
            "--help-benchmark", metavar="NAME", is_eager=True, expose_value=False, callback=_describe,
            shell_complete=completer("benchmarks"), help="Print a benchmark's sets and options, and stop.",
        ),
    ]  # fmt: skip
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def checkpoint_of(checkpoint: str | None, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The checkpoint, and the words that are left. Raises UsageError: there is none."""
    if checkpoint is None and words and not is_key(words[0]):
        checkpoint, words = words[0], words[1:]
    if checkpoint is None:
        raise UsageError("the checkpoint is missing", "Name a folder, a run, shipped, or URL#MODEL.")
    return checkpoint, words


def overrides_of(words: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """KEY=VALUE of the options and the words. Raises UsageError for a word that is none."""
    assignments = []
    for key, value in options.items():
        if value is not None and value != ():
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            assignments.append(f"{key}={text.lower() if isinstance(value, bool) else text}")
    for word in words:
        if not _KEY.match(word):
            raise UsageError(f"{word!r:.80} is no KEY=VALUE", "Such as subset=60 or judge.model=openai/gpt-4o.")
    return [*assignments, *words]


def config_of(overrides: Sequence[str], section: str = "schema.EvalConfig") -> Any:
    """The checked section."""
    from uni_train.config.compose import compose_section
    from uni_train.config.places import section_of

    return compose_section(section_of(section), overrides)


def is_key(word: str) -> bool:
    """Whether a word is KEY=VALUE and no path such as .../step=00000100."""
    return _KEY.match(word) is not None
