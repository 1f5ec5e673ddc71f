"""Registries of named things (tasks, models, rewards, ...), ours and those of plug-ins.

A registry is made once for each kind of thing, and fills itself when it is asked:

    TASKS = Registry[type[Task]]("task", "uni_train.data_gen.*.task", required=("sample", "verify"))
    task = TASKS.register

    @task("mapping")                     # in data_gen/mapping/task.py
    class Mapping(Task): ...

    TASKS.get("mapping")                 # the class; get_task("mapping", "nano") is one that draws

A registry finds built-in things by their place, so a new one is a new file. By "data_gen.*.task", the module
`data_gen.mapping.task` registers the task "mapping". It is imported when "mapping" is asked for and not before. Other
packages are plug-ins: modules that register things when they are imported. Installed packages name them as entry points
of the group `uni_train.plugins`. The environment variable UNI_TRAIN_PLUGINS names others, separated by commas, and so
does a recipe (`load_plugins`). Nothing is imported before the first look-up: `--help` needs no plug-in. The config.yaml
of a run names nothing: somebody else may have written it (`expect_named`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from uni_train.core.errors import PLUGINS, DataError, described, nearest_or_all

GROUP = "uni_train.plugins"  # of entry points
ENVIRONMENT = "UNI_TRAIN_PLUGINS"  # worker processes read from it what a recipe has named

T = TypeVar("T")
V = TypeVar("V")


class UnknownNameError(DataError):
    """A name that nothing is registered under; the message says the nearest one."""


class PluginError(DataError):
    """A plug-in that cannot be used; the message names the package and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    value: T
    module: str  # that registered it

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        noun: what one of them is called in errors ("task").
        built_in: where ours are: a pattern with one star, which is the name ("data_gen.*.task", "eval.benchmarks.*").
            Or name -> module, which registers that name when it is imported.
        required: attributes that each of them must have. An abstract method does not count as one.
        named: attributes that are the name where they are missing or empty.
    """

    def __init__(
        self, noun: str, built_in: str | Mapping[str, str], required: Sequence[str] = (), named: Sequence[str] = ()
    ) -> None:
        self.noun, self.named = noun, named
        self.required = tuple(required)
        self._built_in = built_in
        self._entries: dict[str, _Entry[T]] = {}

    def register(self, name: str) -> Callable[[V], V]:
        """A decorator that makes a class, a function or an object known under `name`.

        Raises:
            PluginError: the name is taken, or the thing lacks something that is required.
        """
        module = str(sys._getframe(1).f_globals["__name__"])

        def keep(value: V) -> V:
            entry: _Entry[Any] = _Entry(value, module)
            owner = self._owner(name, entry)
            if owner is not None:
                raise PluginError(
                    f'{entry.package} ({module}) registers the {self.noun} "{name}", a name that {owner} has taken: '
                    "choose another"
                )
            for attribute in self.named:
                if not getattr(value, attribute, ""):
                    setattr(value, attribute, name)
            missing = [attribute for attribute in self.required if _lacks(value, attribute)]
            if missing:
                raise PluginError(f'{entry.package} ({module}): the {self.noun} "{name}" has no {", ".join(missing)}')
            self._entries[name] = entry
            return value

        return keep

    def get(self, name: str) -> T:
        """What is registered under `name`.

        Raises:
            UnknownNameError: nothing is.
            PluginError: an installed plug-in cannot be used.
        """
        load_plugins()
        if name not in self._entries and name in self._homes:
            importlib.import_module(self._homes[name])
        if name not in self._entries:
            raise UnknownNameError(f'there is no {self.noun} "{name}": {nearest_or_all(name, self.names())}')
        return self._entries[name].value

    def names(self) -> tuple[str, ...]:
        """All names: ours, none of which is imported for that, then those of plug-ins.

        Raises:
            PluginError: an installed plug-in cannot be used.
        """
        load_plugins()
        return tuple(dict.fromkeys([*self._homes, *self._entries]))

    def package_of(self, name: str) -> str:
        """The package that registered `name`: "data_gen", "my_package"."""
        self.get(name)
        return self._entries[name].package

    def _owner(self, name: str, entry: _Entry[Any]) -> str | None:
        """The package that has `name` already. A module that is imported once more takes its own name again."""
        home = self._homes.get(name)
        if home is not None and not f"{entry.module}.".startswith(f"{home}."):
            return home.partition(".")[0]
        known = self._entries.get(name)
        if known is None or (known.module, _called(known.value)) == (entry.module, _called(entry.value)):
            return None
        return known.package

    @cached_property
    def _homes(self) -> dict[str, str]:
        """Name -> module of what is built in."""
        if not isinstance(self._built_in, str):
            return dict(self._built_in)
        package, _, inner = self._built_in.partition(".*")
        spec = importlib.util.find_spec(package)
        homes = {}
        for folder in (spec.submodule_search_locations if spec is not None else None) or ():
            for module in pkgutil.iter_modules([folder]):
                file = Path(folder, module.name, *inner[1:].split(".")).with_suffix(".py")
                if not module.name.startswith("_") and (not inner or file.is_file()):
                    homes[module.name] = f"{package}.{module.name}{inner}"
        return homes


def _called(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _lacks(value: Any, attribute: str) -> bool:
    if not hasattr(value, attribute):
        return True
    return bool(getattr(getattr(value, attribute), "__isabstractmethod__", False))


# ------------------------------------------------------------------------------------------------------------ plug-ins

_installed: list[bool] = []  # [True] once the entry points have been imported
_named: set[str] = set()  # modules and files of code that somebody has named on this machine


def load_plugins(modules: Iterable[str] = ()) -> None:
    """Import the installed plug-ins and `modules`, each once in a process and in its worker processes.

    Args:
        modules: named by who runs this: in a recipe, on the command line or in Python.

    Raises:
        PluginError: a module cannot be imported, registers a name that is taken, or a thing that lacks something.
    """
    modules = tuple(modules)
    if not _installed:
        _installed.append(True)  # before the imports: a plug-in may look something up itself
        try:
            from importlib.metadata import entry_points  # not at the top: it takes long to import

            for entry in entry_points(group=GROUP):
                _import(entry.module, f"{entry.dist.name}, an installed package" if entry.dist is not None else "")
                _named.add(entry.module)
            _load_named(filter(None, os.environ.get(ENVIRONMENT, "").split(",")), f"named in {ENVIRONMENT}")
        except PluginError:
            _installed.clear()
            raise
    if modules:
        _load_named(modules, "named in the recipe")
        os.environ[ENVIRONMENT] = ",".join(sorted(_named))


def _load_named(modules: Iterable[str], why: str) -> None:
    for module in modules:
        if module not in _named:
            if "/" not in module and not module.endswith(".py"):  # else a reward's file or interpreter, for later
                _import(module, why)
            _named.add(module)


def expect_named(code: Iterable[str], file: Path) -> None:
    """The one gate of code that a file names which somebody else may have written; nothing is imported for the file.

    Args:
        code: modules, or paths of Python files.

    Raises:
        PluginError: one is neither installed as a plug-in, nor named in the environment or by the recipe in use.
    """
    load_plugins()
    if unnamed := [place for place in dict.fromkeys(code) if place not in _named]:
        known = filter(None, os.environ.get(ENVIRONMENT, "").split(","))
        words = shlex.quote(",".join(dict.fromkeys([*known, *unnamed])))
        raise PluginError(
            f"{file} asks for the code of {', '.join(map(repr, unnamed))}, which is not run unless you name it. If you "
            f"trust it: {ENVIRONMENT}={words} python -m uni_train ..."
        )


def _import(module: str, why: str) -> None:
    PLUGINS.add(module.partition(".")[0])
    try:
        importlib.import_module(module)
    except PluginError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            hint = f"install it, or name the folder that holds it in PYTHONPATH ({error})"
            raise PluginError(f"there is no plug-in {module} ({why}): {hint}") from error
        raise _broken(module, why, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(module, why, error) from error


def _broken(module: str, why: str, error: BaseException) -> PluginError:
    return PluginError(f"the plug-in {module} ({why}) cannot be imported: {described(error)}")
